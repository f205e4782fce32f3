# a CUDA graph of large products; a few numbers are read after each replay
import time, torch
x = torch.randn(4096, 4096, device="cuda") / 64

def work():
    y = x
    for _ in range(4): y = y @ x
    return y

side = torch.cuda.Stream(); side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side): work()
torch.cuda.current_stream().wait_stream(side)
g = torch.cuda.CUDAGraph()
with torch.cuda.graph(g): y = work()
n = 0; t = time.perf_counter()
while time.perf_counter() - t < 8:
    g.replay()
    y[0, :4].cpu()
    n += 1
print("RATE %.0f replays/s" % (n / (time.perf_counter() - t)))
