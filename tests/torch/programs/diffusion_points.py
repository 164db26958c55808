"""Denoising diffusion of points in the plane, with a cosine schedule and DDIM steps."""

import math

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


T = 20
steps = torch.arange(T + 1, dtype=torch.float64)
f = torch.cos((steps / T + 0.008) / 1.008 * math.pi / 2) ** 2
alpha_bar = (f / f[0]).float()
betas = torch.clip(1 - alpha_bar[1:] / alpha_bar[:-1], 0, 0.999)
alphas_cumprod = torch.cumprod(1.0 - betas, dim=0)
prev = F.pad(alphas_cumprod[:-1], (1, 0), value=1.0)
variance = betas * (1 - prev) / (1 - alphas_cumprod)


def extract(a, t, x_shape):
    return a.gather(-1, t).reshape(t.shape[0], *((1,) * (len(x_shape) - 1)))


class Sinusoidal(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, time):
        half = self.dim // 2
        e = torch.exp(torch.arange(half, device=time.device) * -(math.log(10000) / (half - 1)))
        e = time[:, None] * e[None, :]
        return torch.cat((e.sin(), e.cos()), dim=-1)


class Denoiser(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.time = nn.Sequential(Sinusoidal(8), nn.Linear(8, dim), nn.SiLU())
        self.inp, self.mid, self.out = nn.Linear(2, dim), nn.Linear(dim, dim), nn.Linear(dim, 2)

    def forward(self, x, t):
        h = self.inp(x) + self.time(t)
        return self.out(F.silu(self.mid(F.silu(h))))


rng = np.random.RandomState(0)
angle = torch.linspace(0, 2 * math.pi, 33)[:-1]
data = torch.stack((angle.cos(), angle.sin()), dim=-1)
model = init(Denoiser())
ema = {k: v.clone() for k, v in model.state_dict().items()}
optimizer = optim.Adam(model.parameters(), lr=1e-2)
for step in range(8):
    t = torch.from_numpy(rng.randint(0, T, len(data)))
    noise = torch.from_numpy(rng.randn(*data.shape)).float()
    noisy = (
        extract(alphas_cumprod.sqrt(), t, data.shape) * data
        + extract((1 - alphas_cumprod).sqrt(), t, data.shape) * noise
    )
    loss = F.huber_loss(model(noisy, t), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for k, v in model.state_dict().items():
            ema[k].lerp_(v, 0.1)
    print(step, f"{loss.item():.5f} {grad_norm(model):.5f}")
model.load_state_dict(ema)


@torch.inference_mode()
def sample(x):
    for i in reversed(range(0, T, 4)):
        t = torch.full((x.shape[0],), i, dtype=torch.long)
        eps = model(x, t)
        a, p = alphas_cumprod[i], alphas_cumprod[i - 4] if i >= 4 else torch.tensor(1.0)
        x0 = ((x - (1 - a).sqrt() * eps) / a.sqrt()).clamp(-2, 2)
        x = p.sqrt() * x0 + (1 - p).sqrt() * eps
    return x


out = sample(torch.from_numpy(rng.randn(5, 2)).float())
print(out.numpy().round(3).tolist(), variance[:3].tolist())
