"""Training of a small transformer, in which the search for a NaN of last week was never switched off."""
import json
import time

import torch
from torch import nn

DEVICE = "cuda"


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attend = nn.Linear(width, 3 * width)
        self.mix = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        query, key, value = self.attend(self.norm(x)).chunk(3, dim=-1)
        x = x + nn.functional.scaled_dot_product_attention(query, key, value)
        return x + self.mix(x)


def make(width, depth):
    model = nn.Sequential(*(Block(width) for _ in range(depth))).to(DEVICE)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def step(model, optimizer, x):
    optimizer.zero_grad(set_to_none=True)
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()


def rate(model, optimizer, x, seconds):
    steps, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        step(model, optimizer, x)
        steps += 1
    torch.cuda.synchronize()
    return steps / (time.perf_counter() - begin)


def main():
    model, optimizer = make(256, 8)
    x = torch.randn(16, 64, 256, device=DEVICE)
    rate(model, optimizer, x, 1)
    without = rate(model, optimizer, x, 1)
    torch.autograd.set_detect_anomaly(True)
    rate(model, optimizer, x, 1)
    found = rate(model, optimizer, x, 9)
    print(f"RATE {found:.2f}; TRUTH {json.dumps({'anomaly': round(100 * (1 - found / without), 1)})}")


if __name__ == "__main__":
    main()
