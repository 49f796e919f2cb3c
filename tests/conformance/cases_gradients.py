"""Hand-written cases: gradients at kinks, ties and zeros, through masks, of compositions, of higher order; forward mode and vmap."""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np

INF, NAN = math.inf, math.nan

# Op: the interval where it is smooth.
SMOOTH = {
    "exp": (-2, 2),
    "exp2": (-2, 2),
    "expm1": (-2, 2),
    "log": (0.1, 4),
    "log2": (0.1, 4),
    "log10": (0.1, 4),
    "log1p": (-0.5, 4),
    "sqrt": (0.1, 4),
    "rsqrt": (0.1, 4),
    "reciprocal": (0.2, 4),
    "sin": (-4, 4),
    "cos": (-4, 4),
    "tan": (-1.2, 1.2),
    "asin": (-0.9, 0.9),
    "acos": (-0.9, 0.9),
    "atan": (-4, 4),
    "sinh": (-3, 3),
    "cosh": (-3, 3),
    "tanh": (-3, 3),
    "asinh": (-4, 4),
    "acosh": (1.2, 4),
    "atanh": (-0.9, 0.9),
    "erf": (-2, 2),
    "erfc": (-2, 2),
    "sigmoid": (-4, 4),
    "square": (-3, 3),
    "sinc": (-2, 2),
    "logit": (0.1, 0.9),
    "abs": (-3, 3),
    "neg": (-3, 3),
    "sign": (-3, 3),
    "floor": (-3, 3),
    "ceil": (-3, 3),
    "round": (-3, 3),
    "trunc": (-3, 3),
    "nan_to_num": (-3, 3),
}
BINARY = [
    "x + y",
    "x - y",
    "x * y",
    "x / y",
    "x ** y",
    "x % y",
    "fmod(x, y)",
    "maximum(x, y)",
    "minimum(x, y)",
    "atan2(x, y)",
    "hypot(x, y)",
    "copysign(x, y)",
    "logaddexp(x, y)",
    "xlogy(x, y)",
    "lerp(x, y, 0.3)",
    "where(x > 1.0, x, y)",
    "clamp(x, 0.5, 2.0)",
    "div(x, y, rounding_mode=trunc)",
]
KINKS = [
    ("relu(x:f32[3])", [-1, 0, 1]),
    ("abs(x:f32[3])", [-1, 0, 1]),
    ("sign(x:f32[3])", [-1, 0, 1]),
    ("sqrt(x:f32[2])", [0, 4]),
    ("rsqrt(x:f32[2])", [0, 4]),
    ("log(x:f32[2])", [0, 1]),
    ("reciprocal(x:f32[2])", [0, 2]),
    ("relu6(x:f32[4])", [0, 6, 3, 7]),
    ("hardtanh(x:f32[3])", [-1, 1, 0]),
    ("hardsigmoid(x:f32[3])", [-3, 3, 0]),
    ("hardswish(x:f32[3])", [-3, 3, 0]),
    ("leaky_relu(x:f32[2])", [0, -0.0]),
    ("elu(x:f32[2])", [0, -0.0]),
    ("clamp(x:f32[3], 0.0, 1.0)", [0, 1, 0.5]),
    ("clamp(x:f32[3], 1.0, 0.0)", [0, 1, 0.5]),
    ("asin(x:f32[2])", [1, -1]),
    ("acosh(x:f32[1])", [1]),
    ("sinc(x:f32[2])", [0, 1]),
    ("x:f32[3] ** 2", [0, -1, 2]),
    ("x:f32[2] ** 0.5", [0, 4]),
    ("x:f32[2] ** 0", [0, 3]),
    ("x:f32[2] ** 1", [0, 3]),
    ("x:f32[3] ** 3", [0, -1, 2]),
    ("2.0 ** x:f32[2]", [0, 3]),
    ("0.0 ** x:f32[3]", [0, 1, 2]),
    ("softplus(x:f32[3])", [30, -30, 20]),
    ("silu(x:f32[2])", [0, -100]),
    ("logit(x:f32[2], 0.1)", [0.05, 0.5]),
    ("nan_to_num(x:f32[4])", [NAN, INF, -INF, 2]),
    ("softsign(x:f32[2])", [0, -1]),
    ("amax(x:f32[4])", [2, 3, 3, 1]),
    ("amin(x:f32[4], 0)", [2, 1, 1, 1]),
    ("amax(x:f32[2,3], 1)", [1, 1, 1, 0, 2, 2]),
    ("max(x:f32[4])", [2, 3, 3, 1]),
    ("min(x:f32[4])", [1, 3, 1, 1]),
    ("max(x:f32[2,3], 1)[0]", [1, 1, 1, 0, 2, 2]),
    ("min(x:f32[2,3], 0)[0]", [1, 1, 1, 0, 1, 2]),
    ("median(x:f32[5])", [1, 3, 3, 5, 3]),
    ("median(x:f32[4], 0)[0]", [4, 1, 3, 3]),
    ("prod(x:f32[3])", [2, 0, 3]),
    ("prod(x:f32[3])", [0, 0, 3]),
    ("prod(x:f32[2,2], 1)", [0, 2, 3, 4]),
    ("norm(x:f32[2])", [3, 4]),
    ("norm(x:f32[2,2], 2, 1)", [0, 0, 3, 4]),
    ("norm(x:f32[3], 1)", [0, -1, 2]),
    ("norm(x:f32[3], inf)", [2, -2, 1]),
    ("std(x:f32[3])", [1, 1, 1]),
    ("var(x:f32[3])", [1, 1, 1]),
    ("logsumexp(x:f32[3], 0)", [-INF, 0, 1]),
    ("softmax(x:f32[3], 0)", [-INF, 0, 1]),
    ("x:f32[4].sort()[0]", [2, 1, 2, 1]),
    ("topk(x:f32[4], 2)[0]", [1, 4, 2, 3]),
    ("normalize(x:f32[2,2], dim=1)", [0, 0, 3, 4]),
    ("atan(x:f32[2])", [0, INF]),
]
PAIR_KINKS = [
    ("maximum(x:f32[3], y:f32[3])", [1, 2, 3], [1, 3, 2]),
    ("minimum(x:f32[3], y:f32[3])", [1, 2, 3], [1, 3, 2]),
    ("maximum(x:f32[2], y:f32[2])", [NAN, 1], [1, NAN]),
    ("x:f32[4] ** y:f32[4]", [0, 0, 0, 2], [0, 1, 2, 0]),
    ("x:f32[2] ** y:f32[2]", [-2, -1], [2, 3]),
    ("atan2(x:f32[2], y:f32[2])", [0, 1], [0, 0]),
    ("hypot(x:f32[2], y:f32[2])", [0, 3], [0, 4]),
    ("xlogy(x:f32[3], y:f32[3])", [0, 0, 1], [0, 2, 3]),
    ("x:f32[2] / y:f32[2]", [1, 0], [0, 0]),
    ("x:f32[3] % y:f32[3]", [5, -5, 5], [3, 3, -3]),
    ("fmod(x:f32[3], y:f32[3])", [5, -5, 5], [3, 3, -3]),
    ("copysign(x:f32[3], y:f32[3])", [0, 2, -3], [1, -1, -0.0]),
    ("clamp(x:f32[3], y:f32[3])", [1, 2, 3], [1, 3, 2]),
    ("clamp(x:f32[3], max=y:f32[3])", [1, 2, 3], [1, 3, 2]),
    ("logaddexp(x:f32[2], y:f32[2])", [1, -INF], [1, 0]),
    ("where(x:f32[2] > y:f32[2], x, y)", [1, 2], [1, 1]),
]
# NaN and infinity arise in the branch that is not taken. PyTorch's gradient is what it is: NaN where zero meets infinity.
MASKS = [
    ("where(x:f32[3] > 0.0, log(x), 0.0)", [-1, 0, 2]),
    ("where(x:f32[3] > 0.0, sqrt(x), x)", [-1, 0, 4]),
    ("where(x:f32[2] == 0.0, 1.0, sin(x) / x)", [0, 1]),
    ("where(x:f32[3] > 0.0, 1.0 / x, 0.0)", [0, 2, -2]),
    ("h = where(x:f32[3] > 0.0, x, 1.0); where(x > 0.0, log(h), 0.0)", [-1, 0, 2]),
    ("masked_fill(log(x:f32[3]), x <= 0.0, 0.0)", [-1, 0, 2]),
    ("where(isnan(x:f32[3]), 0.0, x * 2.0)", [NAN, 1, 2]),
    ("where(c:bool[2], x:f32[2] * inf, x)", [1, 2]),
    ("where(c:bool[2], exp(x:f32[2]), x)", [1000, 1]),
    ("sum(x:f32[3] * where(x > 0.0, 1.0, 0.0))", [NAN, 1, -1]),
]
# Whole programs: several statements, reuse, broadcasting, integers on the way, detach, higher order.
PROGRAMS = [
    "grad(sum(x:f32[3] * x * x), x)",
    "grad(sum(x:f32[3] + x), x)",
    "grad(x:f32[] * x, x)",
    "grad(sum(x:f32[3]), x)",
    "grad(sum(x:f32[2,3] * y:f32[3]), x, y)",
    "grad(sum(x:f32[2,1] + y:f32[3]), x, y)",
    "grad(sum(x:f32[] * y:f32[3]), x, y)",
    "grad(sum(exp(x:f32[3]) / sum(exp(x))), x)",
    "grad(sum(grad(sum(x:f32[3] ** 3), x)), x)",
    "grad(sum(grad(sum(sin(x:f32[3])), x)), x)",
    "grad(sum(grad(sum(grad(sum(x:f32[3] ** 4), x)), x)), x)",
    "grad(sum(grad(sum(tanh(x:f32[3]) * y:f32[3]), x)), x, y)",
    "grad(sum(grad(sum(exp(x:f32[3] * y:f32[3])), x)), y)",
    "grad(sum(grad(mean(log_softmax(x:f32[2,3], 1)[:, 0]), x) ** 2), x)",
    "h = relu(x:f32[4,3] @ w:f32[3,5]); loss = cross_entropy(h, i:i64[4]); grad(loss, w)",
    "h = tanh(x:f32[2,3] @ w:f32[3,4] + b:f32[4]); grad(mean(h ** 2), w, b, x)",
    "h = x:f32[3] * 2; grad(sum(h * h), h)",
    "h = x:f32[3] * 2; grad(sum(h * h), x)",
    "value_and_grad(sum(x:f32[3] ** 2), x)",
    "value_and_grad(sum(x:f32[2] * y:f32[2]), x, y)",
    "grad(sum(detach(x:f32[3]) * x), x)",
    "grad(sum(x:f32[3] * detach(exp(x))), x)",
    "grad(sum(x:f32[3].to(f64) ** 2), x)",
    "grad(sum(x:f32[4][1:] * x[:-1]), x)",
    "grad(sum(x:f32[2,3].T @ x), x)",
    "grad(sum(x:f32[3] * i:i64[3]), x)",
    "grad(sum(x:f32[3] * (x > 0.0)), x)",
    "grad(sum(cat([x:f32[2], x * 2])), x)",
    "grad(sum(softmax(x:f32[2,3] @ y:f32[3,2], 1) * z:f32[2,2]), x, y)",
    "grad(sum(layer_norm(x:f32[2,4], [4], w:f32[4], b:f32[4]) ** 2), x, w, b)",
    "q = x:f32[2,4]; a = softmax(q @ q.T / 2.0, -1) @ q; grad(sum(a * z:f32[2,4]), x)",
    "grad(sum(conv2d(relu(conv2d(x:f32[1,1,5,5], w:f32[2,1,3,3])), v:f32[1,2,2,2])), w, v)",
    "grad(sum(max_pool2d(relu(conv2d(x:f32[1,1,6,6], w:f32[1,1,3,3])), 2)), w, x)",
    "e = embedding(i:i64[4], w:f32[3,2]); grad(sum(e * e), w)",
    "grad(sum(gelu(x:f32[2,3] @ w:f32[3,2], approximate=tanh)), x, w)",
    "grad(logsumexp(x:f32[4] * 3.0, 0), x)",
    "grad(sum(grad(logsumexp(x:f32[4], 0), x) * y:f32[4]), x)",
    "grad(sum(cumsum(x:f32[4], 0) ** 2), x)",
    "grad(sum(sort(x:f32[5])[0] * y:f32[5]), x, y)",
    "grad(sum(x:f32[5][i:i64[4]] ** 2), x)",
    "grad(sum(x:f32[4][x > 0.0] ** 2), x)",
    "grad(sum(masked_select(x:f32[4], m:bool[4]) * 2.0), x)",
    "grad(sum(var(x:f32[2,4], 1)), x)",
    "grad(sum(std(x:f32[2,4], 1) / mean(x, 1)), x)",
    "m = x:f32[2,3] - amax(x, 1, true); grad(sum(exp(m) / sum(exp(m), 1, true) * z:f32[2,3]), x)",
    "grad(mean((x:f32[3,2] @ w:f32[2,1] - y:f32[3,1]) ** 2), w, x)",
    "grad(sum(x:bf16[4] * 2.0), x)",
    "grad(sum(x:f16[4] ** 2), x)",
    "grad(sum(x:f64[3] ** 2 * y:f32[3]), x, y)",
]


