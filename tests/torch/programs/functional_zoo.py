"""torch.func: gradients of gradients, per sample, models in a stack; einsum."""

import torch
import torch.nn as nn
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

f = lambda x: (x**3).sum()
x = torch.tensor([1.0, 2.0, 3.0])
print(
    grad(f)(x),
    grad(grad(lambda t: t**4))(torch.tensor(2.0)),
    grad_and_value(f)(x),
    hessian(f)(x),
    sep="\n",
)
print(jacrev(lambda t: t.sin())(x), jacfwd(lambda t: torch.stack([t.sum(), t.prod()]))(x))
print(jacrev(lambda a, b: a * b, argnums=(0, 1))(x, x))
print(
    vmap(torch.dot)(torch.ones(4, 3), torch.arange(12.0).reshape(4, 3)),
    vmap(lambda a, b: a + b, in_dims=(0, None), out_dims=1)(torch.ones(2, 3), x),
)
print(
    vmap(vmap(lambda a: a * 2))(torch.ones(2, 2)),
    vmap(lambda d: d["a"] - d["b"])({"a": x, "b": 2 * x}),
)
print(vmap(grad(lambda w, v: (w * v).sum().pow(2)), in_dims=(None, 0))(x, torch.eye(3)))
out, fn = vjp(lambda a, b: (a * b, a.sum()), x, x + 1)
print(out, fn((torch.ones(3), torch.tensor(1.0))))
print(jvp(lambda a: a**2, (x,), (torch.ones(3),)))
m = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
with torch.no_grad():
    for p in m.parameters():
        p.copy_(torch.linspace(-1, 1, p.numel()).reshape(p.shape))
params = dict(m.named_parameters())
data = torch.linspace(0, 1, 12).reshape(4, 3)
target = torch.zeros(4, 2)


def loss(params, d, t):
    return ((functional_call(m, params, (d,)) - t) ** 2).mean()


g = grad(loss)(params, data, target)
print({k: v.shape for k, v in g.items()}, g["0.bias"].detach())
per = vmap(grad(loss), in_dims=(None, 0, 0))(params, data, target)
print(per["0.weight"].shape, per["0.weight"].mean(0).detach())
ms = [nn.Linear(3, 1) for _ in range(3)]
for i, each in enumerate(ms):
    nn.init.constant_(each.weight, i)
    nn.init.zeros_(each.bias)
import copy

ps, bs = stack_module_state(ms)
base = copy.deepcopy(ms[0]).to("meta") if False else ms[0]
print(
    vmap(lambda p, b, d: functional_call(base, (p, b), (d,)), in_dims=(0, 0, None))(
        ps, bs, data
    ).squeeze(-1)
)
print(
    torch.einsum("ii", torch.eye(3)),
    torch.einsum("ii->i", torch.arange(9.0).reshape(3, 3)),
    torch.einsum("ij->ji", torch.ones(2, 3)).shape,
    torch.einsum("bij,bjk->bik", torch.ones(2, 3, 4), torch.ones(2, 4, 5)).shape,
)
print(
    torch.einsum("i,j", x, x),
    torch.einsum("...ij->...", torch.ones(2, 3, 4)),
    torch.einsum("bn,anm,bm->ba", torch.ones(2, 3), torch.ones(4, 3, 5), torch.ones(2, 5)),
    torch.einsum(x, [0], x, [0]),
    torch.einsum("i,i->", x, x),
    torch.einsum("ij,ij->i", torch.ones(2, 3), torch.ones(2, 3)),
)
print(torch.einsum("b...d,d->b...", torch.ones(2, 2, 3), x))
print(
    vmap(lambda t: torch.where(t > 1, t, -t))(x),
    vmap(torch.sum)(torch.ones(2, 3)),
    vmap(lambda t: t.softmax(0))(torch.eye(2)),
    vmap(lambda t: t[0])(torch.eye(2)),
    vmap(lambda t: t.sort().values)(torch.tensor([[2.0, 1.0], [0.0, -1.0]])),
)
try:
    vmap(lambda t: t.item())(x)
except RuntimeError:
    print("RuntimeError")
try:
    vmap(torch.add)(torch.ones(2), torch.ones(3))
except ValueError:
    print("ValueError")
try:
    grad(lambda t: t)(x)
except RuntimeError:
    print("RuntimeError")


def newton(x0):
    for _ in range(5):
        x0 = x0 - grad(lambda t: t**2 - 2)(x0) ** -1 * (x0**2 - 2)
    return x0


print(vmap(newton)(torch.tensor([1.0, 2.0, 5.0])))
print(torch.vmap(lambda t: t * 2, chunk_size=2)(x), grad(lambda a: (a["w"] * 2).sum())({"w": x}))
print(
    grad(lambda t: (t * t.detach()).sum())(x),
    grad(lambda t, aux: ((t * aux).sum(), aux), has_aux=True)(x, x),
)
with torch.no_grad():
    print(grad(f)(x))
print(
    torch.func.hessian(lambda t: t[0] ** 2 * t[1])(torch.tensor([1.0, 2.0])),
    jacrev(lambda d: {"o": d**2})(torch.tensor([1.0, 2.0])),
)
