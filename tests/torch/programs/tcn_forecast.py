"""Causal dilated convolutions with weight norm, gradients accumulated, quantile loss, checkpoints on disk."""

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


import io

from torch.nn.utils.parametrizations import weight_norm


class Chomp1d(nn.Module):
    def __init__(self, chomp_size):
        super().__init__()
        self.chomp_size = chomp_size

    def forward(self, x):
        return x[:, :, : -self.chomp_size].contiguous()


class TemporalBlock(nn.Module):
    def __init__(self, n_inputs, n_outputs, kernel_size, dilation):
        super().__init__()
        padding = (kernel_size - 1) * dilation
        self.conv = weight_norm(
            nn.Conv1d(n_inputs, n_outputs, kernel_size, padding=padding, dilation=dilation)
        )
        self.net = nn.Sequential(self.conv, Chomp1d(padding), nn.ReLU())
        self.downsample = nn.Conv1d(n_inputs, n_outputs, 1) if n_inputs != n_outputs else None

    def forward(self, x):
        res = x if self.downsample is None else self.downsample(x)
        return F.relu(self.net(x) + res)


class TCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(
            *[TemporalBlock(1 if i == 0 else 6, 6, 3, 2**i) for i in range(3)]
        )
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.blocks(x)[:, :, -1])


def pinball(pred, y, q):
    err = y.unsqueeze(1) - pred
    return torch.maximum(q * err, (q - 1) * err).mean()


t = torch.arange(0, 60).float()
series = torch.sin(t / 3) + 0.1 * torch.cos(1.7 * t)
windows = series.unfold(0, 21, 3)
x, y = windows[:, :-1].unsqueeze(1), windows[:, -1]
model = init(TCN())
q = torch.tensor([0.1, 0.5, 0.9])
optimizer = optim.Adamax(model.parameters(), lr=1e-2)
accumulate = 2
for epoch in range(4):
    optimizer.zero_grad()
    total = 0.0
    for i, (xb, yb) in enumerate(zip(x.split(4), y.split(4))):
        loss = pinball(model(xb), yb, q) / accumulate
        loss.backward()
        total += loss.item()
        if (i + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
    print(epoch, f"{total:.5f}")
buffer = io.BytesIO()
torch.save(
    {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, buffer
)
buffer.seek(0)
state = torch.load(buffer, weights_only=True)
other = TCN()
print(other.load_state_dict(state["model"]), sorted(state["model"])[:3])
restored = optim.Adamax(other.parameters(), lr=1.0)
restored.load_state_dict(state["optimizer"])
print(torch.allclose(model(x), other(x)), restored.param_groups[0]["lr"], state["epoch"])
