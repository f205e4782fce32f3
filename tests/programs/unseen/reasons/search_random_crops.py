"""Features of images of any size, with cudnn.benchmark on, as in the recipe for images of one size."""
import json
import random
import time

import torch
from torch import nn

torch.backends.cudnn.benchmark = True


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.body = nn.Conv2d(64, 128, 3, padding=1, bias=False)
        self.head = nn.Conv2d(128, 256, 3, stride=2, padding=1, bias=False)

    def forward(self, images):
        x = torch.relu(self.stem(images))
        x = torch.relu(self.body(x))
        return self.head(x).mean(dim=(2, 3))


def sizes(draw):
    """Each size once."""
    every = [(height, width) for height in range(192, 448, 4) for width in range(192, 448, 4)]
    draw.shuffle(every)
    yield from every


def step(model, height, width):
    images = torch.rand(8, 3, height, width, device="cuda")
    return model(images)


def main():
    model = Features().to("cuda").eval()
    shapes = sizes(random.Random(3))
    spent = {"known": 0.0, "new": 0.0}
    with torch.inference_mode():
        for _ in range(3):
            step(model, 100, 100)
        steps, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < 10:
            height, width = next(shapes)
            for sort in ("new", "known"):
                start = time.perf_counter()
                step(model, height, width)
                torch.cuda.synchronize()
                spent[sort] += time.perf_counter() - start
            steps += 1
        wall = time.perf_counter() - begin
    truth = {"search": round(100 * (spent["new"] - spent["known"]) / wall, 1), "searches a second": round(3 * steps / wall, 1)}
    print(f"RATE {steps / wall:.2f}; TRUTH {json.dumps(truth)}")


if __name__ == "__main__":
    main()
