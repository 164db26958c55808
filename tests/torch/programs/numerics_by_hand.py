"""Regressions, Newton, a Gaussian process, a Kalman filter, mixtures, slopes, automata and rounding."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(23)


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


X = rnd(60, 3)
w0 = torch.tensor([1.0, -2.0, 0.5])
y = X @ w0 + 0.1 * rnd(60) + 3
A = torch.cat([X, torch.ones(60, 1)], 1)
print(
    torch.linalg.lstsq(A, y[:, None]).solution.squeeze(),
    torch.linalg.solve(A.T @ A + 0.1 * torch.eye(4), A.T @ y),
    torch.linalg.pinv(A) @ y,
)
model = fixed(nn.Linear(3, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
perm = torch.from_numpy(rng.permutation(60))
for e in range(3):
    for idx in perm.split(20):
        l = F.mse_loss(model(X[idx]).flatten(), y[idx])
        opt.zero_grad()
        l.backward()
        opt.step()
    print(f"{e}: {l:.4f}")
print([(n, p.data) for n, p in model.named_parameters()])
r2 = 1 - ((y - model(X).flatten()) ** 2).sum() / ((y - y.mean()) ** 2).sum()
print(f"{r2.item():.4f}")
w = torch.zeros(4, requires_grad=True)
cnt = (
    torch.poisson(torch.full((60,), 2.0))
    if False
    else torch.from_numpy(rng.poisson(2.0, 60).astype(np.float32))
)
for i in range(4):
    nll = (torch.exp(A @ w * 0.1) - cnt * (A @ w * 0.1)).mean()
    (g,) = torch.autograd.grad(nll, w, create_graph=True)
    H = torch.stack([torch.autograd.grad(gi, w, retain_graph=True)[0] for gi in g])
    w = (w - torch.linalg.solve(H + 0.0001 * torch.eye(4), g)).detach().requires_grad_()
    print(f"{nll:.5f}")
Xc = X - X.mean(0)
U, S, Vh = torch.linalg.svd(Xc, full_matrices=False)
print(
    S,
    (S**2 / (S**2).sum()).cumsum(0),
    (Xc @ Vh.T[:, :2]).abs().sum(0),
    torch.pca_lowrank(X, q=2)[1].shape,
    torch.cov(X.T),
    torch.corrcoef(X.T)[0],
)
K = lambda a, b: torch.exp(-0.5 * torch.cdist(a, b) ** 2)
xt = torch.linspace(-1, 1, 5)[:, None]
xs = X[:10, :1]
L = torch.linalg.cholesky(K(xs, xs) + 0.01 * torch.eye(10))
al = torch.cholesky_solve(y[:10, None], L)
mu = K(xt, xs) @ al
v = torch.linalg.solve_triangular(L, K(xs, xt), upper=False)
print(
    mu.flatten(),
    (1 - (v**2).sum(0)).sqrt(),
    -0.5 * (y[:10] @ al.flatten()) - L.diagonal().log().sum(),
)
F_, H_ = (torch.tensor([[1.0, 1.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0]]))
x_, P = (torch.zeros(2, 1), torch.eye(2))
for z in [1.0, 2.1, 2.9, 4.2]:
    x_ = F_ @ x_
    P = F_ @ P @ F_.T + 0.01 * torch.eye(2)
    Sk = H_ @ P @ H_.T + 0.1
    Kg = P @ H_.mT @ torch.inverse(Sk)
    x_ = x_ + Kg @ (z - H_ @ x_)
    P = (torch.eye(2) - Kg @ H_) @ P
print(x_.squeeze(), P)
pts = torch.cat([X[:30, 0] - 2, X[30:, 0] + 2])
mu_, sd, pi = (torch.tensor([-1.0, 1.0]), torch.ones(2), torch.ones(2) / 2)
for _ in range(5):
    lp = torch.distributions.Normal(mu_, sd).log_prob(pts[:, None]) + pi.log()
    r = (lp - lp.logsumexp(1, keepdim=True)).exp()
    nk = r.sum(0)
    mu_ = (r * pts[:, None]).sum(0) / nk
    sd = ((r * (pts[:, None] - mu_) ** 2).sum(0) / nk).sqrt()
    pi = nk / 60
print(mu_, sd, pi)
yy = torch.sign(X[:, 0] + X[:, 1])
w = torch.zeros(3, requires_grad=True)
for i in range(20):
    h = F.relu(1 - yy * (X @ w)).mean() + 0.01 * w.norm() ** 2
    h.backward()
    w.data -= 0.3 * w.grad
    w.grad = None
print(w, ((X @ w).sign() == yy).float().mean())
M = A.T @ A
b_ = A.T @ y
x_ = torch.zeros(4)
r = b_ - M @ x_
p = r.clone()
rs = r @ r
for _ in range(4):
    Mp = M @ p
    a = rs / (p @ Mp)
    x_ += a * p
    r -= a * Mp
    rn = r @ r
    p = r + rn / rs * p
    rs = rn
print(x_, rs < 0.01)
t = torch.linspace(0, 2 * math.pi, 50, dtype=torch.float64)
s = t.sin()
print(
    torch.trapezoid(s[:26], t[:26]),
    torch.gradient(s, spacing=(t,))[0][:3],
    torch.cumulative_trapezoid(s, t)[-1],
    s.diff().abs().max(),
    (s[:-1] * s[1:] < 0).sum(),
    torch.searchsorted(t, torch.tensor([1.0, 2.0], dtype=torch.float64)),
    torch.quantile(s, torch.tensor([0.1, 0.9], dtype=torch.float64)),
    s.std(),
    s.var(unbiased=False),
    torch.median(s),
    s.kthvalue(5),
    torch.histogram(s, 4).hist,
    torch.stack([s, t]).corrcoef()[0, 1],
    ((s - s.mean()) ** 3).mean() / s.std() ** 3,
    s.unfold(0, 5, 1).mean(-1)[:3],
    F.avg_pool1d(s[None], 5, 1)[0, :3],
    torch.polyval(torch.tensor([1.0]), s) if hasattr(torch, "polyval") else "",
    s.view(5, 10).mean(1),
    torch.nn.functional.conv1d(
        s.view(1, 1, -1), torch.ones(1, 1, 3, dtype=torch.float64) / 3
    ).shape,
)
pos, vel = (torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), torch.zeros(3, 2))
for _ in range(20):
    d = pos[None] - pos[:, None]
    r = (d**2).sum(-1) + 0.1
    acc = (d / r[..., None] ** 1.5).sum(1)
    vel = vel + 0.05 * acc
    pos = pos + 0.05 * vel
print(pos, 0.5 * (vel**2).sum())
g = torch.zeros(6, 6, dtype=torch.int)
g[1, 2] = g[2, 3] = g[3, 1] = g[3, 2] = g[3, 3] = 1
for _ in range(4):
    n = (
        F.conv2d(
            F.pad(g[None, None].float(), (1, 1, 1, 1), mode="circular"), torch.ones(1, 1, 3, 3)
        )[0, 0].int()
        - g
    )
    g = ((n == 3) | (g == 1) & (n == 2)).int()
print(g, g.sum())
u = torch.zeros(12)
u[5:7] = 1.0
for _ in range(5):
    u[1:-1] = u[1:-1] + 0.2 * (u[2:] - 2 * u[1:-1] + u[:-2])
print(u)
T = torch.tensor([[0.9, 0.1], [0.5, 0.5]])
print(
    torch.matrix_power(T, 10),
    torch.linalg.eig(T)[0].real.sort().values,
    torch.ones(2) / 2 @ torch.linalg.matrix_power(T, 50),
)
x = torch.tensor(1.0, requires_grad=True)
for _ in range(5):
    f = x**3 - 2
    f.backward()
    x = (x - f.item() / x.grad).detach().requires_grad_()
print(
    x,
    torch.float64,
    torch.tensor(0.1 + 0.2, dtype=torch.float64).item(),
    torch.tensor([0.1]).double().item(),
    torch.tensor(1e-10).log1p(),
    torch.exp(torch.tensor(100.0)),
    torch.tensor(0.0) / 0,
    torch.tensor(1) // 0.5,
    torch.tensor([3.7, -3.7]).round(),
    torch.tensor([0.5, 1.5, 2.5]).round(),
    torch.tensor(2.345).round(decimals=2),
    torch.tensor([1e20]).int().shape,
    torch.tensor([255]).to(torch.uint8) + 1,
    torch.tensor(-7) // 2,
    torch.tensor(-7) % 2,
    torch.tensor(7).bitwise_xor(2),
    torch.tensor(float("nan")) == float("nan"),
    torch.tensor([1.0, float("nan")]).max(),
    torch.tensor([1.0, float("nan")]).nan_to_num(0.0).sum(),
    torch.finfo(torch.float32).tiny,
    torch.tensor(True) + True,
)
