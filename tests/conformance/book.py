"""Collects test vectors: makes inputs, evaluates the reference, picks the tolerance and encodes the result.

A vector is one line of JSON:
  {"op", "expr", "inputs": {name: {"dtype", "shape", "data"}}, "outputs": [{"dtype", "shape", "data"}], "tol", "source"}
Numbers are the shortest decimal that reads back to the same element; "nan", "inf" and "-inf" are strings; a bool is 0 or 1.

Tolerances, for floats (other outputs are always exact; a NaN matches a NaN; an infinity matches itself):
  exact  same bits          equal  same value, zeros of either sign are one
  ulpN   at most N units in the last place of the output's dtype, zeros keep their sign
  ulpNz  the same, zeros of either sign are one
  relE   |difference| <= E * the largest finite magnitude of that output
"""

import json
import zlib

import ml_dtypes
import numpy as np
import torch

import notation
import tolerances

SEED = 20240607
MAX_INPUT_ELEMENTS = 160
MAX_OUTPUT_ELEMENTS = 220

# Smallest relE per dtype: sums of some hundred terms in any order.
REL_FLOOR = {"f64": 1e-12, "f32": 1e-5, "f16": 4e-3, "bf16": 3e-2}
REL_STEPS = {
    "f64": (1e-12, 1e-11, 1e-10),
    "f32": (1e-5, 1e-4, 1e-3),
    "f16": (4e-3, 1e-2, 4e-2),
    "bf16": (3e-2, 6e-2, 1e-1),
}
ULP_LIMIT = 64

_WIDE = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}


class Rejected(Exception):
    """A candidate that makes no good vector; the text says why."""


# --- encoding ------------------------------------------------------------------------------------------------------


def _shortest(value, kind):
    """The shortest decimal that a reader gets back as `value`, also when it goes through a double."""
    if np.isnan(value):
        return "nan"
    if np.isinf(value):
        return "inf" if value > 0 else "-inf"
    if kind == "f64":
        return float(value)
    for digits in range(1, 18):
        number = float(f"{float(value):.{digits}g}")
        back = _WIDE[kind](number)
        if back == value and np.signbit(back) == np.signbit(value):
            return (
                int(number)
                if number.is_integer() and abs(number) < 1e6 and not np.signbit(number)
                else number
            )
    raise AssertionError(f"no decimal for {value!r}")


def encode(array, dtype):
    """An array (NumPy, bf16 as ml_dtypes) as the JSON object of an input or output."""
    flat = array.reshape(-1)
    if dtype in _WIDE:
        data = [_shortest(v, dtype) for v in flat]
    else:
        data = [int(v) for v in flat]
    return {"dtype": dtype, "shape": list(array.shape), "data": data}


def to_numpy(tensor):
    if tensor.dtype == torch.bfloat16:
        return tensor.float().numpy().astype(ml_dtypes.bfloat16)
    return tensor.detach().resolve_neg().resolve_conj().cpu().numpy()


def to_torch(array, dtype):
    if dtype == "bf16":
        return torch.from_numpy(np.asarray(array, np.float64)).to(torch.bfloat16)
    return torch.tensor(array, dtype=notation.DTYPES[dtype])


# --- inputs --------------------------------------------------------------------------------------------------------


def fill(name, dtype, shape, spec, seed):
    """The array of one input. `spec`: None for the default range, (low, high), or a list whose first are the elements."""
    count = int(np.prod(shape, dtype=np.int64))
    numpy_dtype = ml_dtypes.bfloat16 if dtype == "bf16" else notation.NUMPY_DTYPES[dtype]
    if spec is not None and not isinstance(spec, tuple):
        flat = np.asarray(spec, dtype=object).reshape(-1)[:count]
        values = [spec_value(v, dtype) for v in flat]
        return np.array(values, dtype=numpy_dtype).reshape(shape)
    rng = np.random.default_rng([SEED, seed, zlib.crc32(name.encode())])
    if dtype == "bool":
        return rng.integers(0, 2, count).astype(bool).reshape(shape)
    if dtype in notation.FLOATS:
        low, high = spec or (-2, 2)
        return (
            np.round(rng.uniform(low, high, count), 2 if dtype in ("f16", "bf16") else 3)
            .astype(numpy_dtype)
            .reshape(shape)
        )
    low, high = spec or ((0, 9) if dtype.startswith("u") else (-9, 9))
    return rng.integers(low, high + 1, count).astype(numpy_dtype).reshape(shape)


