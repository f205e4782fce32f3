"""Batches of other lengths on a GPU whose memory is full, with a setting that was meant against fragments."""
import json
import os
import random
import time

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:128"

import torch  # noqa: E402

GIB = 1 << 30


def fill_memory(left):
    """What a second model would take: all but so many bytes."""
    free, _ = torch.cuda.mem_get_info()
    return torch.empty(free - left, dtype=torch.uint8, device="cuda")


def encode(length, weight):
    x = torch.empty(length, 1024, device="cuda")
    x[:2048].uniform_()
    return x, torch.tanh(x[:2048] @ weight)


def step(length, weight):
    states, head = encode(length, weight)
    mixed = torch.empty_like(states)
    mixed[:2048] = head
    return mixed[:2048].sum()


def rate(lengths, weight, seconds):
    steps, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        step(next(lengths), weight)
        steps += 1
    torch.cuda.synchronize()
    return steps / (time.perf_counter() - begin)


def same(length):
    while True:
        yield length


def others(draw):
    while True:
        yield draw.randrange(200_000, 420_000)


def main():
    weight = torch.randn(1024, 1024, device="cuda") / 32
    rate(same(300_000), weight, 1)
    without = rate(same(300_000), weight, 1)
    other = fill_memory(5 * GIB)
    lengths = others(random.Random(1))
    rate(lengths, weight, 1)
    before = torch.cuda.memory_stats()["num_device_free"]
    found = rate(lengths, weight, 9)
    frees = torch.cuda.memory_stats()["num_device_free"] - before
    truth = {"retries": round(100 * (1 - found / without), 1), "frees a second": round(frees / 9, 1)}
    print(f"RATE {found:.2f}; TRUTH {json.dumps(truth)} {other.numel() >> 30} GiB beside")


if __name__ == "__main__":
    main()
