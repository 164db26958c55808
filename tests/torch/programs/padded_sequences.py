"""Sequences of several lengths: packed, padded, in loaders; a recurrent cell; CTC."""

import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    SequentialSampler,
    Subset,
    TensorDataset,
    random_split,
)

rng = np.random.default_rng(7)


def T(*s):
    return torch.tensor(rng.normal(size=s).astype("f"))


class Text(Dataset):
    def __init__(self):
        self.rows = [
            (rng.integers(1, 20, n).tolist(), int(n % 2)) for n in (3, 7, 4, 9, 5, 6, 8, 2)
        ]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return torch.tensor(self.rows[i][0]), self.rows[i][1]


def collate(batch):
    xs, ys = zip(*batch)
    lens = torch.tensor([len(x) for x in xs])
    return pad_sequence(xs, batch_first=True, padding_value=0), torch.tensor(ys), lens


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(20, 6, padding_idx=0)
        self.rnn = nn.LSTM(6, 5, num_layers=2, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(10, 2)

    def forward(self, x, lens):
        p = pack_padded_sequence(self.emb(x), lens.cpu(), batch_first=True, enforce_sorted=False)
        o, (h, c) = self.rnn(p)
        o, n = pad_packed_sequence(o, batch_first=True)
        self.shape = tuple(o.shape)
        assert n.tolist() == lens.tolist()
        return self.fc(torch.cat([h[-2], h[-1]], dim=1))


m = Model()
with torch.no_grad():
    for p in m.parameters():
        p.copy_(T(*p.shape) * 0.3)
    m.emb.weight[0].fill_(0)
opt = torch.optim.Adagrad(m.parameters(), lr=0.1)
crit = nn.NLLLoss(reduction="mean")
loader = DataLoader(Text(), batch_size=3, shuffle=False, collate_fn=collate, drop_last=False)
for epoch in range(2):
    tot = 0.0
    for i, (x, y, lens) in enumerate(loader):
        opt.zero_grad()
        loss = crit(m(x, lens).log_softmax(dim=-1), y)
        loss.backward()
        opt.step()
        tot += loss.item() * y.size(0)
        print(m.shape, end=" ")
    print(
        epoch,
        round(tot / len(loader.dataset), 4),
        m.emb.weight.grad[0].abs().sum().item(),
        len(loader),
    )
gru = nn.GRUCell(4, 3)
with torch.no_grad():
    for p in gru.parameters():
        p.copy_(T(*p.shape) * 0.3)
h = torch.zeros(2, 3)
for t in range(3):
    h = gru(T(2, 4), h)
print([round(v, 4) for v in h.flatten().tolist()])
ctc = nn.CTCLoss(blank=0, zero_infinity=True)
raw = T(10, 2, 5).requires_grad_()
lp = raw.log_softmax(2)
found = ctc(
    lp, torch.tensor([[1, 2, 2, 3], [4, 1, 0, 0]]), torch.tensor([10, 8]), torch.tensor([4, 2])
)
found.backward()
print(round(found.item(), 4), round(raw.grad.abs().sum().item(), 4))
print(
    [len(b) for b in BatchSampler(SequentialSampler(range(7)), 3, True)],
    len(list(Subset(Text(), [1, 2]))),
)
tr, te = random_split(
    TensorDataset(torch.arange(10), torch.arange(10) * 2),
    [7, 3],
    generator=torch.Generator().manual_seed(0),
)
print(len(tr), len(te), sorted(int(a) for a, b in [*tr, *te]))
