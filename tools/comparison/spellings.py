"""How each peer spells the workloads of `lazuli bench`, which has their names, shapes and costs.

A row is (names that begin so, {peer: expression}); the longest beginning counts. Expressions name
the inputs as lazuli's expression does. Words in braces stand for what that expression says: {padding}
is what follows `padding=` in it. A peer that is left out has no such operation, or its text for
PyTorch does not carry over.
"""
import re

MATMUL = {"torch": "a @ b", "jax": "a @ b", "mlx": "a @ b", "tiny": "a @ b"}
MATMUL_NT = {"torch": "a @ b.mT", "jax": "a @ b.mT", "mlx": "a @ b.swapaxes(-1, -2)",
             "tiny": "a @ b.transpose(-1, -2)"}
MATMUL_TN = {"torch": "a.mT @ b", "jax": "a.mT @ b", "mlx": "a.swapaxes(-1, -2) @ b",
             "tiny": "a.transpose(-1, -2) @ b"}


def function(name, jax=None):
    return {"torch": f"torch.{name}(x)", "jax": jax or f"jnp.{name}(x)", "mlx": f"mx.{name}(x)",
            "tiny": f"x.{name}()"}


def same(text):
    return {peer: text for peer in ("torch", "jax", "mlx", "tiny")}


CONV_JAX = ("jax.lax.conv_general_dilated(x, w, ({stride}, {stride}), [({padding}, {padding})] * 2, "
            "feature_group_count={groups})")
CONV_VJP = ("jax.vjp(lambda {wrt}: jax.lax.conv_general_dilated(x, w, (1, 1), "
            "[({padding}, {padding})] * 2), {wrt})[1](g)[0]")

SPELLINGS = [
    ("matmul_", MATMUL),
    ("matmul_1024_", {}),  # of types that the peers multiply in other ways, if at all
    ("size_", MATMUL),
    ("gemv_", MATMUL),
    ("matmul_nt", MATMUL_NT),
    ("gemv_nt", MATMUL_NT),
    ("bmm_", MATMUL_NT),
    ("matmul_tn", MATMUL_TN),
    ("linear_gelu", {"torch": "F.gelu(x @ w + b, approximate='tanh')",
                     "jax": "jax.nn.gelu(x @ w + b, approximate=True)",
                     "mlx": "nn.gelu_approx(x @ w + b)", "tiny": "(x @ w + b).gelu()"}),
    ("mlp_block", {"torch": "torch.relu(x @ w + b)", "jax": "jax.nn.relu(x @ w + b)",
                   "mlx": "nn.relu(x @ w + b)", "tiny": "(x @ w + b).relu()"}),
    ("exp_", function("exp")),
    ("tanh_", function("tanh")),
    ("erf_", function("erf", "jax.scipy.special.erf(x)")),
    ("sin_", function("sin")),
    ("log_", function("log")),
    ("chain_", {"torch": "F.gelu(x * 0.5 + b, approximate='tanh') * torch.sigmoid(y) + x",
                "jax": "jax.nn.gelu(x * 0.5 + b, approximate=True) * jax.nn.sigmoid(y) + x",
                "mlx": "nn.gelu_approx(x * 0.5 + b) * mx.sigmoid(y) + x",
                "tiny": "(x * 0.5 + b).gelu() * y.sigmoid() + x"}),
    ("softmax_", {"torch": "torch.softmax(x, -1)", "jax": "jax.nn.softmax(x, -1)",
                  "mlx": "mx.softmax(x, -1)", "tiny": "x.softmax(-1)"}),
    ("layernorm_", {"torch": "F.layer_norm(x, (x.shape[-1],), w, b)",
                    "jax": "(x - x.mean(-1, keepdims=True)) * "
                           "jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * w + b",
                    "mlx": "mx.fast.layer_norm(x, w, b, 1e-5)", "tiny": "x.layernorm() * w + b"}),
    ("sum0_", same("x.sum(0)")),
    ("sum1_", same("x.sum(1)")),
    ("sumall_", same("x.sum()")),
    ("argmax_", same("x.argmax(1)")),
    ("transpose_", {"torch": "x.T.contiguous()", "jax": "x.T + 0", "mlx": "mx.contiguous(x.T)",
                    "tiny": "x.T.contiguous()"}),
    ("cumsum_", same("x.cumsum(1)")),
    ("sort_", {"torch": "torch.sort(x, 1)[0]", "jax": "jnp.sort(x, 1)", "mlx": "mx.sort(x, 1)",
               "tiny": "x.sort(1)[0]"}),
    ("gather_", {"torch": "F.embedding(i, w)", "jax": "w[i]", "mlx": "w[i]", "tiny": "w[i]"}),
    ("crossentropy_", {"torch": "F.cross_entropy(x, i)",
                       "jax": "-jnp.take_along_axis(jax.nn.log_softmax(x, -1), i[:, None], 1).mean()",
                       "mlx": "nn.losses.cross_entropy(x, i, reduction='mean')",
                       "tiny": "x.sparse_categorical_crossentropy(i)"}),
    ("conv", {"torch": "F.conv2d(x, w, stride={stride}, padding={padding}, groups={groups})",
              "jax": CONV_JAX,
              "tiny": "x.conv2d(w, stride={stride}, padding={padding}, groups={groups})"}),
    ("depthwise", {"torch": "F.conv2d(x, w, stride={stride}, padding={padding}, groups={groups})",
                   "jax": CONV_JAX,
                   "tiny": "x.conv2d(w, stride={stride}, padding={padding}, groups={groups})"}),
    ("attention_", {"torch": "F.scaled_dot_product_attention(q, k, v, is_causal={is_causal})",
                    "jax": "jax.nn.dot_product_attention(q.swapaxes(1, 2), k.swapaxes(1, 2), "
                           "v.swapaxes(1, 2), is_causal={is_causal}).swapaxes(1, 2)",
                    "mlx": "mx.fast.scaled_dot_product_attention(q, k, v, "
                           "scale=q.shape[-1] ** -0.5, mask='causal' if {is_causal} else None)",
                    "tiny": "q.scaled_dot_product_attention(k, v, is_causal={is_causal})"}),
]

