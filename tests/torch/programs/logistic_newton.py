"""Logistic regression by Newton's method: a Hessian by autograd and by hand, in float64."""

import numpy as np
import torch

torch.set_default_dtype(torch.float64)
rng = np.random.default_rng(45)
X = torch.from_numpy(np.c_[np.ones(40), rng.normal(size=(40, 2))])
w_true = torch.tensor([0.5, 2.0, -1.0])
y = (torch.sigmoid(X @ w_true) > torch.from_numpy(rng.random(40))).double()
w = torch.zeros(3, requires_grad=True)


def loss_fn(w):
    z = X @ w
    return torch.nn.functional.binary_cross_entropy_with_logits(z, y) + 0.01 * w.dot(w)


for step in range(5):
    loss = loss_fn(w)
    (g,) = torch.autograd.grad(loss, w, create_graph=True)
    H = torch.stack([torch.autograd.grad(g[i], w, retain_graph=True)[0] for i in range(3)])
    with torch.no_grad():
        w -= torch.linalg.solve(H, g)
    print(
        f"{step} {loss.item():.10f} {g.norm().item():.2e}"
        if step < 3
        else f"{step} {loss.item():.8f}"
    )
p = torch.sigmoid(X @ w).detach()
by_hand = X.T @ torch.diag(p * (1 - p)) @ X / 40 + 0.02 * torch.eye(3)
print(torch.allclose(torch.autograd.functional.hessian(loss_fn, w.detach()), by_hand))
print([round(v, 6) for v in w.tolist()], torch.tensor(1.0).dtype == torch.float64)
torch.set_default_dtype(torch.float32)
