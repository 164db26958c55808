"""Conjugate gradients, power iteration, Newton-Schulz, bisection and integration with tensors."""

import torch

torch.manual_seed(0)
n = 6
i = torch.arange(n, dtype=torch.float64)
A = 1.0 / (1 + (i[:, None] - i[None, :]).abs()) + torch.eye(n, dtype=torch.float64)
b = torch.cos(i)
x, r = torch.zeros_like(b), b.clone()
p, rs = r.clone(), r @ r
for k in range(n):
    Ap = A @ p
    alpha = rs / (p @ Ap)
    x = x + alpha * p
    r = r - alpha * Ap
    new = r @ r
    if new.sqrt() < 1e-10:
        break
    p = r + (new / rs) * p
    rs = new
print(k, torch.dist(A @ x, b).item() < 1e-8, x.sum().item())
v = torch.ones(n, dtype=torch.float64)
for _ in range(60):
    v = A @ v
    v /= v.norm()
print((v @ A @ v).item(), torch.linalg.eigvalsh(A)[-1].item())
X = A / A.norm()
for _ in range(20):
    X = 1.5 * X - 0.5 * X @ X.T @ X
    if (X @ X.T - torch.eye(n)).abs().max() < 1e-9:
        break
print(torch.allclose(X @ X.T, torch.eye(n, dtype=torch.float64), atol=1e-6))
lo, hi = torch.zeros(3), torch.full((3,), 4.0)
target = torch.tensor([2.0, 3.0, 10.0])
for _ in range(30):
    mid = (lo + hi) / 2
    low = mid**2 < target
    lo, hi = torch.where(low, mid, lo), torch.where(low, hi, mid)
print([round(q, 4) for q in mid.tolist()])
t = torch.linspace(0, torch.pi, 101)
print(f"{torch.trapezoid(torch.sin(t), t).item():.5f} {torch.cumulative_trapezoid(t, t)[-1]:.4f}")
M = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
print([round(q, 5) for q in torch.matrix_exp(M).flatten().tolist()])
print(torch.linalg.matrix_power(M, 4).tolist(), torch.kron(torch.eye(2), M).sum().item())
print(f"{torch.erf(torch.tensor(0.5)).item():.5f} {torch.lgamma(torch.tensor(4.5)).item():.5f}")
print(f"{torch.special.i0(torch.tensor(1.0)).item():.5f} {torch.special.expit(t[3]).item():.5f}")
print(torch.vander(torch.tensor([1.0, 2.0, 3.0])).tolist(), torch.gradient(t[:4] ** 2)[0].shape)
heat = torch.zeros(7, 7)
heat[3, 3] = 1.0
kernel = torch.tensor([[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]]).view(1, 1, 3, 3)
for _ in range(4):
    heat = heat + 0.1 * torch.conv2d(heat.view(1, 1, 7, 7), kernel, padding=1).view(7, 7)
print(f"{heat.sum().item():.5f} {heat[3, 3].item():.5f} {heat.max().item():.5f}")
