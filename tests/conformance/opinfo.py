"""Vectors from PyTorch's own operator samples (`op_db`), translated to the notation.

Each translated text is evaluated again and compared with the operator's result, so a translation cannot change meaning.
"""

import itertools
import random
import re
import sys
import zlib

import numpy as np
import torch
import torch.testing._internal.common_methods_invocations as samples

import notation
import tolerances
from book import SEED, Rejected, to_numpy

# Sizes that samples are made of (S, M, L): small ones first, then PyTorch's own where those do not fit an op.
SIZES = ((3, 4, 5), (5, 10, 20))
MAX_ELEMENTS = {SIZES[0]: 64, SIZES[1]: 130}


def _set_sizes(sizes):
    """The samples read module globals when they are made."""
    for name, module in list(sys.modules.items()):
        if name == samples.__name__ or name.startswith("torch.testing._internal.opinfo"):
            for letter, size in zip("SML", sizes):
                if isinstance(getattr(module, letter, None), int):
                    setattr(module, letter, size)


# Ops by group; "name" is op_db's without nn.functional.
GROUPS = {
    "creation": "arange zeros ones full linspace eye zeros_like ones_like full_like meshgrid tril_indices triu_indices",
    "movement": """reshape view expand broadcast_to permute flip pad cat stack repeat repeat_interleave split chunk squeeze
        unsqueeze T mT transpose flatten unflatten diag diagonal roll unfold tril triu movedim tile unbind narrow select
        expand_as diag_embed broadcast_tensors t
        pixel_shuffle pixel_unshuffle""",
    "indexing": """gather scatter scatter_reduce masked_select masked_fill nonzero one_hot __getitem__ index_select
        take_along_dim scatter_add index_add masked_scatter bincount searchsorted unique embedding take
        index_copy index_fill bucketize""",
    "casting": "byte char float half int bool bfloat16 double long short",
    "unary": """neg logical_not bitwise_not abs sign square sqrt rsqrt reciprocal exp exp2 log log2 log10 sin cos tan asin acos
        atan sinh cosh tanh asinh acosh atanh erf trunc ceil floor round isnan isinf isfinite expm1 log1p erfc sinc logit
        nan_to_num frac isposinf isneginf signbit lgamma digamma erfinv""",
    "activations": """relu relu6 leaky_relu elu celu selu gelu silu mish softplus softsign sigmoid logsigmoid hardsigmoid
        hardswish hardtanh prelu softshrink hardshrink tanhshrink threshold glu""",
    "binary": """add sub mul div true_divide fmod remainder floor_divide pow maximum minimum bitwise_and bitwise_or bitwise_xor
        bitwise_left_shift bitwise_right_shift copysign logaddexp where lerp clamp eq ne lt le gt ge isclose atan2 hypot xlogy
        fmax fmin logaddexp2 logical_and logical_or logical_xor addcmul addcdiv""",
    "reduce": """sum prod max min amax amin any all mean var std var_mean std_mean normalize softmax log_softmax softmin logsumexp
        argmax argmin allclose norm median nansum count_nonzero histc""",
    "scan_sort": "cumsum cumprod cummax cummin logcumsumexp sort argsort topk msort kthvalue",
    "matmul": "mm mv matmul bmm addmm baddbmm dot einsum linear outer tensordot",
    "conv": """conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d
        max_pool3d max_unpool2d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d
        adaptive_max_pool2d adaptive_max_pool3d interpolate""",
    "nn": """layer_norm batch_norm group_norm instance_norm rms_norm scaled_dot_product_attention cosine_similarity cdist pairwise_distance""",
    "loss": """cross_entropy nll_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div huber_loss smooth_l1_loss l1_loss
        mse_loss hinge_embedding_loss margin_ranking_loss cosine_embedding_loss""",
}
GROUP_OF = {op: group for group, ops in GROUPS.items() for op in ops.split()}
VARIANTS_LEFT_OUT = {("norm", "nuc"), ("interpolate", "bicubic")}
CAPS = {"f32": 7, "i64": 2, "i32": 1, "bool": 1, "u8": 1, "f64": 1, "f16": 1, "bf16": 1}
GRADIENT_CAP = 4
DROPPED_KEYWORDS = {"device", "layout", "requires_grad", "pin_memory"}


