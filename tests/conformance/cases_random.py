"""Random words and numbers: Threefry-2x32 in JAX's partitionable layout. The reference is jax.random."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

KEYS = [
    (0, 0),
    (0, 1),
    (0, 42),
    (1, 0),
    (0x13198A2E, 0x03707344),
    (0xFFFFFFFF, 0xFFFFFFFF),
    (0, 0xFFFFFFFF),
    (0xDEADBEEF, 0),
    (7, 9),
    (0x80000000, 0x7FFFFFFF),
]
COUNTS = [0, 1, 2, 3, 5, 8, 17, 64]
SHAPES = [(7,), (3, 4), (2, 3, 2), ()]
FLOATS = {"f32": jnp.float32, "f16": jnp.float16, "bf16": jnp.bfloat16, "f64": jnp.float64}


def _key(words):
    return jax.random.wrap_key_data(jnp.array(words, jnp.uint32), impl="threefry2x32")


def _host(value):
    value = np.asarray(value)
    return value.astype(ml_dtypes.bfloat16) if value.dtype.name == "bfloat16" else value


def random(book):
    jax.config.update("jax_threefry_partitionable", True)

    def add(op, text, words, value, dtype, tol="exact"):
        inputs = {"key": np.array(words, np.uint32)}
        book.given("random", op, text, tol, inputs, [(_host(value), dtype)], "jax")

    with jax.enable_x64(True):
        for words in KEYS:
            _bits(add, words)
        for words in KEYS[:5]:
            _numbers(add, words)
        for seed in (0, 1, 42, 2**32 - 1, 2**32, 2**40 + 12345):
            value = jax.random.key_data(jax.random.key(seed))
            book.given(
                "random", "random_key", f"random_key({seed})", "exact", {}, [(_host(value), "u32")], "jax"
            )


def _bits(add, words):
    """Raw words, new keys."""
    key = _key(words)
    for count in COUNTS:
        value = jax.random.bits(key, (count,), jnp.uint32)
        add("threefry_bits", f"threefry_bits(key:u32[2], {count})", words, value, "u32")
    for shape in SHAPES[1:]:
        value = jax.random.bits(key, shape, jnp.uint32)
        add("threefry_bits", f"threefry_bits(key:u32[2], {list(shape)})", words, value, "u32")
    for dtype, wanted in (("u8", jnp.uint8), ("u16", jnp.uint16), ("u64", jnp.uint64)):
        value = jax.random.bits(key, (6,), wanted)
        add("threefry_bits", f"threefry_bits(key:u32[2], [6], dtype={dtype})", words, value, dtype)
    for count in (1, 2, 3, 5):
        value = jax.random.key_data(jax.random.split(key, count))
        add("split_key", f"split_key(key:u32[2], {count})", words, value, "u32")
    for data in (0, 1, 77, 2**32 - 1):
        value = jax.random.key_data(jax.random.fold_in(key, data))
        add("fold_in", f"fold_in(key:u32[2], {data})", words, value, "u32")


def _numbers(add, words):
    """Numbers made of the words."""
    key = _key(words)
    for dtype, wanted in FLOATS.items():
        for shape in SHAPES:
            value = jax.random.uniform(key, shape, wanted)
            add("rand", f"rand({list(shape)}, dtype={dtype}, key=key:u32[2])", words, value, dtype)
    for low, high in ((-1.0, 1.0), (2.5, 7.0), (0.0, 1e-3)):
        value = jax.random.uniform(key, (9,), jnp.float32, low, high)
        text = f"uniform([9], {low}, {high}, key=key:u32[2])"
        add("uniform", text, words, value, "f32", "rel1e-06")
    for dtype, tol in (("f32", "rel1e-05"), ("f64", "rel1e-10"), ("bf16", "rel0.02"), ("f16", "rel0.003")):
        value = jax.random.normal(key, (16,), FLOATS[dtype])
        add("randn", f"randn([16], dtype={dtype}, key=key:u32[2])", words, value, dtype, tol)
    for low, high in ((0, 10), (-5, 100), (0, 2), (3, 2**31 - 1), (0, 1)):
        value = jax.random.randint(key, (12,), low, high, jnp.int32)
        add("randint", f"randint({low}, {high}, [12], dtype=i32, key=key:u32[2])", words, value, "i32")
        value = jax.random.randint(key, (5,), low, high, jnp.int64)
        add("randint", f"randint({low}, {high}, [5], key=key:u32[2])", words, value, "i64")
    value = jax.random.bernoulli(key, jnp.float32(0.3), (24,)).astype(np.float32)
    add("bernoulli", "bernoulli(zeros([24]), 0.3, key=key:u32[2])", words, value, "f32")
