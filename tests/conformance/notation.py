"""Evaluates lazuli's notation with PyTorch, NumPy or JAX, so that one text is both the test and its reference.

The notation is close to Python: declarations (`x:f32[2,3]`) become plain names, bare words become strings,
`true`, `inf`, `i32` and their like become values, and `a.f(b)` becomes `f(a, b)`. What remains is run by Python.
"""

import ast
import math
import re

import numpy as np
import torch
import torch.nn.functional as F

DTYPES = {
    "bool": torch.bool,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
    "u16": torch.uint16,
    "u32": torch.uint32,
    "u64": torch.uint64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
}
DTYPE_NAMES = {v: k for k, v in DTYPES.items()}
NUMPY_DTYPES = {
    "bool": np.bool_,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
}
FLOATS = ("f16", "bf16", "f32", "f64")
WORDS = {"true": True, "false": False, "inf": math.inf, "nan": math.nan}

_DECLARATION = re.compile(r"\b([A-Za-z_]\w*):(" + "|".join(DTYPES) + r")\[([0-9, ]*)\]")


def declarations(text):
    """The inputs of a text in the order of their first mention: {name: (dtype, shape)}."""
    found = {}
    for name, dtype, dims in _DECLARATION.findall(text):
        found[name] = (dtype, tuple(int(d) for d in dims.split(",") if d.strip()))
    return found


def declare(name, dtype, shape):
    """The text that declares an input."""
    return f"{name}:{dtype}[{','.join(map(str, shape))}]"


class _ToPython(ast.NodeTransformer):
    """Turns calls into `_call(name, ...)` and bare words into values or strings."""

    def __init__(self, names):
        self.names = set(names)

    def visit_Call(self, node):
        args = [self.visit(a) for a in node.args]
        keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        if isinstance(node.func, ast.Attribute):
            args.insert(0, self.visit(node.func.value))
            name = node.func.attr
        else:
            name = node.func.id
        if name == "vmap":  # the body is evaluated for each row of the arguments
            names = [ast.arg(a.id) for a in node.args[1:]]
            args[0] = ast.Lambda(ast.arguments([], names, None, [], [], None, []), args[0])
        return ast.Call(ast.Name("_call", ast.Load()), [ast.Constant(name), *args], keywords)

    def visit_Assign(self, node):
        node.value = self.visit(node.value)
        self.names.add(node.targets[0].id)
        return node

    def visit_Name(self, node):
        if node.id in self.names:
            return node
        if node.id in DTYPES:
            return ast.Call(ast.Name("_dtype", ast.Load()), [ast.Constant(node.id)], [])
        return ast.Constant(WORDS.get(node.id, node.id))


def run(text, bindings, call, dtype):
    """Evaluates `text` with `bindings` ({name: array}); `call(name, *args, **kwargs)` makes every call."""
    tree = ast.parse(_DECLARATION.sub(r"\1", text).strip())
    tree = ast.fix_missing_locations(_ToPython(bindings).visit(tree))
    scope = dict(bindings, _call=call, _dtype=dtype)
    *statements, last = tree.body
    exec(compile(ast.Module(statements, []), "notation", "exec"), scope)
    return eval(compile(ast.Expression(last.value), "notation", "eval"), scope)


# --- PyTorch -------------------------------------------------------------------------------------------------------


def _grad(y, *xs):
    grads = torch.autograd.grad(y, xs, create_graph=y.requires_grad, allow_unused=True)
    grads = tuple(torch.zeros_like(x) if g is None else g for g, x in zip(grads, xs))
    return grads[0] if len(grads) == 1 else grads


def _value_and_grad(y, *xs):
    grads = _grad(y, *xs)
    return (y, *grads) if isinstance(grads, tuple) else (y, grads)


