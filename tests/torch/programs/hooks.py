"""Hooks on modules and tensors: activations, gradients, and what changes them."""

import numpy as np
import torch
import torch.nn as nn

rng = np.random.default_rng(22)
model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
for p in model.parameters():
    p.data.copy_(torch.from_numpy(rng.normal(0, 0.5, tuple(p.shape))))
activations, grads = {}, []


def get_activation(name):
    def hook(module, args, output):
        activations[name] = output.detach()

    return hook


handles = [model[0].register_forward_hook(get_activation("first"))]
handles.append(model[1].register_forward_hook(get_activation("relu")))
handles.append(model[2].register_forward_pre_hook(lambda module, args: (args[0] * 2,)))
model[2].register_full_backward_hook(lambda m, gi, go: grads.append(go[0].norm()))
x = torch.from_numpy(rng.normal(size=(5, 3)).astype(np.float32)).requires_grad_()
x.register_hook(lambda g: g * 10)
hidden = model[0](x)
hidden.retain_grad()
out = model[2](model[1](hidden))
loss = out.pow(2).sum() + hidden.sum()
loss.backward()
print(sorted(activations), f"{activations['relu'].sum().item():.5f}")
print(f"{loss.item():.5f} {x.grad.norm().item():.5f} {hidden.grad.sum().item():.1f}")
print(len(grads), f"{grads[0].item():.5f}")
for handle in handles:
    handle.remove()
activations.clear()
print(f"{model(x).sum().item():.5f}", len(activations))
