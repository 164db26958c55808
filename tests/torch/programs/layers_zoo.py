"""Layers of many kinds, with weights that follow a rule, and the sums of their outputs."""

import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(35)


def ruled(module):
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.sin(torch.arange(p.numel(), dtype=torch.float32)).view(p.shape) * 0.3)
    return module.eval()


x1 = torch.tensor(rng.normal(size=(2, 4, 9)), dtype=torch.float32)
x2 = torch.tensor(rng.normal(size=(2, 4, 8, 8)), dtype=torch.float32)
x3 = torch.tensor(rng.normal(size=(1, 2, 4, 4, 4)), dtype=torch.float32)
LAYERS = [
    (nn.Conv1d(4, 6, 3, padding=1, groups=2), x1),
    (nn.ConvTranspose1d(4, 3, 4, stride=2, padding=1), x1),
    (nn.Conv2d(4, 6, (3, 1), stride=2, dilation=2, padding=(2, 0)), x2),
    (nn.Conv2d(4, 4, 3, padding="same", padding_mode="reflect", groups=4), x2),
    (nn.ConvTranspose2d(4, 2, 3, stride=2, output_padding=1), x2),
    (nn.Conv3d(2, 3, 2), x3),
    (nn.MaxPool1d(3, stride=2, padding=1), x1),
    (nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False), x2),
    (nn.MaxPool2d(2, ceil_mode=True), x2[..., :7]),
    (nn.AdaptiveMaxPool2d((3, 5)), x2),
    (nn.LPPool2d(2, 2), x2.abs()),
    (nn.BatchNorm2d(4), x2),
    (nn.InstanceNorm2d(4, affine=True), x2),
    (nn.GroupNorm(2, 4), x2),
    (nn.LayerNorm([8, 8]), x2),
    (nn.RMSNorm(8), x2),
    (nn.LocalResponseNorm(2), x2),
    (nn.ReflectionPad2d(1), x2),
    (nn.ReplicationPad1d((2, 1)), x1),
    (nn.ConstantPad2d((1, 0, 2, 0), 0.5), x2),
    (nn.PixelShuffle(2), x2),
    (nn.Upsample(scale_factor=2, mode="bicubic", align_corners=True), x2),
    (nn.Unfold(3, padding=1), x2),
    (nn.Flatten(1, 2), x2),
    (nn.Unflatten(1, (2, 2)), x2),
    (nn.Bilinear(9, 9, 3), (x1, x1)),
    (nn.Softmax(dim=1), x1),
    (nn.LogSoftmax(dim=-1), x1),
    (nn.GLU(dim=1), x1),
    (nn.ELU(0.5), x1),
    (nn.SELU(), x1),
    (nn.CELU(0.7), x1),
    (nn.Mish(), x1),
    (nn.Hardswish(), x1),
    (nn.Hardtanh(-0.5, 0.8), x1),
    (nn.GELU(approximate="tanh"), x1),
    (nn.Softshrink(0.3), x1),
    (nn.Threshold(0.1, -1.0), x1),
    (nn.PReLU(4), x1),
    (nn.Identity(7, unused=True), x1),
    (nn.CosineSimilarity(dim=1), (x1, x1.roll(1, 0))),
]
for layer, given in LAYERS:
    args = given if isinstance(given, tuple) else (given,)
    out = ruled(layer)(*args)
    print(type(layer).__name__, tuple(out.shape), f"{out.sum().item():.4f} {out.abs().max():.4f}")
