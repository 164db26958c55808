"""A U-Net with skip connections: padding to fit, dice and focal losses, class weights, IoU by bincount, checkpointed blocks."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

rng = np.random.default_rng(4)


class DoubleConv(nn.Module):
    def __init__(self, in_channels, out_channels, mid_channels=None):
        super().__init__()
        mid_channels = mid_channels or out_channels
        self.double_conv = nn.Sequential(
            nn.Conv2d(
                in_channels,
                mid_channels,
                kernel_size=3,
                padding=1,
                bias=False,
                padding_mode="reflect",
            ),
            nn.BatchNorm2d(mid_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(mid_channels, out_channels, kernel_size=3, padding="same", bias=False),
            nn.InstanceNorm2d(out_channels, affine=True),
            nn.LeakyReLU(0.01, inplace=True),
        )

    def forward(self, x):
        return self.double_conv(x)


class Up(nn.Module):
    def __init__(self, in_channels, out_channels, bilinear=True):
        super().__init__()
        if bilinear:
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            self.conv = DoubleConv(in_channels, out_channels, in_channels // 2)
        else:
            self.up = nn.ConvTranspose2d(
                in_channels // 2, in_channels // 2, kernel_size=2, stride=2
            )
            self.conv = DoubleConv(in_channels, out_channels)

    def forward(self, x1, x2):
        x1 = self.up(x1)
        diffY = x2.size()[2] - x1.size()[2]
        diffX = x2.size()[3] - x1.size()[3]
        x1 = F.pad(x1, [diffX // 2, diffX - diffX // 2, diffY // 2, diffY - diffY // 2])
        return self.conv(torch.cat([x2, x1], dim=1))


class UNet(nn.Module):
    def __init__(self, classes, bilinear, use_checkpoint=False):
        super().__init__()
        self.use_checkpoint = use_checkpoint
        self.inc = DoubleConv(1, 4)
        self.down1 = nn.Sequential(nn.MaxPool2d(2), DoubleConv(4, 8))
        self.down2 = nn.Sequential(nn.AvgPool2d(2, ceil_mode=True), DoubleConv(8, 8))
        self.up1, self.up2 = Up(16, 4, bilinear), Up(8, 4, bilinear)
        self.outc = nn.Conv2d(4, classes, 1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = (
            checkpoint(self.down2, x2, use_reentrant=False)
            if self.use_checkpoint
            else self.down2(x2)
        )
        if not self.up1.up.__class__.__name__ == "Upsample":
            return self.outc(self.up2(self.up1(x3, x2)[:, :4], x1))
        return self.outc(self.up2(self.up1(x3, x2), x1))


def dice_loss(logits, target, smooth=1.0):
    probs = logits.softmax(1)
    onehot = F.one_hot(target, logits.size(1)).permute(0, 3, 1, 2).type_as(probs)
    dims = (0, 2, 3)
    inter = (probs * onehot).sum(dims)
    return 1 - ((2 * inter + smooth) / (probs.sum(dims) + onehot.sum(dims) + smooth)).mean()


def focal_loss(logits, target, gamma=2.0):
    ce = F.cross_entropy(
        logits, target, reduction="none", weight=torch.tensor([0.2, 1.0, 2.0]), ignore_index=2
    )
    pt = torch.exp(-ce)
    return ((1 - pt) ** gamma * ce).mean()


images = torch.from_numpy(rng.normal(size=(2, 1, 11, 14)).astype(np.float32))
masks = torch.from_numpy(rng.integers(0, 3, (2, 11, 14)))
for bilinear in (True, False):
    net = UNet(3, bilinear, use_checkpoint=bilinear)
    for p in net.parameters():
        if p.dim() > 1:
            p.data.copy_(torch.from_numpy(rng.normal(0, 0.25, tuple(p.shape))))
        else:
            p.data.fill_(0.1).add_(torch.arange(p.numel()) * 0.01)
    net.to(memory_format=torch.channels_last)
    optimizer = torch.optim.RMSprop(
        net.parameters(), lr=1e-3, weight_decay=1e-8, momentum=0.9, foreach=True
    )
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=0, factor=0.5)
    for epoch in range(3):
        net.train()
        pred = net(images)
        loss = dice_loss(pred, masks) + focal_loss(pred, masks)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        grad_norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        net.eval()
        with torch.no_grad():
            found = net(images).argmax(dim=1)
        conf = torch.bincount(masks.flatten() * 3 + found.flatten(), minlength=9).reshape(3, 3)
        iou = conf.diag() / (conf.sum(0) + conf.sum(1) - conf.diag()).clamp(min=1)
        plateau.step(0.1)
        print(
            f"{epoch} {loss.item():.5f} {grad_norm.item():.4f} {conf.sum().item()} lr {optimizer.param_groups[0]['lr']:.5f}"
        )
    print(net.inc.double_conv[1].running_var, pred.shape)
