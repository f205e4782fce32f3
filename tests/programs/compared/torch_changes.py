"""Steps of PyTorch, each in two variants: how a batch is copied, whether a value is read, the numbers, the launches."""

from __future__ import annotations

from collections.abc import Callable

import torch
from steps import arguments, compute, run

LAYERS, ADDITIONS, SMALL_LAYERS = 8, 300, 60


def uploads(pinned: bool) -> Callable[[], None]:
    """A batch of 64 MiB is copied and used."""
    batch = torch.randn(1 << 24)
    batch = batch.pin_memory() if pinned else batch

    def step() -> None:
        images = batch.to("cuda", non_blocking=True)  # changed: pageable
        (images * 2).sum()
        torch.cuda.synchronize()

    return step


def downloads(pinned: bool) -> Callable[[], None]:
    """A result of 64 MiB is read by the host."""
    images = torch.randn(1 << 24, device="cuda")
    place = torch.empty(1 << 24, pin_memory=pinned)

    def step() -> None:
        result = images * 2
        place.copy_(result, non_blocking=True)  # changed: to-pageable
        torch.cuda.synchronize()

    return step


def readings(read: bool) -> Callable[[], None]:
    """Layers on the GPU, beside work of the host; the mean of each is read, or none."""
    layers = [torch.nn.Linear(1024, 1024).cuda() for _ in range(LAYERS)]
    batch = torch.randn(10240, 1024, device="cuda")

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


def training(each: bool) -> Callable[[], None]:
    """Training beside work of the host; the loss of each step is read, or of one of fifty."""
    model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(4))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    batch, number = torch.randn(4096, 2048, device="cuda"), 0

    def step() -> None:
        nonlocal number
        number += 1
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if each or number % 50 == 0:
            loss.item()  # changed: each-loss
        compute(0.006)

    return step


def products(kind: torch.dtype) -> Callable[[], None]:
    """Products of matrices of 4096 rows."""
    one = torch.randn(4096, 4096, device="cuda").to(kind)

    def step() -> None:
        values = one
        for _ in range(4):
            values = values @ one  # changed: fp32
            values = values / values.abs().max()
        torch.cuda.synchronize()

    return step


def layers(kind: torch.dtype) -> Callable[[], None]:
    """Training of large layers."""
    model = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(3))).cuda().to(kind)
    batch = torch.randn(4096, 4096, device="cuda").to(kind)

    def step() -> None:
        model.zero_grad()
        loss = model(batch).square().mean()  # changed: layers-fp32
        loss.backward()  # changed: layers-fp32
        torch.cuda.synchronize()

    return step


def attention(kind: torch.dtype) -> Callable[[], None]:
    """Attention over 4096 positions."""
    one = torch.randn(4, 16, 4096, 64, device="cuda").to(kind)

    @torch.no_grad()
    def step() -> None:
        for _ in range(2):
            torch.nn.functional.scaled_dot_product_attention(one, one, one)  # changed: attention-fp32
        torch.cuda.synchronize()

    return step


def forward(graph: bool) -> Callable[[], None]:
    """Small layers, launched one by one or as a graph."""
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(SMALL_LAYERS))).cuda()
    batch = torch.randn(16, 256, device="cuda")

    @torch.no_grad()
    def step() -> None:
        model(batch)  # changed: layers
        torch.cuda.synchronize()

    if not graph:
        return step
    step()
    recorded = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(recorded):
        model(batch)

    def replay() -> None:
        recorded.replay()
        torch.cuda.synchronize()

    return replay


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
    "to-pageable": lambda: downloads(False),
    "to-pinned": lambda: downloads(True),
    "each-loss": lambda: training(True),
    "few-losses": lambda: training(False),
    "layers-fp32": lambda: layers(torch.float32),
    "layers-bf16": lambda: layers(torch.bfloat16),
    "attention-fp32": lambda: attention(torch.float32),
    "attention-bf16": lambda: attention(torch.bfloat16),
    "layers": lambda: forward(False),
    "layers-graph": lambda: forward(True),
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
