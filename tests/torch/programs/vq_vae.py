"""A vector-quantized autoencoder: straight-through codes kept as moving averages."""

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


class Quantizer(nn.Module):
    def __init__(self, codes, dim, decay=0.9):
        super().__init__()
        embed = torch.from_numpy(np.random.RandomState(1).randn(codes, dim).astype(np.float32))
        self.register_buffer("embed", embed)
        self.register_buffer("size", torch.ones(codes))
        self.register_buffer("total", embed.clone())
        self.decay = decay

    def forward(self, z):
        flat = z.permute(0, 2, 3, 1).reshape(-1, z.size(1))
        d = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.embed.t() + self.embed.pow(2).sum(1)
        _, index = (-d).max(1)
        onehot = F.one_hot(index, self.embed.size(0)).type(flat.dtype)
        q = (
            F.embedding(index, self.embed)
            .view(z.size(0), z.size(2), z.size(3), -1)
            .permute(0, 3, 1, 2)
        )
        if self.training:
            with torch.no_grad():
                self.size.mul_(self.decay).add_(onehot.sum(0), alpha=1 - self.decay)
                self.total.data.mul_(self.decay).add_(onehot.t() @ flat, alpha=1 - self.decay)
                n = self.size.sum()
                size = (self.size + 1e-5) / (n + self.embed.size(0) * 1e-5) * n
                self.embed.data.copy_(self.total / size.unsqueeze(1))
        commit = (q.detach() - z).pow(2).mean()
        return z + (q - z).detach(), commit, index, onehot


class VQVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, 8, 4, stride=2, padding=1), nn.ReLU(inplace=True), nn.Conv2d(8, 4, 1)
        )
        self.vq = Quantizer(6, 4)
        self.dec = nn.Sequential(
            nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(inplace=True), nn.ConvTranspose2d(8, 1, 4, 2, 1)
        )

    def forward(self, x):
        q, commit, index, onehot = self.vq(self.enc(x))
        return self.dec(q), commit, index, onehot


x = torch.from_numpy(np.random.RandomState(0).rand(4, 1, 8, 8).astype(np.float32))
model = init(VQVAE())
optimizer = optim.NAdam(model.parameters(), lr=5e-3)
for step in range(8):
    out, commit, index, onehot = model(x)
    loss = F.mse_loss(out, x) + 0.25 * commit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    p = onehot.mean(0)
    perplexity = torch.exp(-(p * (p + 1e-10).log()).sum())
    print(
        step,
        f"{loss.item():.5f} {grad_norm(model):.5f} {perplexity.item():.4f}",
        index.bincount(minlength=6).tolist(),
    )
model.eval()
print(list(model.state_dict())[-3:], model.vq.embed.norm().item() > 0)
