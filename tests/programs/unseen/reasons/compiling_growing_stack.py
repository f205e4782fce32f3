"""Distillation by progressive stacking: the student gets one more block every few dozen steps."""
import json
import os
import tempfile
import time

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="inductor_")

import torch
from torch import nn

torch._dynamo.config.recompile_limit = 1000
torch._dynamo.config.accumulated_recompile_limit = 4000
STEPS_PER_BLOCK = 60
calls = {"forward": 0}


@torch.compiler.disable
def count_call():
    calls["forward"] += 1


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        return x + self.scale * torch.nn.functional.gelu(self.linear(x))


class Student(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))

    def grow(self):
        self.blocks.append(Block(self.width).cuda())

    def forward(self, x):
        total = x
        for block in self.blocks:
            x = block(x)
            total = total + torch.tanh(x)
        count_call()
        for block in self.blocks:
            total = total * torch.sigmoid(block.scale)
        return torch.softmax(total, dim=1).amax(dim=1)


def teach(x, weight):
    h = x
    for _ in range(3):
        h = torch.relu(h @ weight)
    return h.mean(dim=1)


def train_step(student, compiled, x, big, weight, number, spent):
    new = number % STEPS_PER_BLOCK == 0
    if new:
        student.grow()
    start = time.perf_counter()
    guess = compiled(x)
    if new:
        spent["compile"] += time.perf_counter() - start
        spent["count"] += 1
    return (teach(big, weight).mean() - guess.mean()).item()


def main():
    torch.set_grad_enabled(False)
    student = Student(1024).cuda()
    compiled = torch.compile(student)
    x = torch.randn(2048, 1024, device="cuda")
    big = torch.randn(4096, 4096, device="cuda")
    weight = torch.randn(4096, 4096, device="cuda") / 64
    spent = {"compile": 0.0, "count": 0}
    number = 0
    while number < 2 * STEPS_PER_BLOCK:
        train_step(student, compiled, x, big, weight, number, spent)
        number += 1
    spent.update(compile=0.0, count=0)
    first, begin = number, time.perf_counter()
    while time.perf_counter() - begin < 9:
        train_step(student, compiled, x, big, weight, number, spent)
        number += 1
    wall = time.perf_counter() - begin
    truth = {"compile": round(100 * spent["compile"] / wall, 1), "count": spent["count"],
             "blocks": len(student.blocks)}
    print(f"RATE {(number - first) / wall:.2f}; TRUTH {json.dumps(truth)}")


if __name__ == "__main__":
    main()
