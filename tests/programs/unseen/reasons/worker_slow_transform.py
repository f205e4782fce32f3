"""Trains on synthetic radar images read through a DataLoader with three transforms."""
import json
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Scale:
    def __call__(self, image):
        return image.astype(np.float32) / 255.0


class SpeckleFilter:
    def __call__(self, image):
        rows = image.tolist()
        for y in range(1, len(rows) - 1):
            above, row, below = rows[y - 1], rows[y], rows[y + 1]
            for x in range(1, len(row) - 1):
                middle = sorted((above[x], row[x - 1], row[x], row[x + 1], below[x]))[2]
                image[y, x] = middle
        return image


class Flip:
    def __call__(self, image):
        return np.ascontiguousarray(image[:, ::-1])


class RadarImages(Dataset):
    def __init__(self, transforms):
        self.transforms = transforms

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        image = np.random.default_rng(index).integers(0, 256, (64, 64), dtype=np.uint8)
        for transform in self.transforms:
            image = transform(image)
        return torch.from_numpy(image)


def train_step(images, weight):
    x = images.to("cuda").view(len(images), -1)
    mixed = weight
    for _ in range(4):
        mixed = torch.relu(mixed @ weight)
    return (torch.relu(x @ mixed) @ weight).mean().item()


def main():
    data = RadarImages([Scale(), SpeckleFilter(), Flip()])
    batches = iter(DataLoader(data, batch_size=32, num_workers=2))
    weight = torch.randn(4096, 4096, device="cuda") / 64
    for _ in range(20):
        train_step(next(batches), weight)
    waited, steps, begin = 0.0, 0, time.perf_counter()
    while time.perf_counter() - begin < 9:
        start = time.perf_counter()
        images = next(batches)
        waited += time.perf_counter() - start
        train_step(images, weight)
        steps += 1
    wall = time.perf_counter() - begin
    truth = {"queue": round(100 * waited / wall, 1)}
    print(f"RATE {steps / wall:.2f}; TRUTH {json.dumps(truth)}")


if __name__ == "__main__":
    main()
