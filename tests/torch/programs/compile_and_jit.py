"""torch.compile on functions, with and without options, and on modules."""

import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(47)


@torch.compile(backend="eager")
def fused(x, y):
    return torch.sin(x) ** 2 + torch.cos(y) ** 2 * x


@torch.compile(fullgraph=True, backend="eager")
def scaled(x):
    return x * 3 + 1


a, b = (torch.from_numpy(rng.normal(size=(3, 4)).astype("f4")) for _ in range(2))
for _ in range(3):
    print(f"{fused(a, b).sum().item():.5f} {scaled(a).mean().item():.5f}")
    a = a + 1
print(f"{fused(a[:2], b[:2]).sum().item():.5f}")
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
for p in net.parameters():
    p.data.copy_(torch.from_numpy(rng.normal(0, 0.4, tuple(p.shape))))
compiled = torch.compile(net, backend="eager")
optimizer = torch.optim.Adam(compiled.parameters(), lr=0.05)
for step in range(3):
    loss = compiled(a).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.5f}")
compiled.eval()
with torch.no_grad():
    for scale in (1.0, 2.0, 3.0):
        print(f"{compiled(a * scale).sum().item():.5f} {net(a * scale).sum().item():.5f}")
