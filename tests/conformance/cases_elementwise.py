"""Hand-written cases: unary, activations, binary and ternary, dtype promotion, casts."""

import math

import numpy as np

import notation
import tolerances
from notation import DTYPES, NUMPY_DTYPES

INF, NAN = math.inf, math.nan
WIDE_UNSIGNED = (
    "u16",
    "u32",
    "u64",
)  # PyTorch stores these and computes little with them: NumPy is the reference
SIGNED = ("i8", "i16", "i32", "i64")
INTS = ("i8", "i16", "i32", "i64", "u8", *WIDE_UNSIGNED)

# Op: the interval of its ordinary arguments. Values, special values, denormals and large arguments are tried for each.
PRIMITIVES = {
    "exp": (-30, 30),
    "exp2": (-30, 30),
    "expm1": (-20, 20),
    "log": (0.001, 50),
    "log2": (0.001, 50),
    "log10": (0.001, 50),
    "log1p": (-0.999, 50),
    "sqrt": (0, 50),
    "rsqrt": (0.001, 50),
    "reciprocal": (-50, 50),
    "sin": (-50, 50),
    "cos": (-50, 50),
    "tan": (-50, 50),
    "asin": (-1, 1),
    "acos": (-1, 1),
    "atan": (-50, 50),
    "sinh": (-20, 20),
    "cosh": (-20, 20),
    "tanh": (-10, 10),
    "asinh": (-50, 50),
    "acosh": (1, 50),
    "atanh": (-0.999, 0.999),
    "erf": (-4, 4),
    "erfc": (-5, 9),
    "sigmoid": (-30, 30),
    "abs": (-50, 50),
    "neg": (-50, 50),
    "sign": (-50, 50),
    "square": (-50, 50),
    "trunc": (-50, 50),
    "floor": (-50, 50),
    "ceil": (-50, 50),
    "round": (-50, 50),
    "isnan": (-5, 5),
    "isinf": (-5, 5),
    "isfinite": (-5, 5),
    "nan_to_num": (-5, 5),
    "logical_not": (-1, 1),
    "sinc": (-4, 4),
    "logit": (0.01, 0.99),
}
ACTIVATIONS = """relu relu6 leaky_relu elu celu selu gelu quick_gelu silu swish mish softplus softsign sigmoid logsigmoid hardsigmoid
    hardswish hardtanh tanh""".split()
ACTIVATION_FORMS = [
    "leaky_relu(X, 0.2)",
    "leaky_relu(X, negative_slope=0.5)",
    "elu(X, 0.7)",
    "elu(X, alpha=2.0)",
    "celu(X, 0.5)",
    "celu(X, alpha=2.0)",
    "gelu(X, approximate=tanh)",
    'gelu(X, approximate="none")',
    "softplus(X, 2.0)",
    "softplus(X, beta=0.5, threshold=1.0)",
    "hardtanh(X, -0.5, 0.5)",
    "hardtanh(X, min_val=-2.0, max_val=0.25)",
]

SPECIAL = [0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 0.5, -0.5]
HALVES = [-3.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 0.49999997, 8388609.0, -8388607.5]
DENORMAL = {
    "f32": [1e-45, -1e-45, 1e-40, -1e-40, 1.1754944e-38, -1.1754944e-38],
    "f64": [5e-324, -5e-324, 1e-310, 2.2250738585072014e-308],
    "f16": [6e-8, -6e-8, 3e-5, -6.1e-5],
    "bf16": [1e-40, -1e-40, 1.1755e-38],
}
LARGE = {
    "f32": [1e30, -1e30, 3.4028235e38, -3.4028235e38, 1e10, 12345.678, -98765.43, 88.7, -103.5, -87.5],
    "f64": [1e300, -1e300, 1e30, 1e22, 709.7, -745.1, -708.5, 12345.678901],
    "f16": [65504, -65504, 1000, 11, -11, -17],
    "bf16": [3e38, -3e38, 1e30, 88, -88, 1e4],
}


