# select scores above a threshold by a boolean mask, then work with them on the CPU
import time, torch
torch.manual_seed(0)
x = torch.randn(4096, 4096, device="cuda") / 64
w = torch.randn(4096, 4096, device="cuda") / 64

def after(k):
    return sum(i * i % 7 for i in range(30000)) + k

def step():
    scores = (x @ w) @ w
    kept = scores[scores > 0.02]
    return after(kept.numel())

for _ in range(3): step()
n = 0; t = time.perf_counter()
while time.perf_counter() - t < 8: step(); n += 1
print("RATE %.0f steps/s" % (n / (time.perf_counter() - t)))
