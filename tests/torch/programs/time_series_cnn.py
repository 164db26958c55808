"""A temporal convolution with weight normalisation and residual dilated blocks."""

import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils.parametrizations import weight_norm

rng = np.random.default_rng(36)


class Chomp1d(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, x):
        return x[:, :, : -self.size].contiguous()


class TemporalBlock(nn.Module):
    def __init__(self, inside, outside, dilation):
        super().__init__()
        self.net = nn.Sequential(
            weight_norm(nn.Conv1d(inside, outside, 3, padding=2 * dilation, dilation=dilation)),
            Chomp1d(2 * dilation),
            nn.ReLU(),
            nn.Dropout(0.0),
        )
        self.downsample = nn.Conv1d(inside, outside, 1) if inside != outside else None

    def forward(self, x):
        res = x if self.downsample is None else self.downsample(x)
        return torch.relu(self.net(x) + res)


model = nn.Sequential(TemporalBlock(1, 4, 1), TemporalBlock(4, 4, 2), nn.Conv1d(4, 1, 1))
with torch.no_grad():
    for p in model.parameters():
        p.copy_(torch.from_numpy(rng.normal(0.1, 0.3, tuple(p.shape))))
series = torch.from_numpy(np.sin(np.arange(40) / 3).astype("f4")).view(1, 1, -1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
for step in range(4):
    loss = nn.functional.mse_loss(model(series[..., :-1]), series[..., 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.5f}")
print(sorted(n for n, _ in model.named_parameters())[:3], model[0].net[0].weight.shape)
