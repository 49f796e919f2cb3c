"""The steps of models that `lazuli bench` has by name, in PyTorch and JAX.

build(peer, name) returns a function that does one step and waits for its result. Shapes, rates and
formulas are those of tools/cli/steps.cpp; weights are random.
"""
import numpy as np

GPT2 = {"layers": 12, "heads": 12, "width": 768, "symbols": 50257, "length": 1024}
NANO = {"layers": 3, "heads": 3, "width": 48, "symbols": 65, "length": 64}
BLOCK = {"layers": 1, "heads": 12, "width": 768, "symbols": 8, "length": 8}

_random = np.random.default_rng(0)


def normal(*shape, scale=0.05):
    return (_random.standard_normal(shape) * scale).astype("float32")


def zeros(*shape):
    return np.zeros(shape, "float32")


def ones(*shape):
    return np.ones(shape, "float32")


def perceptron(*sizes):
    out = []
    for inside, outside in zip(sizes, sizes[1:]):
        out += [normal(inside, outside, scale=inside ** -0.5), zeros(outside)]
    return out


def gpt_weights(layers, width, symbols, length, heads):
    c = width
    w = {"tokens": normal(symbols, c), "places": normal(length, c), "norm": ones(c), "shift": zeros(c)}
    for i in range(layers):
        w |= {f"{i}.norm1": ones(c), f"{i}.shift1": zeros(c),
              f"{i}.qkv": normal(c, 3 * c), f"{i}.qkv_bias": zeros(3 * c),
              f"{i}.out": normal(c, c), f"{i}.out_bias": zeros(c),
              f"{i}.norm2": ones(c), f"{i}.shift2": zeros(c),
              f"{i}.up": normal(c, 4 * c), f"{i}.up_bias": zeros(4 * c),
              f"{i}.down": normal(4 * c, c), f"{i}.down_bias": zeros(c)}
    return w


def training(name):
    """Parameters, inputs and targets of a training step."""
    if name == "tiny_adam":
        return perceptron(2, 16, 16, 1), normal(100, 2, scale=1), normal(100, 1, scale=1)
    if name.startswith("mlp_"):
        return perceptron(784, 512, 10), normal(128, 784, scale=1), _random.integers(0, 10, 128)
    if name == "cnn_adam":
        weights = [normal(8, 1, 3, 3, scale=0.3), zeros(8), normal(16, 8, 3, 3, scale=0.1),
                   zeros(16), normal(400, 10), zeros(10)]
        return weights, normal(64, 1, 28, 28, scale=1), _random.integers(0, 10, 64)
    ids = _random.integers(0, 65, (32, 64)), _random.integers(0, 65, (32, 64))
    return gpt_weights(**NANO), *ids


TRAINING = ("tiny_adam", "mlp_sgd", "mlp_adam", "cnn_adam", "gpt_nano_adamw")


def build(peer, name):
    if name == "resnet50_step":
        raise NotImplementedError("resnet50_step: written for lazuli alone; add the model here")
    if peer in ("torch", "compile"):
        return torch_training(name, peer) if name in TRAINING else torch_inference(name, peer)
    if peer == "jax":
        return jax_training(name) if name in TRAINING else jax_inference(name)
    raise NotImplementedError(f"{name} is not spelled for {peer}")


# ---- PyTorch