# Gradients of a convolution; g is that of its result.
GRADIENTS = {
    "x": {"torch": "torch.nn.grad.conv2d_input(x.shape, w, g, padding={padding})", "jax": CONV_VJP},
    "w": {"torch": "torch.nn.grad.conv2d_weight(x, w.shape, g, padding={padding})", "jax": CONV_VJP},
}


def spelling(name, expression, peer):
    """The workload in the peer's words; None if it has none."""
    words = dict(re.findall(r"(\w+)=(\w+)", expression))
    words = {k: v.capitalize() if v in ("true", "false") else v for k, v in words.items()}
    gradient = re.search(r"^grad\(.*, (\w)\)$", expression)
    if gradient:
        words["wrt"] = gradient[1]
        row = GRADIENTS[gradient[1]]
    else:
        fitting = [r for r in SPELLINGS if name.startswith(r[0])]
        row = max(fitting, key=lambda r: len(r[0]))[1] if fitting else {}
    text = row.get("torch" if peer == "compile" else peer)
    return text and re.sub(r"\{(\w+)\}", lambda m: words[m[1]], text)


def inputs(expression, numpy):
    """What the inputs declared in lazuli's expression are filled with, the same for all."""
    random = numpy.random.default_rng(0)
    out = {}
    for name, dtype, shape, kind in re.findall(
            r"(\w+):([a-z]\w*)\[([\d,]*)\](?:~(\w+(?:\(\d+\))?))?", expression):
        size = tuple(int(s) for s in shape.split(",") if s)
        below = re.match(r"ids\((\d+)\)", kind)
        if below:
            out[name] = random.integers(0, int(below[1]), size).astype({"i32": "int32",
                                                                        "i64": "int64"}[dtype])
        elif kind == "uniform":
            out[name] = (random.random(size) * 0.999 + 1e-3).astype("float32")
        else:
            out[name] = random.standard_normal(size).astype("float32")
    return out
