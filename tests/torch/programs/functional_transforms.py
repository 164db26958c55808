"""torch.func: per-sample gradients, Jacobians, ensembles."""

import numpy as np
import torch
import torch.nn as nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, stack_module_state, vmap

rng = np.random.default_rng(30)
model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
for p in model.parameters():
    p.data.copy_(torch.from_numpy(rng.normal(0, 0.5, tuple(p.shape))))
x = torch.from_numpy(rng.normal(size=(5, 3)).astype(np.float32))
y = torch.tensor([0, 1, 1, 0, 1])
params = {k: v.detach() for k, v in model.named_parameters()}


def compute_loss(params, sample, target):
    prediction = functional_call(model, params, (sample.unsqueeze(0),))
    return nn.functional.cross_entropy(prediction, target.unsqueeze(0))


per_sample = vmap(grad(compute_loss), in_dims=(None, 0, 0))(params, x, y)
print({k: tuple(v.shape) for k, v in per_sample.items()})
print(per_sample["0.weight"].flatten(1).norm(dim=1).tolist())


def f(v):
    return functional_call(model, params, (v,))


print(jacrev(f)(x[0]).tolist())
print(torch.allclose(jacrev(f)(x[0]), jacfwd(f)(x[0]), atol=1e-5))
print(hessian(lambda v: f(v).sum())(x[0]).diagonal().tolist())
print(vmap(lambda a, b: (a * b).sum())(x, x).tolist())
models = [nn.Linear(3, 1) for _ in range(3)]
for i, m in enumerate(models):
    nn.init.constant_(m.weight, i * 0.1)
    nn.init.constant_(m.bias, 0.5)
stacked, buffers = stack_module_state(models)
print({k: tuple(v.shape) for k, v in stacked.items()}, len(buffers))
outs = vmap(lambda p, q: functional_call(models[0], p, (q,)), in_dims=(0, None))(stacked, x)
print(outs.squeeze(-1).tolist())