# Arguments outside lazuli, or for which PyTorch's answer is an accident.
LEFT_OUT = [
    re.compile(r"(addmm|baddbmm)\(.*:[iu]\d+\[.*(alpha|beta)=\d*\.\d"),  # fractions truncated for integers
    re.compile(r"linspace\(.*\[\]"),  # bounds in tensors
    re.compile(r"logit\(.*, 0\.6\)"),  # bounds that cross
    re.compile(r"repeat_interleave\(.*output_size"),
    re.compile(r"(margin_ranking|cosine_embedding)_loss\(x:([iu]\d+|bool)\["),  # losses of integers
    re.compile(r"(topk|kthvalue)\(x:[iu]\d+\["),  # equal elements in no order
    re.compile(r"tensordot\(x:\w+\[1,1,1\], y:\w+\[2,1,2\]"),  # contracted axes of different size
]


class Translator:
    """One sample as a text and its arrays."""

    def __init__(self):
        self.arrays = {}
        self.names = itertools.chain("xyzwvuts", (f"x{i}" for i in itertools.count(1)))

    def tensor(self, value):
        if value.dtype not in notation.DTYPE_NAMES or value.layout != torch.strided:
            raise Rejected("a dtype or layout outside lazuli")
        name, dtype = next(self.names), notation.DTYPE_NAMES[value.dtype]
        value = value.detach()
        if value.is_floating_point():
            value = (value.double() * 1000).round().div(1000).to(value.dtype)
        self.arrays[name] = to_numpy(value.contiguous())
        return notation.declare(name, dtype, value.shape)

    def literal(self, value):
        """The notation for one argument."""
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if value is None or value is Ellipsis:
            return "None" if value is None else "..."
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, (int, float)):
            return repr(value)
        if isinstance(value, torch.dtype):
            if value not in notation.DTYPE_NAMES:
                raise Rejected("a dtype outside lazuli")
            return notation.DTYPE_NAMES[value]
        if isinstance(value, str):
            return value if value.isidentifier() else f'"{value}"'
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(self.literal(v) for v in value) + "]"
        raise Rejected(f"an argument of type {type(value).__name__}")

    def index(self, item):
        if isinstance(item, slice):
            parts = ["" if v is None else str(v) for v in (item.start, item.stop, item.step)]
            return ":".join(parts if parts[2] else parts[:2])
        if isinstance(item, list):
            return self.tensor(torch.tensor(item))
        return self.literal(item)

    def call(self, name, sample):
        """The text of a call of `name`."""
        kwargs = {k: v for k, v in sample.kwargs.items() if k not in DROPPED_KEYWORDS and v is not None}
        if (
            kwargs.keys() & {"memory_format", "out"}
            or name == "narrow"
            and isinstance(sample.args[1], torch.Tensor)
        ):
            raise Rejected("a keyword outside lazuli")
        if name == "__getitem__":
            items = sample.args[0] if isinstance(sample.args[0], tuple) else (sample.args[0],)
            return f"{self.literal(sample.input)}[{', '.join(map(self.index, items))}]"
        if name in ("T", "mT"):
            if name == "T" and sample.input.dim() != 2:
                raise Rejected("deprecated in PyTorch")
            return f"{self.literal(sample.input)}.{name}"
        args = [sample.input, *sample.args]
        if name == "einsum":
            args = [sample.args[0], *sample.input]
        if name == "embedding":
            args = [sample.args[0], sample.input]
        if name == "where":
            args = [sample.args[0], sample.input, sample.args[1]]
        while args and args[-1] is None:
            args.pop()
        texts = [self.literal(a) for a in args]
        if name == "einsum" and not texts[0].startswith('"'):
            texts[0] = f'"{texts[0]}"'
        return f"{name}({', '.join(texts + [f'{k}={self.literal(v)}' for k, v in kwargs.items()])})"


def _numel(sample):
    tensors = [
        t for t in notation.flatten([sample.input, *sample.args, *sample.kwargs.values()], object, None)
    ]
    return sum(t.numel() for t in tensors if isinstance(t, torch.Tensor))


