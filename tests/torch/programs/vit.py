"""A vision transformer: patches by a strided convolution, a class token, pre-norm blocks."""

import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(43)


class PatchEmbed(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.proj = nn.Conv2d(3, dim, kernel_size=4, stride=4)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)


class ViT(nn.Module):
    def __init__(self, dim=8, classes=3):
        super().__init__()
        self.patch = PatchEmbed(dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, 5, dim))
        layer = nn.TransformerEncoderLayer(
            dim, 2, 16, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(dim, eps=1e-6), nn.Linear(dim, classes)

    def forward(self, x):
        x = self.patch(x)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


model = ViT()
with torch.no_grad():
    for name, p in model.named_parameters():
        if p.ndim > 1:
            p.copy_(torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape))))
        else:
            p.fill_(1.0 if "norm" in name and "weight" in name else 0.0)
x = torch.from_numpy(rng.normal(size=(4, 3, 8, 8)).astype("f4"))
y = torch.tensor([0, 1, 2, 1])
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-2, total_steps=4)
for step in range(4):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step() if step < 3 else None
    print(f"{step} {loss.item():.5f} {scheduler.get_last_lr()[0]:.6f}")
print(f"{model.cls_token.grad.norm().item():.5f} {model.pos_embed.grad.norm().item():.5f}")