TRANSFORMS = [
    "jvp(sin(x:f32[3]), x, t:f32[3])",
    "jvp(x:f32[2,3] @ w:f32[3,2], x, t:f32[2,3])",
    "jvp(x:f32[3] * y:f32[3], [x, y], [t:f32[3], u:f32[3]])",
    "jvp(softmax(x:f32[4], 0), x, t:f32[4])",
    "jvp(sum(x:f32[3] ** 2), x, t:f32[3])",
    "jvp(tanh(x:f32[2,3] @ w:f32[3,2] + b:f32[2]), [w, b], [t:f32[3,2], u:f32[2]])",
    "jvp(cumsum(x:f32[4], 0), x, t:f32[4])",
    "jvp(amax(x:f32[2,3], 1), x, t:f32[2,3])",
    "jvp(logsumexp(x:f32[2,3], 1), x, t:f32[2,3])",
    "jvp(sort(x:f32[4])[0], x, t:f32[4])",
    "jvp(conv2d(x:f32[1,1,3,3], w:f32[1,1,2,2]), w, t:f32[1,1,2,2])",
    "jvp(x:f32[4][1:3], x, t:f32[4])",
    "jvp(grad(sum(x:f32[3] ** 3), x), x, t:f32[3])",
    "grad(sum(jvp(x:f32[3] ** 3, x, t:f32[3])), x)",
    "vjp(sin(x:f32[3]), x, v:f32[3])",
    "vjp(x:f32[2,3] @ w:f32[3,2], [x, w], v:f32[2,2])",
    "vjp(softmax(x:f32[2,3], 1), x, v:f32[2,3])",
    "vjp(cat([x:f32[2], y:f32[3]]), [x, y], v:f32[5])",
    "vjp(layer_norm(x:f32[2,4], [4]), x, v:f32[2,4])",
    "vmap(sum(x:f32[3,4]), x)",
    "vmap(softmax(x:f32[3,4], 0), x)",
    "vmap(w:f32[2,4] @ x:f32[3,4], x)",
    "vmap(x:f32[3,4] * y:f32[3,4], x, y)",
    "vmap(dot(x:f32[3,4], y:f32[3,4]), x, y)",
    "vmap(x:f32[3,2,4].T, x)",
    "vmap(x:f32[3,4][1:], x)",
    "vmap(amax(x:f32[3,4], 0), x)",
    "vmap(cumsum(x:f32[3,4], 0), x)",
    "vmap(sort(x:f32[3,4])[0], x)",
    "vmap(grad(sum(x:f32[3,4] ** 3), x), x)",
    "vmap(relu(x:f32[3,2,4] @ w:f32[4,2]), x)",
    "vmap(x:f32[3,2,4] @ y:f32[3,4,2], x, y)",
    "vmap((sum(x:f32[3,4]), x * 2.0), x)",
    "vmap(w:f32[5][i:i64[3]], i)",
    "vmap(conv1d(x:f32[2,1,1,5], w:f32[1,1,2]), x)",
    "vmap(where(x:f32[3,4] > 0.0, x, 0.0), x)",
    "vmap(argmax(x:f32[3,4]), x)",
    "vmap(flip(x:f32[3,4], [0]), x)",
    "vmap(pad(x:f32[3,4], [1,0]), x)",
    "vmap(x:f32[3,4] + 1.0, x)",
    "vmap(gather(x:f32[3,4], 0, i:i64[3,2]), x, i)",
    "grad(sum(vmap(tanh(x:f32[3,4]) * w:f32[4], x)), w, x)",
    "vmap(vmap(sum(x:f32[2,3,4]), x), x)",
    "vmap(cat([x:f32[3,2], y:f32[2]]), x)",
]


