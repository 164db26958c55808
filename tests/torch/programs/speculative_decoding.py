"""A decoder with caches written in place: greedy, top-k, nucleus and beam search, a repetition
penalty, and speculative decoding by a smaller draft model, all of one prompt.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    vocab: int = 29
    dim: int = 16
    heads: int = 4
    kv_heads: int = 2
    layers: int = 2
    length: int = 32


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return (
            x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)
        ).type_as(x) * self.weight


class KVCache(nn.Module):
    def __init__(self, batch, length, heads, size):
        super().__init__()
        self.register_buffer("k", torch.zeros(batch, heads, length, size))
        self.register_buffer("v", torch.zeros(batch, heads, length, size))

    def update(self, places, k, v):
        self.k[:, :, places] = k
        self.v[:, :, places] = v
        return self.k, self.v


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.h, self.kv, self.d = c.heads, c.kv_heads, c.dim // c.heads
        self.wqkv = nn.Linear(c.dim, (c.heads + 2 * c.kv_heads) * self.d, bias=False)
        self.wo = nn.Linear(c.dim, c.dim, bias=False)
        self.cache: KVCache | None = None

    def forward(self, x, table, mask, places):
        b, t, _ = x.shape
        sizes = [self.h * self.d, self.kv * self.d, self.kv * self.d]
        q, k, v = self.wqkv(x).split(sizes, dim=-1)
        q, k, v = (y.view(b, t, -1, self.d) for y in (q, k, v))
        q, k = rotate(q, table), rotate(k, table)
        q, k, v = map(lambda y: y.transpose(1, 2), (q, k, v))
        if self.cache is not None:
            k, v = self.cache.update(places, k, v)
        k = k.repeat_interleave(self.h // self.kv, dim=1)
        v = v.repeat_interleave(self.h // self.kv, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.0)
        return self.wo(y.transpose(1, 2).contiguous().view(b, t, -1))


def rotate(x, table):
    pairs = x.float().reshape(*x.shape[:-1], -1, 2)
    table = table.view(1, pairs.size(1), 1, pairs.size(3), 2)
    out = torch.stack(
        [
            pairs[..., 0] * table[..., 0] - pairs[..., 1] * table[..., 1],
            pairs[..., 1] * table[..., 0] + pairs[..., 0] * table[..., 1],
        ],
        -1,
    )
    return out.flatten(3).type_as(x)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.attention = Attention(c)
        self.w1, self.w2 = (
            nn.Linear(*s, bias=False) for s in ((c.dim, 2 * c.dim), (2 * c.dim, c.dim))
        )
        self.w3 = nn.Linear(c.dim, 2 * c.dim, bias=False)
        self.norm1, self.norm2 = RMSNorm(c.dim), RMSNorm(c.dim)

    def forward(self, x, *rest):
        x = x + self.attention(self.norm1(x), *rest)
        h = self.norm2(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class Decoder(nn.Module):
    def __init__(self, c: Config, seed: int):
        super().__init__()
        self.config = c
        self.embed = nn.Embedding(c.vocab, c.dim)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.norm, self.out = RMSNorm(c.dim), nn.Linear(c.dim, c.vocab, bias=False)
        self.out.weight = self.embed.weight
        rng = np.random.RandomState(seed)
        with torch.no_grad():
            for p in self.parameters():
                if p.dim() > 1:
                    p.copy_(torch.from_numpy(0.5 * rng.randn(*p.shape)))
        size = c.dim // c.heads
        freqs = 1.0 / (10000 ** (torch.arange(0, size, 2)[: size // 2].float() / size))
        angles = torch.outer(torch.arange(c.length), freqs)
        polar = torch.polar(torch.ones_like(angles), angles)
        self.register_buffer("table", torch.stack([polar.real, polar.imag], dim=-1))
        self.register_buffer("causal", torch.tril(torch.ones(c.length, c.length, dtype=torch.bool)))

    def setup_caches(self, batch):
        c = self.config
        for b in self.blocks:
            b.attention.cache = KVCache(batch, c.length, c.kv_heads, c.dim // c.heads)
        return self

    def drop_caches(self):
        for b in self.blocks:
            b.attention.cache = None
        return self

    def reorder(self, rows):
        for b in self.blocks:
            for buffer in b.attention.cache.buffers():
                buffer.copy_(buffer.index_select(0, rows))

    def forward(self, idx, places=None):
        if places is None:
            places = torch.arange(idx.size(1))
        cached = self.blocks[0].attention.cache is not None
        mask = self.causal[None, None, places]
        mask = mask if cached else mask[..., : idx.size(1)]
        x = self.embed(idx)
        for block in self.blocks:
            x = block(x, self.table[places], mask, places)
        return self.out(self.norm(x))


@torch.no_grad()
def greedy(model, prompt, count):
    model.setup_caches(prompt.size(0))
    n = prompt.size(1)
    logits = model(prompt, torch.arange(n))
    out = [prompt]
    for i in range(count):
        token = logits[:, -1].argmax(-1, keepdim=True)
        out.append(token)
        logits = model(token, torch.tensor([n + i]))
    model.drop_caches()
    return torch.cat(out, 1)


def filtered(logits, temperature=1.0, top_k=None, top_p=None, seen=None, penalty=1.2):
    logits = logits / max(temperature, 1e-5)
    if seen is not None:
        score = torch.gather(logits, 1, seen)
        score = torch.where(score < 0, score * penalty, score / penalty)
        logits = logits.scatter(1, seen, score)
    if top_k is not None:
        v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
        logits = torch.where(logits < v[..., -1, None], -float("Inf"), logits)
    if top_p is not None:
        ordered, index = torch.sort(logits, descending=True)
        total = torch.cumsum(F.softmax(ordered, dim=-1), dim=-1)
        remove = total > top_p
        remove[..., 1:] = remove[..., :-1].clone()
        remove[..., 0] = 0
        logits = logits.masked_fill(remove.scatter(1, index, remove), float("-inf"))
    return torch.softmax(logits, dim=-1)


def draw(probs, u):
    """Inverse transform by a given uniform number, so that the draw is the same everywhere."""
    return torch.searchsorted(probs.cumsum(-1), u.expand(probs.size(0), 1)).clamp(
        max=probs.size(-1) - 1
    )


@torch.no_grad()
def beam_search(model, prompt, beams, count, length_penalty=0.6):
    model.setup_caches(beams)
    n, vocab = prompt.size(1), model.config.vocab
    tokens = prompt.repeat(beams, 1)
    scores = torch.full((beams,), float("-inf"))
    scores[0] = 0.0
    logits = model(tokens, torch.arange(n))
    for i in range(count):
        total = scores[:, None] + F.log_softmax(logits[:, -1], dim=-1)
        scores, flat = total.view(-1).topk(beams)
        rows, token = torch.div(flat, vocab, rounding_mode="floor"), flat % vocab
        tokens = torch.cat([tokens[rows], token[:, None]], dim=1)
        model.reorder(rows)
        logits = model(token[:, None], torch.tensor([n + i]))
    model.drop_caches()
    return tokens, scores / count**length_penalty


@torch.no_grad()
def speculative(target, draft, prompt, count, k=3):
    out, accepted = prompt.clone(), []
    while out.size(1) < prompt.size(1) + count:
        guess = greedy(draft, out, k)
        wanted = target(guess)[:, out.size(1) - 1 :].argmax(-1)
        same = (wanted[:, :-1] == guess[:, out.size(1) :])[0].cumprod(0)
        n = int(same.sum())
        accepted.append(n)
        out = torch.cat([out, wanted[:, : n + 1]], dim=1)
    return out[:, : prompt.size(1) + count], accepted


config = Config()
model, small = Decoder(config, 0).eval(), Decoder(Config(layers=1), 0).eval()
prompt = torch.tensor([[3, 14, 15, 9, 2, 6]])
text = greedy(model, prompt, 12)
print("greedy", text.tolist())
with torch.no_grad():
    full = model(text)
    print("whole", bool((full[:, 5:-1].argmax(-1) == text[:, 6:]).all()), f"{full.std():.5f}")
tokens, scores = beam_search(model, prompt, 4, 8)
print("beams", tokens[:, 6:].tolist(), [f"{s:.4f}" for s in scores.tolist()])
print("speculative", *speculative(model, small, prompt, 12))
us = torch.linspace(0.05, 0.95, 7)
for options in (dict(top_k=5), dict(top_p=0.7), dict(temperature=0.6, top_k=8, top_p=0.9), {}):
    idx = prompt
    for u in us:
        with torch.inference_mode():
            last = model(idx)[:, -1, :]
            probs = filtered(last, seen=idx, **options)
            idx = torch.cat((idx, draw(probs, u)), dim=1)
    print(options, idx[0, 6:].tolist(), f"{probs.max():.4f} {(probs > 0).sum().item()}")

opt = torch.optim.AdamW(model.train().parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
data = torch.from_numpy(np.random.RandomState(5).randint(0, 29, (4, 17)))
for step in range(4):
    x, y = data[:, :-1].contiguous(), data[:, 1:].contiguous()
    loss = F.cross_entropy(model(x).view(-1, config.vocab), y.view(-1), ignore_index=-1)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    print(step, f"{loss.item():.5f} {nn.utils.clip_grad_norm_(model.parameters(), 1.0):.5f}")
    opt.step()
print("after", greedy(model.eval(), prompt, 8)[0, 6:].tolist(), len(list(model.parameters())))
print(sorted(model.state_dict())[:6], "cache.k" in " ".join(model.state_dict()))
