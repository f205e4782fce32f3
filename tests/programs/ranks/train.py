"""Two ranks that train with an all-reduce of the gradients in each step; truths.toml says what is true of each run.

torchrun --nproc-per-node 2 train.py [--slow-rank RANK --by host|gpu|sleep|none] [--seconds S]
"""

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--slow-rank", type=int, default=-1)
parser.add_argument("--by", choices=("host", "gpu", "sleep", "none"), default="none")
parser.add_argument("--seconds", type=float, default=10.0)
options = parser.parse_args()

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
model = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(4))).cuda().half()
batch, large = torch.randn(8192, 4096, device="cuda").half(), torch.randn(8192, 8192, device="cuda").half()
slow = options.by if rank == options.slow_rank else "none"
stop = torch.zeros(1, device="cuda")
steps, begin = 0, time.perf_counter()
while not stop.item():
    if slow == "host":
        sum(number % 7 for number in range(200_000))
    if slow == "sleep":
        time.sleep(0.008)
    if slow == "gpu":
        for _ in range(20):
            torch.mm(large, large)
    loss = model(batch).float().square().mean()
    loss.backward()
    gradients = torch.cat([one.grad.flatten() for one in model.parameters()])
    dist.all_reduce(gradients)
    model.zero_grad()
    # The ranks stop together: rank 0 says when, in a second, small all-reduce.
    stop.fill_(float(rank == 0 and time.perf_counter() - begin > options.seconds))
    dist.all_reduce(stop)
    steps += 1
if rank == 0:
    sys.stdout.write(f"RATE {steps / (time.perf_counter() - begin):.1f} steps/s\n")
dist.destroy_process_group()