def transforms(book):
    for text in TRANSFORMS:
        book.add("transforms", text.split("(")[0], text, "rel", i=(0, 3))


def gradients(book):
    for op, interval in SMOOTH.items():
        book.grad(op, f"{op}(x:f32[6])", x=interval)
        book.grad(op, f"{op}(x:f64[3])", x=interval)
        if op not in ("abs", "neg", "sign", "floor", "ceil", "round", "trunc", "nan_to_num", "sinc"):
            book.add(
                "gradients", op, f"grad(sum(grad(sum({op}(x:f32[4])), x) * g:f32[4]), x)", "rel", x=interval
            )
    for text in BINARY:
        whole = re.sub(r"\bx\b", "x:f32[2,3]", text, count=1)
        binary = re.search(r"\by\b", whole)
        for shape in ("2,3", "3", "") if binary else ("",):
            book.grad("binary", re.sub(r"\by\b", f"y:f32[{shape}]", whole, count=1), x=(0.5, 3), y=(0.5, 3))
    for text, x in KINKS:
        book.grad("kink", text, x=x)
    for text, x, y in PAIR_KINKS:
        book.grad("kink", text, x=x, y=y)
    for text, x in MASKS:
        book.grad("mask", text, x=x, c=[0, 1])
    for text in PROGRAMS:
        book.add("gradients", "program", text, "rel", i=(0, 2))
    # an input that the result does not depend on
    book.given(
        "gradients",
        "program",
        "grad(sum(y:f32[2]), x:f32[3])",
        "exact",
        {},
        [(np.zeros(3, np.float32), "f32")],
        "definition",
    )
    _against_jax(book)


