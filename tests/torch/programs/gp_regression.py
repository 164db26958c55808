"""Gaussian process regression by Cholesky factors, its marginal likelihood by LBFGS."""

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


torch.set_default_dtype(torch.double)
x = torch.linspace(-3, 3, 25).unsqueeze(1)
y = torch.sin(2 * x).squeeze() + 0.1 * torch.cos(37 * x).squeeze()


class GP(nn.Module):
    def __init__(self):
        super().__init__()
        self.raw = nn.ParameterDict(
            {k: nn.Parameter(torch.zeros(())) for k in ("scale", "length", "noise")}
        )

    def kernel(self, a, b):
        d = torch.cdist(a, b) / F.softplus(self.raw["length"])
        return F.softplus(self.raw["scale"]) * torch.exp(-0.5 * d.square())

    def factor(self):
        k = self.kernel(x, x) + (F.softplus(self.raw["noise"]) + 1e-6) * torch.eye(len(x))
        return torch.linalg.cholesky(k)

    def nll(self):
        L = self.factor()
        alpha = torch.cholesky_solve(y.unsqueeze(1), L).squeeze(1)
        return 0.5 * y @ alpha + L.diagonal().log().sum() + 0.5 * len(x) * math.log(2 * math.pi)

    def predict(self, z):
        L = self.factor()
        k = self.kernel(x, z)
        v = torch.linalg.solve_triangular(L, k, upper=False)
        mean = k.T @ torch.cholesky_solve(y[:, None], L)
        return mean.squeeze(1), self.kernel(z, z).diagonal() - v.pow(2).sum(0)


gp = GP()
optimizer = optim.LBFGS(gp.parameters(), lr=0.5, max_iter=5, line_search_fn="strong_wolfe")


def closure():
    optimizer.zero_grad()
    loss = gp.nll()
    loss.backward()
    return loss


for step in range(4):
    loss = optimizer.step(closure)
    print(
        step, f"{loss.item():.6f}", {k: round(F.softplus(v).item(), 4) for k, v in gp.raw.items()}
    )
with torch.no_grad():
    mean, var = gp.predict(torch.tensor([[0.3], [1.7], [5.0]]))
print(mean, var.clamp_min(0).sqrt())
torch.set_default_dtype(torch.float32)
