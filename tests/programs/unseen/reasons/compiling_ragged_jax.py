"""Scores documents of many lengths with JAX and refines a state after each document."""
import json
import os
import time

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"

import jax
import jax.numpy as jnp
import numpy as np

REFINEMENTS = 12


@jax.jit
def encode(tokens, table):
    x = table[tokens]
    x = x - x.mean(axis=0)
    gate = jax.nn.sigmoid(x) * jnp.tanh(x)
    weights = jax.nn.softmax(gate.sum(axis=1))
    return (weights[:, None] * x).sum(axis=0)


@jax.jit
def refine(state, matrix, vector):
    def body(_, s):
        return jnp.tanh(matrix @ s)
    state = jax.lax.fori_loop(0, 40, body, state)
    return state, jnp.abs(state[0].astype(jnp.float32)).mean() + vector.mean()


def process(document, table, state, matrix, spent):
    start = time.perf_counter()
    vector = encode(document, table)
    spent["compile"] += time.perf_counter() - start
    spent["count"] += 1
    for _ in range(REFINEMENTS):
        state, norm = refine(state, matrix, vector)
        float(norm)
    return state


def main():
    rng = np.random.default_rng(0)
    lengths = iter(rng.permutation(np.arange(600, 6000)))
    table = jnp.asarray(rng.standard_normal((32000, 256)), dtype=jnp.float32)
    matrix = jnp.asarray(rng.standard_normal((4096, 4096)) / 64, dtype=jnp.bfloat16)
    state = jnp.asarray(rng.standard_normal((4096, 4096)), dtype=jnp.bfloat16)
    spent = {"compile": 0.0, "count": 0}
    for _ in range(3):
        document = rng.integers(0, 32000, next(lengths), dtype=np.int32)
        state = process(document, table, state, matrix, spent)
    spent = {"compile": 0.0, "count": 0}
    begin = time.perf_counter()
    while time.perf_counter() - begin < 9:
        document = rng.integers(0, 32000, next(lengths), dtype=np.int32)
        state = process(document, table, state, matrix, spent)
    wall = time.perf_counter() - begin
    truth = {"compile": round(100 * spent["compile"] / wall, 1), "count": spent["count"]}
    print(f"RATE {spent['count'] / wall:.2f}; TRUTH {json.dumps(truth)}")


if __name__ == "__main__":
    main()
