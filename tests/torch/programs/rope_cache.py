"""A decoder with rotary positions, grouped keys and a cache, decoded greedily."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim


def init(model, seed=0):
    rng = np.random.RandomState(seed)
    with torch.no_grad():
        for p in model.parameters():
            bound = 1 / max(1, p.shape[-1] if p.dim() > 1 else p.numel()) ** 0.5
            p.copy_(torch.from_numpy(rng.uniform(-bound, bound, tuple(p.shape)).astype(np.float32)))
    return model


def grad_norm(model):
    return sum(p.grad.norm().item() ** 2 for p in model.parameters() if p.grad is not None) ** 0.5


def rotary(x, start=0):
    *_, t, d = x.shape
    freq = 1.0 / 10000 ** (torch.arange(0, d, 2).float() / d)
    angle = torch.outer(torch.arange(start, start + t).float(), freq)
    cos, sin = angle.cos(), angle.sin()
    x1, x2 = x[..., ::2], x[..., 1::2]
    return torch.stack((x1 * cos - x2 * sin, x1 * sin + x2 * cos), dim=-1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, d, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.hd = heads, kv_heads, d // heads
        self.q = nn.Linear(d, d, bias=False)
        self.kv = nn.Linear(d, 2 * kv_heads * self.hd, bias=False)
        self.o = nn.Linear(d, d, bias=False)

    def forward(self, x, cache=None):
        b, t, _ = x.shape
        past = 0 if cache is None else cache[0].size(2)
        q = self.q(x).view(b, t, self.heads, self.hd).transpose(1, 2)
        k, v = self.kv(x).view(b, t, 2, self.kv_heads, self.hd).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = rotary(q, past), rotary(k, past)
        if cache is not None:
            k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
        group = self.heads // self.kv_heads
        kk, vv = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        y = F.scaled_dot_product_attention(q, kk, vv, is_causal=cache is None)
        return self.o(y.transpose(1, 2).contiguous().view(b, t, -1)), (k, v)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.att = Attention(d, 4, 2)
        self.up, self.gate, self.down = (
            nn.Linear(d, 2 * d),
            nn.Linear(d, 2 * d),
            nn.Linear(2 * d, d),
        )

    def forward(self, x, cache=None):
        a, cache = self.att(self.n1(x), cache)
        x = x + a
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h)), cache


class LM(nn.Module):
    def __init__(self, vocab=17, d=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(2))
        self.norm = nn.RMSNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, ids, caches=None):
        x, new = self.emb(ids), []
        for i, block in enumerate(self.blocks):
            x, c = block(x, None if caches is None else caches[i])
            new.append(c)
        return self.head(self.norm(x)), new


model = init(LM())
data = torch.arange(60).remainder(17).view(4, 15)
optimizer = optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
for step in range(5):
    logits, _ = model(data[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, 17), data[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(f"{loss.item():.4f}")
model.eval()
with torch.inference_mode():
    ids = data[:1, :5]
    logits, caches = model(ids)
    out = ids
    for _ in range(8):
        token = logits[:, -1].argmax(-1, keepdim=True)
        out = torch.cat((out, token), 1)
        logits, caches = model(token, caches)
    full, _ = model(out)
    print(out.tolist(), torch.allclose(full[:, -1], logits[:, -1], atol=1e-4))
    print(caches[0][0].shape, f"{full[0, -1].logsumexp(0).item():.4f}")
print(sum(p.numel() for p in model.parameters()))
