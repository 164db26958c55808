"""A recurrent network whose transition stays orthogonal."""

import numpy as np
import torch
import torch.nn.utils.parametrize as parametrize
from torch import nn
from torch.nn.utils.parametrizations import orthogonal

rng = np.random.default_rng(38)


class Orthogonal(nn.Module):
    def __init__(self, n_in, n):
        super().__init__()
        self.inp = nn.Linear(n_in, n)
        self.rec = nn.Linear(n, n, bias=False)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.from_numpy(rng.normal(0, 0.5, tuple(p.shape)).astype(np.float32)))
            q, _ = torch.linalg.qr(self.rec.weight)
            self.rec.weight.copy_(q)
        orthogonal(self.rec, "weight", orthogonal_map="matrix_exp")

    def forward(self, xs):
        h = torch.zeros(xs.shape[1], self.rec.out_features)
        for x in xs:
            h = torch.tanh(self.inp(x) + self.rec(h))
        return h


model = Orthogonal(3, 4)
print(parametrize.is_parametrized(model.rec, "weight"), parametrize.is_parametrized(model.inp))
xs = torch.from_numpy(rng.standard_normal((5, 6, 3)).astype(np.float32))
target = torch.from_numpy(rng.standard_normal((6, 4)).astype(np.float32))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for step in range(5):
    loss = nn.functional.mse_loss(model(xs), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    W = model.rec.weight
    off = (W @ W.T - torch.eye(4)).abs().max().item()
    print(f"{step}: {loss.item():.4f} {off < 1e-5} {torch.linalg.det(W).abs().item():.3f}")
for kind in ("cayley", "householder"):
    layer = nn.Linear(5, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(3, 5))
    orthogonal(layer, orthogonal_map=kind)
    Q = layer.weight
    print(kind, tuple(Q.shape), (Q @ Q.T - torch.eye(3)).abs().max().item() < 1e-5)
square = orthogonal(nn.Linear(4, 4), orthogonal_map="cayley")
with torch.no_grad():
    new = torch.linalg.qr(torch.from_numpy(rng.standard_normal((4, 4)).astype(np.float32)))[0]
square.weight = new
print(torch.allclose(square.weight, new, atol=1e-5))
parametrize.remove_parametrizations(square, "weight")
print(parametrize.is_parametrized(square), [n for n, _ in square.named_parameters()])
with parametrize.cached():
    print(model(xs).shape)
