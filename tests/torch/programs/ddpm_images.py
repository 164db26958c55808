"""A diffusion model of small images: cosine betas, time embedding, cross attention to a class, classifier-free guidance, DDPM and DDIM samplers, EMA of weights."""

import copy
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

rng = np.random.default_rng(9)
T = 20


def cosine_beta_schedule(timesteps, s=0.008):
    x = torch.linspace(0, timesteps, timesteps + 1, dtype=torch.float64)
    alphas_cumprod = torch.cos(((x / timesteps) + s) / (1 + s) * math.pi * 0.5) ** 2
    alphas_cumprod = alphas_cumprod / alphas_cumprod[0]
    betas = 1 - (alphas_cumprod[1:] / alphas_cumprod[:-1])
    return torch.clip(betas, 0, 0.999)


def extract(a, t, x_shape):
    b, *_ = t.shape
    out = a.gather(-1, t)
    return out.reshape(b, *((1,) * (len(x_shape) - 1)))


class SinusoidalPosEmb(nn.Module):
    def __init__(self, dim, theta=10000):
        super().__init__()
        self.dim, self.theta = dim, theta

    def forward(self, x):
        half_dim = self.dim // 2
        emb = math.log(self.theta) / (half_dim - 1)
        emb = torch.exp(torch.arange(half_dim, device=x.device) * -emb)
        emb = x[:, None] * emb[None, :]
        return torch.cat((emb.sin(), emb.cos()), dim=-1)


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.scale = dim**0.5
        self.g = nn.Parameter(torch.ones(1, dim, 1, 1))

    def forward(self, x):
        return F.normalize(x, dim=1) * self.g * self.scale


class Block(nn.Module):
    def __init__(self, dim_in, dim_out, emb):
        super().__init__()
        self.proj, self.norm = nn.Conv2d(dim_in, dim_out, 3, padding=1), RMSNorm(dim_out)
        self.mlp = nn.Sequential(nn.SiLU(), nn.Linear(emb, dim_out * 2))
        self.res = nn.Conv2d(dim_in, dim_out, 1) if dim_in != dim_out else nn.Identity()

    def forward(self, x, emb):
        scale, shift = self.mlp(emb)[:, :, None, None].chunk(2, dim=1)
        return F.silu(self.norm(self.proj(x)) * (scale + 1) + shift) + self.res(x)


class Denoiser(nn.Module):
    def __init__(self, dim=8, classes=3):
        super().__init__()
        self.time = nn.Sequential(
            SinusoidalPosEmb(dim), nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, 2 * dim)
        )
        self.label = nn.Embedding(classes + 1, 2 * dim)
        self.b1, self.b2 = Block(1, dim, 2 * dim), Block(dim, dim, 2 * dim)
        self.attn = nn.MultiheadAttention(dim, 2, kdim=2 * dim, vdim=2 * dim, batch_first=True)
        self.down, self.up = nn.PixelUnshuffle(2), nn.PixelShuffle(2)
        self.inner = Block(4 * dim, 4 * dim, 2 * dim)
        self.out = nn.Conv2d(dim, 1, 1)

    def forward(self, x, t, y):
        emb = self.time(t.float()) + self.label(y)
        h = self.b1(x, emb)
        h = h + self.up(self.inner(self.down(h), emb))
        seq = h.flatten(2).transpose(1, 2)
        att, _ = self.attn(
            seq,
            self.label.weight[None].expand(len(x), -1, -1),
            self.label.weight[None].expand(len(x), -1, -1),
            need_weights=False,
        )
        h = h + att.transpose(1, 2).unflatten(2, h.shape[2:])
        return self.out(self.b2(h, emb))


class EMA:
    def __init__(self, beta):
        self.beta, self.step = beta, 0

    @torch.no_grad()
    def update_model_average(self, ma_model, current_model):
        for current, ma in zip(current_model.parameters(), ma_model.parameters()):
            ma.data = self.beta * ma.data + (1 - self.beta) * current.data


betas = cosine_beta_schedule(T).float()
alphas = 1.0 - betas
alphas_cumprod = torch.cumprod(alphas, axis=0)
alphas_cumprod_prev = F.pad(alphas_cumprod[:-1], (1, 0), value=1.0)
posterior_variance = betas * (1.0 - alphas_cumprod_prev) / (1.0 - alphas_cumprod)
snr = alphas_cumprod / (1 - alphas_cumprod)
print(betas[[0, 5, -1]], posterior_variance[-1])
model = Denoiser()
for p in model.parameters():
    p.data.copy_(torch.from_numpy(rng.normal(0, 0.2, tuple(p.shape))))
ema_model, ema = copy.deepcopy(model).eval().requires_grad_(False), EMA(0.9)
opt = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.99))
x0 = torch.from_numpy(rng.uniform(-1, 1, (4, 1, 6, 6))).float()
y0 = torch.tensor([0, 1, 2, 0])
for step in range(3):
    t = torch.from_numpy(rng.integers(0, T, 4))
    noise = torch.from_numpy(rng.normal(size=x0.shape)).float()
    x_t = (
        extract(alphas_cumprod.sqrt(), t, x0.shape) * x0
        + extract((1 - alphas_cumprod).sqrt(), t, x0.shape) * noise
    )
    y = torch.where(torch.from_numpy(rng.uniform(size=4)) < 0.25, torch.full_like(y0, 3), y0)
    loss = F.mse_loss(model(x_t, t, y), noise, reduction="none").mean(dim=tuple(range(1, 4)))
    weight = extract(snr.clamp(max=5) / snr, t, loss.shape)
    loss = (loss * weight).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    ema.update_model_average(ema_model, model)
    print(
        f"{step} {loss.item():.5f} {model.label.weight.grad.norm():.5f} {model.attn.k_proj_weight.grad.norm():.6f}"
    )


@torch.inference_mode()
def sample(steps, eta, guidance=2.0):
    gen = np.random.default_rng(1)
    x = torch.from_numpy(gen.normal(size=(2, 1, 6, 6))).float()
    times = list(reversed(torch.linspace(-1, T - 1, steps=steps + 1).int().tolist()))
    for time, time_next in zip(times[:-1], times[1:]):
        t = torch.full((2,), time, dtype=torch.long)
        both = ema_model(x.repeat(2, 1, 1, 1), t.repeat(2), torch.tensor([0, 1, 3, 3]))
        cond, uncond = both.chunk(2)
        eps = torch.lerp(uncond, cond, guidance)
        alpha = alphas_cumprod[time]
        x_start = ((x - (1 - alpha).sqrt() * eps) / alpha.sqrt()).clamp_(-1.0, 1.0)
        if time_next < 0:
            return x_start
        alpha_next = alphas_cumprod[time_next]
        sigma = eta * ((1 - alpha / alpha_next) * (1 - alpha_next) / (1 - alpha)).sqrt()
        c = (1 - alpha_next - sigma**2).sqrt()
        x = (
            x_start * alpha_next.sqrt()
            + c * eps
            + sigma * torch.from_numpy(gen.normal(size=x.shape)).float()
        )


print(sample(5, 0.0).mean().item(), sample(6, 1.0).std().item())
