# training with a gradient scaler; the norm of each gradient is logged in each step
import time, torch
m = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(40)]).cuda()
o = torch.optim.SGD(m.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
x = torch.randn(32, 256, device="cuda")
log = {}

def step():
    loss = (m(x) - x).square().mean()
    o.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(o)
    for k, p in m.named_parameters():
        log[k] = p.grad.norm().item()
    scaler.step(o)
    scaler.update()

for _ in range(5): step()
n = 0; t = time.perf_counter()
while time.perf_counter() - t < 8: step(); n += 1
print("RATE %.0f steps/s" % (n / (time.perf_counter() - t)))
