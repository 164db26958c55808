"""Derivatives of functions, mapped; ensembles of modules."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)


def fill(m, s=0.3, o=0):
    with torch.no_grad():
        for i, p in enumerate(m.parameters()):
            p.copy_(
                (
                    torch.sin(torch.arange(p.numel(), dtype=torch.float32) * (i + 1 + o) * 0.37) * s
                ).view_as(p)
            )


class SimpleCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, 1)
        self.fc1 = nn.Linear(36, 5)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(x, 2)
        return F.log_softmax(self.fc1(torch.flatten(x, 1)), dim=1)


m = SimpleCNN()
fill(m)
data = torch.sin(torch.arange(3 * 64.0)).reshape(3, 1, 8, 8)
targets = torch.tensor([0, 2, 4])
params = {k: v.detach() for k, v in m.named_parameters()}
buffers = {k: v.detach() for k, v in m.named_buffers()}


def compute_loss(params, buffers, sample, target):
    pred = functional_call(m, (params, buffers), (sample.unsqueeze(0),))
    return F.nll_loss(pred, target.unsqueeze(0))


ft = vmap(grad(compute_loss), in_dims=(None, None, 0, 0))
g = ft(params, buffers, data, targets)
print({k: tuple(v.shape) for k, v in g.items()})
for k in g:
    print(k, g[k].flatten(1).norm(dim=1))
gv, v = grad_and_value(compute_loss)(params, buffers, data[0], targets[0])
print(v)
models = [nn.Linear(3, 2) for _ in range(3)]
for i, mm in enumerate(models):
    fill(mm, o=i)
P, B = stack_module_state(models)
base = copy.deepcopy(models[0])


def fmodel(p, b, x):
    return functional_call(base, (p, b), (x,))


x = torch.arange(12.0).reshape(4, 3) / 12
print(vmap(fmodel, in_dims=(0, 0, None))(P, B, x))
print(vmap(fmodel, in_dims=(0, 0, 0))(P, B, x[:3]).shape)
W = torch.sin(torch.arange(6.0)).reshape(2, 3)
b = torch.ones(2)
predict = lambda w, b, x: torch.tanh(F.linear(x, w, b))
print(jacrev(predict, argnums=2)(W, b, x[0]))
print(jacfwd(predict, argnums=(0, 1))(W, b, x[0])[1])
print(vmap(jacrev(predict, 2), (None, None, 0))(W, b, x).shape)
print(hessian(predict, argnums=2)(W, b, x[1]))
f = lambda x: x.sin().sum()
print(hessian(f)(torch.tensor([0.1, 0.2, 0.3])))
out, vf = vjp(lambda a, b: (a * b, a + b), torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
print(out, vf((torch.ones(2), torch.ones(2) * 2)))
print(jvp(torch.sin, (torch.tensor([0.5]),), (torch.tensor([2.0]),)))
print(
    vmap(torch.dot)(x, x),
    vmap(torch.dot, in_dims=(1, 1))(x, x),
    vmap(lambda a: a.sum(), in_dims=1)(x),
    vmap(lambda a: a * 2, out_dims=1)(x).shape,
)
print(vmap(lambda d: {"a": d["x"] + 1, "b": d["y"].sum()})({"x": x, "y": x}))
print(
    torch.autograd.functional.jacobian(lambda v: v**2, torch.tensor([1.0, 2.0])),
    torch.autograd.functional.hessian(lambda v: (v**3).sum(), torch.tensor([1.0, 2.0])),
)
print(
    torch.autograd.functional.vhp(lambda v: (v**3).sum(), torch.tensor([1.0, 2.0]), torch.ones(2)),
    torch.autograd.functional.hvp(lambda v: (v**3).sum(), torch.tensor([1.0, 2.0]), torch.ones(2)),
)


def newton(x):
    for _ in range(3):
        x = x - f(x) / grad(f)(x).sum()
    return x


print(newton(torch.tensor([2.5])))
try:
    vmap(lambda a: a.item())(x[:, 0])
except RuntimeError:
    print("RuntimeError")