def _sweep(op, count=96):
    """Arguments of every magnitude that f32 has, of both signs where the op takes them."""
    rng = np.random.default_rng(len(op) * 1000 + ord(op[0]))
    exponents = np.linspace(-44, 38.4, count) + rng.uniform(-0.4, 0.1, count)
    values = (10.0**exponents).astype(np.float32)
    if op in ("asin", "acos", "atanh"):
        values = np.where(values > 1, 1 - 0.5 / (1 + np.log10(np.maximum(values, 1))) ** 4, values).astype(
            np.float32
        )
    signs = np.where(np.arange(count) % 2 == 0, 1, -1)
    if op in ("log", "log2", "log10", "sqrt", "rsqrt", "acosh"):
        signs = 1
    return [float(v) for v in values * signs]


def unary(book):
    for op, interval in PRIMITIVES.items():
        strict = op not in ("sinc", "logit", "tan")  # zeros and poles between the elements of a type
        for dtype in ("f32", "f64", "f16", "bf16"):
            tol = tolerances.of(op, dtype)
            cases = [interval, SPECIAL, DENORMAL[dtype], LARGE[dtype]]
            if op in ("trunc", "floor", "ceil", "round"):
                cases.append(HALVES)
            for data in cases:
                count = 12 if isinstance(data, tuple) else len(data)
                book.add("unary", op, f"{op}(x:{dtype}[{count}])", tol, strict=strict, x=data)
        if strict and op not in ("logical_not", "nan_to_num") and not op.startswith("is"):
            book.add("unary", op, f"{op}(x:f32[96])", tolerances.of(op), strict=True, x=_sweep(op))
    for dtype in INTS:
        info = np.iinfo(NUMPY_DTYPES[dtype])
        lib = "numpy" if dtype in WIDE_UNSIGNED else "torch"
        data = [info.min, info.max, 0, 1, 5, info.max - 1]
        for op in ("abs", "neg", "sign", "square", "bitwise_not"):
            book.add("unary", op, f"{op}(x:{dtype}[6])", lib=lib, x=data)
        book.add("unary", "neg", f"-x:{dtype}[6]", lib=lib, x=data)
        book.add("unary", "bitwise_not", f"~x:{dtype}[6]", lib=lib, x=data)
        if lib == "torch":
            for op in (
                "floor",
                "ceil",
                "trunc",
                "round",
                "logical_not",
                "isnan",
                "isinf",
                "isfinite",
                "nan_to_num",
                "relu",
            ):
                book.add("unary", op, f"{op}(x:{dtype}[6])", x=data)
            for op in ("exp", "log", "sin", "sqrt", "tanh", "erf", "reciprocal", "rsqrt", "sigmoid"):
                book.add("unary", op, f"{op}(x:{dtype}[5])", tolerances.of(op), x=(1, 20))
    book.add("unary", "bitwise_not", "~x:bool[2]", x=[0, 1])
    for text in [
        "round(x:f32[8], decimals=1)",
        "round(x:f32[8], decimals=-1)",
        "round(x:f64[8], decimals=2)",
    ]:
        book.add("unary", "round", text, x=[-15.05, -2.25, 0.125, 0.35, 2.675, 25.0, 35.0, 123.456])
    for text in [
        "nan_to_num(x:f32[4], 1.5)",
        "nan_to_num(x:f32[4], nan=2.0, posinf=3.0, neginf=-3.0)",
        "nan_to_num(x:f16[4])",
        "nan_to_num(x:bf16[4])",
        "nan_to_num(x:f64[4], posinf=1e3)",
    ]:
        book.add("unary", "nan_to_num", text, x=[NAN, INF, -INF, 1.0])
    book.add("unary", "logit", "logit(x:f32[5], 0.1)", "ulp8", x=[0.0, 0.05, 0.3, 0.95, 1.0])
    book.add("unary", "logit", "logit(x:f32[5], eps=0.001)", "ulp8", x=[0.0, 0.05, 0.3, 0.95, 1.0])
    for op in ("exp", "sqrt", "neg", "isnan", "floor"):
        book.add("unary", op, f"{op}(x:f32[0])")
        book.add("unary", op, f"{op}(x:f32[2,0,3])")
        book.add("unary", op, f"{op}(x:f32[])", tolerances.of(op), x=[0.75])


