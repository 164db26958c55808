"""Memory for time: checkpoints, saved-tensor hooks, reversible blocks, and gradients that are
accumulated in micro-batches; all must give the gradients of the plain network.
"""

import functools

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


def fill(model, seed=0):
    rng = np.random.RandomState(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.from_numpy(0.3 * rng.randn(*p.shape)))
    return model


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return [p.grad.detach().clone() for p in model.parameters()]


def same(a, b):
    return all(torch.allclose(x, y, rtol=1e-4, atol=1e-5) for x, y in zip(a, b))


class Block(nn.Module):
    def __init__(self, d, use_checkpoint=False):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
        self.use_checkpoint, self.calls = use_checkpoint, 0

    def body(self, x, scale=1.0):
        self.calls += 1
        return x + scale * self.down(F.silu(self.up(self.norm(x))))

    def forward(self, x, scale=0.5):
        if self.use_checkpoint and self.training:
            return checkpoint(self.body, x, scale=scale, use_reentrant=False)
        return self.body(x, scale)


rng = np.random.RandomState(1)
x = torch.from_numpy(rng.randn(6, 8).astype(np.float32))
model = fill(nn.Sequential(*(Block(8) for _ in range(4)), nn.Linear(8, 1)))
plain = gradients(model, model(x).square().mean())
print("plain", [f"{g.norm():.4f}" for g in plain[:4]], [m.calls for m in model[:-1]])

for block in model[:-1]:
    block.use_checkpoint, block.calls = True, 0
loss = model(x).square().mean()
print("before", [m.calls for m in model[:-1]])
print("checkpoint", same(plain, gradients(model, loss)))
for block in model[:-1]:
    block.use_checkpoint = False
inputs = x.clone().requires_grad_()
out = checkpoint_sequential(model, 2, inputs, use_reentrant=False)
print("sequential", same(plain, gradients(model, out.square().mean())), f"{inputs.grad.norm():.5f}")

with torch.autograd.graph.save_on_cpu(pin_memory=False):
    y = model(x).square().mean()
print("cpu", same(plain, gradients(model, y)))


class Reverse(torch.autograd.Function):
    """y1 = x1 + f(x2), y2 = x2 + g(y1); the inputs are computed from the outputs."""

    @staticmethod
    def forward(ctx, x, f, g, *params):
        ctx.f, ctx.g = f, g
        with torch.no_grad():
            x1, x2 = x.chunk(2, dim=-1)
            y1 = x1 + f(x2)
            y2 = x2 + g(y1)
        ctx.save_for_backward(y1.detach(), y2.detach())
        return torch.cat([y1, y2], dim=-1)

    @staticmethod
    def backward(ctx, dy):
        y1, y2 = ctx.saved_tensors
        d1, d2 = dy.chunk(2, dim=-1)
        with torch.enable_grad():
            y1 = y1.detach().requires_grad_()
            g_out = ctx.g(y1)
            grads_g = torch.autograd.grad(g_out, (y1, *ctx.g.parameters()), d2)
        with torch.no_grad():
            x2 = y2 - g_out
            d1 = d1 + grads_g[0]
        with torch.enable_grad():
            x2 = x2.detach().requires_grad_()
            f_out = ctx.f(x2)
            grads_f = torch.autograd.grad(f_out, (x2, *ctx.f.parameters()), d1)
        d2 = d2 + grads_f[0]
        return (torch.cat([d1, d2], dim=-1), None, None, *grads_f[1:], *grads_g[1:])


class Reversible(nn.Module):
    def __init__(self, d, own=True):
        super().__init__()
        make = lambda: nn.Sequential(nn.Linear(d, d), nn.Tanh(), nn.Linear(d, d))
        self.f, self.g, self.own = make(), make(), own

    def forward(self, x):
        if self.own:
            return Reverse.apply(x, self.f, self.g, *self.f.parameters(), *self.g.parameters())
        x1, x2 = x.chunk(2, dim=-1)
        y1 = x1 + self.f(x2)
        return torch.cat([y1, x2 + self.g(y1)], dim=-1)


reversible = fill(nn.Sequential(nn.Linear(8, 8), *(Reversible(4) for _ in range(3))), 2)
first = gradients(reversible, reversible(x).pow(2).mean())
for layer in reversible[1:]:
    layer.own = False
second = gradients(reversible, reversible(x).pow(2).mean())
print("reversible", same(first, second), [f"{g.norm():.4f}" for g in first[:6]])

# Micro-batches with a scaler and clipping; the last one is short.
net = fill(nn.Sequential(nn.Linear(5, 16), nn.PReLU(), nn.Linear(16, 1)), 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
data = torch.from_numpy(rng.randn(22, 5).astype(np.float32))
target = data.sum(1, keepdim=True).sin()
for step in range(4):
    optimizer.zero_grad(set_to_none=True)
    total = 0.0
    for a, b in zip(data.split(8), target.split(8)):
        with torch.autocast(device_type="cpu", dtype=torch.bfloat16, enabled=False):
            loss = F.mse_loss(net(a), b, reduction="sum") / len(data)
        scaler.scale(loss).backward()
        total += loss.detach()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(net.parameters(), max_norm=0.5, norm_type=2.0)
    if step == 2:
        net[0].weight.grad[0, 0] = float("inf")
    found = scaler.step(optimizer)
    scaler.update()
    print(
        f"micro {step} {total:.5f} {norm:.5f} {scaler.get_scale()}",
        scaler.state_dict()["_growth_tracker"],
    )


def recomputed(function):
    @functools.wraps(function)
    def inner(*args):
        return checkpoint(function, *args, use_reentrant=True)

    return inner


@recomputed
def energy(a, b):
    """A pair of results, one of them without a gradient."""
    return (a @ b.T).logsumexp(-1), a.detach().argmax(-1)


a = torch.from_numpy(rng.randn(4, 3).astype(np.float32)).requires_grad_()
b = torch.from_numpy(rng.randn(5, 3).astype(np.float32)).requires_grad_(True)
value, where = energy(a, b)
value.sum().backward()
print("recomputed", f"{a.grad.norm():.5f} {b.grad.norm():.5f}", where.tolist(), energy.__name__)
