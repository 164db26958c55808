"""Weights that functions make: symmetric, orthogonal, cached, removed again."""

import torch
import torch.nn.utils.parametrize as parametrize
from torch import nn
from torch.nn.utils import parametrizations


class Symmetric(nn.Module):
    def forward(self, X):
        return X.triu() + X.triu(1).transpose(-1, -2)

    def right_inverse(self, A):
        return A.triu()


class MatrixExponential(nn.Module):
    def forward(self, X):
        return torch.matrix_exp(X)


class Skew(nn.Module):
    def forward(self, X):
        A = X.triu(1)
        return A - A.transpose(-1, -2)

    def right_inverse(self, A):
        return A.triu(1)


layer = nn.Linear(3, 3)
with torch.no_grad():
    layer.weight.copy_(torch.arange(9.0).reshape(3, 3) / 9)
    layer.bias.copy_(torch.ones(3))
parametrize.register_parametrization(layer, "weight", Symmetric())
print(layer.weight)
print(layer)
print(
    torch.allclose(layer.weight, layer.weight.T),
    parametrize.is_parametrized(layer),
    parametrize.is_parametrized(layer, "bias"),
)
print([n for n, _ in layer.named_parameters()], list(layer.state_dict()))
print(layer.parametrizations.weight.original)
with torch.no_grad():
    layer.weight = torch.ones(3, 3) * 2
print(layer.weight, layer.parametrizations.weight.original)
opt = torch.optim.SGD(layer.parameters(), lr=0.1)
x = torch.linspace(0, 1, 12).reshape(4, 3)
for _ in range(3):
    loss = (layer(x) - 1).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(f"{loss.item():.5f}")
with parametrize.cached():
    print(layer.weight is layer.weight)
parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
print(layer.weight, type(layer).__name__, layer)
ortho = nn.Linear(3, 3)
parametrize.register_parametrization(ortho, "weight", Skew())
parametrize.register_parametrization(ortho, "weight", MatrixExponential())
with torch.no_grad():
    ortho.parametrizations.weight.original.copy_(torch.arange(9.0).reshape(3, 3) / 5)
print(torch.dist(ortho.weight.T @ ortho.weight, torch.eye(3)) < 1e-5)
print(ortho)

w = parametrizations.weight_norm(nn.Linear(3, 2), name="weight")
s = parametrizations.spectral_norm(nn.Linear(3, 2))
print([n for n, _ in s.named_parameters()], [n for n, _ in s.named_buffers()])
print(type(s).__name__, parametrize.type_before_parametrizations(s) is nn.Linear)
