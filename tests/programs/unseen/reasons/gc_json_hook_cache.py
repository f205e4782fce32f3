"""Online ranking: decodes a big JSON message in each step, with a large cache of feature rows."""
import gc
import json
import random
import time

import torch

DETECTIONS = 6000
spent = {"gc": 0.0, "full": 0.0, "start": 0.0, "collections": [0, 0, 0]}


def watch_gc(phase, info):
    if phase == "start":
        spent["start"] = time.perf_counter()
    else:
        took = time.perf_counter() - spent["start"]
        spent["gc"] += took
        spent["full"] += took if info["generation"] == 2 else 0.0
        spent["collections"][info["generation"]] += 1


class Detection:
    __slots__ = ("key", "box", "tags")

    def __init__(self, key, box, tags):
        self.key = key
        self.box = box
        self.tags = tags


class FeatureStore:
    def __init__(self, size):
        rng = random.Random(1)
        self.rows = {i: [rng.random() for _ in range(16)] for i in range(size)}

    def lookup(self, detections):
        return [self.rows[d.key] for d in detections]


def make_message(seed, keys):
    rng = random.Random(seed)
    items = [{"key": rng.randrange(keys), "box": [rng.randrange(640) for _ in range(4)], "tags": [i % 7, i % 11]}
             for i in range(DETECTIONS)]
    return json.dumps(items)


def to_detection(fields):
    return Detection(fields["key"], fields["box"], fields["tags"])


def decode(text):
    return json.loads(text, object_hook=to_detection)


def step(store, text, x, weight):
    detections = decode(text)
    rows = torch.tensor(store.lookup(detections[:256]), device="cuda")
    for _ in range(4):
        x = torch.tanh(x @ weight)
    return (rows @ x[:16]).mean().item()


def main():
    store = FeatureStore(300_000)
    messages = [make_message(seed, 300_000) for seed in range(4)]
    x = torch.randn(4096, 4096, device="cuda")
    weight = torch.randn(4096, 4096, device="cuda") / 64
    for number in range(40):
        step(store, messages[number % 4], x, weight)
    gc.callbacks.append(watch_gc)
    number, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < 9:
        step(store, messages[number % 4], x, weight)
        number += 1
    wall = time.perf_counter() - begin
    gc.callbacks.remove(watch_gc)
    truth = {"gc": round(100 * spent["gc"] / wall, 1), "full": round(100 * spent["full"] / wall, 1),
             "collections": spent["collections"]}
    print(f"RATE {number / wall:.2f}; TRUTH {json.dumps(truth)}")


if __name__ == "__main__":
    main()
