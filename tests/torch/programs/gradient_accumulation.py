"""Gradients of several small batches added up, with clipping and a warm-up by hand."""

import numpy as np
import torch
import torch.nn as nn

rng = np.random.default_rng(25)
model = nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 1))
with torch.no_grad():
    for p in model.parameters():
        p.copy_(torch.from_numpy(rng.normal(0, 0.4, tuple(p.shape))))
x = torch.from_numpy(rng.normal(size=(32, 5)).astype(np.float32))
y = x.sum(dim=1, keepdim=True).sin()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5, dampening=0.1)
accumulate = 4
for epoch in range(3):
    optimizer.zero_grad()
    total = 0.0
    for i, (xb, yb) in enumerate(zip(x.split(4), y.split(4))):
        loss = nn.functional.mse_loss(model(xb), yb) / accumulate
        loss.backward()
        total += loss.item()
        if (i + 1) % accumulate == 0:
            for group in optimizer.param_groups:
                group["lr"] = 0.05 * (epoch + 1)
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
    print(f"{epoch} {total:.5f} {norm:.5f} {optimizer.param_groups[0]['lr']}")
