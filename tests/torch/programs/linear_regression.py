"""A line fitted by gradient descent, with the parameters moved by hand."""

import numpy as np
import torch

rng = np.random.default_rng(1)
x = torch.tensor(rng.uniform(-1, 1, 100), dtype=torch.float32)
y = 3.0 * x + 0.5 + 0.01 * torch.tensor(rng.normal(size=100), dtype=torch.float32)

w = torch.zeros(1, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
for step in range(60):
    loss = ((x * w + b - y) ** 2).mean()
    loss.backward()
    with torch.no_grad():
        w -= 0.3 * w.grad
        b -= 0.3 * b.grad
    w.grad.zero_()
    b.grad.zero_()
    if step % 20 == 0:
        print(step, loss.item())
print("w", w.item(), "b", b.item())
print(w.requires_grad, w.is_leaf, loss.requires_grad)

# The same with closed formulas.
design = torch.stack([x, torch.ones_like(x)], dim=1)
solution = torch.linalg.lstsq(design, y.unsqueeze(1)).solution
print(solution.flatten().tolist())
