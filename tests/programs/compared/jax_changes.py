"""Steps of JAX, each in two variants: whether a loss is read, and where the data is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from steps import arguments, compute, run


@jax.jit
def trained(weights: Any, batch: Any) -> Any:
    """The weights after a step, and its loss."""

    def loss(values: Any) -> Any:
        return jnp.mean(jnp.square(jnp.tanh(batch @ values) - 0.5))

    value, slope = jax.value_and_grad(loss)(weights)
    return weights - 0.01 * slope, value


def readings(every: int) -> Callable[[], None]:
    """The loss of each step is read, or one of many."""
    weights, batch, step_number = jnp.ones((2048, 2048)), jnp.ones((8192, 2048)), 0

    def step() -> None:
        nonlocal weights, step_number
        weights, loss = trained(weights, batch)
        step_number += 1
        if step_number % every == 0:
            float(loss)  # changed: every-loss
        compute(0.002)

    return step


def uploads(on_gpu: bool) -> Callable[[], None]:
    """A batch of 64 MiB is NumPy's, or on the GPU."""
    weights, batch = jnp.ones((2048, 512)), np.ones((8192, 2048), dtype=np.float32)
    placed = jnp.asarray(batch) if on_gpu else None

    def step() -> None:
        values = placed if placed is not None else jnp.asarray(batch + 1)  # changed: numpy
        jnp.sum(values @ weights).block_until_ready()

    return step


VARIANTS: dict[str, Callable[[], Callable[[], None]]] = {
    "every-loss": lambda: readings(1),
    "few-losses": lambda: readings(50),
    "numpy": lambda: uploads(False),
    "on-gpu": lambda: uploads(True),
}


def main() -> None:
    """Run a variant."""
    given = arguments()
    # Products in single precision last longer than the work of the host.
    jax.config.update("jax_default_matmul_precision", "highest")
    run(VARIANTS[given.variant](), lambda: (jnp.zeros(()) + 1).block_until_ready(), given.seconds)


if __name__ == "__main__":
    main()
