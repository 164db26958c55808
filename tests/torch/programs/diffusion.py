"""Denoising diffusion: a schedule of noise, a network that predicts it, one way back."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(41)
T = 10
betas = torch.linspace(1e-4, 0.2, T)
alphas = 1.0 - betas
alphas_cumprod = torch.cumprod(alphas, dim=0)
previous = F.pad(alphas_cumprod[:-1], (1, 0), value=1.0)
posterior_variance = betas * (1.0 - previous) / (1.0 - alphas_cumprod)


def extract(a, t, x_shape):
    return a.gather(-1, t).reshape(t.shape[0], *((1,) * (len(x_shape) - 1)))


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, time):
        half = self.dim // 2
        freqs = torch.exp(torch.arange(half, device=time.device) * -(math.log(1e4) / (half - 1)))
        args = time[:, None] * freqs[None, :]
        return torch.cat((args.sin(), args.cos()), dim=-1)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(TimeEmbedding(8), nn.Linear(8, 16), nn.SiLU())
        self.inside, self.out = nn.Linear(2, 16), nn.Linear(16, 2)

    def forward(self, x, t):
        return self.out(F.silu(self.inside(x) + self.time(t)))


model = Denoiser()
for p in model.parameters():
    nn.init.zeros_(p)
    p.data += torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape))).float()
x0 = torch.from_numpy(rng.normal(1, 0.2, (32, 2))).float()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(5):
    t = torch.from_numpy(rng.integers(0, T, 32))
    noise = torch.from_numpy(rng.normal(size=(32, 2))).float()
    x_t = extract(alphas_cumprod.sqrt(), t, x0.shape) * x0
    x_t = x_t + extract((1 - alphas_cumprod).sqrt(), t, x0.shape) * noise
    loss = F.mse_loss(model(x_t, t), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.5f}")


@torch.no_grad()
def p_sample(x, i):
    t = torch.full((x.shape[0],), i, dtype=torch.long)
    mean = extract(alphas.rsqrt(), t, x.shape) * (
        x - extract(betas / (1 - alphas_cumprod).sqrt(), t, x.shape) * model(x, t)
    )
    if i == 0:
        return mean
    noise = torch.from_numpy(rng.normal(size=tuple(x.shape))).float()
    return mean + extract(posterior_variance, t, x.shape).sqrt() * noise


x = torch.from_numpy(rng.normal(size=(4, 2))).float()
for i in reversed(range(T)):
    x = p_sample(x, i)
print([round(v, 3) for v in x.flatten().tolist()])
