"""torch.func at length: ensembles by stack_module_state and vmap, per-sample gradients, Jacobians, Hessians, MAML step, jvp, vjp, linearize, randomness, in_dims."""

import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import (
    functional_call,
    functionalize,
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

rng = np.random.default_rng(10)


class SimpleMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(6, 8), nn.Linear(8, 3)
        self.register_buffer("shift", torch.tensor(0.5))

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x.flatten(1)))) + self.shift


def filled(net):
    for p in net.parameters():
        p.data.copy_(torch.from_numpy(rng.normal(0, 0.5, tuple(p.shape))))
    return net


models = [filled(SimpleMLP()) for _ in range(4)]
data = torch.from_numpy(rng.normal(size=(4, 5, 2, 3))).float()
targets = torch.from_numpy(rng.integers(0, 3, (5,)))
params, buffers = stack_module_state(models)
print({k: tuple(v.shape) for k, v in params.items()}, buffers["shift"])
base_model = copy.deepcopy(models[0]).to("meta")


def fmodel(params, buffers, x):
    return functional_call(base_model, (params, buffers), (x,))


each = vmap(fmodel)(params, buffers, data)
shared = vmap(fmodel, in_dims=(0, 0, None))(params, buffers, data[0])
print(
    torch.allclose(each, torch.stack([m(d) for m, d in zip(models, data)]), atol=1e-5), shared.shape
)
model = models[0]
weights = {k: v.detach() for k, v in model.named_parameters()}
bufs = {k: v.detach() for k, v in model.named_buffers()}


def compute_loss(params, buffers, sample, target):
    predictions = functional_call(model, (params, buffers), (sample.unsqueeze(0),))
    return F.cross_entropy(predictions, target.unsqueeze(0))


ft = vmap(grad(compute_loss), in_dims=(None, None, 0, 0))
per_sample = ft(weights, bufs, data[0], targets)
print({k: f"{v.flatten(1).norm(dim=1).mean():.5f}" for k, v in per_sample.items()})
norms = torch.stack([g.flatten(1).norm(dim=1) for g in per_sample.values()], 1).norm(dim=1)
clip = (1.0 / (norms + 1e-6)).clamp(max=1.0)
private = {k: torch.einsum("b,b...->...", clip, g) / len(clip) for k, g in per_sample.items()}
print(f"{norms.sum():.5f} {private['fc2.bias']}")
W, b, x = (torch.from_numpy(rng.normal(size=s)) for s in ((3, 4), (3,), (4,)))


def predict(weight, bias, x):
    return F.linear(x, weight, bias).tanh()


J = jacrev(predict, argnums=2)(W, b, x)
print(torch.allclose(J, jacfwd(predict, argnums=2)(W, b, x)), J.sum())
jw, jb = jacrev(predict, argnums=(0, 1))(W, b, x)
print(jw.shape, jb.diagonal())
H = hessian(predict, argnums=2)(W, b, x)
print(
    H.shape,
    torch.allclose(H, H.mT),
    torch.allclose(H, jacfwd(jacfwd(predict, 2), 2)(W, b, x)),
    H.abs().sum(),
)
batched = vmap(jacrev(predict, argnums=2), in_dims=(None, None, 0))(W, b, torch.stack([x, 2 * x]))
print(batched.shape)
out, push = jvp(lambda z: predict(W, b, z), (x,), (torch.ones(4).double(),))
_, pull = vjp(lambda z: predict(W, b, z), x)
print(push, torch.allclose(push, J.sum(1)), pull(torch.ones(3).double())[0])
(value, aux), (tangent_aux) = (
    vjp(lambda z: (z.sin().sum(), z * 2), x, has_aux=True)[0::2][0:1] + (None,)
    if False
    else ((x.sin().sum(), 2 * x), None)
)
g, (v, extra) = grad_and_value(lambda z: ((z**3).sum(), z.mean()), has_aux=True)(x)
print(g, v, extra)


def inner(meta, x, y):
    w = {
        k: p - 0.1 * gp
        for (k, p), gp in zip(
            meta.items(),
            grad(lambda m: F.mse_loss(functional_call(model, (m, bufs), (x,)), y))(meta).values(),
        )
    }
    return F.mse_loss(functional_call(model, (w, bufs), (x,)), y)


tasks_x, tasks_y = data, torch.from_numpy(rng.normal(size=(4, 5, 3))).float()
meta_loss = lambda meta: vmap(inner, in_dims=(None, 0, 0))(meta, tasks_x, tasks_y).mean()
g, v = grad_and_value(meta_loss)(weights)
print(f"{v:.5f}", {k: f"{t.norm():.5f}" for k, t in g.items()})
print(
    vmap(torch.dot, in_dims=(0, 1))(W, W.t()), vmap(lambda a: a.sort().values, out_dims=1)(W).shape
)
print(vmap(lambda a, b: a @ b, in_dims=(0, None), chunk_size=2)(torch.stack([W, -W, W]), x).shape)
print(vmap(vmap(torch.mul, in_dims=(None, 0)), in_dims=(0, None))(x, b).shape)
same = vmap(lambda a: a + torch.rand(()), randomness="same")(torch.zeros(5))
diff = vmap(lambda a: a + torch.rand(()), randomness="different")(torch.zeros(5))
print(same.unique().numel(), diff.unique().numel())
hvp = lambda f, p, v: jvp(grad(f), (p,), (v,))[1]
print(
    hvp(lambda z: (z.sin() * z).sum(), x, torch.ones_like(x)),
    functionalize(lambda z: z.clone().add_(1))(x),
)
