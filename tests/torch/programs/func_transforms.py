"""Per-sample gradients, ensembles of models, Jacobians and Hessians with torch.func."""

import copy

import numpy as np
import torch
from torch import nn
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

rng = np.random.default_rng(6)


def T(*s):
    return torch.tensor(rng.normal(size=s).astype("f"))


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 5)
        self.b = nn.Linear(5, 2)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))


def fill(m):
    for p in m.parameters():
        p.data = T(*p.shape)
    return m


m = fill(M())
params = {k: v.detach() for k, v in m.named_parameters()}
buffers = {k: v.detach() for k, v in m.named_buffers()}


def loss(params, buffers, x, y):
    out = functional_call(m, (params, buffers), (x.unsqueeze(0),))
    return nn.functional.cross_entropy(out, y.unsqueeze(0))


x, y = T(4, 3), torch.tensor([0, 1, 1, 0])
g = vmap(grad(loss), in_dims=(None, None, 0, 0))(params, buffers, x, y)
print({k: (tuple(v.shape), round(v.abs().sum().item(), 4)) for k, v in g.items()})
models = [fill(M()) for _ in range(3)]
sp, sb = stack_module_state(models)
base = copy.deepcopy(models[0]).to("meta") if False else models[0]
pred = vmap(lambda p, b, x: functional_call(base, (p, b), (x,)), in_dims=(0, 0, None))(sp, sb, x)
print(
    pred.shape,
    [round(v, 4) for v in pred[1, 0].tolist()],
    torch.allclose(pred[2], models[2](x), atol=1e-5),
)


def f(w):
    return (w**3).sum() + (w[0] * w[1]).sin()


w = T(3)
print([[round(v, 4) for v in r] for r in hessian(f)(w).tolist()])
print([round(v, 4) for v in jacrev(lambda v: v.outer(v).sum(0))(w).flatten().tolist()])
print([round(v, 4) for v in jacfwd(lambda v: v.softmax(0))(w).flatten().tolist()])
o, pull = vjp(lambda a, b: a * b.exp(), w, T(3))
print([round(v, 4) for t in pull(torch.ones(3)) for v in t.tolist()])
o, tang = jvp(torch.sin, (w,), (torch.ones(3),))
print([round(v, 4) for v in tang.tolist()])
gr, val = grad_and_value(f)(w)
print(round(val.item(), 4), [round(v, 4) for v in gr.tolist()])
print(torch.autograd.functional.jacobian(lambda a: a.cumsum(0), w).tolist())
print([round(v, 4) for v in torch.autograd.functional.hvp(f, w, torch.ones(3))[1].tolist()])
