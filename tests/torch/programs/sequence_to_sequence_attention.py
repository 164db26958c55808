"""Sequence to sequence attention."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
)

SOS, EOS, PAD = 0, 1, 2


def fill(m, s=0.3):
    with torch.no_grad():
        for i, p in enumerate(m.parameters()):
            p.copy_(
                (
                    torch.sin(torch.arange(p.numel(), dtype=torch.float32) * (i + 1) * 0.37) * s
                ).view_as(p)
            )


class EncoderRNN(nn.Module):
    def __init__(self, n, h):
        super().__init__()
        self.embedding = nn.Embedding(n, h, padding_idx=PAD)
        self.gru = nn.GRU(h, h, batch_first=True, bidirectional=True)
        self.reduce = nn.Linear(2 * h, h)
        self.dropout = nn.Dropout(0.0)

    def forward(self, x, lengths):
        e = self.dropout(self.embedding(x))
        packed = pack_padded_sequence(e, lengths, batch_first=True, enforce_sorted=False)
        out, hid = self.gru(packed)
        out, lens = pad_packed_sequence(out, batch_first=True)
        return (
            self.reduce(out),
            torch.tanh(self.reduce(torch.cat([hid[0], hid[1]], dim=-1))).unsqueeze(0),
            lens,
        )


class BahdanauAttention(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.Wa = nn.Linear(h, h)
        self.Ua = nn.Linear(h, h)
        self.Va = nn.Linear(h, 1)

    def forward(self, q, k, mask):
        s = self.Va(torch.tanh(self.Wa(q) + self.Ua(k))).squeeze(2).unsqueeze(1)
        s = s.masked_fill(mask.unsqueeze(1), float("-inf"))
        w = F.softmax(s, dim=-1)
        return torch.bmm(w, k), w


class Decoder(nn.Module):
    def __init__(self, h, n):
        super().__init__()
        self.embedding = nn.Embedding(n, h)
        self.attention = BahdanauAttention(h)
        self.gru = nn.GRU(2 * h, h, batch_first=True)
        self.out = nn.Linear(h, n)

    def forward(self, enc, hid, mask, target=None, steps=5):
        b = enc.size(0)
        inp = torch.empty(b, 1, dtype=torch.long).fill_(SOS)
        outs, atts = [], []
        for i in range(steps):
            e = self.embedding(inp)
            ctx, w = self.attention(hid.permute(1, 0, 2), enc, mask)
            o, hid = self.gru(torch.cat((e, ctx), dim=2), hid)
            o = self.out(o)
            outs.append(o)
            atts.append(w)
            if target is not None:
                inp = target[:, i].unsqueeze(1)
            else:
                _, topi = o.topk(1)
                inp = topi.squeeze(-1).detach()
        outs = torch.cat(outs, dim=1)
        return F.log_softmax(outs, dim=-1), hid, torch.cat(atts, dim=1)


enc, dec = EncoderRNN(11, 8), Decoder(8, 11)
fill(enc)
fill(dec)
srcs = [torch.tensor([3, 4, 5, 1]), torch.tensor([6, 7, 1]), torch.tensor([8, 9, 10, 4, 1])]
lens = torch.tensor([len(s) for s in srcs])
src = pad_sequence(srcs, batch_first=True, padding_value=PAD)
print(src)
tgt = pad_sequence([s.flip(0) for s in srcs], batch_first=True, padding_value=PAD)
params = list(enc.parameters()) + list(dec.parameters())
opt = torch.optim.Adam(params, lr=0.02)
crit = nn.NLLLoss(ignore_index=PAD)
for epoch in range(12):
    opt.zero_grad()
    eo, eh, l2 = enc(src, lens)
    mask = torch.arange(eo.size(1))[None, :] >= l2[:, None]
    lp, _, att = dec(eo, eh, mask, tgt, tgt.size(1))
    loss = crit(lp.reshape(-1, lp.size(-1)), tgt.reshape(-1))
    loss.backward()
    n = nn.utils.clip_grad_norm_(params, 1.0)
    opt.step()
    if epoch % 3 == 0:
        print(epoch, f"{loss.item():.4f} {n.item():.4f}")
print(att[1].detach())
print(enc.embedding.weight.grad[PAD].abs().sum())
with torch.no_grad():
    eo, eh, l2 = enc(src, lens)
    lp, _, _ = dec(eo, eh, torch.arange(eo.size(1))[None, :] >= l2[:, None])
    print(lp.argmax(-1))
p = pack_sequence([torch.tensor([1.0, 2, 3]), torch.tensor([4.0, 5])], enforce_sorted=True)
print(p)
print(p.data, p.batch_sizes, p.sorted_indices, isinstance(p, PackedSequence))
print(enc)
print(dec)