def _listed(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _one_or_tuple(grads):
    return grads[0] if len(grads) == 1 else tuple(grads)


def _vjp(y, x, v):
    return _one_or_tuple(
        torch.autograd.grad(_listed(y), _listed(x), _listed(v), create_graph=True, materialize_grads=True)
    )


def _jvp(y, x, tangents):
    """The vjp is linear in its cotangent; its own vjp is the jvp."""
    cotangent = torch.zeros_like(y, requires_grad=True)
    back = torch.autograd.grad(y, _listed(x), cotangent, create_graph=True, materialize_grads=True)
    return torch.autograd.grad(back, cotangent, _listed(tangents), create_graph=True, materialize_grads=True)[
        0
    ]


def _vmap(body, *batches):
    """One example after the other, stacked."""
    results = [body(*rows) for rows in zip(*batches)]
    if isinstance(results[0], tuple):
        return tuple(torch.stack(r) for r in zip(*results))
    return torch.stack(results)


# Where the notation's meaning is not what the search below would find first.
TORCH_OVERRIDES = {
    "grad": _grad,
    "value_and_grad": _value_and_grad,
    "vjp": _vjp,
    "jvp": _jvp,
    "vmap": _vmap,
    "unfold": torch.Tensor.unfold,
    "swish": F.silu,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "bitcast": lambda x, dtype: x.view(dtype),
    "lshift": torch.bitwise_left_shift,
    "rshift": torch.bitwise_right_shift,
    "isnan": torch.isnan,
    "linear": F.linear,
    "view": torch.Tensor.view,
}


def torch_call(name, *args, **kwargs):
    """Calls a PyTorch function by the notation's rule: functional, then torch, then the method."""
    if "axis" in kwargs:
        kwargs["dim"] = kwargs.pop("axis")
    if "keepdims" in kwargs:
        kwargs["keepdim"] = kwargs.pop("keepdims")
    if name in TORCH_OVERRIDES:
        return TORCH_OVERRIDES[name](*args, **kwargs)
    error = None
    for space in (F, torch, torch.Tensor):
        function = getattr(space, name, None)
        if not callable(function):
            continue
        try:
            return function(*args, **kwargs)
        except TypeError as e:  # reshape(x, 2, -1) is only a method
            error = e
    raise error or NameError(name)


def _differentiated(text, names):
    """The inputs that need a gradient: those that `grad` names, all where it names a variable."""
    targets = set()
    for node in ast.walk(ast.parse(_DECLARATION.sub(r"\1", text).strip())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
            "grad",
            "value_and_grad",
            "vjp",
            "jvp",
        ):
            wanted = node.args[1:] if "grad" in node.func.id else node.args[1:2]
            wanted = [a for w in wanted for a in (w.elts if isinstance(w, (ast.List, ast.Tuple)) else [w])]
            targets |= {a.id if isinstance(a, ast.Name) else "" for a in wanted}
    return targets if targets <= set(names) else set(names)


def run_torch(text, bindings, high=False):
    """A list of tensors: `text` in PyTorch. `high` evaluates with every float in f64, for a rounding-free reference."""

    def dtype(name):
        return torch.float64 if high and name in FLOATS else DTYPES[name]

    targets = _differentiated(text, bindings)
    inputs = {}
    for name, value in bindings.items():
        value = value.clone()
        if value.is_floating_point():
            value = value.double() if high else value
            value.requires_grad_(name in targets)
        inputs[name] = value
    torch.set_default_dtype(torch.float64 if high else torch.float32)
    try:
        result = run(text, inputs, torch_call, dtype)
    finally:
        torch.set_default_dtype(torch.float32)
    return [r.detach() for r in flatten(result, torch.Tensor, torch.tensor)]


def flatten(result, tensor_type, make):
    """Results as a flat list, Python scalars made tensors of rank 0."""
    if isinstance(result, (tuple, list)):
        return [t for r in result for t in flatten(r, tensor_type, make)]
    return [result if isinstance(result, tensor_type) else make(result)]


# --- NumPy ---------------------------------------------------------------------------------------------------------

NUMPY_NAMES = {
    "bitwise_left_shift": np.left_shift,
    "bitwise_right_shift": np.right_shift,
    "bitwise_not": np.invert,
    "neg": np.negative,
    "abs": np.abs,
    "div": np.true_divide,
    "flip": np.flip,
    "cat": np.concatenate,
    "to": lambda x, dtype: x.astype(dtype),
    "amax": np.max,
    "amin": np.min,
    "permute": np.transpose,
}


def numpy_call(name, *args, **kwargs):
    for long, short in (("dim", "axis"), ("keepdim", "keepdims")):
        if long in kwargs:
            kwargs[short] = kwargs.pop(long)
    return (NUMPY_NAMES.get(name) or getattr(np, name))(*args, **kwargs)


def run_numpy(text, bindings):
    """A list of arrays: `text` in NumPy."""
    with np.errstate(all="ignore"):
        result = run(text, bindings, numpy_call, lambda name: NUMPY_DTYPES[name])
    return [np.asarray(r) for r in flatten(result, (np.ndarray, np.generic), np.asarray)]
