"""An MLP-Mixer with stochastic depth off, label smoothing and one cycle of rates."""

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


class MixerBlock(nn.Module):
    def __init__(self, patches, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.tokens = nn.Sequential(
            nn.Linear(patches, 12), nn.GELU(approximate="tanh"), nn.Linear(12, patches)
        )
        self.channels = nn.Sequential(
            nn.Linear(dim, 24), nn.GELU(), nn.Dropout(0.0), nn.Linear(24, dim)
        )

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, size=16, patch=4, dim=10, depth=2, classes=3):
        super().__init__()
        self.stem = nn.Conv2d(3, dim, patch, stride=patch)
        self.blocks = nn.Sequential(*[MixerBlock((size // patch) ** 2, dim) for _ in range(depth)])
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, classes))

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        return self.head(self.blocks(x).mean(dim=1))


rng = np.random.RandomState(0)
x = torch.from_numpy(rng.rand(12, 3, 16, 16).astype(np.float32)) - 0.5
y = torch.arange(12) % 3
model = init(Mixer())
decay = [p for n, p in model.named_parameters() if p.ndim > 1]
plain = [p for n, p in model.named_parameters() if p.ndim <= 1]
optimizer = optim.AdamW(
    [{"params": decay, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}], lr=1e-3
)
scheduler = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=8)
for step in range(8):
    loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    scheduler.step()
    print(
        step,
        f"{loss.item():.5f} {grad_norm(model):.5f} {scheduler.get_last_lr()[0]:.6f}",
        f"{optimizer.param_groups[0]['betas'][0]:.4f}",
    )
print(model.blocks[0])
