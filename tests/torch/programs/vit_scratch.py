"""A vision transformer from its parts: patches by unfold and by convolution, a class token, pre-norm blocks, stochastic depth, label smoothing, cosine schedule with warm-up."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

rng = np.random.default_rng(17)


def trunc_normal_init(m):
    if isinstance(m, (nn.Linear, nn.Conv2d)):
        nn.init.trunc_normal_(m.weight, std=0.02)
        m.weight.data.copy_(torch.from_numpy(rng.normal(0, 0.15, tuple(m.weight.shape))))
        if m.bias is not None:
            nn.init.zeros_(m.bias)


class DropPath(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training or self.p == 0.0:
            return x
        keep = 1 - self.p
        mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
        return x * mask.div_(keep)


class Attention(nn.Module):
    def __init__(self, dim, num_heads, fused):
        super().__init__()
        self.num_heads, self.scale, self.fused = num_heads, (dim // num_heads) ** -0.5, fused
        self.qkv = nn.Linear(dim, dim * 3, bias=True)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        qkv = (
            self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        )
        q, k, v = qkv.unbind(0)
        if self.fused:
            x = F.scaled_dot_product_attention(q, k, v)
        else:
            x = (q @ k.transpose(-2, -1) * self.scale).softmax(dim=-1) @ v
        return self.proj(x.transpose(1, 2).reshape(B, N, C))


class Block(nn.Module):
    def __init__(self, dim, heads, fused, drop_path=0.0):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attention(dim, heads, fused)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 2 * dim), nn.GELU(), nn.Dropout(0.0), nn.Linear(2 * dim, dim)
        )
        self.ls1, self.ls2 = (nn.Parameter(0.5 * torch.ones(dim)) for _ in range(2))
        self.drop_path = DropPath(drop_path) if drop_path > 0.0 else nn.Identity()

    def forward(self, x):
        x = x + self.drop_path(self.ls1 * self.attn(self.norm1(x)))
        return x + self.drop_path(self.ls2 * self.mlp(self.norm2(x)))


class ViT(nn.Module):
    def __init__(self, image=8, patch=4, dim=12, depth=2, heads=3, classes=5):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, patch, patch)
        n = (image // patch) ** 2
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, n + 1, dim))
        rates = [x.item() for x in torch.linspace(0, 0.0, depth)]
        self.blocks = nn.ModuleList([Block(dim, heads, i % 2 == 0, rates[i]) for i in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)
        self.apply(trunc_normal_init)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos_embed
        for blk in self.blocks:
            x = blk(x)
        return self.head(self.norm(x)[:, 0])


model = ViT()
with torch.no_grad():
    model.pos_embed.copy_(torch.from_numpy(rng.normal(0, 0.1, model.pos_embed.shape)))
x = torch.from_numpy(rng.uniform(-1, 1, (6, 3, 8, 8))).to(torch.float32)
y = torch.from_numpy(rng.integers(0, 5, 6))
by_conv = model.patch_embed(x).flatten(2)
by_unfold = (
    model.patch_embed.weight.flatten(1) @ F.unfold(x, 4, stride=4) + model.patch_embed.bias[:, None]
)
print(torch.allclose(by_conv, by_unfold, atol=1e-5), x.unfold(2, 4, 4).unfold(3, 4, 4).shape)
decay = {n for n, p in model.named_parameters() if p.ndim >= 2 and "pos" not in n}
groups = [
    {"params": [p for n, p in model.named_parameters() if n in decay], "weight_decay": 0.05},
    {"params": [p for n, p in model.named_parameters() if n not in decay], "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))
warm = LinearLR(optimizer, start_factor=0.1, total_iters=2)
scheduler = SequentialLR(
    optimizer, [warm, CosineAnnealingLR(optimizer, T_max=4, eta_min=1e-4)], milestones=[2]
)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
lam = 0.3
for step in range(5):
    perm = torch.arange(6).flip(0)
    mixed = lam * x + (1 - lam) * x[perm]
    out = model(mixed)
    loss = lam * criterion(out, y) + (1 - lam) * criterion(out, y[perm])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    print(
        f"{step} {loss.item():.5f} {model.cls_token.grad.norm():.5f} {[f'{lr:.5f}' for lr in scheduler.get_last_lr()]}"
    )
resized = F.interpolate(
    model.pos_embed[:, 1:].reshape(1, 2, 2, 12).permute(0, 3, 1, 2),
    size=(3, 3),
    mode="bicubic",
    align_corners=False,
)
print(resized.shape, f"{resized.sum():.5f}")
model.eval()
acc = (model(x).argmax(-1) == y).float().mean()
print(f"acc {acc:.3f}", model.blocks[0].drop_path)
