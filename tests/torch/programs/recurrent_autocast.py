"""A tagger of LSTM, GRU and RNN trained under autocast, with packed sequences."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.manual_seed(0)


class Tagger(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embed = nn.Embedding(12, 8)
        self.norm = nn.LayerNorm(8)
        self.rnn = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}[kind](8, 10, batch_first=True)
        self.out = nn.Linear(10, 4)

    def forward(self, x, lengths):
        h = self.norm(self.embed(x))
        p = pack_padded_sequence(h, lengths, batch_first=True, enforce_sorted=False)
        o, _ = self.rnn(p)
        o, n = pad_packed_sequence(o, batch_first=True)
        return o.dtype, self.out(o), n


x = torch.arange(24).reshape(4, 6) % 12
lengths = torch.tensor([6, 3, 5, 2])
y = (x * 3) % 4
for kind in ("lstm", "gru", "rnn"):
    net = Tagger(kind)
    with torch.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(torch.sin(torch.arange(p.numel()).float() * 0.7 + i).reshape(p.shape) * 0.4)
    opt = torch.optim.AdamW(net.parameters(), lr=0.05)
    for step in range(4):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inner, logits, n = net(x, lengths)
            mask = torch.arange(logits.shape[1])[None] < n[:, None]
            loss = F.cross_entropy(logits[mask], y[:, : logits.shape[1]][mask])
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(kind, step, inner, logits.dtype, loss.dtype, f"{loss.item():.1f}")
    print(sorted({str(p.grad.dtype) for p in net.parameters()}))
h = nn.GRUCell(8, 10)
with torch.autocast("cpu"):
    s = torch.zeros(4, 10)
    for t in range(3):
        s = h(torch.ones(4, 8), s)
    print(
        s.dtype,
        nn.LSTMCell(8, 10)(torch.ones(4, 8))[1].dtype,
        nn.RNNCell(8, 10)(torch.ones(4, 8)).dtype,
    )
