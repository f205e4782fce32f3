"""A small training loop in PyTorch, with what slows it down chosen by its argument.

python training.py STEPS none|item|pageable|pinned

none: the loss is read once at the end. item: each step reads its loss. pageable, pinned: each step loads its batch from
pageable or pinned memory, pinned without waiting for the copy. A step of "item" has 52 launches, 3.8 ms on an H200.
"""

from __future__ import annotations

import sys

import torch

BATCH, WIDTH, LAYERS = 2048, 2048, 6


class Training:
    """A model with its data; ``mode`` is as above."""

    def __init__(self, mode: str) -> None:
        torch.manual_seed(1)
        layers = [module for _ in range(LAYERS) for module in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
        self._model = torch.nn.Sequential(*layers).cuda()
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-3, foreach=False)
        data = torch.randn(BATCH, WIDTH)
        self._data = data.pin_memory() if mode == "pinned" else data
        self._target = torch.randn(BATCH, WIDTH, device="cuda")
        self._batch, self._mode = data.cuda(), mode

    def step(self) -> torch.Tensor:
        """One step; the loss."""
        if self._mode in ("pageable", "pinned"):
            self._batch = self._data.to("cuda", non_blocking=self._mode == "pinned")
        loss = torch.nn.functional.mse_loss(self._model(self._batch), self._target)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        if self._mode == "item":
            loss.item()
        return loss


def main(steps: int, mode: str) -> None:
    """Train for ``steps`` steps."""
    training = Training(mode)
    loss = torch.zeros(())
    for _ in range(steps):
        loss = training.step()
    if not torch.isfinite(loss).item():
        sys.exit("the loss is not finite")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
