"""A sequence to sequence model with attention, teacher forcing, and a beam search."""

import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(1)
V, H, SOS, EOS = (8, 12, 0, 1)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(V, H)
        self.lstm = nn.LSTM(H, H, batch_first=True)

    def forward(self, x):
        return self.lstm(self.embedding(x))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.Wa, self.Ua, self.Va = (nn.Linear(H, H), nn.Linear(H, H), nn.Linear(H, 1))

    def forward(self, query, keys):
        scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys))).squeeze(2).unsqueeze(1)
        weights = F.softmax(scores, dim=-1)
        return (torch.bmm(weights, keys), weights)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(V, H)
        self.attention = Attention()
        self.gru = nn.GRU(2 * H, H, batch_first=True)
        self.out = nn.Linear(H, V)
        self.dropout = nn.Dropout(0.0)

    def step(self, token, hidden, enc):
        e = self.dropout(self.embedding(token))
        ctx, w = self.attention(hidden.permute(1, 0, 2), enc)
        o, hidden = self.gru(torch.cat((e, ctx), dim=2), hidden)
        return (self.out(o), hidden, w)

    def forward(self, enc, hidden, target=None, ratio=0.5):
        token = torch.empty(enc.size(0), 1, dtype=torch.long).fill_(SOS)
        outs, ws = ([], [])
        for i in range(5):
            o, hidden, w = self.step(token, hidden, enc)
            outs.append(o)
            ws.append(w)
            if target is not None and random.random() < ratio:
                token = target[:, i].unsqueeze(1)
            else:
                _, topi = o.topk(1)
                token = topi.squeeze(-1).detach()
        return (F.log_softmax(torch.cat(outs, dim=1), dim=-1), hidden, torch.cat(ws, dim=1))


enc, dec = (Encoder(), Decoder())
for m in (enc, dec):
    for n, p in m.named_parameters():
        nn.init.zeros_(p) if "bias" in n else p.data.copy_(
            torch.tensor(rng.normal(0, 0.4, p.shape))
        )
random.seed(3)
src = torch.tensor(rng.integers(2, V, (6, 5)))
tgt = torch.flip(src, [1])
opts = [torch.optim.Adam(enc.parameters(), lr=0.02), torch.optim.Adam(dec.parameters(), lr=0.02)]
criterion = nn.NLLLoss()
for epoch in range(8):
    for o in opts:
        o.zero_grad()
    outputs, (h, c) = enc(src)
    logp, _, w = dec(outputs, h, tgt)
    loss = criterion(logp.view(-1, logp.size(-1)), tgt.reshape(-1))
    loss.backward()
    norms = [nn.utils.clip_grad_norm_(m.parameters(), 1.0) for m in (enc, dec)]
    for o in opts:
        o.step()
    print(epoch, f"{loss.item():.4f}", [f"{n:.4f}" for n in norms], w.shape)


@torch.no_grad()
def beam(src, k=3):
    outputs, (h, _) = enc(src)
    beams = [([SOS], 0.0, h)]
    for _ in range(5):
        new = []
        for toks, score, h in beams:
            o, h2, _ = dec.step(torch.tensor([[toks[-1]]]), h, outputs)
            lp = F.log_softmax(o[0, 0], dim=-1)
            vals, idx = lp.topk(k)
            for v, i in zip(vals, idx):
                new.append((toks + [i.item()], score + v.item(), h2))
        beams = sorted(new, key=lambda b: b[1], reverse=True)[:k]
    return [(b[0], round(b[1], 3)) for b in beams]


for row in src[:2]:
    for toks, s in beam(row.unsqueeze(0)):
        print(toks, f"{s:.3f}")