def activations(book):
    forms = [f"{op}(X)" for op in ACTIVATIONS] + ACTIVATION_FORMS
    for form in forms:
        op = form.split("(")[0]
        for dtype in ("f32", "f64", "f16", "bf16"):
            tol = tolerances.of(op, dtype)
            for data in ((-6, 6), SPECIAL, LARGE[dtype]):
                if data is LARGE[dtype] and (dtype in ("f64", "bf16") or op == "hardswish"):
                    continue  # PyTorch's hardswish overflows on the way
                count = 10 if isinstance(data, tuple) else len(data)
                book.add("activations", op, form.replace("X", f"x:{dtype}[{count}]"), tol, x=data)
        book.grad(op, form.replace("X", "x:f32[8]"), x=(-5, 5))
        book.grad(op, form.replace("X", "x:f32[8]"), x=[v for v in SPECIAL if not math.isnan(v)])
    for text in ["relu(x:i32[4])", "relu6(x:i32[4])", "hardtanh(x:i32[4])"]:
        book.add("activations", text.split("(")[0], text, x=[-3, 0, 4, 9])


BINARY = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "div",
    "//": "floor_divide",
    "%": "remainder",
    "**": "pow",
    "<": "lt",
    "<=": "le",
    ">": "gt",
    ">=": "ge",
    "==": "eq",
    "!=": "ne",
}
BITS = {
    "&": "bitwise_and",
    "|": "bitwise_or",
    "^": "bitwise_xor",
    "<<": "bitwise_left_shift",
    ">>": "bitwise_right_shift",
}
SPECIAL_PAIRS = [
    (a, b) for a in (0.0, -0.0, 1.0, -2.0, INF, -INF, NAN) for b in (0.0, -0.0, 1.0, -2.0, INF, -INF, NAN)
]
POW_PAIRS = [
    (a, b)
    for a in (0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, INF, -INF, NAN)
    for b in (0.0, -0.0, 1.0, 2.0, 3.0, -1.0, -3.0, 0.5, -0.5, INF, -INF, NAN)
]


def binary(book):
    left, right = [a for a, _ in SPECIAL_PAIRS], [b for _, b in SPECIAL_PAIRS]
    for dtype in ("f32", "f64", "f16", "bf16"):
        pair = f"x:{dtype}[49] {{}} y:{dtype}[49]"
        for sign, op in BINARY.items():
            if op != "pow":
                book.add("binary", op, pair.format(sign), x=left, y=right)
        known = [(a, b) for a, b in SPECIAL_PAIRS if not math.isnan(b)]  # the sign of a NaN says nothing
        book.add(
            "binary",
            "copysign",
            f"copysign(x:{dtype}[42], y:{dtype}[42])",
            x=[a for a, _ in known],
            y=[b for _, b in known],
        )
        for op in ("maximum", "minimum", "fmod", "atan2", "hypot", "xlogy", "logaddexp", "isclose"):
            book.add(
                "binary", op, f"{op}(x:{dtype}[49], y:{dtype}[49])", tolerances.of(op, dtype), x=left, y=right
            )
    book.add("binary", "isclose", "isclose(x:f32[49], y:f32[49], equal_nan=true)", x=left, y=right)
    book.add("binary", "isclose", "isclose(x:f32[4], y:f32[4], 0.1)", x=[1, 2, 3, 4], y=[1.05, 2.5, 3.3, 4.0])
    book.add(
        "binary",
        "isclose",
        "isclose(x:f32[4], y:f32[4], rtol=0.0, atol=0.5)",
        x=[1, 2, 3, 4],
        y=[1.05, 2.5, 3.6, 4.0],
    )
    powers = {"x": [a for a, _ in POW_PAIRS], "y": [b for _, b in POW_PAIRS]}
    book.add("binary", "pow", "x:f32[60] ** y:f32[60]", "ulp8", x=powers["x"][:60], y=powers["y"][:60])
    book.add("binary", "pow", "pow(x:f32[60], y:f32[60])", "ulp8", x=powers["x"][60:], y=powers["y"][60:])
    book.add("binary", "pow", "pow(x:f64[60], y:f64[60])", "ulp8", x=powers["x"][:60], y=powers["y"][:60])
    _binary_values(book)
    _integer_edges(book)
    _scalars(book)
    _ternary(book)


