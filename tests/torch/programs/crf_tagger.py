"""A linear-chain CRF over a bidirectional LSTM: forward algorithm and Viterbi."""

import numpy as np
import torch
import torch.nn as nn
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


class CRF(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.trans = nn.Parameter(torch.zeros(tags, tags))
        self.start, self.end = nn.Parameter(torch.zeros(tags)), nn.Parameter(torch.zeros(tags))

    def forward(self, emissions, tags, mask):
        return (self.partition(emissions, mask) - self.score(emissions, tags, mask)).mean()

    def score(self, e, tags, mask):
        b, t, _ = e.shape
        s = self.start[tags[:, 0]] + e[torch.arange(b), 0, tags[:, 0]]
        for i in range(1, t):
            step = self.trans[tags[:, i - 1], tags[:, i]] + e[torch.arange(b), i, tags[:, i]]
            s = s + step * mask[:, i]
        last = mask.long().sum(1) - 1
        return s + self.end[tags.gather(1, last[:, None]).squeeze(1)]

    def partition(self, e, mask):
        a = self.start + e[:, 0]
        for i in range(1, e.size(1)):
            new = torch.logsumexp(a.unsqueeze(2) + self.trans + e[:, i].unsqueeze(1), dim=1)
            a = torch.where(mask[:, i].unsqueeze(1), new, a)
        return torch.logsumexp(a + self.end, dim=1)

    @torch.no_grad()
    def decode(self, e):
        score, back = self.start + e[:, 0], []
        for i in range(1, e.size(1)):
            best, where = (score.unsqueeze(2) + self.trans).max(dim=1)
            score = best + e[:, i]
            back.append(where)
        path = [(score + self.end).argmax(1)]
        for where in reversed(back):
            path.append(where.gather(1, path[-1].unsqueeze(1)).squeeze(1))
        return torch.stack(path[::-1], 1)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(12, 6, padding_idx=0)
        self.lstm = nn.LSTM(6, 5, bidirectional=True, batch_first=True)
        self.out = nn.Linear(10, 4)
        self.crf = CRF(4)

    def emissions(self, ids, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(
            self.emb(ids), lengths, batch_first=True, enforce_sorted=False
        )
        h, _ = self.lstm(packed)
        h, _ = nn.utils.rnn.pad_packed_sequence(h, batch_first=True)
        return self.out(h)


rng = np.random.RandomState(0)
lengths = torch.tensor([7, 4, 6])
ids = torch.from_numpy(rng.randint(1, 12, (3, 7)))
mask = torch.arange(7)[None] < lengths[:, None]
ids = ids.masked_fill(~mask, 0)
tags = ids.remainder(4)
model = init(Tagger())
optimizer = optim.Adam(model.parameters(), lr=0.1)
for step in range(12):
    optimizer.zero_grad()
    loss = model.crf(model.emissions(ids, lengths), tags, mask)
    loss.backward()
    optimizer.step()
    if step % 3 == 0:
        print(step, f"{loss.item():.4f} {grad_norm(model):.4f}")
print(model.crf.decode(model.emissions(ids, lengths)).masked_fill(~mask, -1).tolist())
print(model.crf.trans.detach().numpy().round(2).tolist())
