"""torch.func, second derivatives, averaged copies, modes."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd.functional import hessian as H
from torch.autograd.functional import hvp, jacobian
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


def f(x):
    return (x.sin() * x**2).sum()


x = torch.tensor([1.0, 2.0, 3.0])
print(
    grad(f)(x),
    hessian(f)(x),
    jacrev(lambda x: x.outer(x))(x).shape,
    jacfwd(torch.exp)(x),
    grad_and_value(f)(x),
    vmap(grad(lambda v: v**3))(x),
)
o, t = jvp(f, (x,), (torch.ones(3),))
print(o, t)
o, fn = vjp(torch.sin, x)
print(o, fn(torch.ones(3)))
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
for i, p in enumerate(net.parameters()):
    p.data = torch.linspace(-1, 1, p.numel()).reshape(p.shape) * (i + 1) / 4
params = {k: v.detach() for k, v in net.named_parameters()}


def loss(params, x, y):
    return F.mse_loss(functional_call(net, params, (x,)), y)


X, Y = (torch.linspace(0, 1, 12).view(4, 3), torch.ones(4, 1))
per = vmap(grad(loss), in_dims=(None, 0, 0))(params, X, Y)
print({k: tuple(v.shape) for k, v in per.items()}, per["2.bias"])
tot = grad(loss)(params, X, Y)
print(torch.allclose(per["0.weight"].mean(0), tot["0.weight"], atol=1e-06))
print(
    vmap(torch.dot)(X, X),
    vmap(lambda a, b: a + b, in_dims=(0, None))(X, x)[0],
    vmap(lambda a: a.sum(), in_dims=1)(X),
    vmap(lambda a: (a, a * 2), out_dims=(0, 1))(X)[1].shape,
    vmap(vmap(lambda a: a * 2))(X)[0],
)
models = [nn.Linear(3, 1) for _ in range(3)]
for i, m in enumerate(models):
    m.weight.data.fill_(i + 1.0)
    m.bias.data.fill_(0.0)
ps, bs = stack_module_state(models)
base = models[0]
print(
    vmap(lambda p, b, x: functional_call(base, (p, b), (x,)), in_dims=(0, 0, None))(
        ps, bs, X
    ).squeeze(-1)
)
lr = 0.1
for i in range(3):
    g, lost = grad_and_value(loss)(params, X, Y)
    params = {k: p - lr * g[k] for k, p in params.items()}
    print(f"{lost:.6f}")

print(jacobian(lambda x: x**2, x), H(f, x), hvp(f, x, torch.ones(3))[1])


def step(a, b):
    return torch.relu(a @ b).sum()


a = torch.ones(2, 2, requires_grad=True)
step(a, torch.eye(2)).backward()
print(a.grad)


@torch.jit.script
def scripted(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x * 2
    return x


print(scripted(x))

ema = copy.deepcopy(net)
print(
    type(ema[0]).__name__, ema[0].weight is net[0].weight, torch.equal(ema[0].weight, net[0].weight)
)
avg = torch.optim.swa_utils.AveragedModel(
    net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
)
net[0].weight.data += 1
avg.update_parameters(net)
net[0].weight.data += 1
avg.update_parameters(net)
print(avg.module[0].weight[0], avg.n_averaged)


def inner(w, x):
    return ((w * x) ** 2).sum()


w = torch.tensor(2.0, requires_grad=True)
fast = w - 0.1 * torch.autograd.grad(inner(w, x), w, create_graph=True)[0]
outer = inner(fast, x)
outer.backward()
print(fast, outer, w.grad)
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x**3
(g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
(g2,) = torch.autograd.grad(g.sum(), x, retain_graph=True)
print(g.detach(), g2)
h = torch.zeros(2, 2)
for i in range(2):
    h[i] = torch.autograd.grad((x**3).sum() * 0 + g[i], x, retain_graph=True)[0]
print(h)
with torch.enable_grad():
    pass


@torch.no_grad()
def ev(m, x):
    m.eval()
    return m(x)


print(ev(net, X).requires_grad, net.training, torch.is_grad_enabled())
with torch.set_grad_enabled(False):
    print((x * 2).requires_grad)
print(
    torch.autograd.gradcheck(
        lambda a: (a**2).sin(), (torch.ones(2, dtype=torch.double, requires_grad=True),)
    )
)
