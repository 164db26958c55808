"""A Kalman filter whose noise is learned through its likelihood."""

import numpy as np
import torch
from torch import optim


def init(model, seed=0):
    rng = np.random.RandomState(seed)
    with torch.no_grad():
        for p in model.parameters():
            bound = 1 / max(1, p.shape[-1] if p.dim() > 1 else p.numel()) ** 0.5
            p.copy_(torch.from_numpy(rng.uniform(-bound, bound, tuple(p.shape)).astype(np.float32)))
    return model


def grad_norm(model):
    return sum(p.grad.norm().item() ** 2 for p in model.parameters() if p.grad is not None) ** 0.5


torch.set_default_dtype(torch.float64)
rng = np.random.RandomState(0)
F_ = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
H = torch.tensor([[1.0, 0.0]])
truth, obs = np.zeros((30, 2)), []
state = np.array([0.0, 0.3])
for t in range(30):
    state = F_.numpy() @ state + rng.randn(2) * 0.1
    obs.append(state[0] + rng.randn() * 0.5)
obs = torch.tensor(obs)
log_q = torch.zeros((), requires_grad=True)
log_r = torch.zeros((), requires_grad=True)


def filtered(q, r):
    m, P, ll, means = torch.zeros(2), torch.eye(2), torch.zeros(()), []
    Q, R = q * torch.eye(2), r.reshape(1, 1)
    for z in obs:
        m, P = F_ @ m, F_ @ P @ F_.mT + Q
        S = H @ P @ H.mT + R
        K = torch.linalg.solve(S, H @ P).mT
        v = z - H @ m
        ll = ll + torch.distributions.MultivariateNormal(torch.zeros(1), S).log_prob(v)
        m = m + K @ v
        P = (torch.eye(2) - K @ H) @ P
        means.append(m)
    return torch.stack(means), ll


optimizer = optim.Adam([log_q, log_r], lr=0.2)
for step in range(8):
    optimizer.zero_grad()
    means, ll = filtered(log_q.exp(), log_r.exp())
    (-ll).backward()
    print(step, f"{ll.item():.6f} {log_q.grad.item():.6f} {log_r.grad.item():.6f}")
    optimizer.step()
print(means[-1], log_q.exp().item() < log_r.exp().item())
torch.set_default_dtype(torch.float32)
