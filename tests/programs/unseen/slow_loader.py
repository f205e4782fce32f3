# a network so small that the DataLoader's workers cannot keep up
import time, numpy as np, torch

class Data(torch.utils.data.Dataset):
    def __len__(self): return 1 << 20
    def __getitem__(self, i):
        a = np.sort(np.random.default_rng(i).standard_normal(200000))
        return torch.from_numpy(a[::400].astype(np.float32)), i % 10

def main():
    m = torch.nn.Sequential(torch.nn.Linear(500, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).cuda()
    o = torch.optim.SGD(m.parameters(), lr=1e-3); n = 0; t = None
    for x, y in torch.utils.data.DataLoader(Data(), batch_size=16, num_workers=2):
        loss = torch.nn.functional.cross_entropy(m(x.cuda()), y.cuda())
        o.zero_grad(); loss.backward(); o.step()
        n += 1
        if n == 10: t = time.perf_counter()
        if t and time.perf_counter() - t > 8: break
    print("RATE %.0f batches/s" % ((n - 10) / (time.perf_counter() - t)))

if __name__ == "__main__": main()
