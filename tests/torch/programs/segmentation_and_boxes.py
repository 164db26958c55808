"""A U-Net with the dice loss, boxes and their suppression, the focal loss, images, patches, inverted residuals."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(21)


def rnd(*s):
    return torch.from_numpy(rng.standard_normal(s).astype(np.float32))


@torch.no_grad()
def fixed(model):
    for k, p in enumerate(model.parameters()):
        p.copy_(
            torch.sin(torch.arange(p.numel(), dtype=torch.float32) * 0.7 + k).view_as(p)
            * (0.5 / math.sqrt(max(1, p.shape[-1] if p.ndim else 1)))
        )
    return model


class DoubleConv(nn.Module):
    def __init__(self, i, o, mid=None):
        super().__init__()
        mid = mid or o
        self.double_conv = nn.Sequential(
            nn.Conv2d(i, mid, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(mid),
            nn.ReLU(inplace=True),
            nn.Conv2d(mid, o, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(o),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.double_conv(x)


class Up(nn.Module):
    def __init__(self, i, o, bilinear=True):
        super().__init__()
        if bilinear:
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            self.conv = DoubleConv(i, o, i // 2)
        else:
            self.up = nn.ConvTranspose2d(i, i // 2, kernel_size=2, stride=2)
            self.conv = DoubleConv(i, o)

    def forward(self, x1, x2):
        x1 = self.up(x1)
        dy, dx = (x2.size()[2] - x1.size()[2], x2.size()[3] - x1.size()[3])
        x1 = F.pad(x1, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.conv(torch.cat([x2, x1], dim=1))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc = DoubleConv(1, 4)
        self.down1 = nn.Sequential(nn.MaxPool2d(2), DoubleConv(4, 8))
        self.up1 = Up(12, 4)
        self.outc = nn.Conv2d(4, 2, 1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(x1)
        return self.outc(self.up1(x2, x1))


def dice_loss(logits, target, eps=1e-06):
    p = F.softmax(logits, 1).float()
    t = F.one_hot(target, 2).permute(0, 3, 1, 2).float()
    inter = 2 * (p * t).sum(dim=(-1, -2))
    s = p.sum(dim=(-1, -2)) + t.sum(dim=(-1, -2))
    return 1 - ((inter + eps) / (s + eps)).mean()


m = fixed(UNet())
x = rnd(4, 1, 9, 11)
y = (x[:, 0] > 0.3).long()
o = torch.optim.RMSprop(m.parameters(), lr=0.001, weight_decay=1e-08, momentum=0.9, foreach=True)
for i in range(4):
    l = F.cross_entropy(m(x), y) + dice_loss(m(x), y)
    o.zero_grad(set_to_none=True)
    l.backward()
    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    o.step()
    print(f"{l:.5f}")
pred = m.eval()(x).argmax(1)
inter = ((pred == 1) & (y == 1)).sum((1, 2))
union = ((pred == 1) | (y == 1)).sum((1, 2))
print(
    (inter.float() / union.clamp(min=1)).mean(),
    torch.stack([((pred == c) & (y == d)).sum() for c in range(2) for d in range(2)]).view(2, 2),
)


def box_iou(a, b):
    lt = torch.max(a[:, None, :2], b[:, :2])
    rb = torch.min(a[:, None, 2:], b[:, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[:, :, 0] * wh[:, :, 1]
    ar = lambda z: (z[:, 2] - z[:, 0]) * (z[:, 3] - z[:, 1])
    return inter / (ar(a)[:, None] + ar(b) - inter)


def nms(b, s, t):
    order = s.argsort(descending=True)
    keep = []
    while order.numel() > 0:
        i = order[0]
        keep.append(i.item())
        if order.numel() == 1:
            break
        order = order[1:][box_iou(b[i][None], b[order[1:]])[0] <= t]
    return torch.tensor(keep)


xy = torch.from_numpy(rng.uniform(0, 5, (12, 2)).astype(np.float32))
boxes = torch.cat([xy, xy + torch.from_numpy(rng.uniform(1, 3, (12, 2)).astype(np.float32))], 1)
sc = torch.from_numpy(rng.random(12).astype(np.float32))
print(nms(boxes, sc, 0.3), box_iou(boxes[:3], boxes[:3]))
gt = boxes[:3] + 0.2
iou = box_iou(boxes, gt)
best, idx = iou.max(dim=1)
matched = torch.where(best > 0.5, idx, torch.full_like(idx, -1))
print(matched, best)


def encode(p, g):
    pw, gw = (p[:, 2:] - p[:, :2], g[:, 2:] - g[:, :2])
    pc, gc = (p[:, :2] + 0.5 * pw, g[:, :2] + 0.5 * gw)
    return torch.cat([(gc - pc) / pw, torch.log(gw / pw)], 1)


d = nn.Parameter(torch.zeros(12, 4))
pos = matched >= 0
l = F.smooth_l1_loss(
    d[pos], encode(boxes[pos], gt[matched[pos]]), reduction="sum", beta=1 / 9
) / max(1, int(pos.sum()))
l.backward()
print(l, d.grad[pos])


def focal(lg, t, a=0.25, g=2.0):
    p = torch.sigmoid(lg)
    ce = F.binary_cross_entropy_with_logits(lg, t, reduction="none")
    pt = p * t + (1 - p) * (1 - t)
    return (a * t + (1 - a) * (1 - t)) * (1 - pt) ** g * ce


lg = rnd(6, 3).requires_grad_()
f = focal(lg, (rnd(6, 3) > 0).float()).mean()
f.backward()
print(f, lg.grad[0])
img = torch.from_numpy(rng.integers(0, 256, (3, 6, 6), dtype=np.uint8))
z = (
    img.float()
    .div(255)
    .sub_(torch.tensor([0.485, 0.456, 0.406])[:, None, None])
    .div_(torch.tensor([0.229, 0.224, 0.225])[:, None, None])
)
print(
    img.dtype,
    z.mean(),
    torch.flip(img, [-1])[0, 0],
    img[:, 1:5, 1:5].shape,
    torch.rot90(img, 1, [1, 2])[0, 0],
    F.interpolate(z[None], (4, 4), mode="bilinear", antialias=False)[0, 0, 0],
    z.clamp(0, 1).mul(255).add(0.5).byte()[0, 0],
    img.permute(1, 2, 0).numpy().shape,
    (z.mean(0, keepdim=True) > 0).int().sum(),
    img.to(torch.int32).sum(),
    img.max(),
    img.float().std(dim=(1, 2)),
)
lam = 0.3
perm = torch.tensor([2, 0, 1])
xb = rnd(3, 1, 4, 4)
mx = lam * xb + (1 - lam) * xb[perm]
cm = xb.clone()
cm[:, :, 1:3, 1:3] = xb[perm, :, 1:3, 1:3]
print(mx.sum(), cm.sum(), cm[0, 0])
patches = xb.unfold(2, 2, 2).unfold(3, 2, 2).contiguous().view(3, 1, -1, 2, 2)
print(patches.shape, patches[0, 0, 1])
k = torch.tensor([[1.0, 2.0, 1.0], [0.0, 0.0, 0.0], [-1.0, -2.0, -1.0]]).view(1, 1, 3, 3)
e = F.conv2d(xb, k, padding=1)
print((e**2 + F.conv2d(xb, k.transpose(2, 3), padding=1) ** 2).sqrt().sum())
mse = F.mse_loss(mx, xb)
print(10 * torch.log10(1 / mse), F.avg_pool2d(xb, 3, 1, 1, count_include_pad=False).sum())
gray = (z * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(0)
print(gray.histc(5, -2, 2), torch.bucketize(gray.flatten()[:4], torch.linspace(-2, 2, 5)))


class SE(nn.Module):
    def __init__(self, c, r=2):
        super().__init__()
        self.fc = nn.Sequential(
            nn.Linear(c, c // r, bias=False),
            nn.ReLU(inplace=True),
            nn.Linear(c // r, c, bias=False),
            nn.Hardsigmoid(),
        )

    def forward(self, x):
        b, c, _, _ = x.size()
        return x * self.fc(x.mean((2, 3))).view(b, c, 1, 1).expand_as(x)


class DW(nn.Sequential):
    def __init__(self, c):
        super().__init__(
            nn.Conv2d(c, c * 2, 1, bias=False),
            nn.BatchNorm2d(c * 2),
            nn.Hardswish(),
            nn.Conv2d(c * 2, c * 2, 5, padding=2, groups=c * 2, bias=False),
            nn.BatchNorm2d(c * 2),
            SE(c * 2),
            nn.Conv2d(c * 2, c, 1),
        )

    def forward(self, x):
        return x + super().forward(x)


w = fixed(DW(4))
q = rnd(2, 4, 5, 5).requires_grad_()
out = w(q)
out.pow(2).mean().backward()
print(w, out.sum(), q.grad.abs().sum())
