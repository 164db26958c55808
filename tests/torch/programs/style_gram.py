"""An image optimised for the Gram matrices of a fixed convolution, with LBFGS and total variation."""

import numpy as np
import torch
import torch.nn.functional as F

rng = np.random.default_rng(37)
kernel = torch.from_numpy(rng.normal(0, 0.4, (5, 1, 3, 3)).astype("f4"))
style = torch.from_numpy(rng.random((1, 1, 10, 10)).astype("f4"))


def gram(x):
    b, c, h, w = x.size()
    features = x.view(b * c, h * w)
    return torch.mm(features, features.t()).div(b * c * h * w)


def total_variation(x):
    return (x[..., 1:, :] - x[..., :-1, :]).abs().mean() + (x[..., 1:] - x[..., :-1]).abs().mean()


target = gram(F.conv2d(style, kernel, padding=1)).detach()
image = torch.full((1, 1, 10, 10), 0.5) + 0.01 * style
image.requires_grad_(True)
optimizer = torch.optim.LBFGS([image], max_iter=3, line_search_fn="strong_wolfe")
for run in range(3):

    def closure():
        with torch.no_grad():
            image.clamp_(0, 1)
        optimizer.zero_grad()
        loss = F.mse_loss(gram(F.conv2d(image, kernel, padding=1)), target) * 1e3
        loss = loss + 1e-3 * total_variation(image)
        loss.backward()
        return loss

    loss = optimizer.step(closure)
    print(f"{run} {loss.item():.4f}")
with torch.no_grad():
    image.clamp_(0, 1)
print(0 <= image.min().item() <= image.max().item() <= 1)