def torch_block(w, i, x, heads, attend):
    import torch.nn.functional as F
    batch, length, c = x.shape
    h = F.layer_norm(x, (c,), w[f"{i}.norm1"], w[f"{i}.shift1"]) @ w[f"{i}.qkv"] + w[f"{i}.qkv_bias"]
    q, k, v = (a.view(batch, length, heads, c // heads).transpose(1, 2) for a in h.split(c, 2))
    y = attend(i, q, k, v).transpose(1, 2).reshape(batch, length, c)
    x = x + y @ w[f"{i}.out"] + w[f"{i}.out_bias"]
    h = F.layer_norm(x, (c,), w[f"{i}.norm2"], w[f"{i}.shift2"]) @ w[f"{i}.up"] + w[f"{i}.up_bias"]
    return x + F.gelu(h, approximate="tanh") @ w[f"{i}.down"] + w[f"{i}.down_bias"]


def torch_gpt(w, x, size):
    import torch.nn.functional as F

    def attend(_, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    for i in range(size["layers"]):
        x = torch_block(w, i, x, size["heads"], attend)
    return x


def torch_logits(w, x):
    import torch.nn.functional as F
    return F.layer_norm(x, (x.shape[-1],), w["norm"], w["shift"]) @ w["tokens"].T


def torch_training(name, peer):
    import torch
    import torch.nn.functional as F
    start, x, y = training(name)
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    named = start if isinstance(start, dict) else dict(enumerate(start))
    p = {k: torch.from_numpy(v).requires_grad_() for k, v in named.items()}

    def loss():
        if name == "tiny_adam":
            h = torch.tanh(torch.tanh(x @ p[0] + p[1]) @ p[2] + p[3])
            return F.mse_loss(h @ p[4] + p[5], y)
        if name.startswith("mlp_"):
            return F.cross_entropy(torch.relu(x @ p[0] + p[1]) @ p[2] + p[3], y)
        if name == "cnn_adam":
            h = F.max_pool2d(torch.relu(F.conv2d(x, p[0], p[1])), 2)
            h = F.max_pool2d(torch.relu(F.conv2d(h, p[2], p[3])), 2)
            return F.cross_entropy(h.flatten(1) @ p[4] + p[5], y)
        h = torch_gpt(p, F.embedding(x, p["tokens"]) + p["places"], NANO)
        return F.cross_entropy(torch_logits(p, h).view(-1, 65), y.view(-1))

    parameters = list(p.values())
    if name == "mlp_sgd":
        optimizer = torch.optim.SGD(parameters, 1e-3)
    elif name == "gpt_nano_adamw":
        optimizer = torch.optim.AdamW(parameters, 1e-4, fused=True)
    else:
        optimizer = torch.optim.Adam(parameters, 1e-4, fused=True)
    forward = torch.compile(loss) if peer == "compile" else loss

    def step():
        optimizer.zero_grad(set_to_none=True)
        value = forward()
        value.backward()
        optimizer.step()
        return value

    return step


def torch_inference(name, peer):
    import torch
    import torch.nn.functional as F
    size = BLOCK if name == "gpt2_block_fwd" else GPT2
    w = {k: torch.from_numpy(v) for k, v in gpt_weights(**size).items()}
    if name == "gpt2_block_fwd":
        x = torch.from_numpy(normal(1, 512, 768, scale=1))

        def forward():
            return torch_gpt(w, x, size)
    elif name == "gpt2_prefill_128":
        ids = torch.from_numpy(_random.integers(0, 50257, (1, 128)))

        def forward():
            h = torch_gpt(w, F.embedding(ids, w["tokens"]) + w["places"][:128], size)
            return torch_logits(w, h[:, -1])
    else:
        keys, values = (torch.zeros(12, 1, 12, 1024, 64) for _ in range(2))
        place, token = 128, torch.tensor([[5]])

        def attend(i, q, k, v):
            keys[i, :, :, place:place + 1] = k
            values[i, :, :, place:place + 1] = v
            return F.scaled_dot_product_attention(q, keys[i, :, :, :place + 1],
                                                  values[i, :, :, :place + 1])

        def forward():
            x = F.embedding(token, w["tokens"]) + w["places"][place:place + 1]
            for i in range(size["layers"]):
                x = torch_block(w, i, x, size["heads"], attend)
            return torch_logits(w, x)

    function = torch.compile(forward) if peer == "compile" else forward

    def step():
        with torch.inference_mode():
            return function()

    return step


# ---- JAX

def jax_norm(x, weight, shift):
    import jax
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * weight + shift


def jax_block(w, i, x, heads, attend):
    import jax
    import jax.numpy as jnp
    batch, length, c = x.shape
    h = jax_norm(x, w[f"{i}.norm1"], w[f"{i}.shift1"]) @ w[f"{i}.qkv"] + w[f"{i}.qkv_bias"]
    q, k, v = (a.reshape(batch, length, heads, c // heads).swapaxes(1, 2) for a in jnp.split(h, 3, 2))
    y = attend(i, q, k, v).swapaxes(1, 2).reshape(batch, length, c)
    x = x + y @ w[f"{i}.out"] + w[f"{i}.out_bias"]
    h = jax_norm(x, w[f"{i}.norm2"], w[f"{i}.shift2"]) @ w[f"{i}.up"] + w[f"{i}.up_bias"]
    return x + jax.nn.gelu(h) @ w[f"{i}.down"] + w[f"{i}.down_bias"]


def jax_attention(q, k, v, mask):
    import jax
    import jax.numpy as jnp
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(jnp.where(mask, scores, -1e30), -1), v)


def jax_gpt(w, x, size):
    import jax.numpy as jnp
    length = x.shape[1]
    mask = jnp.tril(jnp.ones((length, length), bool))
    for i in range(size["layers"]):
        x = jax_block(w, i, x, size["heads"], lambda _, q, k, v: jax_attention(q, k, v, mask))
    return x


def jax_logits(w, x):
    return jax_norm(x, w["norm"], w["shift"]) @ w["tokens"].T


def jax_cross_entropy(z, y):
    import jax
    import jax.numpy as jnp
    return -jnp.take_along_axis(jax.nn.log_softmax(z, -1), y[:, None], 1).mean()


def jax_loss(name, p, x, y):
    import jax
    import jax.numpy as jnp
    if name == "tiny_adam":
        h = jnp.tanh(jnp.tanh(x @ p[0] + p[1]) @ p[2] + p[3])
        return ((h @ p[4] + p[5] - y) ** 2).mean()
    if name.startswith("mlp_"):
        return jax_cross_entropy(jax.nn.relu(x @ p[0] + p[1]) @ p[2] + p[3], y)
    if name == "cnn_adam":
        def layer(h, w, b):
            h = jax.nn.relu(jax.lax.conv_general_dilated(h, w, (1, 1), "VALID") + b[:, None, None])
            return jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        h = layer(layer(x, p[0], p[1]), p[2], p[3])
        return jax_cross_entropy(h.reshape(64, -1) @ p[4] + p[5], y)
    h = jax_gpt(p, p["tokens"][x] + p["places"], NANO)
    return jax_cross_entropy(jax_logits(p, h).reshape(-1, 65), y.reshape(-1))


def jax_training(name):
    import jax
    import jax.numpy as jnp
    start, x, y = training(name)
    start, x, y = jax.tree.map(jnp.asarray, start), jnp.asarray(x), jnp.asarray(y)
    decay = 1e-4 * 1e-2 if name == "gpt_nano_adamw" else 0.0

    def step(state, x, y):
        p, m, v, t = state
        value, g = jax.value_and_grad(lambda p: jax_loss(name, p, x, y))(p)
        if name == "mlp_sgd":
            return (jax.tree.map(lambda a, b: a - 1e-3 * b, p, g), m, v, t), value
        t = t + 1
        m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        v = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)
        first, second = 1 - 0.9 ** t, 1 - 0.999 ** t
        p = jax.tree.map(lambda a, b, c: a * (1 - decay)
                         - 1e-4 * (b / first) / (jnp.sqrt(c / second) + 1e-8), p, m, v)
        return (p, m, v, t), value

    compiled = jax.jit(step, donate_argnums=0)
    state = [(start, jax.tree.map(jnp.zeros_like, start), jax.tree.map(jnp.zeros_like, start),
              jnp.float32(0))]

    def run():
        state[0], value = compiled(state[0], x, y)
        jax.block_until_ready((state[0], value))
        return value

    return run


def jax_inference(name):
    import jax
    import jax.numpy as jnp
    size = BLOCK if name == "gpt2_block_fwd" else GPT2
    w = jax.tree.map(jnp.asarray, gpt_weights(**size))
    if name == "gpt2_block_fwd":
        x = jnp.asarray(normal(1, 512, 768, scale=1))
        block = jax.jit(lambda w, x: jax_gpt(w, x, size))
        return lambda: block(w, x).block_until_ready()
    if name == "gpt2_prefill_128":
        ids = jnp.asarray(_random.integers(0, 50257, (1, 128)))
        prefill = jax.jit(lambda w, ids: jax_logits(
            w, jax_gpt(w, w["tokens"][ids] + w["places"][:128], size)[:, -1]))
        return lambda: prefill(w, ids).block_until_ready()

    def decode(w, keys, values, token, place):
        x = w["tokens"][token] + jax.lax.dynamic_slice(w["places"], (place, 0), (1, 768))
        mask, caches = jnp.arange(1024) <= place, [keys, values]

        def attend(i, q, k, v):
            caches[0] = jax.lax.dynamic_update_slice(caches[0], k[None], (i, 0, 0, place, 0))
            caches[1] = jax.lax.dynamic_update_slice(caches[1], v[None], (i, 0, 0, place, 0))
            return jax_attention(q, caches[0][i], caches[1][i], mask)

        for i in range(size["layers"]):
            x = jax_block(w, i, x, size["heads"], attend)
        return jax_logits(w, x), *caches

    compiled = jax.jit(decode, donate_argnums=(1, 2))
    caches = [jnp.zeros((12, 1, 12, 1024, 64)) for _ in range(2)]
    token = jnp.asarray([[5]])

    def run():
        logits, caches[0], caches[1] = compiled(w, caches[0], caches[1], token, 128)
        return logits.block_until_ready()

    return run
