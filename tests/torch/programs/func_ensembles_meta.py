"""torch.func at work: ensembles by stack_module_state, per-sample gradients, MAML by functional_call, Jacobians of
networks, Hessian-vector products, natural gradients, implicit differentiation, vmap with in_dims and randomness.
"""

import copy
from functools import partial

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


class Net(nn.Module):
    def __init__(self, hidden=6):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(3, hidden), nn.Linear(hidden, 2)
        self.register_buffer("scale", torch.tensor(1.5))

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x.flatten(-1)) * self.scale))


def make(seed):
    net = Net()
    for i, p in enumerate(net.parameters()):
        p.data = torch.sin(torch.arange(p.numel()) * (seed + 0.7 + i)).view_as(p) * 0.5
    return net


models = [make(s) for s in range(4)]
x, y = torch.cos(torch.arange(15.0)).view(5, 3), torch.tensor([0, 1, 1, 0, 1])
params, buffers = stack_module_state(models)
print(
    {k: tuple(v.shape) for k, v in params.items()}, {k: tuple(v.shape) for k, v in buffers.items()}
)
base = copy.deepcopy(models[0]).to("meta")


def fmodel(params, buffers, x):
    return functional_call(base, (params, buffers), (x,))


together = vmap(fmodel, in_dims=(0, 0, None))(params, buffers, x)
print(together.shape, torch.allclose(together, torch.stack([m(x) for m in models]), atol=1e-6))
own = vmap(fmodel)(params, buffers, torch.stack([x[:4]] * 4))
print(own.mean(dim=(1, 2)))

net = models[1]
p = {k: v.detach() for k, v in net.named_parameters()}
b = dict(net.named_buffers())


def compute_loss(params, buffers, sample, target):
    out = functional_call(net, (params, buffers), (sample.unsqueeze(0),))
    return F.cross_entropy(out, target.unsqueeze(0))


per_sample = vmap(grad(compute_loss), in_dims=(None, None, 0, 0))(p, b, x, y)
print({k: tuple(v.shape) for k, v in per_sample.items()}, per_sample["fc2.bias"])
norms = torch.sqrt(sum(g.flatten(1).square().sum(1) for g in per_sample.values()))
clip = (0.5 / norms).clamp(max=1.0)
private = {k: torch.einsum("b,b...->...", clip, g) / len(x) for k, g in per_sample.items()}
print(norms, private["fc1.bias"])
(g, value) = grad_and_value(lambda q: F.cross_entropy(functional_call(net, q, x), y))(p)
net.zero_grad()
F.cross_entropy(net(x), y).backward()
print(value, all(torch.allclose(g[k], v.grad, atol=1e-6) for k, v in net.named_parameters()))
gs, (vals, aux) = vmap(
    grad_and_value(lambda w, v: ((w * v).sin().sum(), w * 2), has_aux=True), in_dims=(None, 0)
)(torch.ones(3), x)
print(gs[0], vals, aux.shape)


# MAML
def inner(params, xs, ys, lr=0.1, steps=2):
    for _ in range(steps):
        g = grad(lambda q: F.mse_loss(functional_call(net, (q, b), (xs,)), ys))(params)
        params = {k: params[k] - lr * g[k] for k in params}
    return params


meta = {k: v.clone().requires_grad_() for k, v in p.items()}
opt = torch.optim.SGD(meta.values(), lr=0.05)
tasks = torch.stack([torch.stack([x[:, 0] * a, x[:, 1] + a], 1) for a in (0.5, 1.0, -1.0)])
for step in range(3):

    def task(xs, ys):
        fast = inner(meta, xs[:3], ys[:3])
        return F.mse_loss(functional_call(net, (fast, b), (xs[3:],)), ys[3:])

    loss = vmap(task, in_dims=(None, 0))(x, tasks).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item(), meta["fc2.bias"].grad)

# derivatives of functions
f = lambda v: torch.stack([v[0] * v[1], v.sin().sum(), v.prod() ** 2])
v = torch.tensor([0.5, -1.2, 2.0])
print(
    jacrev(f)(v),
    torch.allclose(jacrev(f)(v), jacfwd(f)(v), atol=1e-5),
    hessian(lambda u: (u**3).sum() + u.prod())(v),
)
out, pull = vjp(f, v)
print(out, pull(torch.ones(3))[0], jvp(f, (v,), (torch.ones(3),))[1])
hvp = lambda fn, primals, tangents: jvp(grad(fn), primals, tangents)[1]
print(hvp(lambda u: u.exp().sum() * u[0], (v,), (torch.tensor([1.0, 0.0, 0.0]),)))
J = vmap(jacrev(lambda q: net(q.unsqueeze(0)).squeeze(0)))(x)
print(J.shape, J[0], jacrev(compute_loss, argnums=0)(p, b, x[0], y[0])["fc2.bias"])
laplace = vmap(lambda u: torch.trace(hessian(lambda q: net(q[None])[0, 0])(u)))(x)
print(laplace.detach(), laplace.requires_grad)


# Fisher information and the empirical tangent kernel
def single(params, u):
    return functional_call(net, (params, b), (u.unsqueeze(0),)).squeeze(0)


jac = vmap(jacrev(single), (None, 0))(p, x)
K = sum(torch.einsum("naf,mbf->nmab", j.flatten(2), j.flatten(2)) for j in jac.values())
print(K.shape, K[0, 1], torch.linalg.eigvalsh(K.diagonal(dim1=2, dim2=3).sum(-1)))


# implicit differentiation of a root
def root(a):
    z = torch.ones_like(a)
    for _ in range(20):
        z = z - (z**3 + z - a) / (3 * z**2 + 1)
    return z


class Root(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        with torch.no_grad():
            z = root(a)
        ctx.save_for_backward(z)
        return z

    @staticmethod
    def backward(ctx, g):
        (z,) = ctx.saved_tensors
        return g / (3 * z**2 + 1)


a = torch.tensor([2.0, 10.0], requires_grad=True)
Root.apply(a).sum().backward()
print(a.grad, vmap(grad(lambda s: root(s)))(a.detach()))

# vmap itself
m = torch.arange(12.0).view(3, 4)
print(
    vmap(torch.dot, in_dims=(0, 1))(m, m.t()),
    vmap(lambda r: r / r.sum(), out_dims=1)(m + 1).shape,
    vmap(partial(torch.sum, dim=0))(m),
    vmap(vmap(torch.mul, (0, None)), (None, 0))(m[0], m[1]),
    vmap(lambda d: d["a"] * 2 + d["b"], in_dims=({"a": 0, "b": None},))(
        {"a": m, "b": torch.ones(4)}
    ),
    vmap(lambda u: (u.max(), u.argmax()))(m),
    vmap(lambda u: torch.where(u > 2, u, 0.0))(m)[0],
    vmap(torch.func.linearize if False else torch.linalg.norm)(m),
    vmap(lambda u: u + torch.rand(1), randomness="different")(torch.zeros(3)).shape,
)
try:
    vmap(lambda u: u.item())(m[:, 0])
except RuntimeError:
    print("item refused")
batched = vmap(lambda A, r: torch.linalg.solve(A, r))(
    torch.eye(3).expand(2, 3, 3) * 2, m.t()[:2, :3]
)
print(
    batched,
    torch.vmap(torch.trace)(torch.ones(2, 3, 3)),
    torch.func.functional_call(net, {"fc2.bias": torch.zeros(2)}, (x[:1],)),
)
