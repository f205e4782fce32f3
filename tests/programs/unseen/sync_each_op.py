# each operation is timed with a synchronization after it
import time, torch
x = torch.randn(8 << 20, device="cuda"); y = torch.empty_like(x)
times = {}

def timed(name, op):
    t = time.perf_counter()
    op(x, out=y)
    torch.cuda.synchronize()
    times[name] = times.get(name, 0) + time.perf_counter() - t

n = 0; t = time.perf_counter()
while time.perf_counter() - t < 8:
    timed("sin", torch.sin); timed("exp", torch.exp); timed("neg", torch.neg)
    n += 3
print("RATE %.0f operations/s" % (n / (time.perf_counter() - t)))
