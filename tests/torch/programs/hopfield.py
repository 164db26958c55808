"""A Hopfield network and the modern one with a softmax."""

import numpy as np
import torch
import torch.nn.functional as F


def init(model, seed=0):
    rng = np.random.RandomState(seed)
    with torch.no_grad():
        for p in model.parameters():
            bound = 1 / max(1, p.shape[-1] if p.dim() > 1 else p.numel()) ** 0.5
            p.copy_(torch.from_numpy(rng.uniform(-bound, bound, tuple(p.shape)).astype(np.float32)))
    return model


def grad_norm(model):
    return sum(p.grad.norm().item() ** 2 for p in model.parameters() if p.grad is not None) ** 0.5


patterns = torch.tensor(np.random.RandomState(3).choice([-1.0, 1.0], (3, 36)), dtype=torch.float32)
W = (patterns.T @ patterns) / patterns.shape[1]
W.fill_diagonal_(0)


def energy(s):
    return -0.5 * torch.einsum("bi,ij,bj->b", s, W, s)


noisy = patterns.clone()
noisy[:, ::5] *= -1
state = noisy
for step in range(4):
    new = torch.sign(state @ W)
    new[new == 0] = 1.0
    print(step, energy(new).tolist(), (new != state).sum().item())
    if torch.equal(new, state):
        break
    state = new
print((state * patterns).mean(1).tolist())
beta = 4.0
query = noisy.clone().requires_grad_()
out = F.softmax(beta * query @ patterns.T / 6, dim=-1) @ patterns
lse = torch.logsumexp(beta * query @ patterns.T / 6, dim=-1) / beta
(grad,) = torch.autograd.grad(lse.sum(), query)
print(torch.allclose(grad * 6, out, atol=1e-5), torch.dist(out, patterns).item() < 10)
print(out.detach().sign().eq(patterns).all().item(), query.is_leaf, grad.shape)
