"""Parametrised weights, hooks of all kinds, tied weights, and vectors of parameters."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.utils.parametrize as P
from torch.nn.utils import parameters_to_vector, vector_to_parameters

rng = np.random.default_rng(5)


class Symmetric(nn.Module):
    def forward(self, X):
        return X.triu() + X.triu(1).transpose(-1, -2)

    def right_inverse(self, A):
        return A.triu()


class MatrixExp(nn.Module):
    def forward(self, X):
        return torch.matrix_exp(X)


class Skew(nn.Module):
    def forward(self, X):
        A = X.triu(1)
        return A - A.transpose(-1, -2)


layer = nn.Linear(3, 3)
layer.weight.data = torch.tensor(rng.normal(size=(3, 3)), dtype=torch.float32)
layer.bias.data.zero_()
P.register_parametrization(layer, "weight", Symmetric())
print(layer)
A = layer.weight
print(torch.allclose(A, A.T), A)
print(
    layer.parametrizations.weight[0],
    sorted((n for n, _ in layer.named_parameters())),
    P.is_parametrized(layer),
    P.is_parametrized(layer, "bias"),
)
ortho = nn.Linear(3, 3)
ortho.weight.data = torch.tensor(rng.normal(size=(3, 3)), dtype=torch.float32)
P.register_parametrization(ortho, "weight", Skew())
P.register_parametrization(ortho, "weight", MatrixExp())
X = ortho.weight
print(torch.dist(X.T @ X, torch.eye(3)).item() < 1e-05)
with P.cached():
    print(layer(torch.ones(1, 3)))
layer.weight = torch.ones(3, 3)
print(layer.weight)
P.remove_parametrizations(layer, "weight", leave_parametrized=True)
print(layer, layer.weight)
net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
vec = parameters_to_vector(net.parameters())
print(vec.shape, vec.requires_grad)
vector_to_parameters(torch.arange(13.0) / 10, net.parameters())
print(net[0].weight, net[2].bias)
log = []
h1 = net[0].register_forward_pre_hook(
    lambda m, i: log.append(("pre", m.__class__.__name__, tuple(i[0].shape)))
)
h2 = net.register_forward_hook(lambda m, i, o: o * 2)
h3 = net[0].register_full_backward_hook(
    lambda m, gi, go: log.append(("bwd", go[0].sum().item(), gi[0] is None))
)
h4 = net[0].weight.register_hook(lambda g: g.clamp(max=0.1))
h5 = net[2].weight.register_hook(lambda g: log.append(("w2", tuple(g.shape))))
x = torch.tensor([[1.0, 2.0]], requires_grad=True)
out = net(x)
out.sum().backward()
print(sorted(log), out, net[0].weight.grad, x.grad)
for h in (h1, h2, h3, h4, h5):
    h.remove()
log.clear()
net.zero_grad()
x.grad = None
net(x).sum().backward()
print(log, net[0].weight.grad)
y = x * 2
y.register_hook(lambda g: print("grad of y", g))
y.retain_grad()
(y * y).sum().backward()
print(y.grad)
emb = nn.Embedding(5, 3)
out = nn.Linear(3, 5, bias=False)
out.weight = emb.weight
print(
    out.weight is emb.weight,
    len(list(nn.ModuleList([emb, out]).parameters())),
    len({**dict(nn.ModuleList([emb, out]).named_parameters())}),
)
m = nn.ModuleDict({"e": emb, "o": out})
print(
    list(m.state_dict()),
    [n for n, p in m.named_parameters()],
    [n for n, p in m.named_parameters(remove_duplicate=False)],
)
emb.weight.data.fill_(0.5)
loss = out(emb(torch.tensor([0, 1]))).sum()
loss.backward()
print(emb.weight.grad, out.weight.grad is emb.weight.grad)
sn = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
print([n for n, _ in sn.named_parameters()])
for name, mod in net.named_modules():
    print(repr(name), type(mod).__name__)
for name, c in net.named_children():
    print(name, c)
print(
    net[0].weight.register_post_accumulate_grad_hook(lambda p: print("acc", p.grad.shape))
    is not None
)
net.zero_grad()
net(x).sum().backward()
print(
    sum(p.numel() for p in net.parameters() if p.requires_grad),
    net[0].in_features,
    net.training,
    net.eval().training,
)
net.requires_grad_(False)
print(
    [p.requires_grad for p in net.parameters()], net(x).requires_grad, net(x.detach()).requires_grad
)
