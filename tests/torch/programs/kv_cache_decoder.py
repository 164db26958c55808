"""A decoder with rotary positions, grouped queries, a growing cache, sliding windows and sampling by top-k and top-p; checked against the whole sequence at once."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(33)


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x):
        return self.weight * (
            x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)
        ).type_as(x)


def rotary(dim, end, theta=10000.0):
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2)[: dim // 2].float() / dim))
    return torch.polar(torch.ones(end, dim // 2), torch.outer(torch.arange(end), freqs))


def apply_rotary(x, freqs):
    z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(z * freqs[None, :, None, :]).flatten(3).type_as(x)


class Attention(nn.Module):
    def __init__(self, dim, heads, kv_heads, window=None):
        super().__init__()
        self.heads, self.kv_heads, self.hd, self.window = heads, kv_heads, dim // heads, window
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk, self.wv = (nn.Linear(dim, kv_heads * self.hd, bias=False) for _ in range(2))
        self.wo = nn.Linear(dim, dim, bias=False)

    def forward(self, x, freqs, start=0, cache=None):
        b, n, _ = x.shape
        q = apply_rotary(self.wq(x).view(b, n, self.heads, self.hd), freqs)
        k = apply_rotary(self.wk(x).view(b, n, self.kv_heads, self.hd), freqs)
        v = self.wv(x).view(b, n, self.kv_heads, self.hd)
        if cache is not None:
            cache["k"][:b, start : start + n] = k
            cache["v"][:b, start : start + n] = v
            k, v = cache["k"][:b, : start + n], cache["v"][:b, : start + n]
        i, j = torch.arange(start, start + n)[:, None], torch.arange(k.shape[1])[None, :]
        mask = j <= i
        if self.window:
            mask = mask & (i - j < self.window)
        out = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask, enable_gqa=True
        )
        return self.wo(out.transpose(1, 2).reshape(b, n, -1))


class SwiGLU(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1, self.w2, self.w3 = (
            nn.Linear(dim, hidden, bias=False),
            nn.Linear(hidden, dim, bias=False),
            nn.Linear(dim, hidden, bias=False),
        )

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Decoder(nn.Module):
    def __init__(self, vocab=17, dim=16, layers=2, end=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(
            [
                nn.ModuleDict(
                    {
                        "attn": Attention(dim, 4, 2, window=4 if i else None),
                        "n1": RMSNorm(dim),
                        "ff": SwiGLU(dim, 24),
                        "n2": RMSNorm(dim),
                    }
                )
                for i in range(layers)
            ]
        )
        self.norm = RMSNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("freqs", rotary(dim // 4, end), persistent=False)

    def forward(self, tokens, start=0, caches=None):
        x = self.embed(tokens)
        freqs = self.freqs[start : start + tokens.shape[1]]
        for i, layer in enumerate(self.layers):
            x = x + layer["attn"](layer["n1"](x), freqs, start, caches[i] if caches else None)
            x = x + layer["ff"](layer["n2"](x))
        return self.head(self.norm(x))


def filter_logits(logits, top_k=0, top_p=1.0):
    if top_k:
        logits = logits.masked_fill(
            logits < logits.topk(top_k, dim=-1).values[..., -1, None], -math.inf
        )
    ordered, order = logits.sort(descending=True)
    gone = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1) > top_p
    return logits.masked_fill(torch.zeros_like(gone).scatter(-1, order, gone), -math.inf)


model = Decoder()
print(
    sum(p.numel() for p in model.parameters()),
    len(list(model.named_parameters())),
    sorted(model.state_dict())[:2],
)
for p in model.parameters():
    if p.dim() > 1:
        p.data = torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape))).float()
model.head.weight = model.embed.weight
tokens = torch.from_numpy(rng.integers(0, 17, (2, 10)))
opt = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.95), weight_decay=0.1)
for step in range(3):
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(
        f"{step} {loss.item():.5f} {model.embed.weight.grad.norm():.5f} {model.layers[1]['attn'].wk.weight.grad.norm():.5f}"
    )
model.eval()
with torch.inference_mode():
    whole = model(tokens)
    caches = [{k: torch.zeros(2, 16, 2, 4) for k in "kv"} for _ in model.layers]
    parts = [model(tokens[:, :4], 0, caches)] + [
        model(tokens[:, i : i + 1], i, caches) for i in range(4, 10)
    ]
    print("cache", (torch.cat(parts, 1) - whole).abs().max() < 1e-5)
    text = tokens[:1, :3]
    while text.shape[1] < 9:
        nxt = model(text)[:, -1].argmax(-1, keepdim=True)
        text = torch.cat([text, nxt], dim=1)
    print(text.tolist())
    kept = filter_logits(whole[:, -1] / 0.7, top_k=5, top_p=0.8)
    print(kept.isfinite().sum(-1), kept.softmax(-1).max(-1).values)
    print(torch.multinomial(kept.softmax(-1), 3, replacement=True).shape)
