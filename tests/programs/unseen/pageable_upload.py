# a large batch in ordinary memory goes to the GPU in each step
import time, numpy as np, torch
data = [torch.from_numpy(np.full(64 << 20, i, dtype=np.float32)) for i in range(3)]
total = torch.zeros((), device="cuda")
for d in data: d.cuda()
n = 0; t = time.perf_counter()
while time.perf_counter() - t < 8:
    x = data[n % 3].cuda()
    total += x.sum()
    n += 1
torch.cuda.synchronize()
print("RATE %.0f batches/s" % (n / (time.perf_counter() - t)))
