"""Training that knows of quantization: fake quantization with observers, straight-through and
learned steps, weights by channel, batch norm folded into convolutions, an integer check.
"""

import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval


class MovingAverageObserver(nn.Module):
    def __init__(self, constant=0.1):
        super().__init__()
        self.constant = constant
        self.register_buffer("low", torch.tensor(float("inf")))
        self.register_buffer("high", torch.tensor(float("-inf")))

    @torch.no_grad()
    def forward(self, x):
        low, high = torch.aminmax(x.detach())
        if torch.isinf(self.low):
            self.low.copy_(low)
            self.high.copy_(high)
        else:
            self.low.mul_(1 - self.constant).add_(low, alpha=self.constant)
            self.high.lerp_(high, self.constant)

    def qparams(self, qmin, qmax):
        low, high = torch.minimum(self.low, torch.zeros(())), self.high.clamp_min(0)
        scale = ((high - low) / (qmax - qmin)).clamp(min=1e-8)
        zero = qmin - torch.round(low / scale)
        return scale.item(), int(zero.clamp(qmin, qmax).item())


class FakeQuantize(nn.Module):
    def __init__(self, qmin=0, qmax=255):
        super().__init__()
        self.qmin, self.qmax = qmin, qmax
        self.observer, self.enabled = MovingAverageObserver(), True

    def forward(self, x):
        if self.training:
            self.observer(x)
        if not self.enabled:
            return x
        scale, zero = self.observer.qparams(self.qmin, self.qmax)
        return torch.fake_quantize_per_tensor_affine(x, scale, zero, self.qmin, self.qmax)

    def extra_repr(self):
        return f"qmin={self.qmin}, qmax={self.qmax}"


class LearnedStep(torch.autograd.Function):
    """A step size with its own gradient."""

    @staticmethod
    def forward(ctx, x, step, qmin, qmax, factor):
        ctx.save_for_backward(x, step)
        ctx.other = qmin, qmax, factor
        return (x / step).round().clamp(qmin, qmax) * step

    @staticmethod
    def backward(ctx, grad):
        x, step = ctx.saved_tensors
        qmin, qmax, factor = ctx.other
        q = x / step
        below, above = (q < qmin).float(), (q > qmax).float()
        middle = 1.0 - below - above
        d_step = ((below * qmin + above * qmax + middle * (q.round() - q)) * grad * factor).sum()
        return middle * grad, d_step.unsqueeze(0), None, None, None


class LSQLinear(nn.Linear):
    def __init__(self, inside, outside, bits=4):
        super().__init__(inside, outside)
        self.qmin, self.qmax = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        self.step = nn.Parameter(torch.Tensor(1))
        self.register_buffer("ready", torch.zeros(1))

    def forward(self, x):
        if self.training and self.ready == 0:
            self.step.data.copy_(2 * self.weight.abs().mean() / self.qmax**0.5)
            self.ready.fill_(1)
        factor = 1.0 / (self.weight.numel() * self.qmax) ** 0.5
        w = LearnedStep.apply(self.weight, self.step, self.qmin, self.qmax, factor)
        return F.linear(x, w, self.bias)


class QATConv(nn.Conv2d):
    def forward(self, x):
        scale = self.weight.detach().abs().amax(dim=(1, 2, 3)) / 127
        zero = torch.zeros(scale.shape, dtype=torch.int32)
        w = torch.fake_quantize_per_channel_affine(self.weight, scale, zero, 0, -128, 127)
        return self._conv_forward(x, w, self.bias)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.quant = FakeQuantize()
        self.conv, self.norm = QATConv(1, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.act = FakeQuantize()
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.fc = LSQLinear(24, 3)

    def forward(self, x):
        x = self.act(F.hardtanh(self.norm(self.conv(self.quant(x))), 0, 6))
        return self.fc(torch.flatten(self.pool(x), 1))


rng = np.random.RandomState(0)
net = Net()
print(net)
with torch.no_grad():
    for name, p in net.named_parameters():
        if p.dim() > 1:
            p.copy_(torch.from_numpy(rng.randn(*p.shape).astype(np.float32) * 0.3))
    net.fc.bias.zero_()
labels = torch.from_numpy(rng.randint(0, 3, 16))
images = torch.from_numpy(rng.rand(16, 1, 8, 8).astype(np.float32))
images[torch.arange(16), 0, labels * 2] += 1
optimizer = torch.optim.SGD(
    [
        {"params": [p for n, p in net.named_parameters() if not n.endswith("step")]},
        {"params": [net.fc.step], "lr": 0.01, "weight_decay": 0.0},
    ],
    lr=0.1,
    momentum=0.9,
    weight_decay=1e-4,
)
for epoch in range(8):
    if epoch == 4:
        net.apply(lambda m: setattr(m, "enabled", True) if isinstance(m, FakeQuantize) else None)
    elif epoch == 0:
        for m in net.modules():
            if isinstance(m, FakeQuantize):
                m.enabled = False
    optimizer.zero_grad()
    loss = F.cross_entropy(net(images), labels)
    loss.backward()
    optimizer.step()
    print(
        f"{epoch} {loss.item():.4f} step {net.fc.step.item():.5f} grad {net.fc.step.grad.item():.4f} "
        f"range {net.act.observer.low.item():.4f} {net.act.observer.high.item():.4f}"
    )
print({k: v.shape for k, v in net.state_dict().items() if "observer" in k or "ready" in k})

plain = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)).eval()
plain[0].weight.data = net.conv.weight.detach().clone()
plain[1].load_state_dict(net.norm.state_dict())
fused = fuse_conv_bn_eval(copy.deepcopy(plain[0]), plain[1])
with torch.no_grad():
    print(
        f"fused {(fused(images) - plain(images)).abs().max().item() < 1e-5} {fused.bias.norm():.5f}"
    )

x = torch.linspace(-2, 2, 9, requires_grad=True)
y = torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 15)
y.sum().backward()
print("affine", [f"{v:.2f}" for v in y.tolist()], x.grad.tolist())

w = fused.weight.detach()
scale = w.abs().amax((1, 2, 3), keepdim=True) / 127
wq = torch.round(w / scale).to(torch.int8)
xs, xz = net.quant.observer.qparams(0, 255)
xq = torch.clamp(torch.round(images / xs) + xz, 0, 255).to(torch.uint8)
acc = F.conv2d((xq.to(torch.int32) - xz).float(), wq.float(), padding=1).to(torch.int32)
out = acc.float() * (xs * scale).view(1, -1, 1, 1) + fused.bias.detach().view(1, -1, 1, 1)
with torch.no_grad():
    error = (out - fused(images)).abs()
print(f"integers {acc.abs().max().item()} {error.max():.4f} {error.mean():.5f}", wq.dtype, xq.dtype)
