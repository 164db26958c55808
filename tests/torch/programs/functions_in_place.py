"""Custom autograd functions: saved outputs, in-place with mark_dirty, two outputs, ctx flags, in a loop."""

import numpy as np
import torch


class ScaleInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.mark_dirty(x)
        ctx.k = k
        return x.mul_(k)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.k, None


class MaxMin(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        hi, i = x.max(1)
        lo, j = x.min(1)
        ctx.save_for_backward(i, j)
        ctx.shape = x.shape
        ctx.mark_non_differentiable(i)
        return hi, lo, i

    @staticmethod
    def backward(ctx, ghi, glo, gi):
        i, j = ctx.saved_tensors
        out = torch.zeros(ctx.shape)
        out.scatter_add_(1, i[:, None], ghi[:, None])
        out.scatter_add_(1, j[:, None], glo[:, None])
        return out


class ClipExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, limit):
        y = x.exp()
        ctx.save_for_backward(y)
        ctx.limit = limit
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        assert ctx.needs_input_grad == (True, False)
        return (g * y).clamp(-ctx.limit, ctx.limit), None


rng = np.random.RandomState(8)
w = torch.from_numpy(rng.randn(4, 5).astype(np.float32)).requires_grad_()
hist = []
for step in range(10):
    x = torch.from_numpy(rng.randn(3 + step % 2, 4).astype(np.float32))
    h = x @ w
    h = ScaleInPlace.apply(h, 0.5 + step % 3)
    hi, lo, i = MaxMin.apply(h)
    assert not i.requires_grad
    y = ClipExp.apply(-hi.abs(), 0.1 if step % 4 < 2 else 1.0)
    loss = y.sum() + (lo**2).mean()
    if step % 3 == 2:
        loss = loss + (w[step % 4] ** 2).sum()
    loss.backward()
    hist.append(w.grad.clone())
    with torch.no_grad():
        w -= 0.1 * w.grad
        w.grad.zero_()
    print(
        step,
        f"{loss.item():.5f} {hist[-1].abs().sum().item():.5f} {hist[0].abs().sum().item():.5f}",
        i.tolist(),
    )
