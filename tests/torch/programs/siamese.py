"""Metric learning: triplet, contrastive and cosine losses over one shared encoder."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(32)
encoder = nn.Sequential(nn.Linear(4, 6), nn.PReLU(), nn.Linear(6, 3))
for name, p in encoder.named_parameters():
    if p.numel() > 1:
        p.data.copy_(torch.from_numpy(rng.normal(0, 0.5, tuple(p.shape))))
anchor, positive, negative = (
    torch.from_numpy(rng.normal(m, 1, (10, 4)).astype("f4")) for m in (0, 0.1, 0.6)
)
triplet = nn.TripletMarginLoss(margin=1.0, p=2)
cosine = nn.CosineEmbeddingLoss(margin=0.2)
optimizer = torch.optim.NAdam(encoder.parameters(), lr=0.02)
for step in range(4):
    a, p, n = encoder(anchor), encoder(positive), encoder(negative)
    distance = F.pairwise_distance(a, n)
    contrastive = torch.mean(torch.clamp(1.5 - distance, min=0.0) ** 2)
    target = torch.cat([torch.ones(10), -torch.ones(10)])
    angle = cosine(torch.cat([a, a]), torch.cat([p, n]), target)
    loss = triplet(a, p, n) + 0.5 * contrastive + angle
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.5f} {angle.item():.5f}")
z = F.normalize(encoder(anchor), dim=1)
logits = z @ F.normalize(encoder(positive), dim=1).T / 0.1
print(f"{F.cross_entropy(logits, torch.arange(10)).item():.4f} {z.norm(dim=1).sum().item():.4f}")
