"""Affine grids and sampling: images turned by a matrix that is learned."""

import math

import numpy as np
import torch
import torch.nn.functional as F

rng = np.random.default_rng(51)
image = torch.from_numpy(rng.random((1, 2, 7, 9)).astype("f4"))
angle = math.pi / 9
theta = torch.tensor(
    [[[math.cos(angle), -math.sin(angle), 0.1], [math.sin(angle), math.cos(angle), -0.2]]],
    requires_grad=True,
)
grid = F.affine_grid(theta, image.size(), align_corners=False)
for mode in ("bilinear", "nearest"):
    for padding in ("zeros", "border", "reflection"):
        out = F.grid_sample(image, grid, mode=mode, padding_mode=padding, align_corners=False)
        print(mode, padding, f"{out.sum().item():.4f}")
target = F.grid_sample(
    image,
    F.affine_grid(torch.eye(2, 3).unsqueeze(0), image.size(), align_corners=False),
    align_corners=False,
)
print(torch.allclose(target, image, atol=1e-5))
optimizer = torch.optim.Adam([theta], lr=0.02)
for step in range(4):
    out = F.grid_sample(
        image,
        F.affine_grid(theta, image.size(), align_corners=False),
        padding_mode="border",
        align_corners=False,
    )
    loss = F.mse_loss(out, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.6f} {theta.grad.norm().item():.5f}")
small = F.interpolate(image, size=(4, 5), mode="bilinear", align_corners=False)
print(f"{small.sum().item():.4f} {F.interpolate(image, scale_factor=2, mode='nearest').sum():.3f}")
print(f"{F.pad(image, (1, 2, 0, 1), mode='reflect').sum().item():.4f}")
print(f"{F.max_pool2d(image, 3, stride=2, padding=1).sum().item():.4f}")
values, where = F.max_pool2d(image, 2, return_indices=True)
print(F.max_unpool2d(values, where, 2, output_size=(7, 9)).shape, where[0, 0, 0].tolist())
