"""Steps of JAX, each in two variants: when a value is awaited, where the data is, the numbers, the launches."""

from __future__ import annotations

import os
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
    weights, batch, step_number = jnp.ones((2048, 2048)), jnp.ones((4096, 2048)), 0

    def step() -> None:
        nonlocal weights, step_number
        weights, loss = trained(weights, batch)
        step_number += 1
        if step_number % every == 0:
            float(loss)  # changed: every-loss
        compute(0.01)

    return step


def uploads(on_gpu: bool) -> Callable[[], None]:
    """A batch of 64 MiB is NumPy's, or on the GPU."""
    weights, batch = jnp.ones((2048, 512)), np.ones((8192, 2048), dtype=np.float32)
    placed = jnp.asarray(batch) if on_gpu else None

    def step() -> None:
        values = placed if placed is not None else jnp.asarray(batch + 1)  # changed: numpy
        jnp.sum(values @ weights).block_until_ready()

    return step


def batches(pinned: bool) -> Callable[[], None]:
    """A batch of 64 MiB is copied from memory of the host, pageable or pinned."""
    device = jax.devices()[0]
    on_gpu = jax.sharding.SingleDeviceSharding(device)
    batch = np.ones((8192, 2048), dtype=np.float32)
    kept = jax.device_put(batch, on_gpu.with_memory_kind("pinned_host")) if pinned else batch

    def step() -> None:
        values = jax.device_put(kept, on_gpu)  # changed: pageable
        jnp.sum(values).block_until_ready()

    return step


@jax.jit
def layer(values: Any, weights: Any) -> Any:
    """A layer."""
    return jnp.tanh(values @ weights)


def layers(awaited: bool) -> Callable[[], None]:
    """Layers beside work of the host, each of which is awaited, or the last one alone."""
    weights, batch = jnp.ones((2048, 2048)) / 2048, jnp.ones((2048, 2048))

    def step() -> None:
        values = batch
        for _ in range(4):
            values = layer(values, weights)
            if awaited:
                values.block_until_ready()  # changed: each-layer
            compute(0.002)
        values.block_until_ready()

    return step


def products(kind: Any) -> Callable[[], None]:
    """Products of matrices."""
    one = jnp.ones((4096, 4096), kind) / 64

    def step() -> None:
        values = one
        for _ in range(4):
            values = layer(values, one)  # changed: fp32
        values.block_until_ready()

    return step


@jax.jit
def small_layers(values: Any, weights: Any) -> Any:
    """Many small layers, whose kernels XLA launches one by one or as a graph."""
    for _ in range(100):
        values = jnp.tanh(values @ weights)
    return values


def small() -> Callable[[], None]:
    """Many small layers."""
    weights, batch = jnp.ones((256, 256)) / 256, jnp.ones((64, 256))

    def step() -> None:
        small_layers(batch, weights).block_until_ready()  # changed: launches

    return step


VARIANTS: dict[str, Callable[[], Callable[[], None]]] = {
    "every-loss": lambda: readings(1),
    "few-losses": lambda: readings(50),
    "pageable": lambda: batches(False),
    "pinned": lambda: batches(True),
    "each-layer": lambda: layers(True),
    "last-layer": lambda: layers(False),
    "fp32": lambda: products(jnp.float32),
    "bf16": lambda: products(jnp.bfloat16),
    "launches": small,
    "graph": small,
    "numpy": lambda: uploads(False),
    "on-gpu": lambda: uploads(True),
}


def main() -> None:
    """Run a variant."""
    given = arguments()
    # Kernels are not chosen by trying them; without command buffers, no graph is made. Read with the first work.
    flags = "--xla_gpu_autotune_level=0" + (" --xla_gpu_enable_command_buffer=" if given.variant == "launches" else "")
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
    # Products in single precision last longer than the work of the host.
    jax.config.update("jax_default_matmul_precision", "highest")
    run(VARIANTS[given.variant](), lambda: (jnp.zeros(()) + 1).block_until_ready(), given.seconds)


if __name__ == "__main__":
    main()
