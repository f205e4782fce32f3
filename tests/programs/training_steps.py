"""Training of a ResNet-18 by batches that other processes load, from pageable memory, with a read of each loss."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from step_times import run_steps
from torchvision.models import resnet18

BATCH, SIZE, CLASSES, WORKERS = 64, 128, 10, 4


class Images:
    """Images of one colour each."""

    def __len__(self) -> int:
        return 1 << 24

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        return torch.full((3, SIZE, SIZE), number % 7 / 7.0), number % CLASSES


def main() -> None:
    """Train."""
    model = resnet18(num_classes=CLASSES).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches: Iterator[tuple[torch.Tensor, torch.Tensor]] = iter(
        torch.utils.data.DataLoader(Images(), batch_size=BATCH, num_workers=WORKERS)
    )

    def step() -> float:
        images, labels = (one.cuda() for one in next(batches))
        with torch.autocast("cuda"):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    run_steps(step)


if __name__ == "__main__":
    main()