def _same(sample, op, text, arrays):
    """Whether the text says what the sample says: the operator on the sample's own data gives the same shapes and dtypes."""
    declared = notation.declarations(text)
    from book import to_torch

    got = notation.run_torch(text, {n: to_torch(a, declared[n][0]) for n, a in arrays.items()})
    want = notation.flatten(op(sample.input, *sample.args, **sample.kwargs), torch.Tensor, torch.tensor)
    return len(got) == len(want) and all(
        g.dtype == w.dtype
        and (g.shape == w.shape)
        and (
            g.numel() == 0
            or torch.allclose(
                torch.nan_to_num(g.double()), torch.nan_to_num(w.detach().double()), rtol=0.1, atol=0.1
            )
        )
        for g, w in zip(got, want)
    )


def _samples(op, dtype):
    """(samples, sizes) of an op; none where it has none for this dtype."""
    for sizes in SIZES:
        _set_sizes(sizes)
        seed = zlib.crc32(f"{op.full_name}{dtype}".encode()) ^ SEED
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed & 0xFFFFFFFF)
        try:
            every = list(
                itertools.islice(op.sample_inputs("cpu", notation.DTYPES[dtype], requires_grad=False), 400)
            )
        except (RuntimeError, IndexError, ValueError) as e:
            error = e
            continue
        if any(_numel(s) <= MAX_ELEMENTS[sizes] for s in every):
            return every, sizes
        error = "all are too large"
    print(f"opinfo: {op.full_name} {dtype}: no samples: {error}", file=sys.stderr)
    return [], SIZES[0]


def translated(op, name, dtype):
    """(text, arrays, sample) of the samples of an op, distinct, in the samples' order."""
    found = {}
    every, sizes = _samples(op, dtype)
    for sample in every:
        try:
            translator = Translator()
            text = translator.call(name, sample)
            if any(pattern.match(text) for pattern in LEFT_OUT):
                continue
            if _numel(sample) <= MAX_ELEMENTS[sizes] and text not in found:
                found[text] = (sample, translator.arrays)
        except Rejected:
            continue
    return [(text, arrays, sample) for text, (sample, arrays) in found.items()]


def _shuffled(items):
    """The first item, then the others in a seeded order: a prefix is a varied choice."""
    rest = items[1:]
    random.Random(SEED).shuffle(rest)
    return items[:1] + rest


def add_op(book, op, name, group):
    """Values in every dtype and gradients in f32 of one operator."""
    label = "getitem" if name == "__getitem__" else name
    for dtype, cap in CAPS.items():
        if notation.DTYPES[dtype] not in op.dtypes:
            continue
        taken = gradients = 0
        for text, arrays, sample in _shuffled(translated(op, name, dtype)):
            try:
                if taken < cap:
                    if not _same(sample, op, text, arrays):
                        print(f"opinfo: {op.full_name}: another meaning: {text}", file=sys.stderr)
                        continue
                    tol = "rel" if "max_norm" in text else tolerances.of(label, dtype)
                    book.torch_vector(group, label, text, tol, arrays, "torch op_db")
                    taken += 1
                if dtype == "f32" and op.supports_autograd and gradients < GRADIENT_CAP:
                    _add_gradient(book, label, text, arrays)
                    gradients += 1
            except Rejected as e:
                book.rejected.append((op.full_name, str(e)))
            except Exception as e:  # a sample that does not fit these sizes
                book.rejected.append((op.full_name, f"{text}: {(str(e) or repr(e)).splitlines()[0][:100]}"))
            if taken >= cap and (dtype != "f32" or gradients >= GRADIENT_CAP):
                break


def _add_gradient(book, label, text, arrays):
    """A gradient with respect to all floats, or the first where the others have none (weights of losses, running means)."""
    floats = [n for n, (d, _) in notation.declarations(text).items() if d in notation.FLOATS]
    if not floats:
        raise Rejected("no input has a gradient")
    for wrt in (floats, floats[:1]):
        try:
            try:
                return book.grad(label, text, wrt=wrt, source="torch op_db", **arrays)
            except ValueError:  # several outputs
                return book.grad(label, text, wrt=wrt, pick=0, source="torch op_db", **arrays)
        except (RuntimeError, NotImplementedError) as e:
            error = e
    raise error


def add_all(book):
    for op in samples.op_db:
        name = op.name.removeprefix("nn.functional.")
        if (
            op.name.startswith(("linalg.", "masked.", "special."))
            or (name, op.variant_test_name) in VARIANTS_LEFT_OUT
        ):
            continue
        if op.name != "nn.functional.unfold" and name in GROUP_OF:
            add_op(book, op, name, GROUP_OF[name])
