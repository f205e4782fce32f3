# small operations in one thread, pure Python in another
import threading, time, torch
stop = False

def tokenize():
    k = 0
    while not stop:
        k = (k * 31 + 7) % 1000003

x = torch.randn(4096, device="cuda")
torch.sin(x).add(1).mul(2); torch.cuda.synchronize()
th = threading.Thread(target=tokenize, name="tokenize"); th.start()
n = 0; t = time.perf_counter()
while time.perf_counter() - t < 8:
    y = torch.sin(x).add(1).mul(2)
    n += 3
print("RATE %.0f operations/s" % (n / (time.perf_counter() - t)))
stop = True; th.join()
