"""k-means with cdist, argmin and index_add."""

import numpy as np
import torch

rng = np.random.default_rng(19)
centers = np.array([[0, 0], [4, 4], [0, 5]])
points = torch.tensor(np.concatenate([rng.normal(c, 0.6, (20, 2)) for c in centers]))
print(points.dtype == torch.float64, points.shape)
means = points[[0, 25, 50]].clone()
for iteration in range(5):
    distance = torch.cdist(points, means)
    closest, assignment = distance.min(dim=1)
    sums = torch.zeros_like(means).index_add_(0, assignment, points)
    counts = torch.bincount(assignment, minlength=3).unsqueeze(1)
    means = sums / counts
    print(iteration, f"{closest.sum().item():.5f}", counts.flatten().tolist())
print(means.tolist())
order = torch.argsort(means[:, 0] + means[:, 1])
print(order.tolist(), assignment.unique().tolist(), assignment.dtype == torch.int64)
silhouette = torch.stack([distance[assignment == k].mean(0) for k in range(3)])
print(silhouette.diag().tolist())
