"""Encoder and decoder with attention, teacher forcing and greedy decoding."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(15)
SOS, EOS, V, H = 0, 1, 9, 8


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(V, H)
        self.gru = nn.GRU(H, H, batch_first=True)

    def forward(self, x):
        return self.gru(self.embedding(x))


class BahdanauAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.Wa, self.Ua, self.Va = nn.Linear(H, H), nn.Linear(H, H), nn.Linear(H, 1)

    def forward(self, query, keys):
        scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys))).squeeze(2).unsqueeze(1)
        weights = F.softmax(scores, dim=-1)
        return torch.bmm(weights, keys), weights


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(V, H)
        self.attention = BahdanauAttention()
        self.gru = nn.GRU(2 * H, H, batch_first=True)
        self.out = nn.Linear(H, V)

    def forward(self, encoder_outputs, hidden, target=None, steps=4):
        token = torch.empty(encoder_outputs.size(0), 1, dtype=torch.long).fill_(SOS)
        outputs = []
        for i in range(steps):
            context, _ = self.attention(hidden.permute(1, 0, 2), encoder_outputs)
            x = torch.cat((self.embedding(token), context), dim=2)
            out, hidden = self.gru(x, hidden)
            outputs.append(self.out(out))
            if target is not None:
                token = target[:, i].unsqueeze(1)
            else:
                _, top = outputs[-1].topk(1)
                token = top.squeeze(-1).detach()
        return F.log_softmax(torch.cat(outputs, dim=1), dim=-1)


encoder, decoder = Encoder(), Decoder()
for p in [*encoder.parameters(), *decoder.parameters()]:
    p.data.copy_(torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape))))
src = torch.tensor(rng.integers(2, V, (5, 4)))
tgt = torch.flip(src, dims=[1])
opt_e = torch.optim.Adam(encoder.parameters(), lr=0.02)
opt_d = torch.optim.Adam(decoder.parameters(), lr=0.02)
for epoch in range(4):
    opt_e.zero_grad()
    opt_d.zero_grad()
    outputs, hidden = encoder(src)
    logp = decoder(outputs, hidden, tgt)
    loss = nn.NLLLoss()(logp.view(-1, logp.size(-1)), tgt.reshape(-1))
    loss.backward()
    opt_e.step()
    opt_d.step()
    print(f"{epoch} {loss.item():.5f}")
with torch.no_grad():
    logp = decoder(*encoder(src))
    print(f"{logp.max(dim=-1).values.mean().item():.4f}", tuple(logp.argmax(-1).shape))