def _binary_values(book):
    """Ordinary values, broadcasting and empty tensors."""
    shapes = [
        ("3,4", "3,4"),
        ("3,4", "4"),
        ("3,1", "1,4"),
        ("", "5"),
        ("2,1,3", "4,1"),
        ("0,3", "3"),
        ("0", "1"),
        ("", ""),
    ]
    for sign, op in BINARY.items():
        for a, b in shapes:
            book.add("binary", op, f"x:f32[{a}] {sign} y:f32[{b}]", tolerances.of(op), x=(0.1, 4), y=(-3, 3))
        book.add("binary", op, f"x:i32[4,3] {sign} y:i32[3]", x=(-9, 9), y=(1, 5))
        book.add("binary", op, f"x:i64[4,3] {sign} y:i64[4,1]", x=(-9, 9), y=(1, 5))
    for op in ("add", "sub"):
        book.add("binary", op, f"{op}(x:f32[3], y:f32[3], alpha=2.0)", "ulp2")
        book.add("binary", op, f"{op}(x:i32[3], y:i32[3], alpha=3)")
    for mode in ("None", "floor", "trunc"):
        for dtype in ("f32", "i32", "u8"):
            book.add(
                "binary",
                "div",
                f"div(x:{dtype}[8], y:{dtype}[8], rounding_mode={mode})",
                x=(0, 20) if dtype == "u8" else (-20, 20),
                y=[1, 2, 3, 4, 5, 6, 7, 3] if dtype == "u8" else [1, -2, 3, -4, 5, -6, 7, -3],
            )
    for op in ("floor_divide", "remainder", "fmod"):
        for dtype in ("f32", "f64", "i32", "i8"):
            book.add(
                "binary",
                op,
                f"{op}(x:{dtype}[8], y:{dtype}[8])",
                x=[7, 7, -7, -7, 6, -6, 1, 0],
                y=[3, -3, 3, -3, 3, 3, -5, 4],
            )
        book.add(
            "binary",
            op,
            f"{op}(x:f32[6], y:f32[6])",
            x=[5.5, -5.5, 1e8, 0.3, -0.3, 1e-3],
            y=[2.25, 2.25, 3.0, 0.1, 0.1, -7.0],
        )
    for op in ("atan2", "hypot", "xlogy", "logaddexp", "copysign", "maximum", "minimum", "fmod"):
        for a, b in [("3,4", "4"), ("", "3"), ("0,2", "2")]:
            book.add("binary", op, f"{op}(x:f32[{a}], y:f32[{b}])", tolerances.of(op), x=(-4, 4), y=(0.1, 4))
    for op in ("maximum", "minimum"):
        for dtype in ("bool", "i8", "i32", "u8", "i64"):
            book.add("binary", op, f"{op}(x:{dtype}[5], y:{dtype}[5])")
    book.add(
        "binary",
        "hypot",
        "hypot(x:f32[4], y:f32[4])",
        "ulp4",
        x=[3e38, 1e20, 1e-30, 3],
        y=[1e38, 1e20, 1e-30, 4],
    )
    book.add(
        "binary",
        "logaddexp",
        "logaddexp(x:f32[4], y:f32[4])",
        "ulp8",
        x=[1000, -1000, 88, 0],
        y=[1000, -1001, -88, 0],
    )


