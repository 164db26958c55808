"""Hooks: gradients scaled, activations recorded, a hook that replaces outputs, removed in the middle."""

import numpy as np
import torch
import torch.nn as nn

rng = np.random.RandomState(9)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
with torch.no_grad():
    for p in net.parameters():
        p.copy_(torch.from_numpy(rng.uniform(-0.5, 0.5, tuple(p.shape)).astype(np.float32)))
stats, grads = {}, {}
handles = [
    m.register_forward_hook(
        lambda m, i, o, k=k: stats.__setitem__(k, (o > 0).float().mean().item())
    )
    for k, m in enumerate(net)
    if isinstance(m, nn.ReLU)
]
handles.append(
    net[2].register_full_backward_hook(
        lambda m, gi, go: grads.__setitem__("in", gi[0].norm().item())
    )
)
halve = net[2].register_forward_hook(lambda m, i, o: o * 0.5)
scale = net[0].weight.register_hook(lambda g: g * 2)
pre = net[4].register_forward_pre_hook(lambda m, i: (i[0].clamp(max=1.0),))


def step_at_once(p):
    p.data.add_(p.grad, alpha=-0.05)


after = [p.register_post_accumulate_grad_hook(step_at_once) for p in net.parameters()]
for step in range(12):
    x = torch.from_numpy(rng.randn(5, 4).astype(np.float32))
    out = net(x)
    out.register_hook(lambda g: grads.__setitem__("out", g.abs().sum().item()))
    loss = (out - torch.tensor([1.0, -1.0])).square().mean()
    net.zero_grad()
    loss.backward()
    print(
        step,
        f"{loss.item():.5f}",
        {k: round(v, 4) for k, v in sorted(stats.items())},
        {k: round(v, 5) for k, v in sorted(grads.items())},
        f"{net[0].weight.sum().item():.5f}",
    )
    if step == 3:
        halve.remove()
    if step == 5:
        scale.remove()
        pre.remove()
    if step == 8:
        [h.remove() for h in after]
