"""Meta-learning: a gradient through a step of gradient descent."""

import numpy as np
import torch
import torch.nn.functional as F

rng = np.random.default_rng(28)
params = [
    torch.tensor(rng.normal(0, 0.5, shape), dtype=torch.float32, requires_grad=True)
    for shape in ((1, 8), (8,), (8, 1), (1,))
]


def net(x, params):
    w1, b1, w2, b2 = params
    return torch.tanh(x @ w1 + b1) @ w2 + b2


meta = torch.optim.Adam(params, lr=0.02)
for iteration in range(4):
    meta.zero_grad()
    total = 0.0
    for task in range(3):
        amplitude, phase = rng.uniform(0.5, 2), rng.uniform(0, 3)
        x = torch.tensor(rng.uniform(-2, 2, (16, 1)), dtype=torch.float32)
        y = amplitude * torch.sin(x + phase)
        loss = F.mse_loss(net(x[:8], params), y[:8])
        grads = torch.autograd.grad(loss, params, create_graph=True)
        fast = [p - 0.1 * g for p, g in zip(params, grads)]
        outer = F.mse_loss(net(x[8:], fast), y[8:])
        outer.backward()
        total += outer.item()
    meta.step()
    print(f"{iteration} {total / 3:.5f} {params[0].grad.norm().item():.5f}")
