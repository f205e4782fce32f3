# a stream waits for an event behind a host function of another stream
import time, cupy as cp
gate = cp.cuda.Stream(non_blocking=True)
work = cp.cuda.Stream(non_blocking=True)

def on_host(_):
    time.sleep(0.005)

with work:
    x = cp.arange(1024, dtype=cp.float32)
    work.synchronize()
    n = 0; t = time.perf_counter()
    while time.perf_counter() - t < 8:
        gate.launch_host_func(on_host, None)
        work.wait_event(gate.record())
        cp.asnumpy(x)
        n += 1
print("RATE %.0f reads/s" % (n / (time.perf_counter() - t)))