def spec_value(value, dtype):
    return float(value) if dtype in notation.FLOATS else (bool(value) if dtype == "bool" else int(value))


# --- tolerance -----------------------------------------------------------------------------------------------------


def ulp_error(got, want, dtype):
    """The largest distance in units in the last place of `dtype`; both arrays are of that dtype."""
    got64, want64 = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(want64) & np.isfinite(got64)
    if not finite.any():
        return 0.0
    info = ml_dtypes.finfo(_WIDE[dtype])
    exponent = np.maximum(np.frexp(want64)[1] - 1, info.minexp)
    unit = np.ldexp(1.0, exponent - info.nmant)
    return float((np.abs(got64 - want64) / unit)[finite].max())


def rel_error(got, want):
    got64, want64 = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(want64) & np.isfinite(got64)
    if not finite.any():
        return 0.0
    error, scale = np.abs(got64 - want64)[finite].max(), np.abs(want64[finite]).max()
    return float(error / scale) if scale else float(error)


def same_specials(a, b):
    """NaNs and infinities are in the same places."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    return bool(
        (np.isnan(a) == np.isnan(b)).all()
        and (np.where(np.isinf(a), a, 0) == np.where(np.isinf(b), b, 0)).all()
    )


def rel_step(dtype, error):
    for step in REL_STEPS[dtype]:
        if step >= error:
            return step
    raise Rejected(f"ill-conditioned: PyTorch's own error is {error / 8:.1e}")


def refine(raw, high, tol, dtype, strict=False):
    """(values to store, tolerance) of one float output.

    `high` is the same text with every float in f64. Where the two agree on NaN and infinity its rounding is stored,
    and the tolerance is never tighter than a small multiple of PyTorch's own error, so that conditioning is allowed for;
    `strict` keeps it as stated.
    """
    with np.errstate(over="ignore"):
        rounded = high.astype(np.float64).astype(raw.dtype)
    if not same_specials(raw, rounded):
        return raw, tol if tol.startswith("ulp") else f"rel{REL_FLOOR[dtype]:g}"
    if tol.startswith("ulp"):
        allowed, suffix = int(tol[3:].rstrip("z")), "z" if tol.endswith("z") else ""
        own = ulp_error(raw, rounded, dtype)
        if strict or 2 * own <= allowed:
            return rounded, tol
        steps = [n for n in (4, 8, 16, 32, 64) if n >= 2 * own]
        if steps:
            return rounded, f"ulp{max(steps[0], allowed)}{suffix}"
    return rounded, f"rel{rel_step(dtype, max(REL_FLOOR[dtype], 8 * rel_error(raw, rounded))):g}"


def loosest(tols):
    rels = [t for t in tols if t.startswith("rel")]
    if rels:
        return max(rels, key=lambda t: float(t[3:]))
    ulps = [t for t in tols if t.startswith("ulp")]
    return max(ulps, key=lambda t: int(t[3:].rstrip("z"))) if ulps else tols[0]


# --- the book ------------------------------------------------------------------------------------------------------


class Book:
    """Vectors by group; one group is one file."""

    def __init__(self):
        self.groups = {}
        self.seen = set()
        self.rejected = []

    def _write(self, group, op, text, arrays, outputs, tol, source):
        declared = notation.declarations(text)
        line = {
            "op": op,
            "expr": text,
            "inputs": {n: encode(arrays[n], d) for n, (d, _) in declared.items()},
            "outputs": outputs,
            "tol": tol,
            "source": source,
        }
        if sum(a.size for a in arrays.values()) > MAX_INPUT_ELEMENTS:
            raise Rejected("too many input elements")
        if sum(len(o["data"]) for o in outputs) > MAX_OUTPUT_ELEMENTS:
            raise Rejected("too many output elements")
        key = json.dumps([text, line["inputs"]])
        if key in self.seen:
            return
        self.seen.add(key)
        self.groups.setdefault(group, []).append(line)

    def arrays(self, text, data):
        seed = zlib.crc32(text.encode())
        return {
            n: data[n] if isinstance(data.get(n), np.ndarray) else fill(n, d, s, data.get(n), seed)
            for n, (d, s) in notation.declarations(text).items()
        }

    def torch_vector(self, group, op, text, tol, data, source="torch", strict=False):
        """Adds a vector whose reference is PyTorch; raises Rejected."""
        arrays = self.arrays(text, data)
        declared = notation.declarations(text)
        bindings = {n: to_torch(a, declared[n][0]) for n, a in arrays.items()}
        raw = notation.run_torch(text, bindings)
        if any(t.is_complex() or t.dtype not in notation.DTYPE_NAMES for t in raw):
            raise Rejected("a dtype outside lazuli")
        names = [notation.DTYPE_NAMES[t.dtype] for t in raw]
        values = [to_numpy(t) for t in raw]
        if tol == "exact" and op in tolerances.CORRECTLY_ROUNDED and "alpha" in text:
            tol = "rel"  # one rounding or two
        if tol == "exact" and op in tolerances.CORRECTLY_ROUNDED:
            values, _ = self._refined(text, bindings, names, values, "ulp1", True)
        if tol.startswith(("ulp", "rel")):
            values, tol = self._refined(text, bindings, names, values, tol, strict)
        self._write(group, op, text, arrays, [encode(v, n) for v, n in zip(values, names)], tol, source)

    def _refined(self, text, bindings, names, values, tol, strict):
        high = [to_numpy(t) for t in notation.run_torch(text, bindings, high=True)]
        stored, tols = [], []
        for value, exact, name in zip(values, high, names):
            if name in notation.FLOATS and value.size and value.shape == exact.shape:
                value, own = refine(value, exact, tol, name, strict)
                tols.append(own)
            stored.append(value)
        return stored, loosest(tols) if tols else "exact"

    def numpy_vector(self, group, op, text, tol, data, cast=None):
        """Adds a vector whose reference is NumPy; `cast` names the output dtype where the rule is not NumPy's."""
        arrays = self.arrays(text, data)
        results = notation.run_numpy(text, arrays)
        names = {np.dtype(v): k for k, v in notation.NUMPY_DTYPES.items()}
        if cast:
            with np.errstate(all="ignore"):
                results = [r.astype(notation.NUMPY_DTYPES[cast]) for r in results]
        outputs = [encode(r, names[r.dtype]) for r in results]
        self._write(group, op, text, arrays, outputs, tol, "numpy" if not cast else f"numpy, cast to {cast}")

    def given(self, group, op, text, tol, data, outputs, source):
        """Adds a vector with outputs [(array, dtype)] computed elsewhere."""
        arrays = self.arrays(text, data)
        self._write(group, op, text, arrays, [encode(a, d) for a, d in outputs], tol, source)

    def add(self, group, op, text, tol=None, lib="torch", source="torch", strict=False, **data):
        """Adds a hand-written case; a case that cannot be evaluated is a mistake in the table."""
        tol = tol or ("equal" if op in tolerances.EQUAL else "exact")
        if lib == "numpy":
            self.numpy_vector(group, op, text, tol, data)
        else:
            self.torch_vector(group, op, text, tol, data, source, strict)

    def grad(self, op, text, wrt=None, tol="rel", pick=None, source="torch", group="gradients", **data):
        """Adds grad(sum((text) * g), inputs) with a random cotangent g; `pick` chooses one output of a tuple."""
        *statements, last = [s.strip() for s in text.split(";")]
        expression = f"({last})" + (f"[{pick}]" if pick is not None else "")
        whole = "; ".join([*statements, expression])
        arrays = self.arrays(text, data)
        declared = notation.declarations(text)
        bindings = {n: to_torch(a, declared[n][0]) for n, a in arrays.items()}
        (out,) = notation.run_torch(whole, bindings)
        if not out.is_floating_point():
            raise Rejected("the output has no gradient")
        floats = [n for n, (d, _) in declared.items() if d in notation.FLOATS]
        targets = wrt or floats
        if not targets:
            raise Rejected("no input has a gradient")
        g = notation.declare("g", notation.DTYPE_NAMES[out.dtype], out.shape)
        scalar = f"sum({expression} * {g})"
        text = "; ".join([*statements, f"grad({scalar}, {', '.join(targets)})"])
        arrays["g"] = (
            data["g"]
            if isinstance(data.get("g"), np.ndarray)
            else fill(
                "g",
                notation.DTYPE_NAMES[out.dtype],
                tuple(out.shape),
                data.get("g"),
                zlib.crc32(text.encode()),
            )
        )
        self.torch_vector(group, op, text, tol, arrays, source)
