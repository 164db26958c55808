"""Skip-grams, siamese and contrastive losses, packed sequences."""

from collections import Counter

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import (
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
)

rng = np.random.default_rng(3)
text = "the quick brown fox jumps over the lazy dog the fox".split()
vocab = {w: i for i, (w, _) in enumerate(Counter(text).most_common())}
print(vocab)
ctx = [
    (vocab[text[i]], vocab[text[j]])
    for i in range(len(text))
    for j in range(max(0, i - 2), min(len(text), i + 3))
    if i != j
]


class SkipGram(nn.Module):
    def __init__(self, v, d):
        super().__init__()
        self.u = nn.Embedding(v, d, sparse=False)
        self.v = nn.Embedding(v, d)
        nn.init.uniform_(self.u.weight, -0.5 / d, 0.5 / d)
        self.v.weight.data.zero_()

    def forward(self, c, p, n):
        u, v, neg = (self.u(c), self.v(p), -self.v(n))
        pos = F.logsigmoid((u * v).sum(1))
        ng = F.logsigmoid(torch.bmm(neg, u.unsqueeze(2)).squeeze(2)).sum(1)
        return -(pos + ng).mean()


m = SkipGram(len(vocab), 4)
m.u.weight.data = torch.tensor(rng.normal(0, 0.3, m.u.weight.shape), dtype=torch.float32)
opt = torch.optim.Adagrad(m.parameters(), lr=0.5)
for e in range(4):
    c, p = torch.tensor(ctx).T
    n = torch.tensor(rng.integers(0, len(vocab), (len(ctx), 3)))
    loss = m(c, p, n)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(e, loss)
emb = F.normalize(m.u.weight.detach(), dim=1)
sim = emb @ emb.T
v, i = sim[vocab["fox"]].topk(3)
print(v, i)


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 4, 3),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.fc = nn.Linear(4, 3)

    def one(self, x):
        return F.normalize(self.fc(self.cnn(x)))

    def forward(self, a, b):
        return (self.one(a), self.one(b))


s = Siamese()
for p in s.parameters():
    p.data = torch.tensor(rng.normal(0, 0.4, p.shape), dtype=torch.float32)


def contrastive(a, b, y, margin=1.0):
    d = F.pairwise_distance(a, b, keepdim=True)
    return torch.mean((1 - y) * d.pow(2) + y * torch.clamp(margin - d, min=0.0).pow(2))


opt = torch.optim.SGD(s.parameters(), lr=0.05, momentum=0.9)
for i in range(4):
    a, b = (torch.tensor(rng.normal(size=(6, 1, 8, 8)), dtype=torch.float32) for _ in range(2))
    y = torch.tensor(rng.integers(0, 2, (6, 1))).float()
    lost = contrastive(*s(a, b), y)
    opt.zero_grad()
    lost.backward()
    opt.step()
    print(i, f"{lost.item():.5f}", s.cnn[1].running_mean)
s.eval()
print(s.one(a)[0], s.cnn[1].num_batches_tracked)


def ntxent(z1, z2, t=0.5):
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    sim = z @ z.T / t
    n = len(z1)
    sim.fill_diagonal_(float("-inf"))
    tgt = torch.cat([torch.arange(n, 2 * n), torch.arange(n)])
    return F.cross_entropy(sim, tgt)


z1, z2 = (
    torch.tensor(rng.normal(size=(4, 3)), dtype=torch.float32, requires_grad=True) for _ in range(2)
)
lost = ntxent(z1, z2)
lost.backward()
print(lost, z1.grad)
tl = nn.TripletMarginLoss(margin=0.5, swap=True)(z1, z2, z1.flip(0))
print(
    tl, F.cosine_similarity(z1, z2), nn.CosineEmbeddingLoss()(z1, z2, torch.tensor([1, -1, 1, -1]))
)
seqs = [torch.tensor([1, 2, 3]), torch.tensor([4]), torch.tensor([5, 6])]
lens = torch.tensor([3, 1, 2])
pad = pad_sequence(seqs, batch_first=True)
print(pad)
e = nn.Embedding(7, 3, padding_idx=0)
print(e.weight[0], e)
e.weight.data[1:] = torch.arange(18.0).view(6, 3) / 10
packed = pack_padded_sequence(e(pad), lens, batch_first=True, enforce_sorted=False)
print(packed.batch_sizes, packed.sorted_indices, packed.data.shape)
rnn = nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)
for p in rnn.parameters():
    p.data = torch.tensor(rng.normal(0, 0.3, p.shape), dtype=torch.float32)
out, (h, c) = rnn(packed)
o, lost = pad_packed_sequence(out, batch_first=True, padding_value=-1.0)
print(o[:, :, 0], lost, h.shape, h[-1])
o.sum().backward()
print(e.weight.grad[:3])
cell = nn.GRUCell(3, 2)
[p.data.fill_(0.1) for p in cell.parameters()]
hx = torch.zeros(1, 2)
for t in range(3):
    hx = cell(torch.ones(1, 3) * t, hx)
print(hx, cell, nn.RNN(3, 2, nonlinearity="relu"), pack_sequence(seqs, enforce_sorted=False).data)
