"""A U-Net with skip connections and a Dice loss."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class DoubleConv(nn.Sequential):
    def __init__(self, inside, outside):
        super().__init__(
            nn.Conv2d(inside, outside, 3, padding=1),
            nn.GroupNorm(2, outside),
            nn.SiLU(),
            nn.Conv2d(outside, outside, 3, padding=1),
            nn.ReLU(),
        )


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2 = DoubleConv(1, 4), DoubleConv(4, 8)
        self.bottom = DoubleConv(8, 8)
        self.up2 = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.dec2 = DoubleConv(16, 4)
        self.up1 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.dec1 = DoubleConv(8, 4)
        self.head = nn.Conv2d(4, 1, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        d = self.dec2(torch.cat([self.up2(c), b], dim=1))
        e = self.dec1(torch.cat((self.up1(d), a), 1))
        return self.head(e)


def dice_loss(logits, target, eps=1e-6):
    p = torch.sigmoid(logits)
    inter = (p * target).sum(dim=(1, 2, 3))
    total = p.sum(dim=(1, 2, 3)) + target.sum(dim=(1, 2, 3))
    return 1 - ((2 * inter + eps) / (total + eps)).mean()


rng = np.random.default_rng(4)
model = UNet()
state = {
    k: torch.from_numpy(rng.normal(0, 0.3, tuple(v.shape)).astype(np.float32))
    for k, v in model.state_dict().items()
}
model.load_state_dict(state)
image = torch.from_numpy(rng.normal(size=(2, 1, 8, 8)).astype(np.float32))
mask = (image > 0.2).float()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.01)
for step in range(4):
    logits = model(image)
    loss = dice_loss(logits, mask) + F.binary_cross_entropy_with_logits(logits, mask)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.4f}")
print(f"{model.head.weight.grad.abs().sum().item():.4f} {tuple(logits.shape)}")
