"""Rounding with gradients that pass through: quantised layers, binary and reversed gradients."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Function


class RoundSTE(Function):
    @staticmethod
    def forward(ctx, x, bits):
        scale = x.abs().max() / (2 ** (bits - 1) - 1)
        ctx.bits = bits
        return (x / scale).round() * scale

    @staticmethod
    def backward(ctx, g):
        return (g, None)


class Binarize(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sign()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x.abs() <= 1).float()


class GradReverse(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return (g.neg() * ctx.alpha, None)


class QLinear(nn.Linear):
    def __init__(self, *a, bits=4, **k):
        super().__init__(*a, **k)
        self.bits = bits
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        self.seen += 1
        return F.linear(x, RoundSTE.apply(self.weight, self.bits), self.bias)

    def extra_repr(self):
        return super().extra_repr() + f", bits={self.bits}"


rng = np.random.default_rng(0)
net = nn.Sequential(QLinear(4, 8), nn.Hardtanh(), QLinear(8, 2, bits=3))
for p in net.parameters():
    p.data = torch.tensor(rng.normal(0, 0.5, p.shape), dtype=torch.float32)
print(net)
X = torch.tensor(rng.normal(size=(16, 4)), dtype=torch.float32)
Y = (X[:, 0] * X[:, 1] > 0).long()
opt = torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9, nesterov=True, weight_decay=0.001)
for i in range(10):
    opt.zero_grad()
    loss = F.cross_entropy(net(X), Y, label_smoothing=0.1)
    loss.backward()
    opt.step()
    print(i, f"{loss:.4f}", net[0].seen, net[0].weight.grad.abs().sum())
x = torch.tensor([-2.0, -0.5, 0.3, 1.5], requires_grad=True)
y = Binarize.apply(x)
y.sum().backward()
print(y, x.grad)
x.grad = None
GradReverse.apply(x, 0.5).pow(2).sum().backward()
print(x.grad)


def fake_quant(x, s, zp, lo, hi):
    q = torch.clamp(torch.round(x / s + zp), lo, hi)
    return (q - zp) * s


print(fake_quant(torch.linspace(-1, 1, 9), 0.1, 3, 0, 15))
w = torch.randn(3, 3).clamp(-1, 1)
q = (
    torch.quantize_per_tensor(w, 0.1, 0, torch.qint8)
    if hasattr(torch, "quantize_per_tensor") and False
    else None
)


class Two(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        ctx.mark_non_differentiable()
        return (a * b, a + b)

    @staticmethod
    def backward(ctx, g1, g2):
        a, b = ctx.saved_tensors
        print(ctx.needs_input_grad)
        return (g1 * b + g2, g1 * a + g2)


a = torch.tensor([2.0], requires_grad=True)
b = torch.tensor([3.0])
p, q = Two.apply(a, b)
(p * q).sum().backward()
print(a.grad, b.grad, p, q)
print(
    torch.autograd.gradcheck(RoundSTE.apply, (torch.ones(2, dtype=torch.double), 4))
    if False
    else "skipped"
)
