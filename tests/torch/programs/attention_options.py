"""MultiheadAttention with every option, transformers with masks, and a small GPT that generates."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(8)


def rnd(*s):
    return torch.from_numpy(rng.standard_normal(s).astype(np.float32))


@torch.no_grad()
def fixed(model):
    for k, p in enumerate(model.parameters()):
        p.copy_(
            torch.sin(torch.arange(p.numel(), dtype=torch.float32) * 0.7 + k).view_as(p)
            * (0.5 / math.sqrt(max(1, p.shape[-1] if p.ndim else 1)))
        )
    return model


x, mem = (rnd(2, 5, 8), rnd(2, 6, 8))
m = fixed(nn.MultiheadAttention(8, 2, batch_first=True))
m.eval()
kpm = torch.tensor([[False] * 5, [False, False, False, True, True]])
for kw in (
    {},
    {"key_padding_mask": kpm},
    {"attn_mask": torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)},
    {"need_weights": False},
    {"average_attn_weights": False},
    {"attn_mask": torch.zeros(4, 5, 5) - torch.arange(5.0), "key_padding_mask": kpm},
    {"is_causal": True, "attn_mask": nn.Transformer.generate_square_subsequent_mask(5)},
):
    o, w = m(x, x, x, **kw)
    print(
        list(kw),
        o.shape,
        o.sum().item(),
        o[1, 2, :3],
        None if w is None else (w.shape, w[0].flatten()[:5]),
    )
for kw in (
    dict(kdim=6, vdim=4),
    dict(bias=False),
    dict(add_bias_kv=True),
    dict(add_zero_attn=True),
):
    m = fixed(nn.MultiheadAttention(8, 4, **kw))
    k, v = (rnd(7, 2, 6), rnd(7, 2, 4)) if "kdim" in kw else (rnd(7, 2, 8),) * 2
    o, w = m(x.transpose(0, 1), k, v)
    o.sum().backward()
    print(
        kw,
        o.shape,
        w.shape,
        o.mean().item(),
        [
            (n, tuple(p.shape), f"{p.grad.abs().sum():.4f}" if p.grad is not None else None)
            for n, p in m.named_parameters()
        ],
    )
for kw in (
    dict(),
    dict(norm_first=True),
    dict(activation="gelu"),
    dict(activation=F.silu, bias=False),
):
    for bf in (True, False):
        l = fixed(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=bf, **kw))
        o = l(
            x if bf else x.transpose(0, 1),
            src_mask=nn.Transformer.generate_square_subsequent_mask(5),
            src_key_padding_mask=kpm.float().masked_fill(kpm, float("-inf")) if False else None,
        )
        print(list(kw), bf, o.sum().item(), o.std().item())
enc = fixed(
    nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        2,
        norm=nn.LayerNorm(8),
        enable_nested_tensor=False,
    )
)
o = enc(x, src_key_padding_mask=kpm)
print(o[0], o[1, :3])
enc.eval()
print(enc(x, mask=torch.triu(torch.full((5, 5), float("-inf")), 1), is_causal=True).sum())
dec = fixed(nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True), 2))
o = dec(
    x,
    mem,
    tgt_mask=torch.triu(torch.ones(5, 5), 1).bool(),
    memory_key_padding_mask=torch.tensor([[False] * 6, [False] * 4 + [True] * 2]),
    tgt_key_padding_mask=kpm,
    tgt_is_causal=True,
)
print(o[0, 0], o[1, 1])
print(dec)
t = fixed(nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=True))
o = t(
    x,
    mem,
    tgt_mask=t.generate_square_subsequent_mask(6),
    src_key_padding_mask=kpm,
    memory_key_padding_mask=kpm,
)
print(o.shape, o.sum(), o[0, 0])
o.pow(2).mean().backward()
print(f"{t.encoder.layers[0].self_attn.in_proj_weight.grad.abs().sum():.6f}")
print(t.generate_square_subsequent_mask(3))
q, k, v = (rnd(2, 2, 5, 4).requires_grad_() for _ in range(3))
for kw in (
    {},
    {"is_causal": True},
    {"attn_mask": torch.ones(5, 5).tril().bool()},
    {"attn_mask": rnd(2, 1, 5, 5), "scale": 0.3},
):
    o = F.scaled_dot_product_attention(q, k, v, **kw)
    g = torch.autograd.grad(o.pow(2).sum(), (q, k, v))
    print(list(kw), o.sum().item(), [a.abs().sum().item() for a in g])
k2, v2 = (rnd(2, 1, 7, 4), rnd(2, 1, 7, 4))
print(F.scaled_dot_product_attention(q, k2, v2, enable_gqa=True).sum())


class PE(nn.Module):
    def __init__(self, d, n=50):
        super().__init__()
        pe = torch.zeros(n, d)
        pos = torch.arange(0, n).unsqueeze(1).float()
        div = torch.exp(torch.arange(0, d, 2).float() * -(math.log(10000.0) / d))
        pe[:, 0::2] = torch.sin(pos * div)
        pe[:, 1::2] = torch.cos(pos * div)
        self.register_buffer("pe", pe.unsqueeze(0))
        self.register_buffer("tmp", torch.zeros(1), persistent=False)

    def forward(self, x):
        return x + self.pe[:, : x.size(1)].requires_grad_(False)


class GPT(nn.Module):
    def __init__(self, V=11, d=8, n=2):
        super().__init__()
        self.tok = nn.Embedding(V, d)
        self.pos = PE(d)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(d, 2, 4 * d, 0.0, F.gelu, batch_first=True, norm_first=True)
            for _ in range(n)
        )
        self.ln = nn.LayerNorm(d)
        self.head = nn.Linear(d, V, bias=False)
        self.head.weight = self.tok.weight
        self.apply(self._init)

    def _init(self, m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)

    def forward(self, i, targets=None):
        x = self.pos(self.tok(i))
        mask = nn.Transformer.generate_square_subsequent_mask(i.size(1), device=i.device)
        for b in self.blocks:
            x = b(x, src_mask=mask, is_causal=True)
        logits = self.head(self.ln(x))
        return (
            logits,
            None
            if targets is None
            else F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1)),
        )

    @torch.no_grad()
    def generate(self, i, n, top_k=None):
        for _ in range(n):
            logits = self(i[:, -8:])[0][:, -1] / 0.8
            if top_k:
                v, _ = torch.topk(logits, top_k)
                logits[logits < v[:, [-1]]] = -float("inf")
            i = torch.cat((i, logits.softmax(-1).argmax(-1, keepdim=True)), 1)
        return i


g = fixed(GPT())
data = torch.arange(200) % 11
print(
    sum(p.numel() for p in g.parameters()),
    sorted(g.state_dict())[:4],
    "pos.tmp" in g.state_dict(),
    [n for n, _ in g.named_buffers()],
    len(list(g.parameters())),
)
decay = [p for p in g.parameters() if p.dim() >= 2]
nod = [p for p in g.parameters() if p.dim() < 2]
o = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.1}, {"params": nod, "weight_decay": 0.0}],
    lr=0.01,
    betas=(0.9, 0.95),
)
for it in range(8):
    ix = torch.tensor([it * 3 % 50, it * 7 % 60])
    xb = torch.stack([data[j : j + 8] for j in ix])
    yb = torch.stack([data[j + 1 : j + 9] for j in ix])
    _, l = g(xb, yb)
    o.zero_grad(set_to_none=True)
    l.backward()
    nn.utils.clip_grad_norm_(g.parameters(), 1.0)
    o.step()
    print(it, f"{l.item():.5f}")
g.eval()
print(g.generate(torch.tensor([[1, 2, 3]]), 6, top_k=3))
