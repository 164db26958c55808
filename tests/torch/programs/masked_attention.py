"""Attention with every kind of mask, and transformers of it."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def fill(m, s=0.3):
    with torch.no_grad():
        for i, p in enumerate(m.parameters()):
            p.copy_(
                (
                    torch.sin(torch.arange(p.numel(), dtype=torch.float32) * (i + 1) * 0.37) * s
                ).view_as(p)
            )


mha = nn.MultiheadAttention(8, 2, batch_first=True)
fill(mha)
print(mha, list(mha.state_dict()), [tuple(v.shape) for v in mha.state_dict().values()])
x = torch.sin(torch.arange(2 * 5 * 8.0)).reshape(2, 5, 8)
o, w = mha(x, x, x)
print(o[0, 0], w[0])
kpm = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
o, w = mha(x, x, x, key_padding_mask=kpm)
print(w[1], o[1, 0])
causal = torch.triu(torch.ones(5, 5, dtype=torch.bool), diagonal=1)
o, w = mha(x, x, x, attn_mask=causal, average_attn_weights=False)
print(w.shape, w[0, 0])
o, w = mha(x, x, x, attn_mask=causal, is_causal=True, need_weights=False)
print(w, o.sum())
o, w = mha(
    x, x, x, attn_mask=torch.zeros(5, 5).masked_fill(causal, float("-inf")), key_padding_mask=kpm
)
print(w[1])
m3 = torch.zeros(4, 5, 5)
m3[:, :, 2] = -10
print(mha(x, x, x, attn_mask=m3)[1][0, 0])
kv = nn.MultiheadAttention(8, 4, kdim=6, vdim=3, bias=False)
fill(kv)
print(list(kv.state_dict()), [tuple(v.shape) for v in kv.state_dict().values()])
q, k, v = (
    torch.ones(3, 2, 8),
    torch.linspace(0, 1, 48).reshape(4, 2, 6),
    torch.linspace(-1, 1, 24).reshape(4, 2, 3),
)
print(kv(q, k, v)[0][0])
bk = nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True)
fill(bk)
print(list(bk.state_dict()))
print(bk(q, q, q)[1].shape, bk(q, q, q)[0][0, 0])
print(mha(x[0], x[0], x[0])[0].shape)
enc = nn.TransformerEncoderLayer(
    8, 2, 16, dropout=0.0, batch_first=True, norm_first=True, activation="gelu"
)
fill(enc)
print(enc(x, src_key_padding_mask=kpm)[1, :3].sum(), enc)
te = nn.TransformerEncoder(
    nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2, norm=nn.LayerNorm(8)
)
fill(te)
te.train()
print(te(x, mask=nn.Transformer.generate_square_subsequent_mask(5), is_causal=True).sum(dim=(1, 2)))
tr = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)
fill(tr)
tgt = torch.cos(torch.arange(2 * 4 * 8.0)).reshape(2, 4, 8)
tm = tr.generate_square_subsequent_mask(4)
print(tm)
out = tr(
    x,
    tgt,
    tgt_mask=tm,
    src_key_padding_mask=kpm,
    memory_key_padding_mask=kpm,
    tgt_key_padding_mask=torch.zeros(2, 4, dtype=torch.bool),
)
print(out.sum(-1))
out.pow(2).sum().backward()
print(
    tr.encoder.layers[0].self_attn.in_proj_weight.grad.norm(),
    tr.decoder.layers[0].multihead_attn.in_proj_bias.grad[:4],
)
print(list(tr.state_dict())[:6], len(tr.state_dict()))
print(
    F.scaled_dot_product_attention(x, x, x, is_causal=True)[0, 1],
    F.scaled_dot_product_attention(x, x, x, attn_mask=~causal, scale=0.1)[1, 2],
)
qh = x.view(2, 5, 2, 4).transpose(1, 2)
print(F.scaled_dot_product_attention(qh, qh[:, :1], qh[:, :1], enable_gqa=True).shape)
print(nn.TransformerDecoderLayer(8, 2, 16))
mha.eval()
print(mha(x, x, x)[0].sum(), mha.in_proj_weight.grad)
