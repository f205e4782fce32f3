"""Progressive growing: the number of active channels goes up while training goes on."""
import json
import os
import tempfile
import time

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="inductor_")

import torch

torch._dynamo.config.recompile_limit = 1000
torch._dynamo.config.accumulated_recompile_limit = 1000
STEPS_PER_WIDTH = 40
compiled_for = set()
spent = {"compile": 0.0, "count": 0}


@torch.compile(dynamic=False)
def features(x, weight, active: int):
    h = x[:, :active] @ weight[:active]
    h = torch.nn.functional.gelu(h) * (1.0 + active / 4096)
    h = h - h.mean(dim=1, keepdim=True)
    return torch.softmax(h, dim=1).amax(dim=1)


def train_step(x, weight, active):
    start = time.perf_counter()
    score = features(x, weight, active)
    took = time.perf_counter() - start
    if active not in compiled_for:
        compiled_for.add(active)
        spent["compile"] += took
        spent["count"] += 1
    logits = (x @ weight) @ weight
    return (score.mean() + logits.mean()).item()


def width(step):
    return 1024 + 16 * (step // STEPS_PER_WIDTH)


def main():
    torch.set_grad_enabled(False)
    x = torch.randn(4096, 4096, device="cuda")
    weight = torch.randn(4096, 4096, device="cuda") / 64
    step = 0
    while step < 2 * STEPS_PER_WIDTH:
        train_step(x, weight, width(step))
        step += 1
    spent.update(compile=0.0, count=0)
    first, begin = step, time.perf_counter()
    while time.perf_counter() - begin < 9:
        train_step(x, weight, width(step))
        step += 1
    wall = time.perf_counter() - begin
    truth = {"compile": round(100 * spent["compile"] / wall, 1), "count": spent["count"]}
    print(f"RATE {(step - first) / wall:.2f}; TRUTH {json.dumps(truth)}")


if __name__ == "__main__":
    main()
