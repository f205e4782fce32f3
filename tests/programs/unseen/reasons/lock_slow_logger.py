"""Training which adds one record to a log in each step; a thread writes the log to a slow sink."""
import io
import json
import threading
import time

import torch

LOCK = threading.Lock()
records = []
spent = {"wait": 0.0, "held": 0.0}


class SlowSink(io.StringIO):
    def write(self, text):
        time.sleep(0.017)
        return len(text)


def flush(sink):
    with LOCK:
        start = time.perf_counter()
        lines = []
        for number, loss in records[-4000:]:
            lines.append(f"{number:08d}\t{loss:.6f}\t{'ok' if loss < 1e6 else 'high'}")
        sink.write("\n".join(lines))
        del records[:-4000]
        spent["held"] += time.perf_counter() - start


def write_log(stop):
    sink = SlowSink()
    while not stop.wait(0.008):
        flush(sink)


def add_record(number, loss):
    start = time.perf_counter()
    with LOCK:
        spent["wait"] += time.perf_counter() - start
        records.append((number, loss))


def train_step(x, weight, number):
    y = torch.relu(x @ weight)
    loss = (y @ weight).square().mean().item()
    add_record(number, loss)


def main():
    x = torch.randn(4096, 4096, device="cuda")
    weight = torch.randn(4096, 4096, device="cuda") / 64
    records.extend((i, 0.5 + i * 1e-6) for i in range(4000))
    stop = threading.Event()
    writer = threading.Thread(target=write_log, args=(stop,), name="log-writer", daemon=True)
    writer.start()
    for number in range(60):
        train_step(x, weight, number)
    spent.update(wait=0.0, held=0.0)
    steps, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < 9:
        train_step(x, weight, steps)
        steps += 1
    wall = time.perf_counter() - begin
    truth = {"lock": round(100 * spent["wait"] / wall, 1), "held": round(100 * spent["held"] / wall, 1)}
    stop.set()
    writer.join()
    print(f"RATE {steps / wall:.2f}; TRUTH {json.dumps(truth)}")


if __name__ == "__main__":
    main()
