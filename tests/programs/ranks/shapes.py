"""Programs on two GPUs, each of one shape; truths.toml says what is true of each.

python shapes.py turns|threads|replicas|peer|stranger [--seconds S]
torchrun --nproc-per-node 2 shapes.py swap|share|link|pipeline|exchange|hang|sharded [--seconds S]
"""

import argparse
import os
import subprocess
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("shape")
parser.add_argument("--seconds", type=float, default=10.0)
options = parser.parse_args()
begin = time.perf_counter()


def lasts() -> bool:
    """Whether the program goes on."""
    return bool(time.perf_counter() - begin < options.seconds)


def layers(count: int, device: str | torch.device, width: int = 4096) -> nn.Sequential:
    """So many square layers of halves."""
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(count))).to(device).half()


def rate(steps: int) -> None:
    """Print the rate of steps."""
    sys.stdout.write(f"RATE {options.shape} {steps / (time.perf_counter() - begin):.1f} steps/s\n")


def turns() -> None:
    """One thread, a model whose halves lie on two GPUs: each waits for the other."""
    halves = layers(12, "cuda:0"), layers(12, "cuda:1")
    batch, steps = torch.randn(8192, 4096, device="cuda:0").half(), 0
    with torch.no_grad():
        while lasts():
            halves[1](halves[0](batch).to("cuda:1")).float().mean().item()
            steps += 1
    rate(steps)


