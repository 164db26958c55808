"""A VAE, a diffusion model and a GAN with a gradient penalty."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(2)


def T(*s):
    return torch.tensor(rng.normal(size=s), dtype=torch.float32)


class VAE(nn.Module):
    def __init__(self, d=6, h=8, z=2):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, h), nn.ReLU(inplace=True))
        self.mu, self.logvar = (nn.Linear(h, z), nn.Linear(h, z))
        self.dec = nn.Sequential(nn.Linear(z, h), nn.GELU(), nn.Linear(h, d))

    def forward(self, x, eps):
        h = self.enc(x)
        mu, logvar = (self.mu(h), self.logvar(h).clamp(-4, 4))
        z = mu + eps * (0.5 * logvar).exp()
        return (self.dec(z), mu, logvar)


m = VAE()
for p in m.parameters():
    p.data.normal_(0, 1).mul_(0)
    p.data.add_(T(*p.shape) * 0.3)
opt = torch.optim.Adam(m.parameters(), 0.01)
X = torch.sigmoid(T(32, 6))
for i in range(6):
    rec, mu, logvar = m(X, T(32, 2))
    bce = F.binary_cross_entropy_with_logits(rec, X, reduction="sum") / len(X)
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp(), dim=1).mean()
    loss = bce + 0.1 * kld
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(i, loss, f"{bce:.4f} {kld:.4f}")
print(m)
betas = torch.linspace(0.0001, 0.02, 50)
alphas = 1 - betas
abar = torch.cumprod(alphas, 0)
print(abar[:3], abar[-1])


class Eps(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(2 + 8, 16), nn.SiLU(), nn.Linear(16, 2))

    def forward(self, x, t):
        freqs = torch.exp(-math.log(100.0) * torch.arange(4) / 4)
        a = t[:, None].float() * freqs[None]
        return self.f(torch.cat([x, a.sin(), a.cos()], dim=-1))


net = Eps()
for p in net.parameters():
    nn.init.constant_(p, 0.05)
    p.data += T(*p.shape) * 0.2
opt = torch.optim.AdamW(net.parameters(), lr=0.01)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=8)
for i in range(8):
    x0 = T(16, 2) * 0.1 + 1
    t = torch.tensor(rng.integers(0, 50, 16))
    e = T(16, 2)
    xt = abar[t].sqrt()[:, None] * x0 + (1 - abar[t]).sqrt()[:, None] * e
    loss = F.mse_loss(net(xt, t), e)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    print(f"{i} {loss.item():.5f} {sched.get_last_lr()[0]:.6f}")
x = T(4, 2)
with torch.inference_mode():
    for t in reversed(range(0, 50, 10)):
        eps = net(x, torch.full((4,), t))
        x = (x - betas[t] / (1 - abar[t]).sqrt() * eps) / alphas[t].sqrt()
print(x)
D = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
G = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
for p in [*D.parameters(), *G.parameters()]:
    p.data = T(*p.shape) * 0.4
od, og = (torch.optim.RMSprop(D.parameters(), 0.005), torch.optim.RMSprop(G.parameters(), 0.005))
for i in range(4):
    for p in D.parameters():
        p.requires_grad = True
    real, z = (T(8, 2) + 2, T(8, 2))
    fake = G(z).detach()
    a = torch.tensor(rng.random((8, 1)), dtype=torch.float32)
    mid = (a * real + (1 - a) * fake).requires_grad_(True)
    g = torch.autograd.grad(
        outputs=D(mid),
        inputs=mid,
        grad_outputs=torch.ones(8, 1),
        create_graph=True,
        retain_graph=True,
        only_inputs=True,
    )[0]
    gp = ((g.norm(2, dim=1) - 1) ** 2).mean()
    ld = D(fake).mean() - D(real).mean() + 10 * gp
    od.zero_grad()
    ld.backward()
    od.step()
    for p in D.parameters():
        p.requires_grad = False
    lg = -D(G(T(8, 2))).mean()
    og.zero_grad()
    lg.backward()
    og.step()
    print(i, ld.detach(), gp.item() > 0, lg)
