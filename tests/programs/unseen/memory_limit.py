# buffers of changing size under a limit of memory
import os, time
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:512"
import torch
torch.cuda.set_per_process_memory_fraction(9 * 2**30 / torch.cuda.get_device_properties(0).total_memory)
sizes = [int(g * 2**30) for g in (5, 5.5, 6, 5.25)]

def step(i):
    buf = torch.empty(sizes[i % 4], dtype=torch.uint8, device="cuda")
    head = buf[:4 << 20]
    head.fill_(i % 256)
    head.add_(1)

for i in range(8): step(i)
n = 0; t = time.perf_counter()
while time.perf_counter() - t < 8: step(n); n += 1
print("RATE %.0f steps/s" % (n / (time.perf_counter() - t)))
