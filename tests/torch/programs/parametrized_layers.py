"""Parametrizations: weight_norm, spectral_norm, orthogonal (three maps), own ones with right_inverse, chained, cached, removed; lipschitz and symmetric layers."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.utils.parametrize as parametrize
from torch.nn.utils import parametrizations
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm

rng = np.random.default_rng(13)


def values(*shape, scale=1.0):
    return torch.from_numpy(rng.normal(0, scale, shape).astype(np.float32))


def set_linear(layer):
    with torch.no_grad():
        layer.weight.copy_(values(*layer.weight.shape))
        if layer.bias is not None:
            layer.bias.zero_()
    return layer


class Symmetric(nn.Module):
    def forward(self, X):
        return X.triu() + X.triu(1).transpose(-1, -2)

    def right_inverse(self, A):
        return A.triu()


class Skew(nn.Module):
    def forward(self, X):
        A = X.triu(1)
        return A - A.transpose(-1, -2)


class MatrixExponential(nn.Module):
    def forward(self, X):
        return torch.matrix_exp(X)


class CayleyMap(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("Id", torch.eye(n))

    def forward(self, X):
        return torch.linalg.solve(self.Id - X, self.Id + X)


x = values(4, 3)
layer = set_linear(nn.Linear(3, 3))
parametrize.register_parametrization(layer, "weight", Symmetric())
A = layer.weight
print(torch.allclose(A, A.T), layer, [n for n, _ in layer.named_parameters()])
layer.weight = values(3, 3)
print(layer.weight.trace(), layer.parametrizations.weight.original.tril(-1).sum())
rotation = set_linear(nn.Linear(3, 3, bias=False))
parametrize.register_parametrization(rotation, "weight", Skew())
parametrize.register_parametrization(rotation, "weight", MatrixExponential())
print(
    torch.allclose(rotation.weight.T @ rotation.weight, torch.eye(3), atol=1e-5),
    len(rotation.parametrizations.weight),
)
rotation(x).square().mean().backward()
(rotation(x)[:, 0].sum()).backward()
print(rotation.parametrizations.weight.original.grad.norm())
cayley = set_linear(nn.Linear(3, 3))
parametrize.register_parametrization(cayley, "weight", Skew())
parametrize.register_parametrization(cayley, "weight", CayleyMap(3))
print(
    cayley.weight.det(),
    parametrize.is_parametrized(cayley),
    parametrize.is_parametrized(cayley, "bias"),
)
with parametrize.cached():
    print(cayley.weight is cayley.weight)
parametrize.remove_parametrizations(cayley, "weight", leave_parametrized=True)
print(
    isinstance(cayley.weight, nn.Parameter),
    cayley.weight.det(),
    hasattr(cayley, "parametrizations"),
)
wn = weight_norm(set_linear(nn.Linear(3, 2)), name="weight", dim=0)
print(wn.parametrizations.weight.original0.flatten(), sorted(wn.state_dict()))
wn(x).sum().backward()
print(
    wn.parametrizations.weight.original0.grad.flatten(),
    wn.parametrizations.weight.original1.grad.norm(),
)
sn = spectral_norm(set_linear(nn.Linear(3, 4)), n_power_iterations=3)
for _ in range(30):
    sn(x)
print(torch.linalg.matrix_norm(sn.weight, 2), sn.eval().weight.shape)
conv = spectral_norm(nn.Conv2d(1, 2, 3))
print(conv(values(1, 1, 5, 5)).shape, sorted(k for k in conv.state_dict()))
for name, shape in (("matrix_exp", (3, 3)), ("cayley", (4, 3)), ("householder", (3, 5))):
    q = orthogonal(set_linear(nn.Linear(shape[1], shape[0], bias=False)), orthogonal_map=name)
    w = q.weight
    thin = w.T @ w if shape[0] >= shape[1] else w @ w.T
    print(name, torch.dist(thin, torch.eye(min(shape))) < 1e-4, tuple(w.shape))
    opt = torch.optim.SGD(q.parameters(), lr=0.1)
    for _ in range(2):
        opt.zero_grad()
        loss = (q(torch.ones(2, shape[1])) - 1).square().sum()
        loss.backward()
        opt.step()
    w = q.weight
    thin = w.T @ w if shape[0] >= shape[1] else w @ w.T
    print(
        torch.dist(thin, torch.eye(min(shape))) < 1e-4,
        bool(loss > (q(torch.ones(2, shape[1])) - 1).square().sum()),
    )
q = orthogonal(nn.Linear(3, 3, bias=False))
target = torch.linalg.qr(values(3, 3))[0]
q.weight = target
print(torch.allclose(q.weight, target, atol=1e-5))
torch.nn.init.orthogonal_(torch.empty(3, 5))
old = torch.nn.utils.weight_norm(set_linear(nn.Linear(3, 2)))
print(sorted(n for n, _ in old.named_parameters()))
old(x).sum().backward()
print(old.weight_g.grad.flatten(), torch.nn.utils.remove_weight_norm(old).weight.shape)
print(parametrizations.__name__.rsplit(".")[-1])
