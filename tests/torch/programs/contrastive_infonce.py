"""InfoNCE with two views, a temperature that is trained, and a queue of negatives."""

import copy
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(51)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 16), nn.LayerNorm(16), nn.SiLU(), nn.Linear(16, 6))
        self.log_scale = nn.Parameter(torch.tensor(math.log(1 / 0.2)))

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


model = Encoder()
for name, p in model.named_parameters():
    if name != "log_scale":
        nn.init.zeros_(p)
        p.data += torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape)).astype(np.float32))
momentum = copy.deepcopy(model).requires_grad_(False)
queue = F.normalize(torch.from_numpy(rng.standard_normal((32, 6)).astype(np.float32)), dim=1)
pointer = 0
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, nesterov=True)
scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=3, T_mult=2)
for step in range(8):
    x = torch.from_numpy(rng.standard_normal((8, 12)).astype(np.float32))
    views = [
        x + 0.1 * torch.from_numpy(rng.standard_normal((8, 12)).astype(np.float32)) for _ in "ab"
    ]
    q = model(views[0])
    with torch.no_grad():
        k = momentum(views[1])
    positive = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)
    negative = torch.einsum("nc,kc->nk", q, queue.clone().detach())
    logits = torch.cat([positive, negative], dim=1) * model.log_scale.exp().clamp(max=100)
    loss = F.cross_entropy(logits, torch.zeros(8, dtype=torch.long))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    with torch.no_grad():
        for a, b in zip(momentum.parameters(), model.parameters()):
            a.mul_(0.9).add_(b, alpha=0.1)
        queue[pointer : pointer + 8] = k
        pointer = (pointer + 8) % 32
    rank = (logits > logits[:, :1]).sum(1).float().mean()
    lr = scheduler.get_last_lr()[0]
    print(
        f"{step}: {loss.item():.4f} rank {rank:.2f} scale {model.log_scale.exp():.3f} lr {lr:.4f}"
    )
print(queue.norm(dim=1)[:4], pointer)
