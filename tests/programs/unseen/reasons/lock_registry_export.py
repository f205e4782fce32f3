"""Training that counts in a registry of metrics, which an exporter thread renders and packs under the registry's lock."""
import json
import threading
import time
import zlib

import torch


class Registry:
    def __init__(self, count):
        self.lock = threading.RLock()
        self.series = {f"metric_{number}": [float(number)] * 40 for number in range(count)}
        self.packed = b""

    def observe(self, name, value):
        with self.lock:
            self._append(name, value)

    def _append(self, name, value):
        with self.lock:
            series = self.series[name]
            series.append(value)
            del series[0]

    def export(self):
        with self.lock:
            text = self._render()
            self.packed = zlib.compress(text, 9)

    def _render(self):
        with self.lock:
            return "\n".join(f"{name} {series}" for name, series in self.series.items()).encode()


def export_forever(registry):
    while True:
        registry.export()
        time.sleep(0.006)


def step(x, weight, registry, spent):
    y = torch.relu(x @ weight) @ weight
    loss = torch.tanh(y @ weight).mean().item()
    begin = time.perf_counter()
    registry.observe("metric_7", loss)
    spent["lock"] += time.perf_counter() - begin


def main():
    x = torch.randn(4096, 4096, device="cuda")
    weight = torch.randn(4096, 4096, device="cuda") / 64
    registry, spent = Registry(2000), {"lock": 0.0}
    threading.Thread(target=export_forever, args=(registry,), name="exporter", daemon=True).start()
    for _ in range(30):
        step(x, weight, registry, spent)
    spent["lock"] = 0.0
    steps, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < 9:
        step(x, weight, registry, spent)
        steps += 1
    wall = time.perf_counter() - begin
    print(f"RATE {steps / wall:.2f}; TRUTH {json.dumps({'lock': round(100 * spent['lock'] / wall, 1)})}")


if __name__ == "__main__":
    main()
