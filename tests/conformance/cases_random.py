"""Random words: Threefry-2x32 in JAX's partitionable layout."""

import jax
import jax.numpy as jnp
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


def random(book):
    jax.config.update("jax_threefry_partitionable", True)
    for high, low in KEYS:
        key = jax.random.wrap_key_data(jnp.array([high, low], jnp.uint32), impl="threefry2x32")
        for count in COUNTS:
            words = np.asarray(jax.random.bits(key, (count,), jnp.uint32))
            book.given(
                "random",
                "threefry_bits",
                f"threefry_bits(key:u32[2], {count})",
                "exact",
                {"key": np.array([high, low], np.uint32)},
                [(words, "u32")],
                "jax",
            )
    book.given(
        "random",
        "threefry_bits",
        "threefry_bits(key:u32[2], 12).reshape(3, 4)",
        "exact",
        {"key": np.array([3, 4], np.uint32)},
        [
            (
                np.asarray(
                    jax.random.bits(
                        jax.random.wrap_key_data(jnp.array([3, 4], jnp.uint32), impl="threefry2x32"),
                        (3, 4),
                        jnp.uint32,
                    )
                ),
                "u32",
            )
        ],
        "jax",
    )
