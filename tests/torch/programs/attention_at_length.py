"""Attention with every mask, transformers, checkpoints, autocast, a cache of keys."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


def fill(m, s=0.3):
    with torch.no_grad():
        for i, p in enumerate(m.parameters()):
            p.copy_(torch.sin(torch.arange(p.numel()).float() * 0.7 + i).reshape(p.shape) * s)
    return m


x = torch.cos(torch.arange(48.0)).reshape(2, 6, 4)
mha = fill(nn.MultiheadAttention(4, 2, batch_first=True))
print(mha)
print(list(mha.state_dict()))
o, w = mha(x, x, x)
print(o.shape, w.shape, o[0, 0], w[0, 0])
causal = nn.Transformer.generate_square_subsequent_mask(6)
print(causal[:2].tolist())
o, w = mha(x, x, x, attn_mask=causal, average_attn_weights=False)
print(o[1, 2], w.shape, w[0, 1, 2])
pad = torch.tensor([[False] * 4 + [True] * 2, [False] * 6])
o, w = mha(x, x, x, key_padding_mask=pad, need_weights=True)
print(o[0, 1], w[0, 0])
o, w = mha(
    x,
    x,
    x,
    key_padding_mask=pad,
    attn_mask=torch.ones(6, 6, dtype=torch.bool).triu(1),
    need_weights=False,
)
print(o[0, 5], w)
o, w = mha(x[:, :3], x, x, is_causal=False)
print(o.shape)
cross = fill(nn.MultiheadAttention(4, 2, kdim=3, vdim=5, bias=False, add_zero_attn=True))
o, w = cross(torch.ones(2, 1, 4), torch.ones(3, 1, 3), torch.ones(3, 1, 5))
print(o.detach(), w.shape, [tuple(p.shape) for p in cross.parameters()])
bkv = fill(nn.MultiheadAttention(4, 2, add_bias_kv=True))
print(bkv(torch.ones(2, 4), torch.ones(3, 4), torch.ones(3, 4))[0].detach())
q = x.view(2, 6, 2, 2).transpose(1, 2)
print(
    F.scaled_dot_product_attention(q, q, q)[0, 0, 0],
    F.scaled_dot_product_attention(q, q, q, is_causal=True)[0, 1, 3],
    F.scaled_dot_product_attention(q, q, q, attn_mask=torch.ones(6, 6).tril().bool())[0, 1, 3],
    F.scaled_dot_product_attention(q, q, q, scale=0.1)[1, 1, 1],
)
enc = fill(
    nn.TransformerEncoderLayer(
        4, 2, 8, dropout=0.0, batch_first=True, norm_first=True, activation="gelu"
    )
)
print(enc)
stack = nn.TransformerEncoder(enc, 2, norm=nn.LayerNorm(4), enable_nested_tensor=False)
print(stack(x, mask=causal, src_key_padding_mask=pad)[1, 0], len(stack.layers))
dec = fill(nn.TransformerDecoderLayer(4, 2, 8, dropout=0.0))
print(nn.TransformerDecoder(dec, 1)(torch.ones(3, 1, 4), torch.ones(2, 1, 4))[0].detach())
t = fill(nn.Transformer(4, 2, 1, 1, 8, dropout=0.0, batch_first=True))
print(t(x, x[:, :3], tgt_mask=t.generate_square_subsequent_mask(3)).sum())
m = fill(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)))
a = x.clone().requires_grad_()
checkpoint(m, a, use_reentrant=False).sum().backward()
print(a.grad[0, 0], m[0].bias.grad)
b = x.clone().requires_grad_()
m.zero_grad()
checkpoint_sequential(m, 2, b, use_reentrant=False).sum().backward()
print(
    torch.allclose(a.grad, b.grad),
    checkpoint(lambda u, k=1: u * k, b, use_reentrant=False, k=3).sum(),
)
opt = torch.optim.SGD(m.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", enabled=False)
for _ in range(3):
    opt.zero_grad()
    with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
        out = m(x)
        loss = F.mse_loss(out.float(), torch.zeros_like(x))
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
    print(out.dtype, f"{loss.item():.2f}")
print(
    scaler.get_scale(),
    scaler.is_enabled(),
    scaler.state_dict(),
    torch.is_autocast_enabled(),
    torch.get_autocast_dtype("cpu"),
)
with torch.autocast("cpu", enabled=False):
    print(m(x).dtype)


@torch.autocast("cpu", dtype=torch.bfloat16)
def fwd(u):
    return (
        u @ u.transpose(-1, -2),
        u.softmax(-1),
        F.layer_norm(u, (4,)),
        u.exp(),
        u.sum(),
        F.linear(u, torch.ones(2, 4)),
        torch.bmm(u, u.mT),
        u + u,
    )


print([v.dtype for v in fwd(x)])


class Rope(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.register_buffer("freq", 1.0 / 10000 ** (torch.arange(0, d, 2) / d), persistent=False)

    def forward(self, u):
        ang = torch.outer(torch.arange(u.size(1)), self.freq)
        c, s = ang.cos(), ang.sin()
        e, o = u[..., ::2], u[..., 1::2]
        return torch.stack((e * c - o * s, e * s + o * c), -1).flatten(-2)


print(Rope(4)(x)[0, 1], dict(Rope(4).state_dict()))


def alibi(h, n):
    return (
        torch.tensor([2 ** (-8 * i / h) for i in range(1, h + 1)])[:, None, None]
        * -(torch.arange(n)[None, :] - torch.arange(n)[:, None]).abs()
    )


print(alibi(2, 3))
scores = (q @ q.transpose(-2, -1) / math.sqrt(2)).masked_fill(
    torch.triu(torch.ones(6, 6), diagonal=1) == 1, float("-inf")
)
print(scores.softmax(-1)[0, 0, 2], torch.isinf(scores).sum())
k, v = torch.zeros(1, 2, 0, 2), torch.zeros(1, 2, 0, 2)
for step in range(3):
    k, v = (
        torch.cat((k, q[:1, :, step : step + 1]), 2),
        torch.cat((v, q[:1, :, step : step + 1]), 2),
    )
    print(F.scaled_dot_product_attention(q[:1, :, step : step + 1], k, v).flatten())
emb = nn.Embedding(10, 4, padding_idx=0, max_norm=1.0)
print(emb, emb.weight[0])
eb = fill(nn.EmbeddingBag(5, 3, mode="sum"))
print(
    eb(torch.tensor([1, 2, 4]), torch.tensor([0, 2])).detach(),
    nn.Embedding.from_pretrained(torch.eye(3), freeze=True).weight.requires_grad,
)
