"""Normalising flows: planar and coupling layers, autoregressive masks (MADE), invertible 1x1 convolutions, rational-quadratic spline, TransformedDistribution."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import distributions as D

rng = np.random.default_rng(41)


def values(*shape, scale=0.4):
    return torch.from_numpy(rng.normal(0, scale, shape)).float()


class Planar(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.u, self.w, self.b = (nn.Parameter(values(*s)) for s in ((d,), (d,), (1,)))

    def forward(self, z):
        wu = self.w @ self.u
        u = self.u + (F.softplus(wu) - 1 - wu) * self.w / self.w.square().sum()
        a = torch.tanh(z @ self.w + self.b)
        psi = (1 - a**2).unsqueeze(-1) * self.w
        return z + u * a.unsqueeze(-1), torch.log(torch.abs(1 + psi @ u) + 1e-8)


class MaskedLinear(nn.Linear):
    def __init__(self, i, o, mask):
        super().__init__(i, o)
        self.register_buffer("mask", mask)
        self.weight.data.copy_(values(o, i))
        self.bias.data.copy_(values(o))

    def forward(self, x):
        return F.linear(x, self.mask * self.weight, self.bias)


class MADE(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        m0, m1 = torch.arange(d), torch.arange(h) % (d - 1)
        self.first = MaskedLinear(d, h, (m1[:, None] >= m0[None, :]).float())
        out = (m0[:, None] > m1[None, :]).float()
        self.mu, self.alpha = MaskedLinear(h, d, out), MaskedLinear(h, d, out)

    def forward(self, x):
        h = torch.relu(self.first(x))
        mu, alpha = self.mu(h), self.alpha(h).clamp(-2, 2)
        return (x - mu) * torch.exp(-alpha), -alpha.sum(-1)


class InvertibleConv(nn.Module):
    def __init__(self, c):
        super().__init__()
        w = torch.linalg.qr(values(c, c, scale=1.0))[0]
        P, L, U = torch.linalg.lu(w)
        self.register_buffer("P", P)
        s = U.diagonal()
        self.register_buffer("sign_s", torch.sign(s))
        self.L, self.U, self.log_s = (
            nn.Parameter(L),
            nn.Parameter(U.triu(1)),
            nn.Parameter(s.abs().log()),
        )

    def forward(self, x):
        c = self.L.shape[0]
        L = self.L.tril(-1) + torch.eye(c)
        U = self.U.triu(1) + torch.diag(self.sign_s * self.log_s.exp())
        W = self.P @ L @ U
        return F.conv2d(x, W[:, :, None, None]), self.log_s.sum() * x.shape[2] * x.shape[3]


class Coupling(D.Transform):
    domain = codomain = D.constraints.real_vector
    bijective = True

    def __init__(self, net, d):
        super().__init__()
        self.net, self.d = net, d

    def _parts(self, x):
        log_s, t = self.net(x[..., : self.d]).chunk(2, -1)
        return torch.tanh(log_s), t

    def _call(self, x):
        log_s, t = self._parts(x)
        return torch.cat([x[..., : self.d], x[..., self.d :] * log_s.exp() + t], -1)

    def _inverse(self, y):
        log_s, t = self._parts(y)
        return torch.cat([y[..., : self.d], (y[..., self.d :] - t) * (-log_s).exp()], -1)

    def log_abs_det_jacobian(self, x, y):
        return self._parts(x)[0].sum(-1)


def spline(x, w, h, d, bound=3.0):
    w = F.softmax(w, -1) * 2 * bound
    h = F.softmax(h, -1) * 2 * bound
    d = F.pad(F.softplus(d), (1, 1), value=1.0)
    cw = F.pad(w.cumsum(-1), (1, 0)) - bound
    ch = F.pad(h.cumsum(-1), (1, 0)) - bound
    k = torch.searchsorted(cw[..., 1:-1].contiguous(), x.unsqueeze(-1)).squeeze(-1)
    pick = lambda t: t.gather(-1, k.unsqueeze(-1)).squeeze(-1)
    xk, yk, wk, hk, dk, d1 = pick(cw), pick(ch), pick(w), pick(h), pick(d), pick(d[..., 1:])
    s, xi = hk / wk, (x - xk) / wk
    den = s + (d1 + dk - 2 * s) * xi * (1 - xi)
    y = yk + hk * (s * xi**2 + dk * xi * (1 - xi)) / den
    grad = s**2 * (d1 * xi**2 + 2 * s * xi * (1 - xi) + dk * (1 - xi) ** 2) / den**2
    return y, grad.log()


base = D.MultivariateNormal(torch.zeros(4), torch.eye(4))
z0 = values(16, 4, scale=1.0)
planar = nn.ModuleList([Planar(4) for _ in range(3)])
target = D.MixtureSameFamily(
    D.Categorical(torch.tensor([0.3, 0.7])),
    D.Independent(D.Normal(torch.tensor([[2.0] * 4, [-1.0] * 4]), 0.7), 1),
)
opt = torch.optim.Adam(planar.parameters(), lr=0.05)
for step in range(3):
    z, total = z0, 0.0
    for layer in planar:
        z, ld = layer(z)
        total = total + ld
    loss = (base.log_prob(z0) - total - target.log_prob(z)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(f"planar {step} {loss.item():.5f} {planar[0].u.grad.norm():.5f}")
made = MADE(4, 12)
u, ld = made(z0)
jac = torch.autograd.functional.jacobian(lambda v: made(v[None])[0][0], z0[0])
print(
    "made",
    (ld + base.log_prob(u)).mean().item(),
    jac.triu(1).abs().max().item(),
    torch.allclose(jac.diagonal().log().sum(), ld[0], atol=1e-5),
)
conv = InvertibleConv(4)
img = values(2, 4, 3, 3, scale=1.0)
out, ld = conv(img)
print("conv", ld.item(), out.square().mean().item())
(out.square().mean() - ld / 36).backward()
print(conv.log_s.grad, conv.L.grad.norm().item())
net = nn.Sequential(
    MaskedLinear(2, 8, torch.ones(8, 2)), nn.Tanh(), MaskedLinear(8, 4, torch.ones(4, 8))
)
flow = D.TransformedDistribution(
    D.Independent(D.Normal(torch.zeros(4), torch.ones(4)), 1), [Coupling(net, 2)]
)
loss = -flow.log_prob(z0).mean()
loss.backward()
t = flow.transforms[0]
print(
    "coupling",
    loss.item(),
    net[0].weight.grad.norm().item(),
    torch.allclose(t.inv(t(z0)), z0, atol=1e-5),
    flow.sample((3,)).shape,
)
w, h, d = (values(16, 4, k, scale=1.0).requires_grad_() for k in (5, 5, 4))
y, ld = spline(z0.clamp(-2.9, 2.9), w, h, d)
(y.square().sum() - ld.sum()).backward()
print(
    "spline",
    y.sum().item(),
    ld.sum().item(),
    w.grad.norm().item(),
    h.grad.norm().item(),
    d.grad.norm().item(),
)
ln = D.TransformedDistribution(
    D.Normal(0.5, 0.8),
    [D.transforms.ExpTransform(), D.AffineTransform(1.0, 2.0), D.SigmoidTransform().inv.inv],
)
v = torch.tensor([0.9, 0.95])
print(
    ln.log_prob(v),
    D.transforms.CumulativeDistributionTransform(D.Normal(0.0, 1.0))(torch.tensor(0.3)),
)
print(
    math.isclose(
        D.LogNormal(0.1, 0.5).entropy().item(),
        D.Normal(0.1, 0.5).entropy().item() + 0.1,
        rel_tol=1e-5,
    )
)
st = D.transforms.StackTransform([D.ExpTransform(), D.AffineTransform(0.0, 3.0)], dim=1)
print(
    st(torch.ones(2, 2)),
    D.transforms.CatTransform([D.ExpTransform(), D.TanhTransform()], dim=0, lengths=[1, 2])(
        torch.ones(3)
    ),
)
print(
    D.transforms.LowerCholeskyTransform()(torch.ones(2, 2)),
    D.transforms.CorrCholeskyTransform()(torch.tensor([0.3, -0.2, 0.5])),
)
print(
    D.biject_to(D.constraints.positive)(torch.tensor(0.3)),
    D.transform_to(D.constraints.simplex)(torch.tensor([0.1, 0.2, 0.3])),
    D.transform_to(D.constraints.interval(-1.0, 2.0))(torch.tensor(0.0)),
)