def threads() -> None:
    """A thread for each GPU, whose kernels keep it busy."""

    def work(device: str) -> None:
        model, batch = layers(12, device), torch.randn(8192, 4096, device=device).half()
        with torch.no_grad():
            while lasts():
                for _ in range(4):
                    model(batch)
                torch.cuda.synchronize(device)

    workers = [threading.Thread(target=work, args=(f"cuda:{number}",), name=f"gpu-{number}") for number in (0, 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    rate(1)


def replicas() -> None:
    """DataParallel: one process scatters a batch over both GPUs, and gathers the gradients on the first."""
    model, steps = nn.DataParallel(layers(6, "cuda:0")), 0
    batch = torch.randn(4096, 4096, device="cuda:0").half()
    while lasts():
        loss = model(batch).float().square().mean()
        loss.backward()
        model.zero_grad()
        loss.item()
        steps += 1
    rate(steps)


def peer() -> None:
    """Results of 1 GB go to the other GPU before the next kernel, and back."""
    ours, theirs, steps = torch.randn(2**28, device="cuda:0"), torch.empty(2**28, device="cuda:1"), 0
    while lasts():
        ours.mul_(1.0001)
        theirs.copy_(ours)
        ours.copy_(theirs)
        ours[0].item()
        steps += 1
    rate(steps)


def neighbour(device: str) -> subprocess.Popen[bytes]:
    """A process that computes on a GPU for as long as the program."""
    code = (
        f"import torch, time; a = torch.randn(4096, 4096, device='{device}').half(); end = time.time() + "
        f"{options.seconds}\nwhile time.time() < end:\n  for _ in range(20): b = a @ a\n  torch.cuda.synchronize()"
    )
    return subprocess.Popen([sys.executable, "-c", code])


def stranger() -> None:
    """Two ranks by gloo that each see one GPU as the first; a stranger computes on that of the second."""
    if "RANK" not in os.environ:
        apart = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29611", "WORLD_SIZE": "2"}
        ranks = [
            subprocess.Popen(
                [sys.executable, *sys.argv], env=os.environ | apart | {"RANK": one, "CUDA_VISIBLE_DEVICES": one}
            )
            for one in "01"
        ]
        sys.exit(max(each.wait() for each in ranks))
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    other = neighbour("cuda") if rank == 1 else None
    model, batch, steps = layers(8, "cuda"), torch.randn(8192, 4096, device="cuda").half(), 0
    with torch.no_grad():
        while lasts():
            model(batch).float().mean().item()
            steps += 1
    rate(steps)
    if other is not None:
        other.wait()
    dist.barrier()


def join() -> int:
    """Join the other rank; returns this one's number."""
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    return rank


def ends(stop: torch.Tensor, rank: int) -> bool:
    """Whether rank 0 has said that both stop."""
    stop.fill_(float(rank == 0 and not lasts()))
    dist.all_reduce(stop)
    return bool(stop.item())


def swap() -> None:
    """An all-reduce in each step; rank 1 is slow in the first half of the time, rank 0 in the second."""
    rank = join()
    model, batch = layers(4, "cuda"), torch.randn(8192, 4096, device="cuda").half()
    stop, steps = torch.zeros(1, device="cuda"), 0
    while not ends(stop, rank):
        late = 1 if time.perf_counter() - begin < options.seconds / 2 else 0
        if rank == late:
            sum(number % 7 for number in range(200_000))
        model(batch).float().square().mean().backward()
        dist.all_reduce(torch.cat([one.grad.flatten() for one in model.parameters()]))
        model.zero_grad()
        steps += 1
    rate(steps)


def share() -> None:
    """An all-reduce in each step; a stranger computes on the GPU of rank 1."""
    rank = join()
    if rank == 1:
        neighbour("cuda:1")
    model, batch = layers(8, "cuda"), torch.randn(8192, 4096, device="cuda").half()
    stop, steps = torch.zeros(1, device="cuda"), 0
    while not ends(stop, rank):
        model(batch).float().square().mean().backward()
        dist.all_reduce(torch.cat([one.grad.flatten() for one in model.parameters()]))
        model.zero_grad()
        steps += 1
    rate(steps)


def link() -> None:
    """All-reduces of 1 GB; a second process of rank 0 copies between the GPUs meanwhile."""
    rank = join()
    if rank == 0:
        code = (
            "import torch, time; a = torch.empty(2**28, device='cuda:0'); b = torch.empty(2**28, device='cuda:1')\n"
            f"end = time.time() + {options.seconds}\nwhile time.time() < end:\n"
            "  for _ in range(20): b.copy_(a); a.copy_(b)\n  torch.cuda.synchronize()"
        )
        subprocess.Popen([sys.executable, "-c", code])
    model, batch, large = (
        layers(2, "cuda"),
        torch.randn(4096, 4096, device="cuda").half(),
        torch.ones(2**28, device="cuda"),
    )
    stop, steps = torch.zeros(1, device="cuda"), 0
    with torch.no_grad():
        while not ends(stop, rank):
            model(batch)
            dist.all_reduce(large)
            steps += 1
    rate(steps)


def pipeline() -> None:
    """Two stages: rank 0 sends its activations and receives the loss; the second stage takes three times as long."""
    rank = join()
    model = layers(4 if rank == 0 else 12, "cuda")
    batch, stop, steps = torch.randn(8192, 4096, device="cuda").half(), torch.zeros(1, device="cuda"), 0
    result = torch.zeros(1, device="cuda")
    with torch.no_grad():
        while not ends(stop, rank):
            if rank == 0:
                dist.send(model(batch), 1)
                dist.recv(result, 1)
            else:
                dist.recv(batch, 0)
                dist.send(model(batch).float().mean().reshape(1), 0)
            steps += 1
    rate(steps)


def exchange() -> None:
    """Tensor parallel: an all-to-all of 128 MB behind each layer; both ranks do the same."""
    rank = join()
    model, batch = layers(4, "cuda"), torch.randn(16384, 4096, device="cuda").half()
    stop, steps = torch.zeros(1, device="cuda"), 0
    with torch.no_grad():
        while not ends(stop, rank):
            values = batch
            for layer in model:
                values = layer(values)
                received = torch.empty_like(values)
                dist.all_to_all_single(received, values)
                values = received
            steps += 1
    rate(steps)


def load_shard() -> None:
    """Waits for a file that never comes."""
    while True:
        time.sleep(1.0)


def hang() -> None:
    """Rank 1 stops in load_shard() after half of the time; rank 0 waits for its all-reduce."""
    rank = join()
    model, batch = layers(4, "cuda"), torch.randn(8192, 4096, device="cuda").half()
    stop = torch.zeros(1, device="cuda")
    while not ends(stop, rank):
        if rank == 1 and time.perf_counter() - begin > options.seconds / 2:
            load_shard()
        model(batch).float().square().mean().backward()
        dist.all_reduce(torch.cat([one.grad.flatten() for one in model.parameters()]))
        model.zero_grad()


def sharded() -> None:
    """FSDP of a GPT-2 with a random configuration, AdamW, batches from the host."""
    from torch.distributed.fsdp import fully_shard
    from transformers import GPT2Config, GPT2LMHeadModel

    rank = join()
    torch.manual_seed(rank)
    model = GPT2LMHeadModel(GPT2Config(n_layer=12, n_embd=1024, n_head=16, vocab_size=32000)).cuda().bfloat16()
    for block in model.transformer.h:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    stop, steps = torch.zeros(1, device="cuda"), 0
    while not ends(stop, rank):
        batch = torch.randint(32000, (8, 512)).cuda()
        loss = model(batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
    rate(steps)


globals()[options.shape]()
if dist.is_initialized() and options.shape != "hang":
    dist.destroy_process_group()
