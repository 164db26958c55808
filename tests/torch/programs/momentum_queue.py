"""Contrastive learning with a queue of keys and a momentum encoder."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.RandomState(0)


def net():
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 6))


query, key = net(), net()
with torch.no_grad():
    for p in query.parameters():
        p.copy_(torch.from_numpy(rng.uniform(-0.4, 0.4, tuple(p.shape)).astype(np.float32)))
key.load_state_dict(query.state_dict())
for p in key.parameters():
    p.requires_grad_(False)
K, m, T = 20, 0.9, 0.2
queue = F.normalize(torch.from_numpy(rng.randn(6, K).astype(np.float32)), dim=0)
pointer = 0
opt = torch.optim.SGD(query.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
for step in range(14):
    n = 4 if step % 5 else 6
    base = rng.randn(n, 8).astype(np.float32)
    x1 = torch.from_numpy(base + 0.1 * rng.randn(n, 8).astype(np.float32))
    x2 = torch.from_numpy(base + 0.1 * rng.randn(n, 8).astype(np.float32))
    q = F.normalize(query(x1), dim=1)
    with torch.no_grad():
        for a, b in zip(query.parameters(), key.parameters()):
            b.data = b.data * m + a.data * (1.0 - m)
        perm = torch.from_numpy(rng.permutation(n))
        k = F.normalize(key(x2[perm]), dim=1)[torch.argsort(perm)]
    l_pos = torch.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
    l_neg = torch.einsum("nc,ck->nk", [q, queue.clone().detach()])
    logits = torch.cat([l_pos, l_neg], dim=1) / T
    loss = F.cross_entropy(logits, torch.zeros(n, dtype=torch.long))
    opt.zero_grad()
    loss.backward()
    opt.step()
    for i in range(n):
        queue[:, (pointer + i) % K] = k[i]
    pointer = (pointer + n) % K
    acc = (logits.argmax(1) == 0).float().mean()
    print(
        step,
        f"{loss.item():.5f} {acc.item():.3f} {queue.sum().item():.5f} {queue[:, pointer].norm().item():.5f}",
    )
print([f"{b.double().sum().item():.4f}" for b in key.buffers()])
