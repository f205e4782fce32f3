"""Steps of PyTorch, each in two variants: how a batch is copied, whether a value is read, the numbers, the launches."""

from __future__ import annotations

from collections.abc import Callable

import torch
from steps import arguments, compute, run

LAYERS, ADDITIONS = 8, 300


def uploads(pinned: bool) -> Callable[[], None]:
    """A batch of 64 MiB is copied and used."""
    batch = torch.randn(1 << 24)
    batch = batch.pin_memory() if pinned else batch

    def step() -> None:
        images = batch.to("cuda", non_blocking=True)  # changed: pageable
        (images * 2).sum()
        torch.cuda.synchronize()

    return step


def readings(read: bool) -> Callable[[], None]:
    """Layers on the GPU, beside work of the host; the mean of each is read, or none."""
    layers = [torch.nn.Linear(1024, 1024).cuda() for _ in range(LAYERS)]
    batch = torch.randn(4096, 1024, device="cuda")

    @torch.no_grad()
    def step() -> None:
        values, seen = batch, 0.0
        for layer in layers:
            values = torch.relu(layer(values))
            mean = values.mean()
            if read:
                seen += mean.item()  # changed: item
            compute(0.0003)
        torch.cuda.synchronize()

    return step


def products(kind: torch.dtype) -> Callable[[], None]:
    """Products of matrices of 4096 rows."""
    one = torch.randn(4096, 4096, device="cuda").to(kind)

    def step() -> None:
        values = one
        for _ in range(4):
            values = values @ one
            values = values / values.abs().max()
        torch.cuda.synchronize()

    return step


def additions(graph: bool) -> Callable[[], None]:
    """Many small kernels, launched one by one or as a graph."""
    values = torch.zeros(1 << 12, device="cuda")

    def add() -> None:
        for _ in range(ADDITIONS):
            values.add_(1)  # changed: launches

    if not graph:

        def step() -> None:
            add()
            torch.cuda.synchronize()

        return step
    add()
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        add()

    def replay() -> None:
        recorded.replay()
        torch.cuda.synchronize()

    return replay


VARIANTS: dict[str, Callable[[], Callable[[], None]]] = {
    "pageable": lambda: uploads(False),
    "pinned": lambda: uploads(True),
    "item": lambda: readings(True),
    "no-item": lambda: readings(False),
    "fp32": lambda: products(torch.float32),
    "bf16": lambda: products(torch.bfloat16),
    "launches": lambda: additions(False),
    "graph": lambda: additions(True),
}


def main() -> None:
    """Run a variant."""
    given = arguments()
    torch.manual_seed(1)
    run(VARIANTS[given.variant](), torch.cuda.synchronize, given.seconds)


if __name__ == "__main__":
    main()
