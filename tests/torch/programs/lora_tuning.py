"""Low-rank adapters by parametrizations and hooks, frozen weights, merged at the end."""

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


import torch.nn.utils.parametrize as parametrize


class LoRA(nn.Module):
    def __init__(self, i, o, rank=2, alpha=4.0):
        super().__init__()
        self.A = nn.Parameter(
            torch.from_numpy(np.random.RandomState(5).randn(rank, i).astype(np.float32))
        )
        self.B = nn.Parameter(torch.zeros(o, rank))
        self.scale, self.on = alpha / rank, True

    def forward(self, w):
        return w + self.scale * (self.B @ self.A).view_as(w) if self.on else w


model = init(nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 3)))
for layer in model:
    if isinstance(layer, nn.Linear):
        o, i = layer.weight.shape
        parametrize.register_parametrization(layer, "weight", LoRA(i, o))
for name, p in model.named_parameters():
    p.requires_grad = name.split(".")[-1] in ("A", "B")
print([n for n, p in model.named_parameters() if p.requires_grad])
activations = {}
handle = model[0].register_forward_hook(
    lambda m, inp, out: activations.update(first=out.detach().mean().item())
)
rng = np.random.RandomState(0)
x, y = torch.from_numpy(rng.randn(16, 6).astype(np.float32)), torch.arange(16) % 3
optimizer = optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=5e-2)
for step in range(6):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.5f} {grad_norm(model):.5f} {activations['first']:.5f}")
handle.remove()
before = model(x)
model[0].parametrizations.weight[0].on = False
print((model(x) - before).abs().max().item() > 1e-3, parametrize.is_parametrized(model[0]))
model[0].parametrizations.weight[0].on = True
for layer in model:
    if parametrize.is_parametrized(layer):
        parametrize.remove_parametrizations(layer, "weight")
print(torch.allclose(model(x), before, atol=1e-6), [n for n, _ in model.named_parameters()])
print(sum(p.numel() for p in model.parameters() if p.requires_grad))