def _integer_edges(book):
    """Overflow wraps, shifts, bit operations, integer powers."""
    for dtype in INTS:
        info = np.iinfo(NUMPY_DTYPES[dtype])
        lib = "numpy" if dtype in WIDE_UNSIGNED else "torch"
        x, y = [info.max, info.min, info.max, 100, 3], [1, 1, info.max, 100, 5]
        for sign in ("+", "-", "*"):
            book.add("binary", BINARY[sign], f"x:{dtype}[5] {sign} y:{dtype}[5]", lib=lib, x=x, y=y)
        for sign in ("<", "<=", ">", ">=", "==", "!="):
            book.add("binary", BINARY[sign], f"x:{dtype}[5] {sign} y:{dtype}[5]", lib=lib, x=x, y=y)
        for sign in ("&", "|", "^"):
            book.add("binary", BITS[sign], f"x:{dtype}[5] {sign} y:{dtype}[5]", lib=lib, x=x, y=y)
        bits = np.dtype(NUMPY_DTYPES[dtype]).itemsize * 8
        for sign in ("<<", ">>"):
            book.add(
                "binary",
                BITS[sign],
                f"x:{dtype}[5] {sign} y:{dtype}[5]",
                lib=lib,
                x=x,
                y=[0, 1, bits - 1, 3, 2],
            )
            if lib == "torch":
                book.add(
                    "binary",
                    BITS[sign],
                    f"x:{dtype}[5] {sign} y:{dtype}[5]",
                    x=x,
                    y=[bits, bits, bits + 1, bits, bits + 5],
                )
        for sign in ("//", "%"):
            book.add(
                "binary", BINARY[sign], f"x:{dtype}[5] {sign} y:{dtype}[5]", lib=lib, x=x, y=[7, 3, 10, 9, 2]
            )
        book.add(
            "binary",
            "pow",
            f"x:{dtype}[6] ** y:{dtype}[6]",
            lib=lib,
            x=[0, 2, 3, 7, 1, 2],
            y=[0, 7, 5, 1, 9, 6],
        )
        if dtype in SIGNED:
            book.add(
                "binary",
                "pow",
                f"x:{dtype}[6] ** y:{dtype}[6]",
                x=[1, -1, -1, 2, -2, -3],
                y=[-1, -1, -2, -1, -3, 3],
            )
            for sign in ("//", "%"):
                book.add(
                    "binary",
                    BINARY[sign],
                    f"x:{dtype}[4] {sign} y:{dtype}[4]",
                    x=[-7, -7, 7, info.min],
                    y=[2, -2, -2, 3],
                )
    for sign in ("&", "|", "^"):
        book.add("binary", BITS[sign], f"x:bool[4] {sign} y:bool[4]", x=[0, 0, 1, 1], y=[0, 1, 0, 1])
        book.add("binary", BITS[sign], f"x:i32[4] {sign} 6", x=[0, 5, -1, 12])
    for sign in ("+", "*", "<", "==", ">=", "**"):
        if sign != "**":
            book.add("binary", BINARY[sign], f"x:bool[4] {sign} y:bool[4]", x=[0, 0, 1, 1], y=[0, 1, 0, 1])
    # a whole number that f32 cannot hold is rounded before it is compared
    book.add("binary", "eq", "x:i64[3] == y:f32[3]", x=[16777217, 5, 2**40 + 1], y=[16777216.0, 5.0, 2.0**40])
    book.add(
        "binary",
        "lt",
        "x:i64[3] < y:i64[3]",
        x=[2**53 + 1, -(2**63), 2**63 - 1],
        y=[2**53, 2**63 - 1, -(2**63)],
    )


