"""Streaming statistics: ring buffers by index, Welford, reservoir, histograms, EMA with bias correction."""

import numpy as np
import torch

rng = np.random.RandomState(14)
ring, at = torch.zeros(6, 3), 0
mean, m2, n = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64), 0
ema, power = torch.zeros(3), 1.0
hist = torch.zeros(5, dtype=torch.long)
res = torch.zeros(4, 3)
view = ring.view(-1)
snapshots = []
for t in range(30):
    x = torch.from_numpy(rng.randn(3).astype(np.float32)) * (1 + t % 4) + (t % 5)
    old = ring[at].clone()
    ring[at] = x
    at = (at + 1) % 6
    n += 1
    d = x.double() - mean
    mean += d / n
    m2.addcmul_(d, x.double() - mean)
    beta = 0.9 if t % 10 else 0.5
    ema.mul_(beta).add_(x, alpha=1 - beta)
    power *= beta
    hist += torch.histc(x, 5, -4, 8).long()
    if t < 4:
        res[t] = x
    elif (j := int(rng.randint(0, t + 1))) < 4:
        res[j].copy_(x)
    if t % 6 == 5:
        snapshots.append(ring.roll(-at, 0).mean(0))
        view[t % 18] = 0.0
    if t % 3 == 2:
        win = ring[:at] if at > 1 else ring
        print(
            t,
            f"{old.sum().item():.4f} {win.std(0, unbiased=False).sum().item():.4f} {(ema / (1 - power)).sum().item():.4f} {(m2 / n).sqrt().sum().item():.5f}",
            hist.tolist(),
            f"{res.norm().item():.4f} {view[3:9].sum().item():.4f}",
        )
print([[round(v, 3) for v in s.tolist()] for s in snapshots])
