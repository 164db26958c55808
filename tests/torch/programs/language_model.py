"""A language model with rotary positions, RMS norms and tied weights; attention layers."""

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

rng = np.random.default_rng(7)


@dataclass
class Config:
    vocab: int = 11
    block: int = 8
    layers: int = 2
    heads: int = 2
    dim: int = 8
    dropout: float = 0.0


class RMSNorm(nn.Module):
    def __init__(self, d, eps=1e-06):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rope(x, base=10000.0):
    b, h, t, d = x.shape
    half = d // 2
    freqs = base ** (-torch.arange(0, half, dtype=torch.float32) / half)
    ang = torch.outer(torch.arange(t).float(), freqs)
    c, s = (ang.cos()[None, None], ang.sin()[None, None])
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat([x1 * c - x2 * s, x1 * s + x2 * c], -1)


class Attn(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.h = cfg.heads
        self.qkv = nn.Linear(cfg.dim, 3 * cfg.dim, bias=False)
        self.proj = nn.Linear(cfg.dim, cfg.dim)
        self.register_buffer(
            "mask",
            torch.tril(torch.ones(cfg.block, cfg.block)).view(1, 1, cfg.block, cfg.block),
            persistent=False,
        )

    def forward(self, x, cache: dict | None = None):
        B, T, C = x.size()
        q, k, v = self.qkv(x).split(C, dim=2)
        q, k, v = (t.view(B, T, self.h, C // self.h).transpose(1, 2) for t in (q, k, v))
        q, k = (rope(q), rope(k))
        att = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))
        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
        y = F.softmax(att, -1) @ v
        y2 = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        assert torch.allclose(y, y2, atol=1e-05)
        return self.proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.n1, self.n2 = (RMSNorm(cfg.dim), RMSNorm(cfg.dim))
        self.attn = Attn(cfg)
        self.w1, self.w2, self.w3 = (
            nn.Linear(*s, bias=False) for s in ((cfg.dim, 16), (16, cfg.dim), (cfg.dim, 16))
        )

    def forward(self, x):
        x = x + self.attn(self.n1(x))
        h = self.n2(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class GPT(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.tok = nn.Embedding(cfg.vocab, cfg.dim)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))
        self.norm = RMSNorm(cfg.dim)
        self.head = nn.Linear(cfg.dim, cfg.vocab, bias=False)
        self.head.weight = self.tok.weight
        self.apply(self._init)

    def _init(self, m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            m.weight.data = torch.tensor(rng.normal(0, 0.3, m.weight.shape), dtype=torch.float32)
        if isinstance(m, nn.Linear) and m.bias is not None:
            torch.nn.init.zeros_(m.bias)

    def forward(self, idx: Tensor, targets: Tensor | None = None):
        x = self.tok(idx)
        for b in self.blocks:
            x = b(x)
        logits = self.head(self.norm(x))
        return (
            logits,
            None
            if targets is None
            else F.cross_entropy(
                logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1
            ),
        )

    @torch.no_grad()
    def generate(self, idx, n, k=3):
        for _ in range(n):
            logits, _ = self(idx[:, -self.cfg.block :])
            logits = logits[:, -1] / 0.8
            v, _ = torch.topk(logits, min(k, logits.size(-1)))
            logits[logits < v[:, [-1]]] = -float("Inf")
            idx = torch.cat((idx, F.softmax(logits, -1).argmax(-1, keepdim=True)), 1)
        return idx

    def configure(self, wd):
        decay = [p for p in self.parameters() if p.dim() >= 2]
        rest = [p for p in self.parameters() if p.dim() < 2]
        return torch.optim.AdamW(
            [{"params": decay, "weight_decay": wd}, {"params": rest, "weight_decay": 0.0}],
            lr=0.003,
            betas=(0.9, 0.95),
        )


model = GPT(Config())
print(model)
print(sum(p.numel() for p in model.parameters()), len(model.state_dict()))
data = torch.tensor(rng.integers(0, 11, 64))
opt = model.configure(0.1)


def lr(it):
    return (
        0.003 * (it + 1) / 3
        if it < 3
        else 0.001 + 0.5 * (1 + math.cos(math.pi * (it - 3) / 5)) * 0.002
    )


for it in range(8):
    for g in opt.param_groups:
        g["lr"] = lr(it)
    total = 0.0
    for micro in range(2):
        ix = torch.tensor(rng.integers(0, 55, 4))
        x = torch.stack([data[i : i + 8] for i in ix])
        y = torch.stack([data[i + 1 : i + 9] for i in ix])
        _, loss = model(x, y)
        (loss / 2).backward()
        total += loss.item() / 2
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    opt.zero_grad(set_to_none=True)
    print(it, f"{total:.4f} {norm:.4f} {opt.param_groups[0]['lr']:.2e}")
model.eval()
print(model.generate(data[None, :4], 6).tolist())
enc = nn.TransformerEncoder(
    nn.TransformerEncoderLayer(
        8, 2, 16, dropout=0.0, batch_first=True, norm_first=True, activation="gelu"
    ),
    2,
    enable_nested_tensor=False,
)
for p in enc.parameters():
    p.data = torch.tensor(rng.normal(0, 0.3, p.shape), dtype=torch.float32)
pad = torch.tensor([[False] * 4 + [True], [False] * 5])
o = enc(
    torch.ones(2, 5, 8),
    src_key_padding_mask=pad,
    mask=nn.Transformer.generate_square_subsequent_mask(5),
)
print(o.shape, o[0, :4].sum())
mha = nn.MultiheadAttention(8, 2, batch_first=True)
for p in mha.parameters():
    p.data = torch.tensor(rng.normal(0, 0.3, p.shape), dtype=torch.float32)
q = torch.tensor(rng.normal(size=(2, 3, 8)), dtype=torch.float32)
a, w = mha(q, q, q, need_weights=True, average_attn_weights=False)
print(a[0, 0], w.shape, w.sum(-1))
