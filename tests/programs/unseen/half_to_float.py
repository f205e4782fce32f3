# results in half precision go to a float32 tensor in ordinary memory, "non-blocking"
import time, torch
src = torch.rand(64 << 20, device="cuda").half()
dst = torch.zeros(64 << 20)
n = 0; t = time.perf_counter()
while time.perf_counter() - t < 8:
    src.mul_(1.0)
    dst.copy_(src, non_blocking=True)
    torch.cuda.synchronize()
    n += 1
print("RATE %.0f copies/s" % (n / (time.perf_counter() - t)))
