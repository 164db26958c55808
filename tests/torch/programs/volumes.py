"""Volumes and video: a small 3-D U-Net with dice loss, a (2+1)-dimensional video network of lazy
layers, and convolutional LSTM cells that predict the next frame.
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def fill(model, seed=0):
    rng = np.random.RandomState(seed)
    for p in model.parameters():
        bound = 1.0 / max(1, p[0].numel()) ** 0.5
        p.data = torch.as_tensor(rng.uniform(-bound, bound, tuple(p.shape)), dtype=p.dtype)
    return model


class DoubleConv(nn.Sequential):
    def __init__(self, inside, outside):
        super().__init__(
            nn.ReplicationPad3d(1),
            nn.Conv3d(inside, outside, 3, bias=False),
            nn.InstanceNorm3d(outside, affine=True),
            nn.LeakyReLU(0.1),
            nn.Conv3d(outside, outside, kernel_size=3, padding="same"),
            nn.BatchNorm3d(outside),
            nn.ReLU6(),
        )


class UNet3D(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = DoubleConv(1, 4), DoubleConv(4, 8)
        self.pool = nn.MaxPool3d(2)
        self.up = nn.ConvTranspose3d(8, 4, kernel_size=2, stride=2)
        self.last = DoubleConv(8, 4)
        self.out = nn.Conv3d(4, 1, 1)

    def forward(self, x):
        skip = self.first(x)
        deep = self.second(self.pool(skip))
        return self.out(self.last(torch.cat((self.up(deep), skip), 1)))


def dice_loss(logits, target, smooth=1.0):
    p = torch.sigmoid(logits)
    axes = tuple(range(1, p.ndim))
    inter = (p * target).sum(axes)
    return (1 - (2.0 * inter + smooth) / (p.sum(axes) + target.sum(axes) + smooth)).mean()


grid = torch.stack(torch.meshgrid(*[torch.linspace(-1, 1, 8)] * 3, indexing="ij"))
centres = torch.tensor([[0.2, 0.0, -0.3], [-0.4, 0.3, 0.1]])
balls = ((grid[None] - centres[:, :, None, None, None]) ** 2).sum(1, keepdim=True) < 0.35
noise = torch.from_numpy(np.random.RandomState(1).randn(2, 1, 8, 8, 8).astype("float32"))
volume, mask = balls.float() + 0.3 * noise, balls.to(torch.float32)
net = fill(UNet3D())
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)
for step in range(4):
    opt.zero_grad(set_to_none=True)
    logits = net(volume)
    loss = F.binary_cross_entropy_with_logits(logits, mask) + dice_loss(logits, mask)
    loss.backward()
    opt.step()
    print(f"unet {step} {loss:.5f} {logits.gt(0).eq(balls).float().mean().item():.4f}")
print(*(f"{name} {p.grad.norm().item():.5f}" for name, p in net.up.named_parameters()))


class Factored(nn.Module):
    """Space and time convolved one after the other; widths known at the first call."""

    def __init__(self, width):
        super().__init__()
        self.space = nn.LazyConv3d(width, (1, 3, 3), padding=(0, 1, 1))
        self.time = nn.LazyConv3d(width, (3, 1, 1), padding=(1, 0, 0))
        self.norm = nn.LazyBatchNorm3d()

    def forward(self, x):
        return F.hardswish(self.norm(self.time(F.relu(self.space(x)))))


video_net = nn.Sequential(
    Factored(6),
    nn.AvgPool3d((1, 2, 2)),
    nn.Dropout3d(0.0),
    Factored(8),
    nn.AdaptiveAvgPool3d((2, 1, 1)),
    nn.Flatten(),
    nn.LazyLinear(3),
)
clips = torch.from_numpy(np.random.RandomState(2).randn(4, 2, 4, 6, 6).astype("float32"))
print("lazy", isinstance(video_net[-1], nn.LazyLinear))
video_net(clips)
print(type(video_net[-1]).__name__, tuple(video_net[-1].weight.shape), video_net[0].norm)
fill(video_net, 5)
targets = torch.tensor([0, 2, 1, 2])
opt = torch.optim.RMSprop(video_net.parameters(), lr=2e-3)
for step in range(4):
    loss = F.multi_margin_loss(video_net(clips), targets) + F.nll_loss(
        F.log_softmax(video_net(clips), dim=-1), targets, weight=torch.tensor([1.0, 2.0, 0.5])
    )
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(f"video {step} {loss.item():.5f}")
video_net.eval()
with torch.inference_mode():
    print("eval", [f"{v:.1f}" for v in video_net(clips).softmax(-1).amax(-1).tolist()])


class ConvLSTMCell(nn.Module):
    def __init__(self, inside, hidden, kernel=3):
        super().__init__()
        self.hidden = hidden
        self.conv = nn.Conv2d(inside + hidden, 4 * hidden, kernel, padding=kernel // 2)

    def forward(self, x, state=None):
        if state is None:
            zeros = x.new_zeros(x.size(0), self.hidden, *x.shape[-2:])
            state = zeros, zeros.clone()
        h, c = state
        i, f, o, g = torch.split(self.conv(torch.cat([x, h], dim=1)), self.hidden, dim=1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * torch.tanh(c)
        return h, c


cell, readout = fill(ConvLSTMCell(1, 6), 7), fill(nn.Conv2d(6, 1, 1), 8)
frames = torch.zeros(2, 6, 1, 7, 7)
for t in range(6):
    frames[0, t, 0, t, :] = 1
    frames[1, t, 0, :, 6 - t] = 1
opt = torch.optim.AdamW([*cell.parameters(), *readout.parameters()], lr=0.02, amsgrad=True)
for step in range(4):
    state, losses = None, []
    for t in range(5):
        state = cell(frames[:, t], state)
        losses.append(F.mse_loss(readout(state[0]), frames[:, t + 1], reduction="none"))
    loss = torch.stack(losses, 1).flatten(2).sum(-1).mean()
    opt.zero_grad()
    loss.backward()
    total = nn.utils.clip_grad_norm_(cell.parameters(), 1.0)
    opt.step()
    print(f"frames {step} {loss:.4f} {total:.4f}")
pooled, where = F.max_pool3d(volume, 2, return_indices=True)
print(F.max_unpool3d(pooled, where, 2).sum().item().__round__(3), int(where.sum()))
up = F.interpolate(volume, scale_factor=1.5, mode="trilinear", align_corners=False)
print(up.shape, f"{up.std():.5f}", f"{F.avg_pool3d(up, 3, stride=2).mean():.6f}")
