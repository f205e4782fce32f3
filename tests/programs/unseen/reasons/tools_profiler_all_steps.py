"""Training of a small network in which PyTorch's profiler records a few steps again and again, for a chart."""
import json
import time

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule


def keep(chart):
    def on_ready(profiler):
        rows = profiler.key_averages()
        chart.append(sum(row.self_cpu_time_total for row in rows))

    return on_ready


def step(model, optimizer, x):
    optimizer.zero_grad(set_to_none=True)
    model(x).square().mean().backward()
    optimizer.step()


def rate(model, optimizer, x, seconds, profiler=None):
    steps, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        step(model, optimizer, x)
        if profiler is not None:
            profiler.step()
        steps += 1
    torch.cuda.synchronize()
    return steps / (time.perf_counter() - begin)


def main():
    layers = [layer for _ in range(24) for layer in (nn.Linear(256, 256), nn.ReLU())]
    model = nn.Sequential(*layers).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(256, 256, device="cuda")
    rate(model, optimizer, x, 1)
    without = rate(model, optimizer, x, 1)
    chart = []
    cycle = schedule(wait=2, warmup=1, active=4)
    with profile(activities=[ProfilerActivity.CPU], schedule=cycle, on_trace_ready=keep(chart)) as profiler:
        rate(model, optimizer, x, 1, profiler)
        found = rate(model, optimizer, x, 9, profiler)
    print(f"RATE {found:.2f}; TRUTH {json.dumps({'profiler': round(100 * (1 - found / without), 1)})}")


if __name__ == "__main__":
    main()
