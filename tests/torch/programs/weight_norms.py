"""Weights normed by their length or their largest singular value, trained."""

import numpy as np
import torch
from torch import nn
from torch.nn.utils import remove_weight_norm, spectral_norm, weight_norm
from torch.nn.utils.parametrizations import spectral_norm as sn
from torch.nn.utils.parametrizations import weight_norm as wn

g = np.random.default_rng(0)


def fill(m):
    with torch.no_grad():
        for p in m.parameters():
            p.copy_(torch.tensor(g.normal(size=tuple(p.shape)).astype("f")))
    return m


x = torch.tensor(g.normal(size=(4, 3)).astype("f"))
for f in (weight_norm, wn):
    m = fill(nn.Sequential(f(nn.Linear(3, 5)), nn.ReLU(), f(nn.Linear(5, 2))))
    print([(n, tuple(p.shape)) for n, p in m.named_parameters()])
    opt = torch.optim.SGD(m.parameters(), lr=0.1)
    for _ in range(3):
        opt.zero_grad()
        loss = m(x).pow(2).mean()
        loss.backward()
        opt.step()
        print(round(loss.item(), 5))
m = fill(weight_norm(nn.Linear(3, 2)))
remove_weight_norm(m)
print(sorted(n for n, _ in m.named_parameters()), m(x).sum().item().__round__(4))
for f in (spectral_norm, sn):
    m = f(nn.Linear(3, 2))
    print(
        sorted(n for n, _ in m.named_parameters()),
        sorted(n for n, _ in m.named_buffers()),
        torch.linalg.matrix_norm(m.weight, 2).item() < 1.5,
    )