def _scalars(book):
    """Numbers on either side."""
    for text in [
        "x + 2",
        "2 - x",
        "x * 2.5",
        "1 / x",
        "x / 3",
        "x ** 2",
        "2 ** x",
        "x ** 0.5",
        "x ** -1",
        "x ** 3",
        "x ** 0",
        "1.5 ** x",
        "x < 1",
        "1 <= x",
        "x == 0.5",
        "x % 0.7",
        "1 % x",
        "x // 0.3",
        "-x ** 2",
        "2 * x + 1",
        "(x + 1) * (x - 1)",
    ]:
        op = "pow" if "**" in text else "scalar"
        first = text.replace("x", "x:f32[6]", 1)
        tol = "ulp8" if op == "pow" else "exact" if "%" in text or "//" in text else "ulp2"
        book.add("binary", op, first, tol, x=[0.25, 0.5, 1.0, 1.75, 2.5, 3.0])
    for text in [
        "x + 2",
        "7 - x",
        "x * 3",
        "x / 2",
        "x // 2",
        "x % 3",
        "x ** 2",
        "x << 1",
        "x >> 1",
        "x & 3",
        "x | 8",
        "x ^ 5",
        "x > 2",
    ]:
        book.add("binary", "scalar", text.replace("x", "x:i32[6]", 1), x=[-7, -1, 0, 1, 6, 13])


def _ternary(book):
    for dtype in ("f32", "f64", "i32", "bool", "f16", "u8"):
        book.add("binary", "where", f"where(c:bool[2,3], x:{dtype}[2,3], y:{dtype}[3])")
    book.add(
        "binary",
        "where",
        "where(c:bool[3], x:f32[3], y:f32[3])",
        c=[1, 0, 1],
        x=[NAN, NAN, -0.0],
        y=[INF, 1.0, NAN],
    )
    for text in [
        "where(c:bool[4], x:f32[4], 0.0)",
        "where(c:bool[4], 1, x:f32[4])",
        "where(c:bool[4], 1.5, x:i32[4])",
        "where(c:bool[4], x:i32[4], 2)",
        "where(c:bool[4], 1, 2)",
        "where(c:bool[4], 1.0, 2)",
        "where(c:bool[], x:f32[3], y:f32[])",
        "where(c:bool[4], x:f32[], y:f64[])",
        "where(c:bool[4], x:i8[4], y:f16[4])",
        "where(c:bool[0], x:f32[0], 1.0)",
        "where(x:f32[4] > 0.0, x, -x)",
        "where(c:bool[2,1], x:f32[1,3], y:f32[])",
    ]:
        book.add("binary", "where", text)
    values = [-INF, -2.0, -0.5, -0.0, 0.5, 2.0, INF, NAN]
    for text in [
        "clamp(x:f32[8], -1.0, 1.0)",
        "clamp(x:f32[8], min=0.0)",
        "clamp(x:f32[8], max=0.25)",
        "clip(x:f32[8], -1.0, 1.0)",
        "clamp(x:f32[8], 1.0, -1.0)",
        "clamp(x:f32[8], min=lo:f32[8])",
        "clamp(x:f32[8], lo:f32[8], hi:f32[8])",
        "clamp(x:f32[8], min=0)",
        "clamp(x:f32[8], min=nan)",
    ]:
        book.add(
            "binary", "clamp", text, x=values, lo=[-1, -1, 0, 0, NAN, 1, 1, 1], hi=[1, 1, 1, 1, 1, 1, 1, 0]
        )
    for text in [
        "clamp(x:i32[6], -2, 3)",
        "clamp(x:i32[6], min=0.5)",
        "clamp(x:u8[6], max=4)",
        "clamp(x:i64[6], 2, 1)",
    ]:
        book.add("binary", "clamp", text, x=(0, 9))
    for text in [
        "lerp(x:f32[5], y:f32[5], 0.25)",
        "lerp(x:f32[5], y:f32[5], w:f32[5])",
        "lerp(x:f64[5], y:f64[5], 0.75)",
        "lerp(x:f32[2,3], y:f32[3], w:f32[2,1])",
        "lerp(x:bf16[5], y:bf16[5], 0.5)",
        "lerp(x:f32[3], y:f32[3], 1.0)",
    ]:
        book.add("binary", "lerp", text, "rel", w=(0, 1))


# --- promotion -----------------------------------------------------------------------------------------------------

PROMOTED = {"+": "add", "*": "mul", "/": "div", "<": "lt"}


