"""Recommendations by factors and biases, with embedding bags and a ranking loss."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(49)
users, items = 6, 8
u = torch.from_numpy(rng.integers(0, users, 40))
i = torch.from_numpy(rng.integers(0, items, 40))
rating = torch.from_numpy(rng.integers(1, 6, 40).astype("f4"))


class MF(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.user, self.item = nn.Embedding(users, dim), nn.Embedding(items, dim)
        self.user_bias, self.item_bias = nn.Embedding(users, 1), nn.Embedding(items, 1)
        self.mean = nn.Parameter(torch.tensor(3.0))

    def forward(self, u, i):
        dot = (self.user(u) * self.item(i)).sum(-1, keepdim=True)
        return (dot + self.user_bias(u) + self.item_bias(i)).squeeze(-1) + self.mean


model = MF()
for name, p in model.named_parameters():
    if p.dim():
        p.data.copy_(torch.from_numpy(rng.normal(0, 0.2, tuple(p.shape))))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=1e-4)
for epoch in range(4):
    loss = F.mse_loss(model(u, i), rating)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{epoch} {loss.item():.5f}")
scores = model.user.weight @ model.item.weight.T
best = scores.topk(3, dim=1)
print(best.indices[0].shape, f"{best.values.sum().item():.4f} {model.mean.item():.4f}")
bag = nn.EmbeddingBag(items, 4, mode="mean")
bag.weight.data.copy_(model.item.weight)
offsets = torch.tensor([0, 3, 5])
out = bag(i[:8], offsets)
print(out.shape, f"{out.sum().item():.5f}")
positive, negative = (scores[0, :4] * 3).detach(), (scores[0, 4:] * 3).detach()
print(f"{-F.logsigmoid(positive - negative).mean().item():.5f}")
