"""A momentum encoder with a queue, as in MoCo; and a model that averages weights."""

import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel

rng = np.random.default_rng(44)
encoder_q = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
for p in encoder_q.parameters():
    p.data.copy_(torch.from_numpy(rng.normal(0, 0.4, tuple(p.shape))))
encoder_k = copy.deepcopy(encoder_q)
for p in encoder_k.parameters():
    p.requires_grad = False
queue = F.normalize(torch.from_numpy(rng.normal(size=(4, 12)).astype("f4")), dim=0)
pointer = 0
optimizer = torch.optim.SGD(encoder_q.parameters(), lr=0.2)
averaged = AveragedModel(encoder_q)
for step in range(4):
    base = torch.from_numpy(rng.normal(size=(4, 6)).astype("f4"))
    view = base + 0.1 * torch.from_numpy(rng.normal(size=(4, 6)).astype("f4"))
    q = F.normalize(encoder_q(base), dim=1)
    with torch.no_grad():
        for pq, pk in zip(encoder_q.parameters(), encoder_k.parameters()):
            pk.data = pk.data * 0.9 + pq.data * (1.0 - 0.9)
        k = F.normalize(encoder_k(view), dim=1)
    l_pos = torch.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
    l_neg = torch.einsum("nc,ck->nk", [q, queue.clone().detach()])
    logits = torch.cat([l_pos, l_neg], dim=1) / 0.2
    loss = F.cross_entropy(logits, torch.zeros(logits.shape[0], dtype=torch.long))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    averaged.update_parameters(encoder_q)
    queue[:, pointer : pointer + 4] = k.T
    pointer = (pointer + 4) % 12
    print(f"{step} {loss.item():.5f} {queue.sum().item():.5f}")
print(f"{encoder_k[0].weight.sum().item():.5f} {averaged.module[0].weight.sum().item():.5f}")
print(int(averaged.n_averaged))