def wide_rule(a, b):
    """The dtype of a wide unsigned type with another integer: PyTorch has no answer. None: no such pair."""
    if a in notation.FLOATS or b in notation.FLOATS or not {a, b} & set(WIDE_UNSIGNED):
        return None
    result = np.promote_types(NUMPY_DTYPES[a], NUMPY_DTYPES[b])
    return "f32" if result == np.float64 else {v: k for k, v in NUMPY_DTYPES.items()}[result.type]


def promotion(book):
    for a in DTYPES:
        for b in DTYPES:
            _pair(book, a, b)
    for a in DTYPES:
        _scalar_promotion(book, a)
    for a in ("f32", "f16", "bf16", "f64", "i32", "i8", "u8", "bool", "i64"):
        for b in ("f32", "f64", "f16", "bf16", "i32", "i64", "bool", "u8"):
            for text in (f"x:{a}[2] + y:{b}[]", f"x:{a}[] * y:{b}[]", f"maximum(x:{a}[2], y:{b}[])"):
                book.add("promotion", "promote", text, **_small(a, b))
    for a, b, c in [("f32", "f64", "i32"), ("i8", "u8", "bool"), ("bf16", "f16", "i64")]:
        book.add("promotion", "promote", f"cat([x:{a}[2], y:{b}[2], z:{c}[1]])", x=[1, 2], y=[3, 1], z=[1])
        book.add("promotion", "promote", f"stack([x:{a}[2], y:{b}[2]])", x=[1, 2], y=[3, 1])


def _small(a, b):
    return {"x": [1, 0] if a == "bool" else [3, 2], "y": [1, 1] if b == "bool" else [2, 1]}


def _pair(book, a, b):
    rule = wide_rule(a, b)
    for sign, op in PROMOTED.items():
        text = f"x:{a}[2] {sign} y:{b}[2]"
        if rule is None:
            book.add("promotion", op, text, **_small(a, b))
        elif sign == "/":
            book.numpy_vector("promotion", op, text, "exact", _small(a, b), cast="f32")
        else:
            cast = None if sign == "<" or a == b else rule
            book.numpy_vector("promotion", op, text, "exact", _small(a, b), cast=cast)


def _scalar_promotion(book, a):
    data = _small(a, a)["x"]
    wide = a in WIDE_UNSIGNED
    for text in ("x + 1", "x * 2", "2 * x", "x < 2", "x + true"):
        whole = text.replace("x", f"x:{a}[2]")
        book.add("promotion", "promote", whole, lib="numpy" if wide else "torch", x=data)
    for text in ("x + 0.5", "x * 2.0", "x / 2", "1.0 - x", "x < 1.5"):
        if a == "bool" and "-" in text:
            continue  # PyTorch has no difference of bools
        whole = text.replace("x", f"x:{a}[2]")
        if wide:
            book.numpy_vector(
                "promotion", "promote", whole, "exact", {"x": data}, cast=None if "<" in text else "f32"
            )
        else:
            book.add("promotion", "promote", whole, x=data)


# --- casts ---------------------------------------------------------------------------------------------------------

WORDS = {
    "float": "f32",
    "double": "f64",
    "half": "f16",
    "bfloat16": "bf16",
    "long": "i64",
    "int": "i32",
    "short": "i16",
    "bool": "bool",
}


