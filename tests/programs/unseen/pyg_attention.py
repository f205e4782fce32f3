# graph attention on a small graph
import time, torch
from torch_geometric.nn import GATConv
torch.manual_seed(0)
convs = [GATConv(64, 16, heads=4).cuda().eval() for _ in range(6)]
x = torch.randn(2000, 64, device="cuda")
edges = torch.randint(0, 2000, (2, 16000), device="cuda")

@torch.no_grad()
def step():
    h = x
    for conv in convs:
        h = conv(h, edges).relu()
    return h.mean().item()

for _ in range(5): step()
n = 0; t = time.perf_counter()
while time.perf_counter() - t < 8: step(); n += 1
print("RATE %.0f steps/s" % (n / (time.perf_counter() - t)))
