"""Attention pooling over sets, a listwise softmax loss, cosine warm restarts."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts

rng = np.random.default_rng(53)
lists = torch.from_numpy(rng.normal(size=(5, 7, 4)).astype("f4"))
relevance = torch.from_numpy(rng.integers(0, 4, (5, 7)).astype("f4"))
mask = torch.arange(7)[None, :] < torch.tensor([7, 5, 6, 3, 7])[:, None]


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.norm = nn.LayerNorm(4)
        self.score = nn.Sequential(nn.Linear(4, 6), nn.Hardswish(), nn.Linear(6, 1))

    def forward(self, x, mask):
        context, _ = self.attention(x, x, x, key_padding_mask=~mask, need_weights=False)
        return self.score(self.norm(x + context)).squeeze(-1).masked_fill(~mask, -1e9)


model = Scorer()
with torch.no_grad():
    for name, p in model.named_parameters():
        if p.dim() > 1:
            p.copy_(torch.from_numpy(rng.normal(0, 0.4, tuple(p.shape))))
        elif "norm" not in name:
            p.zero_()
optimizer = torch.optim.RAdam(model.parameters(), lr=0.02)
scheduler = CosineAnnealingWarmRestarts(optimizer, T_0=2)
target = relevance.masked_fill(~mask, -1e9).softmax(dim=1)
for step in range(4):
    scores = model(lists, mask)
    loss = -(target * F.log_softmax(scores, dim=1)).sum(1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    print(f"{step} {loss.item():.5f} {scheduler.get_last_lr()[0]:.4f}")
order = scores.argsort(dim=1, descending=True)
gains = (2 ** relevance.gather(1, order) - 1) / torch.log2(torch.arange(7) + 2.0)
print([round(v, 3) for v in gains.sum(1).tolist()])