def casting(book):
    for a in DTYPES:
        for b in DTYPES:
            data = (
                [1, 0, 1, 1]
                if a == "bool"
                else [0, 1, 7, 100]
                if a[0] == "u" or a[0] == "i"
                else [0.0, 1.0, 2.75, 100.0]
            )
            book.add("casting", "to", f"x:{a}[4].to({b})", x=data)
        for word in WORDS:
            book.add("casting", word, f"x:{a}[3].{word}()", x=[0, 1, 1])
    for text, data in [
        ("x:f32[8].to(f16)", [65504, 65519.9, 65520, -65520, 1e-8, 6e-8, 2.98e-8, 1.0009766]),
        ("x:f32[6].to(bf16)", [1.00390625, 1.01171875, 3.4e38, 1e-40, -1.00390625, 1.005]),
        ("x:f64[6].to(f32)", [1e39, -1e39, 1e-46, 1e-45, 0.1, 16777217.0]),
        ("x:f32[6].to(i32)", [1.9, -1.9, 0.99, -0.99, 2147483520.0, -2147483648.0]),
        ("x:f64[4].to(i64)", [-1.5, 9007199254740993.0, 2.5, -(2.0**63)]),
        ("x:f32[5].to(bool)", [0.0, -0.0, NAN, 1e-45, INF]),
        ("x:f64[3].to(bool)", [5e-324, NAN, 0.0]),
        ("x:f16[3].to(bool)", [6e-8, NAN, -0.0]),
        ("x:i64[5].to(f32)", [16777217, -16777219, 2**63 - 1, -(2**63), 33554435]),
        ("x:i64[4].to(f64)", [2**53 + 1, 2**63 - 1, -(2**63), 2**54 + 3]),
        ("x:i64[3].to(f16)", [2049, 65504, -2051]),
        ("x:i32[3].to(bf16)", [257, 259, -100001]),
        ("x:u64[3].to(f64)", [2**64 - 1, 2**63, 2**53 + 1]),
        ("x:u64[3].to(f32)", [2**64 - 1, 2**63 + 1, 16777217]),
        ("x:u32[2].to(f32)", [2**32 - 1, 16777219]),
        ("x:i64[5].to(i8)", [127, 128, 255, -129, 2**40 + 5]),
        ("x:i64[4].to(u8)", [-1, 256, 300, 2**62]),
        ("x:i32[4].to(u16)", [-1, 65536, 70000, 5]),
        ("x:i32[3].to(u64)", [-1, 5, -(2**31)]),
        ("x:i8[3].to(u32)", [-1, -128, 127]),
        ("x:u8[3].to(i8)", [255, 128, 127]),
        ("x:u32[3].to(i32)", [2**32 - 1, 2**31, 7]),
        ("x:u64[2].to(i64)", [2**64 - 1, 2**63]),
        ("x:i64[3].to(bool)", [2**40, 0, -1]),
        ("x:i16[2].to(bool)", [256, 0]),
        ("x:f32[0].to(i32)", []),
        ("x:f32[].to(f64)", [0.1]),
        ("x:f32[2].to(dtype=f64)", [0.1, 0.2]),
    ]:
        book.add("casting", "to", text, x=data)
    for text, data in [
        ("x:f32[4].view(i32)", [1.0, -0.0, INF, 1e-45]),
        ("x:i32[3].view(f32)", [1065353216, -2147483648, 1]),
        ("x:f64[2].view(i64)", [1.0, -2.5]),
        ("x:f16[3].view(i16)", [1.0, -0.0, 65504]),
        ("x:bf16[3].view(i16)", [1.0, -2.0, 0.5]),
        ("x:f32[2].view(u32)", [1.0, -1.0]),
        ("x:u32[2].view(i32)", [2**32 - 1, 5]),
        ("x:i8[2].view(u8)", [-1, 5]),
        ("x:f32[2,2].view(i16)", [1.0, 2.0, -0.5, 3.25]),
        ("x:u8[2,4].view(f32)", [0, 0, 128, 63, 0, 0, 0, 192]),
        ("x:i64[2].view(i32)", [1, -1]),
        ("x:i32[2,2].view(i64)", [1, 0, -1, -1]),
        ("x:f64[1].view(u8)", [1.0]),
        ("x:i16[3].view(f16)", [15360, -32768, 1]),
        ("x:bool[3].view(u8)", [1, 0, 1]),
    ]:
        book.add("casting", "bitcast", text, x=data)
    for text in [
        "grad(sum(x:f32[3].to(f64) * g:f64[3]), x)",
        "grad(sum(x:f32[3].half() * g:f16[3]), x)",
        "grad(sum(x:f64[3].to(f32) * g:f32[3]), x)",
        "grad(sum(x:bf16[3].float() * g:f32[3]), x)",
    ]:
        book.add("gradients", "to", text, "equal")
