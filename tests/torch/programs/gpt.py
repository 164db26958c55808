"""A small GPT: causal attention, weight decay groups, a cosine schedule, top-k generation."""

import math

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional as F

rng = np.random.default_rng(42)
V, C, T, H = 11, 8, 6, 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(C, bias=False), nn.LayerNorm(C, bias=False)
        self.c_attn, self.c_proj = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.mlp = nn.ModuleDict(
            dict(c_fc=nn.Linear(C, 4 * C), act=nn.GELU(), c_proj=nn.Linear(4 * C, C))
        )
        self.c_proj.NANOGPT_SCALE_INIT = 1

    def forward(self, x):
        B, t, _ = x.size()
        q, k, v = self.c_attn(self.ln_1(x)).split(C, dim=2)
        q, k, v = (z.view(B, t, H, C // H).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).contiguous().view(B, t, C))
        m = self.mlp
        return x + m.c_proj(m.act(m.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer = nn.ModuleDict(
            dict(
                wte=nn.Embedding(V, C),
                wpe=nn.Embedding(T, C),
                h=nn.ModuleList([Block() for _ in range(2)]),
                ln_f=nn.LayerNorm(C),
            )
        )
        self.lm_head = nn.Linear(C, V, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        self.apply(self._init_weights)

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            std = 0.2 * (0.5 if hasattr(module, "NANOGPT_SCALE_INIT") else 1)
            value = rng.normal(0, std, tuple(module.weight.shape)).astype("f4")
            module.weight.data.copy_(torch.from_numpy(value))
        if isinstance(module, nn.Linear) and module.bias is not None:
            torch.nn.init.zeros_(module.bias)

    def forward(self, idx, targets=None):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.transformer.wte(idx) + self.transformer.wpe(pos)
        for block in self.transformer.h:
            x = block(x)
        x = self.transformer.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.view(-1, V), targets.view(-1), ignore_index=-1)

    @torch.no_grad()
    def generate(self, idx, count, top_k):
        for _ in range(count):
            logits, _ = self(idx[:, -T:])
            logits = logits[:, -1, :] / 0.8
            v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
            logits[logits < v[:, [-1]]] = -float("Inf")
            probs = F.softmax(logits, dim=-1)
            idx = torch.cat((idx, probs.argmax(-1, keepdim=True)), dim=1)
        return idx


model = GPT()
named = {n: p for n, p in model.named_parameters() if p.requires_grad}
groups = [
    {"params": [p for p in named.values() if p.dim() >= 2], "weight_decay": 0.1},
    {"params": [p for p in named.values() if p.dim() < 2], "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))
data = torch.from_numpy((np.arange(60) * 3 % V).astype(np.int64))
for it in range(4):
    lr = 1e-3 + 0.5 * (1 + math.cos(math.pi * it / 4)) * 9e-3
    for group in optimizer.param_groups:
        group["lr"] = lr
    ix = rng.integers(0, 60 - T - 1, 5)
    x = torch.stack([data[i : i + T] for i in ix])
    y = torch.stack([data[i + 1 : i + 1 + T] for i in ix])
    _, loss = model(x, y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(f"{it} {loss.item():.5f} {lr:.5f}")
model.eval()
print(model.generate(x[:1, :2], 4, top_k=3).tolist())
print(sum(p.numel() for p in model.parameters()), len(named))
