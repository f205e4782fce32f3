"""A sampler of many small GPU operations; a thread tokenises the next documents meanwhile."""
import json
import random
import threading
import time

import torch

SYLLABLES = ["ka", "to", "mi", "re", "no", "sa", "lu", "pe", "vi", "do", "shi", "ran"]


class Tokenizer(threading.Thread):
    def __init__(self, documents):
        super().__init__(name="tokenizer", daemon=True)
        self.documents = documents
        self.vocabulary = {}
        self.quit = threading.Event()
        self.worked = 0.0
        self.tokens = 0

    def encode(self, text):
        ids = []
        for line in text.splitlines():
            for word in line.lower().split(" "):
                word = word.strip(".,;!?")
                if word.endswith("shi"):
                    word = word.removesuffix("shi")
                ids.append(self.vocabulary.setdefault(word, len(self.vocabulary)))
        return ids

    def run(self):
        number = 0
        while not self.quit.is_set():
            start = time.perf_counter()
            self.tokens += len(self.encode(self.documents[number % len(self.documents)]))
            took = time.perf_counter() - start
            self.worked += took
            number += 1
            self.quit.wait(0.6 * took)


def make_document(seed, words):
    rng = random.Random(seed)
    text = []
    for i in range(words):
        word = "".join(rng.choice(SYLLABLES) for _ in range(3))
        text.append(word.capitalize() + ("." if i % 9 == 0 else "") + ("\n" if i % 12 == 0 else " "))
    return "".join(text)


def sample(state, drift):
    for _ in range(15):
        noise = torch.sin(state)
        state = state + 0.01 * (drift - state)
        state = torch.addcmul(state, noise, drift, value=0.1)
    return state, state.mean().item()


def measure(state, drift, seconds):
    steps, begin, cpu = 0, time.perf_counter(), time.thread_time()
    while time.perf_counter() - begin < seconds:
        state, _ = sample(state, drift)
        steps += 1
    wall = time.perf_counter() - begin
    return steps, wall, 100 * (1 - (time.thread_time() - cpu) / wall)


def main():
    documents = [make_document(seed, 100_000) for seed in range(3)]
    state = torch.randn(256, 1024, device="cuda")
    drift = torch.rand_like(state)
    measure(state, drift, 1.0)
    alone_steps, alone_wall, _ = measure(state, drift, 1.5)
    tokenizer = Tokenizer(documents)
    tokenizer.start()
    time.sleep(0.5)
    tokenizer.worked = 0.0
    steps, wall, off_cpu = measure(state, drift, 9.0)
    worked = 100 * tokenizer.worked / wall
    tokenizer.quit.set()
    tokenizer.join()
    lost = 100 * (1 - (alone_wall / alone_steps) / (wall / steps))
    truth = {"gil": round(lost, 1), "tokenizer_busy": round(worked, 1), "off_cpu": round(off_cpu, 1)}
    print(f"RATE {steps / wall:.2f}; TRUTH {json.dumps(truth)}")


if __name__ == "__main__":
    main()
