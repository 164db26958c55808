"""A DCGAN, a gradient penalty, a VAE, a diffusion model with averaged weights, and a flow."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(12)


def rnd(*s):
    return torch.from_numpy(rng.standard_normal(s).astype(np.float32))


@torch.no_grad()
def fixed(model):
    for k, p in enumerate(model.parameters()):
        p.copy_(
            torch.sin(torch.arange(p.numel(), dtype=torch.float32) * 0.7 + k).view_as(p)
            * (0.5 / math.sqrt(max(1, p.shape[-1] if p.ndim else 1)))
        )
    return model


class G(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(4, 8, 3, 1, 0, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(True),
            nn.ConvTranspose2d(8, 1, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z)


class D(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, 8, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(8, 1, 3, 1, 0, bias=False),
        )

    def forward(self, x):
        return self.main(x).view(-1)


def weights_init(m):
    c = m.__class__.__name__
    if c.find("Conv") != -1:
        nn.init.normal_(m.weight.data, 0.0, 0.02)
    elif c.find("BatchNorm") != -1:
        nn.init.normal_(m.weight.data, 1.0, 0.02)
        nn.init.constant_(m.bias.data, 0)


g, d = (G().apply(weights_init), D().apply(weights_init))
fixed(g)
fixed(d)
go, do = (torch.optim.Adam(m.parameters(), lr=0.002, betas=(0.5, 0.999)) for m in (g, d))
crit = nn.BCEWithLogitsLoss()
real = rnd(32, 1, 6, 6)
for i in range(4):
    x = real[i * 8 : (i + 1) * 8]
    z = rnd(8, 4, 1, 1)
    lab = torch.full((8,), 1.0, dtype=torch.float)
    d.zero_grad()
    out = d(x)
    lr = crit(out, lab)
    lr.backward()
    dx = out.mean().item()
    fake = g(z)
    lab.fill_(0.0)
    out = d(fake.detach())
    lf = crit(out, lab)
    lf.backward()
    dz1 = out.mean().item()
    do.step()
    g.zero_grad()
    lab.fill_(1.0)
    out = d(fake)
    lg = crit(out, lab)
    lg.backward()
    go.step()
    print(
        f"[{i}] D {lr.item() + lf.item():.5f} G {lg.item():.5f} {dx:.4f} {dz1:.4f}/{out.mean().item():.4f}"
    )


def gp(d, r, f, e):
    x = (e * r + (1 - e) * f).requires_grad_(True)
    o = d(x)
    (gr,) = torch.autograd.grad(
        outputs=o,
        inputs=x,
        grad_outputs=torch.ones_like(o),
        create_graph=True,
        retain_graph=True,
        only_inputs=True,
    )
    return ((gr.view(gr.size(0), -1).norm(2, dim=1) - 1) ** 2).mean()


for i in range(3):
    e = torch.from_numpy(rng.random((8, 1, 1, 1)).astype(np.float32))
    f = g(rnd(8, 4, 1, 1)).detach()
    do.zero_grad()
    p = gp(d, real[:8], f, e)
    l = d(f).mean() - d(real[:8]).mean() + 10 * p
    l.backward()
    do.step()
    print(f"wgan {l.item():.5f} {p.item():.5f}")


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(36, 16)
        self.fc21 = nn.Linear(16, 3)
        self.fc22 = nn.Linear(16, 3)
        self.fc3 = nn.Linear(3, 16)
        self.fc4 = nn.Linear(16, 36)

    def encode(self, x):
        h = F.relu(self.fc1(x))
        return (self.fc21(h), self.fc22(h))

    def reparameterize(self, mu, lv, eps):
        return mu + eps * torch.exp(0.5 * lv)

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x, eps):
        mu, lv = self.encode(x.view(-1, 36))
        return (self.decode(self.reparameterize(mu, lv, eps)), mu, lv)


v = fixed(VAE())
o = torch.optim.Adam(v.parameters(), lr=0.01)
data = (real > 0).float()
for i in range(4):
    x = data[i * 8 : (i + 1) * 8]
    r, mu, lv = v(x, rnd(8, 3))
    bce = F.binary_cross_entropy(r, x.view(-1, 36), reduction="sum")
    kld = -0.5 * torch.sum(1 + lv - mu.pow(2) - lv.exp())
    o.zero_grad()
    (bce + kld).backward()
    o.step()
    print(f"vae {bce.item():.4f} {kld.item():.5f}")


class SinusoidalPosEmb(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, t):
        h = self.dim // 2
        e = math.log(10000) / (h - 1)
        e = torch.exp(torch.arange(h, device=t.device) * -e)
        e = t[:, None] * e[None, :]
        return torch.cat((e.sin(), e.cos()), dim=-1)


class Block(nn.Module):
    def __init__(self, i, o, t):
        super().__init__()
        self.c = nn.Conv2d(i, o, 3, padding=1)
        self.n = nn.GroupNorm(2, o)
        self.t = nn.Linear(t, 2 * o)
        self.a = nn.SiLU()
        self.r = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x, t):
        s, b = self.t(t)[..., None, None].chunk(2, dim=1)
        return self.a(self.n(self.c(x)) * (s + 1) + b) + self.r(x)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.te = nn.Sequential(SinusoidalPosEmb(8), nn.Linear(8, 8), nn.GELU())
        self.d1 = Block(1, 4, 8)
        self.dn = nn.Conv2d(4, 4, 4, 2, 1)
        self.m = Block(4, 8, 8)
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.u = Block(12, 4, 8)
        self.o = nn.Conv2d(4, 1, 1)

    def forward(self, x, t):
        t = self.te(t)
        h = self.d1(x, t)
        m = self.m(self.dn(h), t)
        return self.o(self.u(torch.cat([self.up(m), h], 1), t))


u = fixed(UNet())
T = 20
beta = torch.linspace(0.0001, 0.02, T)
al = 1.0 - beta
ab = torch.cumprod(al, 0)
abp = F.pad(ab[:-1], (1, 0), value=1.0)
ext = lambda a, t, s: a.gather(-1, t).reshape(t.shape[0], *(1,) * (len(s) - 1))
o = torch.optim.AdamW(u.parameters(), 0.001)
import copy

ema = copy.deepcopy(u).requires_grad_(False)
for i in range(4):
    x, n = (real[i * 4 : i * 4 + 4], rnd(4, 1, 6, 6))
    t = torch.from_numpy(rng.integers(0, T, 4)).long()
    xt = ext(ab.sqrt(), t, x.shape) * x + ext((1 - ab).sqrt(), t, x.shape) * n
    l = F.mse_loss(u(xt, t.float()), n)
    o.zero_grad()
    l.backward()
    o.step()
    with torch.no_grad():
        for pe, pm in zip(ema.parameters(), u.parameters()):
            pe.mul_(0.9).add_(pm, alpha=0.1) if i % 2 else pe.lerp_(pm, 0.1)
    print(f"ddpm {l.item():.6f} {sum(p.abs().sum() for p in ema.parameters()).item():.4f}")


@torch.inference_mode()
def sample(m, x):
    for i in reversed(range(T)):
        t = torch.full((x.shape[0],), i, dtype=torch.long)
        e = m(x, t.float())
        mean = (x - ext(beta / (1 - ab).sqrt(), t, x.shape) * e) * ext(al.rsqrt(), t, x.shape)
        x = (
            mean
            if i == 0
            else mean
            + ext((beta * (1 - abp) / (1 - ab)).clamp(min=1e-20).sqrt(), t, x.shape) * rnd(*x.shape)
        )
    return x.clamp(-1, 1)


s = sample(ema, rnd(2, 1, 6, 6))
print(s.shape, s.mean(), s.requires_grad)


class Coupling(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.register_buffer("mask", m)
        self.s = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2), nn.Tanh())
        self.t = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, x):
        xm = x * self.mask
        s, t = (self.s(xm) * (1 - self.mask), self.t(xm) * (1 - self.mask))
        return (xm + (1 - self.mask) * (x * s.exp() + t), s.sum(-1))


fl = fixed(nn.ModuleList([Coupling(torch.tensor([i % 2, 1 - i % 2]).float()) for i in range(4)]))
o = torch.optim.Adam(fl.parameters(), 0.01)
pr = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
for i in range(4):
    z, ld = (rnd(16, 2) * 2 + 1, 0)
    for c in fl:
        z, l = c(z)
        ld = ld + l
    loss = -(pr.log_prob(z) + ld).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    print(f"flow {loss.item():.5f}")
