"""Causal self-attention by hand, by scaled_dot_product_attention, and by nn.MultiheadAttention."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(10)
B, T, C, heads = 2, 6, 8, 2
x = torch.tensor(rng.normal(size=(B, T, C)), dtype=torch.float32)


class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(C, 3 * C)
        self.c_proj = nn.Linear(C, C, bias=False)
        self.register_buffer("mask", torch.tril(torch.ones(T, T)).view(1, 1, T, T))

    def forward(self, x, flash):
        b, t, c = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        q = q.view(b, t, heads, c // heads).transpose(1, 2)
        k = k.view(b, t, heads, c // heads).transpose(1, 2)
        v = v.view(b, t, heads, c // heads).transpose(1, 2)
        if flash:
            y = F.scaled_dot_product_attention(
                q, k, v, attn_mask=None, dropout_p=0.0, is_causal=True
            )
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
            y = F.softmax(att, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))


layer = CausalSelfAttention()
mha = nn.MultiheadAttention(C, heads, batch_first=True)
weights = [rng.normal(0, 0.4, tuple(p.shape)).astype("float32") for p in layer.parameters()]
with torch.no_grad():
    for p, w in zip(layer.parameters(), weights):
        p.copy_(torch.from_numpy(w))
    mha.in_proj_weight.copy_(layer.c_attn.weight)
    mha.in_proj_bias.copy_(layer.c_attn.bias)
    mha.out_proj.weight.copy_(layer.c_proj.weight)
    mha.out_proj.bias.zero_()
for flash in (False, True):
    layer.zero_grad()
    out = layer(x, flash)
    (out**2).mean().backward()
    print(f"{out.sum().item():.5f} {layer.c_attn.weight.grad.norm().item():.5f}")
mask = torch.triu(torch.ones(T, T, dtype=torch.bool), diagonal=1)
out, attention = mha(x, x, x, attn_mask=mask, need_weights=True)
print(f"{out.sum().item():.5f} {attention[0, 2].tolist()}")
