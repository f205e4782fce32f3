# small requests beside another process that uses the GPU all the time
import time, torch, torch.multiprocessing as mp

def heavy(ready, stop):
    a = torch.randn(4096, 4096, device="cuda") / 64; n = 0
    (a @ a).sum().item(); ready.set(); t = time.perf_counter()
    while not stop.is_set():
        for _ in range(8): a @ a
        torch.cuda.synchronize(); n += 8
    print("RATE child %.0f products/s" % (n / (time.perf_counter() - t)), flush=True)

if __name__ == "__main__":
    ctx = mp.get_context("spawn"); ready, stop = ctx.Event(), ctx.Event()
    p = ctx.Process(target=heavy, args=(ready, stop)); p.start(); ready.wait(30)
    x = torch.randn(1 << 16, device="cuda"); n = 0; t = time.perf_counter()
    while time.perf_counter() - t < 8:
        y = torch.sin(x).mul(2).add(1).sum()
        y.item()
        n += 1
    print("RATE %.0f requests/s" % (n / (time.perf_counter() - t)), flush=True)
    stop.set(); p.join()
