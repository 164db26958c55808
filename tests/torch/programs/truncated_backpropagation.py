"""Recurrent language models with tied weights, whose state is cut off from one stretch to the next."""

import torch
import torch.nn as nn


def fill(m, s=0.3):
    with torch.no_grad():
        for i, p in enumerate(m.parameters()):
            p.copy_(
                (
                    torch.sin(torch.arange(p.numel(), dtype=torch.float32) * (i + 1) * 0.37) * s
                ).view_as(p)
            )


def repackage_hidden(h):
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)


class LM(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.encoder = nn.Embedding(9, 6)
        if kind in ("LSTM", "GRU"):
            self.rnn = getattr(nn, kind)(6, 6, 2, dropout=0.0)
        else:
            self.rnn = nn.RNN(6, 6, 2, nonlinearity={"RNN_TANH": "tanh", "RNN_RELU": "relu"}[kind])
        self.decoder = nn.Linear(6, 9)
        self.decoder.weight = self.encoder.weight
        self.kind = kind

    def forward(self, x, h):
        o, h = self.rnn(self.encoder(x), h)
        d = self.decoder(o).view(-1, 9)
        return nn.functional.log_softmax(d, dim=1), h

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        if self.kind == "LSTM":
            return (weight.new_zeros(2, bsz, 6), weight.new_zeros(2, bsz, 6))
        return weight.new_zeros(2, bsz, 6)


def batchify(data, bsz):
    nb = data.size(0) // bsz
    return data.narrow(0, 0, nb * bsz).view(bsz, -1).t().contiguous()


corpus = torch.arange(101) ** 2 % 9
d = batchify(corpus, 4)
print(d.shape, d[:3])
for kind in ("LSTM", "GRU", "RNN_TANH", "RNN_RELU"):
    m = LM(kind)
    fill(m)
    h = m.init_hidden(4)
    crit = nn.NLLLoss()
    lr = 0.5
    tot = 0.0
    for i in range(0, d.size(0) - 1, 6):
        n = min(6, len(d) - 1 - i)
        x, y = d[i : i + n], d[i + 1 : i + 1 + n].view(-1)
        m.zero_grad()
        h = repackage_hidden(h)
        out, h = m(x, h)
        loss = crit(out, y)
        loss.backward()
        g = torch.nn.utils.clip_grad_norm_(m.parameters(), 0.25)
        for p in m.parameters():
            p.data.add_(p.grad, alpha=-lr)
        tot += loss.item()
        print(kind, i, f"{loss.item():.4f} {g:.4f}")
    print(m)
    print(
        sum(p.numel() for p in m.parameters()),
        m.rnn.weight_ih_l0.shape,
        [n for n, _ in m.rnn.named_parameters()],
    )
    m.rnn.flatten_parameters()
c = nn.LSTMCell(3, 4)
fill(c)
hx = torch.zeros(2, 4)
cx = torch.zeros(2, 4)
for i in range(3):
    hx, cx = c(torch.ones(2, 3) * i, (hx, cx))
print(hx, cx, c)
