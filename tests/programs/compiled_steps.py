"""A training step of a small network in JAX: one CUDA graph in each, and a read of the loss."""

from __future__ import annotations

import os

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"

import jax
from step_times import run_steps

LAYERS, WIDTH, BATCH = 8, 512, 256


def main() -> None:
    """Train."""
    keys = jax.random.split(jax.random.PRNGKey(0), LAYERS + 1)
    weights = [0.05 * jax.random.normal(key, (WIDTH, WIDTH)) for key in keys[:-1]]
    inputs = jax.random.normal(keys[-1], (BATCH, WIDTH))

    def loss_of(present: list[jax.Array]) -> jax.Array:
        values = inputs
        for one in present:
            values = jax.nn.gelu(values @ one)
        return ((values - inputs) ** 2).mean()

    def updated(present: list[jax.Array]) -> tuple[list[jax.Array], jax.Array]:
        loss, slopes = jax.value_and_grad(loss_of)(present)
        return [one - 1e-3 * slope for one, slope in zip(present, slopes, strict=True)], loss

    update = jax.jit(updated)

    def step() -> float:
        nonlocal weights
        weights, loss = update(weights)
        return float(loss)

    run_steps(step)


if __name__ == "__main__":
    main()
