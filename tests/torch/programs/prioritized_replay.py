"""Prioritized replay: a sum tree in a tensor, importance weights, a target network, clipped errors."""

import numpy as np
import torch
import torch.nn as nn

rng = np.random.RandomState(6)
C = 16
tree = torch.zeros(2 * C)
S, A, R, N = torch.zeros(C, 3), torch.zeros(C, dtype=torch.long), torch.zeros(C), torch.zeros(C, 3)


def update(i, p):
    i = i + C
    change = p - tree[i].item()
    while i >= 1:
        tree[i] += change
        i //= 2


def sample(v):
    i = 1
    while i < C:
        left = tree[2 * i].item()
        if v <= left:
            i = 2 * i
        else:
            v -= left
            i = 2 * i + 1
    return i - C


q, target = nn.Linear(3, 2), nn.Linear(3, 2)
with torch.no_grad():
    for p in q.parameters():
        p.copy_(torch.from_numpy(rng.uniform(-1, 1, tuple(p.shape)).astype(np.float32)))
target.load_state_dict(q.state_dict())
opt = torch.optim.RMSprop(q.parameters(), lr=0.02)
count, biggest = 0, 1.0
for t in range(60):
    s = torch.from_numpy(rng.randn(3).astype(np.float32))
    a = int(q(s).argmax()) if rng.rand() > 0.3 else rng.randint(2)
    at = t % C
    S[at], A[at], R[at], N[at] = s, a, float(s[a] - 0.1), s.roll(1)
    update(at, biggest)
    count = min(count + 1, C)
    if t < 8 or t % 4:
        continue
    beta = min(1.0, 0.4 + t / 100)
    idx = [sample(float(rng.rand()) * tree[1].item() * 0.999) for _ in range(5)]
    p = tree[torch.tensor(idx) + C] / tree[1]
    w = (count * p) ** -beta
    w = w / w.max()
    with torch.no_grad():
        nxt = target(N[idx]).gather(1, q(N[idx]).argmax(1, keepdim=True)).squeeze(1)
    td = R[idx] + 0.9 * nxt - q(S[idx]).gather(1, A[idx].unsqueeze(1)).squeeze(1)
    loss = (
        w * nn.functional.huber_loss(td, torch.zeros_like(td), reduction="none", delta=0.5)
    ).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    for i, e in zip(idx, td.detach().abs()):
        pr = (e.item() + 0.01) ** 0.6
        biggest = max(biggest, pr)
        update(i, pr)
    if t % 16 == 0:
        target.load_state_dict(q.state_dict())
    print(t, idx, f"{loss.item():.5f} {tree[1].item():.4f} {w.min().item():.4f} {biggest:.4f}")
print(f"{tree[C:].sum().item() - tree[1].item():.4f}")
