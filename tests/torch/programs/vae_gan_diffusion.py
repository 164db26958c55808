"""Generative models in small: conditional VAE with KL annealing, WGAN-GP with spectral norm, DDPM with EMA and
classifier-free guidance, DDIM steps, a normalizing flow with batch-wise checks, an energy model with Langevin steps.
"""

import math

import torch
from torch import autograd, nn, optim
from torch.distributions import Normal, kl
from torch.nn import functional as F
from torch.nn.utils import spectral_norm
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

torch.manual_seed(0)


def det(*shape, k=1.3):
    return torch.cos(torch.arange(math.prod(shape)) * k).view(shape)


def reset(net, gain=0.35):
    for i, p in enumerate(net.parameters()):
        p.data.copy_(det(*p.shape, k=0.7 + 0.31 * i) * gain if p.ndim > 1 else torch.zeros_like(p))
    return net


class CVAE(nn.Module):
    def __init__(self, d=8, c=3, z=2):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d + c, 16), nn.LeakyReLU(0.1, inplace=True))
        self.mu, self.logvar = nn.Linear(16, z), nn.Linear(16, z)
        self.dec = nn.Sequential(
            nn.Linear(z + c, 16), nn.Softplus(), nn.Linear(16, d), nn.Sigmoid()
        )

    def reparameterize(self, mu, logvar, eps):
        std = torch.exp(0.5 * logvar)
        return eps.mul(std).add_(mu)

    def forward(self, x, y, eps):
        y = F.one_hot(y, 3).to(x.dtype)
        h = self.enc(torch.cat((x, y), 1))
        mu, logvar = self.mu(h), self.logvar(h)
        return self.dec(torch.cat((self.reparameterize(mu, logvar, eps), y), 1)), mu, logvar


x, y = det(9, 8, k=0.23).abs(), torch.arange(9) % 3
vae = reset(CVAE())
opt = optim.Adam(vae.parameters(), lr=1e-2)
for step in range(5):
    beta = min(1.0, step / 3)
    recon, mu, logvar = vae(x, y, det(9, 2, k=step + 0.5))
    bce = F.binary_cross_entropy(recon, x, reduction="sum") / len(x)
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp()) / len(x)
    check = kl.kl_divergence(Normal(mu, (0.5 * logvar).exp()), Normal(0.0, 1.0)).sum() / len(x)
    opt.zero_grad()
    (bce + beta * kld).backward()
    opt.step()
    print(step, f"{bce:.4f} {kld:.4f} {abs(check - kld) < 1e-4} {beta:.2f}")

# WGAN-GP
G = reset(
    nn.Sequential(nn.Linear(4, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(True), nn.Linear(16, 2))
)
nn.init.ones_(G[1].weight)
D = nn.Sequential(
    spectral_norm(nn.Linear(2, 16), n_power_iterations=3), nn.SiLU(), nn.Linear(16, 1)
)
with torch.no_grad():
    (
        D[0].weight_orig.copy_(det(16, 2)),
        D[0].bias.zero_(),
        D[0].weight_u.copy_(F.normalize(det(16), dim=0)),
        D[0].weight_v.copy_(F.normalize(det(2), dim=0)),
    )
    D[2].weight.copy_(det(1, 16)), D[2].bias.zero_()
real = torch.stack(
    [torch.cos(torch.arange(8) * math.pi / 4), torch.sin(torch.arange(8) * math.pi / 4)], 1
)


def gradient_penalty(critic, real, fake, alpha):
    mixed = alpha * real + (1 - alpha) * fake
    mixed.requires_grad_(True)
    score = critic(mixed)
    (grads,) = autograd.grad(
        score,
        mixed,
        grad_outputs=torch.ones_like(score),
        create_graph=True,
        retain_graph=True,
        only_inputs=True,
    )
    return ((grads.view(len(grads), -1).norm(2, dim=1) - 1) ** 2).mean()


og, od = (
    optim.Adam(G.parameters(), lr=0.01, betas=(0.0, 0.9)),
    optim.RMSprop(D.parameters(), lr=0.005),
)
for it in range(4):
    for k in range(2):
        fake = G(det(8, 4, k=it + k + 0.3)).detach()
        d_loss = (
            D(fake).mean()
            - D(real).mean()
            + 10 * gradient_penalty(D, real, fake, det(8, 1, k=it + 0.1).abs())
        )
        D.zero_grad(set_to_none=True)
        d_loss.backward()
        od.step()
    for p in D.parameters():
        p.requires_grad_(False)
    g_loss = -D(G(det(8, 4, k=it + 0.7))).mean()
    og.zero_grad()
    g_loss.backward()
    og.step()
    for p in D.parameters():
        p.requires_grad_(True)
    print(
        it,
        f"D {d_loss.item():.4f} G {g_loss.item():.4f}",
        G[1].running_mean[:2],
        D[0].weight.norm().item(),
    )


# diffusion
def cosine_beta_schedule(T, s=0.008):
    steps = torch.linspace(0, T, T + 1)
    ac = torch.cos(((steps / T) + s) / (1 + s) * torch.pi * 0.5) ** 2
    ac = ac / ac[0]
    return torch.clip(1 - ac[1:] / ac[:-1], 0.0001, 0.9999)


class SinusoidalEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, t):
        half = self.dim // 2
        emb = torch.exp(torch.arange(half, device=t.device) * -(math.log(10000) / (half - 1)))
        emb = t[:, None] * emb[None, :]
        return torch.cat((emb.sin(), emb.cos()), dim=-1)


