"""Analyses video frames: a decoder process writes raw frames to a pipe, a thread reads them."""
import json
import queue
import subprocess
import sys
import threading
import time

import numpy as np
import torch

HEIGHT, WIDTH = 720, 1024
DECODER = f"""
import sys, time
frame = bytes(range(256)) * ({HEIGHT} * {WIDTH} // 256)
while True:
    time.sleep(0.024)
    sys.stdout.buffer.write(frame)
    sys.stdout.buffer.flush()
"""


class FrameReader:
    def __init__(self):
        self.decoder = subprocess.Popen([sys.executable, "-c", DECODER], stdout=subprocess.PIPE)
        self.frames = queue.Queue(maxsize=8)
        self.thread = threading.Thread(target=self.read_frames, name="frame-reader", daemon=True)
        self.thread.start()

    def read_frames(self):
        while True:
            data = self.decoder.stdout.read(HEIGHT * WIDTH)
            if len(data) < HEIGHT * WIDTH:
                break
            frame = np.frombuffer(data, dtype=np.uint8).reshape(HEIGHT, WIDTH)
            self.frames.put(frame.astype(np.float32))

    def close(self):
        self.decoder.kill()
        self.decoder.wait()


def step(reader, weight, spent):
    start = time.perf_counter()
    frame = reader.frames.get()
    spent["queue"] += time.perf_counter() - start
    x = torch.from_numpy(frame).to("cuda") / 255
    filtered = torch.relu(weight @ weight) @ weight
    return torch.tanh(x @ filtered[:WIDTH]).mean().item()


def main():
    reader = FrameReader()
    weight = torch.randn(4096, 4096, device="cuda") / 64
    spent = {"queue": 0.0}
    for _ in range(20):
        step(reader, weight, spent)
    spent["queue"] = 0.0
    steps, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < 9:
        step(reader, weight, spent)
        steps += 1
    wall = time.perf_counter() - begin
    truth = {"queue": round(100 * spent["queue"] / wall, 1)}
    reader.close()
    print(f"RATE {steps / wall:.2f}; TRUTH {json.dumps(truth)}")


if __name__ == "__main__":
    main()
