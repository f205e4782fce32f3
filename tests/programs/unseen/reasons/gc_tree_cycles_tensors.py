"""Tree search: each step grows a new tree from a batch of latent states on the GPU."""
from __future__ import annotations

import gc
import json
import time
from dataclasses import dataclass, field

import torch

spent = {"gc": 0.0, "start": 0.0, "freed": 0, "collections": [0, 0, 0]}


def watch_gc(phase, info):
    if phase == "start":
        spent["start"] = time.perf_counter()
    else:
        spent["gc"] += time.perf_counter() - spent["start"]
        spent["collections"][info["generation"]] += 1
        spent["freed"] += info["collected"]


@dataclass(eq=False)
class Node:
    parent: Node | None
    prior: float
    state: torch.Tensor | None = None
    children: list = field(default_factory=list)


def grow_tree(latent, priors):
    root = Node(None, 1.0)
    for i in range(len(latent)):
        expanded = Node(root, 0.5, latent[i])
        root.children.append(expanded)
        for prior in priors:
            expanded.children.append(Node(expanded, prior))
    return root


def best_child(root):
    return max(root.children, key=lambda node: node.prior * len(node.children)).state


def step(x, weight):
    y = x
    for _ in range(5):
        y = torch.tanh(y @ weight)
    latent = torch.tanh(y[:400] @ weight)
    priors = latent[0, :50].tolist()
    tree = grow_tree(latent, priors)
    return best_child(tree).mean().item()


def main():
    x = torch.randn(4096, 4096, device="cuda")
    weight = torch.randn(4096, 4096, device="cuda") / 64
    for _ in range(50):
        step(x, weight)
    gc.callbacks.append(watch_gc)
    steps, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < 9:
        step(x, weight)
        steps += 1
    wall = time.perf_counter() - begin
    gc.callbacks.remove(watch_gc)
    truth = {"gc": round(100 * spent["gc"] / wall, 1), "collections": spent["collections"],
             "freed_per_step": spent["freed"] // steps}
    print(f"RATE {steps / wall:.2f}; TRUTH {json.dumps(truth)}")


if __name__ == "__main__":
    main()
