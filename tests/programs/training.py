"""A small training loop in PyTorch, with what slows it down chosen by its argument.

python training.py STEPS none|item|pageable|pinned

none: the loss is read once at the end. item: each step reads its loss. pageable, pinned: each step loads its batch from
pageable or pinned memory, pinned without waiting for the copy.
"""

from __future__ import annotations

import sys

import torch

BATCH, WIDTH, LAYERS = 2048, 2048, 6


def main(steps: int, mode: str) -> None:
    """Train for ``steps`` steps."""
    torch.manual_seed(1)
    layers = [module for _ in range(LAYERS) for module in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)
    data, target = torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH, device="cuda")
    if mode == "pinned":
        data = data.pin_memory()
    batch, loss, total = data.cuda(), torch.zeros(()), 0.0
    for _ in range(steps):
        if mode in ("pageable", "pinned"):
            batch = data.to("cuda", non_blocking=mode == "pinned")
        loss = torch.nn.functional.mse_loss(model(batch), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if mode == "item":
            total += loss.item()
    sys.stdout.write(f"{loss.item():.6f} {total:.6f}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
