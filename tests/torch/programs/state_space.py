"""Sequence models without attention: a diagonal state space as a convolution by FFT and as a
recurrence, a selective scan, linear attention with decay, gated recurrences in log space.
"""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def fill(model, seed):
    rng = np.random.RandomState(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() > 1 and "log" not in name:
                p.copy_(torch.from_numpy(rng.randn(*p.shape) / p.shape[-1] ** 0.5))
    return model


class DiagonalSSM(nn.Module):
    """S4D: a kernel of complex exponentials, used as a long convolution."""

    def __init__(self, channels, states=4):
        super().__init__()
        self.log_dt = nn.Parameter(torch.linspace(math.log(0.01), math.log(0.1), channels))
        self.log_a_real = nn.Parameter(torch.log(0.5 * torch.ones(channels, states)))
        self.a_imag = nn.Parameter(math.pi * torch.arange(states).float().repeat(channels, 1))
        rng = np.random.RandomState(0)
        c = torch.complex(*torch.from_numpy(rng.randn(2, channels, states).astype(np.float32)))
        self.c = nn.Parameter(torch.view_as_real(c))
        self.d = nn.Parameter(torch.ones(channels))

    def discrete(self):
        a = torch.complex(-torch.exp(self.log_a_real), self.a_imag)
        dta = a * torch.exp(self.log_dt).unsqueeze(-1)
        return torch.exp(dta), torch.view_as_complex(self.c) * (torch.exp(dta) - 1.0) / a

    def kernel(self, length):
        a, c = self.discrete()
        powers = a.unsqueeze(-1) ** torch.arange(length)
        return 2 * torch.einsum("hn,hnl->hl", c, powers).real

    def forward(self, u):
        length = u.size(-1)
        k = torch.fft.rfft(self.kernel(length), n=2 * length)
        y = torch.fft.irfft(torch.fft.rfft(u, n=2 * length) * k, n=2 * length)[..., :length]
        return y + u * self.d.unsqueeze(-1)

    def recurrent(self, u):
        a, c = self.discrete()
        state = torch.zeros(u.size(0), *a.shape, dtype=a.dtype)
        out = []
        for t in range(u.size(-1)):
            state = a * state + u[:, :, t, None]
            out.append(2 * (c * state).sum(-1).real + self.d * u[:, :, t])
        return torch.stack(out, dim=-1)


class Selective(nn.Module):
    """A state space whose steps depend on the input (Mamba)."""

    def __init__(self, d, n=4, rank=2, width=3):
        super().__init__()
        self.inside = nn.Linear(d, 4 * d, bias=False)
        self.conv = nn.Conv1d(2 * d, 2 * d, width, groups=2 * d, padding=width - 1)
        self.select = nn.Linear(2 * d, rank + 2 * n, bias=False)
        self.dt = nn.Linear(rank, 2 * d)
        self.a_log = nn.Parameter(torch.log(torch.arange(1, n + 1).float().repeat(2 * d, 1)))
        self.skip = nn.Parameter(torch.ones(2 * d))
        self.outside = nn.Linear(2 * d, d, bias=False)
        self.rank, self.n = rank, n

    def forward(self, x):
        length = x.size(1)
        u, gate = self.inside(x).chunk(2, dim=-1)
        u = F.silu(self.conv(u.transpose(1, 2))[..., :length].transpose(1, 2))
        dt, b, c = torch.split(self.select(u), [self.rank, self.n, self.n], dim=-1)
        dt = F.softplus(self.dt(dt))
        a = -torch.exp(self.a_log)
        da = torch.exp(torch.einsum("bld,dn->bldn", dt, a))
        db = torch.einsum("bld,bln,bld->bldn", dt, b, u)
        h, ys = torch.zeros_like(da[:, 0]), []
        for t in range(length):
            h = da[:, t] * h + db[:, t]
            ys.append((h @ c[:, t].unsqueeze(-1)).squeeze(-1))
        y = torch.stack(ys, 1) + u * self.skip
        return self.outside(y * F.silu(gate))


def retention(q, k, v, gamma):
    """Linear attention with decay: in parallel, then by chunks."""
    n = q.size(1)
    step = torch.arange(n)[:, None] - torch.arange(n)
    decay = torch.where(step >= 0, gamma ** step.clamp(min=0), torch.zeros(())).tril()
    whole = ((q @ k.mT) * decay) @ v
    state = q.new_zeros(q.size(0), k.size(-1), v.size(-1))
    parts, size = [], 4
    for qs, ks, vs in zip(*(t.split(size, dim=1) for t in (q, k, v))):
        m = qs.size(1)
        inner = ((qs @ ks.transpose(-1, -2)) * decay[:m, :m]) @ vs
        cross = (qs @ state) * gamma ** torch.arange(1, m + 1)[:, None]
        state = gamma**m * state + (ks * gamma ** torch.arange(m - 1, -1, -1)[:, None]).mT @ vs
        parts.append(inner + cross)
    return whole, torch.cat(parts, dim=1)


def min_gru(x, log_z, log_coefficients):
    """h_t = (1 - z) h + z g(x) by cumulative sums of logarithms."""
    log_x = torch.where(x >= 0, (F.relu(x) + 0.5).log(), -F.softplus(-x))
    a = F.pad(log_coefficients.cumsum(dim=1), (0, 0, 1, 0))
    start = torch.full_like(log_x[:, :1], -1.0)
    values = torch.cat([start, log_z + log_x], dim=1)
    return (a + torch.logcumsumexp(values - a, dim=1)).exp()[:, 1:]


rng = np.random.RandomState(2)
u = torch.from_numpy(rng.randn(2, 3, 12).astype(np.float32))
ssm = DiagonalSSM(3)
print("convolution is recurrence", torch.allclose(ssm(u), ssm.recurrent(u), atol=1e-4))
optimizer = torch.optim.AdamW(
    [
        {"params": [ssm.c, ssm.d]},
        {"params": [ssm.log_dt, ssm.log_a_real, ssm.a_imag], "lr": 1e-3, "weight_decay": 0.0},
    ],
    lr=1e-2,
)
target = u.cumsum(-1).tanh()
for step in range(4):
    loss = F.mse_loss(ssm(u), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"s4d {step} {loss.item():.5f}", [f"{p.grad.norm():.4f}" for p in ssm.parameters()])

tokens = torch.from_numpy(rng.randint(0, 9, (3, 11)))
embed, block, head = nn.Embedding(9, 6), Selective(6), nn.Linear(6, 9, bias=False)
model = fill(nn.Sequential(embed, nn.LayerNorm(6), block, head), 1)
nn.init.zeros_(block.conv.bias)
nn.init.constant_(block.dt.bias, -2.0)
head.weight = embed.weight
optimizer = torch.optim.RAdam(model.parameters(), lr=5e-2)
for step in range(4):
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(
        f"mamba {step} {loss.item():.5f} {embed.weight.grad.norm():.5f} {block.a_log.grad.norm():.5f}"
    )
q, k, v = (
    torch.from_numpy(rng.randn(2, 10, 4).astype(np.float32)).requires_grad_() for _ in range(3)
)
whole, chunked = retention(q, k, v, 0.9)
print("retention", torch.allclose(whole, chunked, atol=1e-4))
grads = torch.autograd.grad(chunked.square().sum(), (q, k, v))
print([f"{g.norm():.4f}" for g in grads])
x = torch.from_numpy(rng.randn(2, 9, 3).astype(np.float32)).requires_grad_()
z = torch.from_numpy(rng.randn(2, 9, 3).astype(np.float32)).requires_grad_()
h = min_gru(x, -F.softplus(-z), -F.softplus(z))
state, steps = torch.full((2, 3), math.exp(-1.0)), []
for t in range(9):
    g = torch.where(x[:, t] >= 0, x[:, t] + 0.5, torch.sigmoid(x[:, t]))
    state = (1 - z[:, t].sigmoid()) * state + z[:, t].sigmoid() * g
    steps.append(state)
print("scan", torch.allclose(h, torch.stack(steps, 1), atol=1e-4))
h.square().mean().backward()
print(f"{h.mean():.5f} {x.grad.norm():.5f} {z.grad.norm():.5f}")