class Denoiser(nn.Module):
    def __init__(self, hidden=16, classes=2):
        super().__init__()
        self.time = nn.Sequential(
            SinusoidalEmbedding(8), nn.Linear(8, hidden), nn.GELU(), nn.Linear(hidden, hidden)
        )
        self.label = nn.Embedding(classes + 1, hidden)
        self.inp, self.norm, self.out = (
            nn.Linear(2, hidden),
            nn.GroupNorm(4, hidden),
            nn.Linear(hidden, 2),
        )

    def forward(self, x, t, y):
        h = self.inp(x) + self.time(t) + self.label(y)
        scale, shift = h.chunk(2, dim=-1)
        h = self.norm(F.silu(h)) * (torch.cat([scale, shift], -1).tanh() + 1)
        return self.out(h)


T = 10
betas = cosine_beta_schedule(T)
alphas = 1.0 - betas
acp = torch.cumprod(alphas, dim=0)
acp_prev = F.pad(acp[:-1], (1, 0), value=1.0)
post_var = betas * (1.0 - acp_prev) / (1.0 - acp)


def extract(a, t, x_shape):
    return a.gather(-1, t).reshape(t.shape[0], *((1,) * (len(x_shape) - 1)))


net = reset(Denoiser())
nn.init.ones_(net.norm.weight)
ema = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.5), use_buffers=True)
opt = optim.AdamW(net.parameters(), lr=5e-3)
sched = optim.lr_scheduler.OneCycleLR(opt, max_lr=2e-2, total_steps=6, pct_start=0.3)
labels = torch.arange(8) % 2
for step in range(6):
    t, noise = (torch.arange(8) * 7 + step) % T, det(8, 2, k=step + 1.1)
    xt = (
        extract(acp.sqrt(), t, real.shape) * real + extract((1 - acp).sqrt(), t, real.shape) * noise
    )
    drop = torch.where((torch.arange(8) + step) % 5 == 0, torch.full_like(labels, 2), labels)
    loss = F.huber_loss(net(xt, t, drop), noise, delta=0.7)
    opt.zero_grad()
    loss.backward()
    opt.step(), sched.step(), ema.update_parameters(net)
    print(step, f"{loss.item():.5f}", f"{sched.get_last_lr()[0]:.5f}", ema.n_averaged.item())


@torch.inference_mode()
def sample(model, guidance, eta=None):
    x = det(4, 2, k=2.2)
    y, null = torch.tensor([0, 1, 0, 1]), torch.full((4,), 2)
    for i in reversed(range(T)):
        t = torch.full((4,), i, dtype=torch.long)
        cond, free = model(torch.cat([x, x]), torch.cat([t, t]), torch.cat([y, null])).chunk(2)
        eps = torch.lerp(free, cond, guidance)
        if eta is None:
            mean = (x - betas[i] / (1 - acp[i]).sqrt() * eps) / alphas[i].sqrt()
            x = mean + (post_var[i].sqrt() * det(4, 2, k=i + 0.9) if i else 0)
        else:
            x0 = ((x - (1 - acp[i]).sqrt() * eps) / acp[i].sqrt()).clamp(-1, 1)
            x = acp_prev[i].sqrt() * x0 + (1 - acp_prev[i]).sqrt() * eps
    return x


print(sample(net.eval(), 1.5), sample(ema.module.eval(), 2.0, 0.0))


class PlanarFlow(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w, self.u, self.b = (
            nn.Parameter(det(d)),
            nn.Parameter(det(d, k=2.0)),
            nn.Parameter(torch.zeros(())),
        )

    def forward(self, z):
        wu = self.w @ self.u
        u = self.u + (F.softplus(wu) - 1 - wu) * self.w / self.w.square().sum()
        a = torch.addmv(self.b.expand(len(z)), z, self.w).tanh()
        return z + torch.outer(a, u), torch.log1p((1 - a**2) * (self.w @ u))


flow = nn.ModuleList(PlanarFlow(2) for _ in range(3))
opt = optim.NAdam(flow.parameters(), lr=0.05)
for step in range(4):
    z = det(16, 2, k=step + 0.2)
    logq = Normal(0.0, 1.0).log_prob(z).sum(1)
    for f in flow:
        z, ld = f(z)
        logq = logq - ld
    logp = torch.logaddexp(
        Normal(2.0, 0.5).log_prob(z[:, 0]), Normal(-2.0, 0.5).log_prob(z[:, 0])
    ) + Normal(0.0, 1.0).log_prob(z[:, 1])
    loss = (logq - logp).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, f"{loss.item():.4f}", flow[0].u.grad)
J = torch.func.vmap(torch.func.jacrev(lambda v: flow[0](v[None])[0][0]))(z.detach()[:3])
print(torch.linalg.slogdet(J.detach()).logabsdet, flow[0](z.detach()[:3])[1])
energy = lambda v: ((v**2).sum(-1) - 1).square()
v = det(5, 2).requires_grad_()
for i in range(5):
    g = torch.autograd.grad(energy(v).sum(), v)[0]
    with torch.no_grad():
        v.sub_(0.1 * g).add_(det(5, 2, k=i + 0.4), alpha=0.01).clamp_(-2, 2)
print(v, v.is_leaf, v.grad)