def _against_jax(book):
    """Gradients whose reference is JAX: where the two libraries agree on the meaning, two references are better than one."""

    def layer(x, w, b):
        return jnp.tanh(x @ w + b)

    cases = [
        (
            "grad(sum(tanh(x:f32[2,3] @ w:f32[3,2] + b:f32[2])), x, w, b)",
            lambda x, w, b: jnp.sum(layer(x, w, b)),
            3,
        ),
        ("grad(sum(silu(x:f32[5]) * y:f32[5]), x, y)", lambda x, y: jnp.sum(jax.nn.silu(x) * y), 2),
        (
            "grad(sum(softmax(x:f32[2,4], 1) * y:f32[2,4]), x, y)",
            lambda x, y: jnp.sum(jax.nn.softmax(x, 1) * y),
            2,
        ),
        (
            "grad(sum(log_softmax(x:f32[2,4], -1) * y:f32[2,4]), x, y)",
            lambda x, y: jnp.sum(jax.nn.log_softmax(x, -1) * y),
            2,
        ),
        ("grad(sum(gelu(x:f32[6])), x)", lambda x: jnp.sum(jax.nn.gelu(x, approximate=False)), 1),
        (
            "grad(sum(gelu(x:f32[6], approximate=tanh)), x)",
            lambda x: jnp.sum(jax.nn.gelu(x, approximate=True)),
            1,
        ),
        ("grad(sum(cumsum(x:f32[5], 0) * y:f32[5]), x, y)", lambda x, y: jnp.sum(jnp.cumsum(x) * y), 2),
        (
            "grad(sum(logsumexp(x:f32[3,4], 1) * y:f32[3]), x, y)",
            lambda x, y: jnp.sum(jax.nn.logsumexp(x, 1) * y),
            2,
        ),
        ("grad(sum(erf(x:f32[5]) * y:f32[5]), x, y)", lambda x, y: jnp.sum(jax.lax.erf(x) * y), 2),
        ("grad(sum(x:f32[3,3] @ x @ x), x)", lambda x: jnp.sum(x @ x @ x), 1),
        (
            "grad(sum(var(x:f32[2,5], 1) * y:f32[2]), x, y)",
            lambda x, y: jnp.sum(jnp.var(x, 1, ddof=1) * y),
            2,
        ),
        ("grad(sum(softplus(x:f32[5]) * y:f32[5]), x, y)", lambda x, y: jnp.sum(jax.nn.softplus(x) * y), 2),
        ("grad(sum(atan2(x:f32[4], y:f32[4])), x, y)", lambda x, y: jnp.sum(jnp.arctan2(x, y)), 2),
        ("grad(sum(flip(x:f32[2,3], [1]) * y:f32[2,3]), x, y)", lambda x, y: jnp.sum(jnp.flip(x, 1) * y), 2),
        (
            'grad(sum(einsum("bij,bjk->bik", x:f32[2,2,3], y:f32[2,3,2]) ** 2), x, y)',
            lambda x, y: jnp.sum(jnp.einsum("bij,bjk->bik", x, y) ** 2),
            2,
        ),
    ]
    with jax.enable_x64(True):
        for text, function, count in cases:
            arrays = book.arrays(text, {})
            wide = [jnp.asarray(a, jnp.float64) for a in arrays.values()]
            results = jax.grad(function, tuple(range(count)))(*wide)
            book.given(
                "gradients",
                "program",
                text,
                "rel1e-05",
                arrays,
                [(np.asarray(r).astype(np.float32), "f32") for r in results],
                "jax",
            )
