"""A sparse mixture of experts with top-k gates and a load-balancing loss."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim


def init(model, seed=0):
    rng = np.random.RandomState(seed)
    with torch.no_grad():
        for p in model.parameters():
            bound = 1 / max(1, p.shape[-1] if p.dim() > 1 else p.numel()) ** 0.5
            p.copy_(torch.from_numpy(rng.uniform(-bound, bound, tuple(p.shape)).astype(np.float32)))
    return model


def grad_norm(model):
    return sum(p.grad.norm().item() ** 2 for p in model.parameters() if p.grad is not None) ** 0.5


class Expert(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d, h), nn.GELU(), nn.Linear(h, d))

    def forward(self, x):
        return self.net(x)


class MoE(nn.Module):
    def __init__(self, d, h, experts=4, k=2):
        super().__init__()
        self.gate = nn.Linear(d, experts, bias=False)
        self.experts = nn.ModuleList([Expert(d, h) for _ in range(experts)])
        self.k = k

    def forward(self, x):
        flat = x.reshape(-1, x.size(-1))
        logits = self.gate(flat)
        probs = logits.softmax(dim=-1)
        weights, chosen = torch.topk(probs, self.k, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        out = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            token, slot = torch.where(chosen == i)
            if token.numel() == 0:
                continue
            out.index_add_(0, token, expert(flat[token]) * weights[token, slot, None])
        load = F.one_hot(chosen, len(self.experts)).sum(dim=(0, 1)).float() / chosen.numel()
        balance = len(self.experts) * (load * probs.mean(0)).sum()
        return out.view_as(x), balance, load


rng = np.random.RandomState(0)
x = torch.from_numpy(rng.randn(3, 7, 8).astype(np.float32))
target = torch.from_numpy(rng.randn(3, 7, 8).astype(np.float32))
model = init(MoE(8, 16))
optimizer = optim.Adam(model.parameters(), lr=1e-2, betas=(0.9, 0.95))
for step in range(6):
    y, balance, load = model(x)
    loss = F.mse_loss(y, target) + 0.01 * balance
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.5f} {balance.item():.5f} {grad_norm(model):.5f}", load)
