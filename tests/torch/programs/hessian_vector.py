"""Products of the Hessian with vectors, conjugate gradients and the sharpest direction."""

import numpy as np
import torch
from torch.autograd.functional import hessian, hvp, jacobian, vhp

rng = np.random.default_rng(34)
X = torch.from_numpy(rng.standard_normal((20, 5)))
t = torch.from_numpy(rng.standard_normal(20))
w = torch.zeros(5, dtype=torch.float64, requires_grad=True)


def loss_fn(w):
    return torch.log1p(torch.exp(-t * (X @ w))).mean() + 0.05 * w.pow(4).sum() + 0.1 * w @ w


def product(v):
    (g,) = torch.autograd.grad(loss_fn(w), w, create_graph=True)
    (hv,) = torch.autograd.grad(g, w, grad_outputs=v)
    return hv


def conjugate_gradient(A, b, steps=8):
    x = torch.zeros_like(b)
    r = b.clone()
    p = r.clone()
    rr = r.dot(r)
    for _ in range(steps):
        Ap = A(p)
        alpha = rr / p.dot(Ap)
        x.add_(p, alpha=alpha.item())
        r.sub_(Ap, alpha=alpha.item())
        new = r.dot(r)
        if new.sqrt() < 1e-12:
            break
        p = r + (new / rr) * p
        rr = new
    return x


for newton in range(4):
    (g,) = torch.autograd.grad(loss_fn(w), w)
    d = conjugate_gradient(product, g)
    with torch.no_grad():
        w -= d
    print(f"{newton}: loss {loss_fn(w).item():.8f} |g| {g.norm().item():.6f}")
H = hessian(loss_fn, w.detach())
print(H.shape, torch.allclose(H, H.T), f"{torch.linalg.eigvalsh(H)[-1].item():.6f}")
v = torch.ones(5, dtype=torch.float64)
for _ in range(50):
    v = product(v)
    v = v / v.norm()
print(f"{v.dot(product(v)).item():.6f}")
print(hvp(loss_fn, w.detach(), v)[1], vhp(loss_fn, w.detach(), v)[1])
print(jacobian(lambda w: torch.sigmoid(X[:3] @ w), w.detach()))
gradient = torch.autograd.grad(loss_fn(w), w, create_graph=True)[0]
penalty = gradient.pow(2).sum()
penalty.backward()
print(w.grad)
