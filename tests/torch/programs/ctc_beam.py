"""CTC on a small recognizer, and its best path by a prefix beam search."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
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


class Recognizer(nn.Module):
    def __init__(self, features=5, hidden=8, classes=6):
        super().__init__()
        self.conv = nn.Conv1d(features, hidden, 3, padding=1)
        self.rnn = nn.GRU(hidden, hidden, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(2 * hidden, classes)

    def forward(self, x):
        x = F.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        x, _ = self.rnn(x)
        return F.log_softmax(self.fc(x), dim=-1)


rng = np.random.RandomState(0)
x = torch.from_numpy(rng.randn(3, 12, 5).astype(np.float32))
input_lengths = torch.tensor([12, 10, 8])
targets = [torch.tensor([1, 2, 2, 3]), torch.tensor([4, 5]), torch.tensor([1, 1, 5])]
target_lengths = torch.tensor([len(t) for t in targets])
padded = nn.utils.rnn.pad_sequence(targets, batch_first=True)
model = init(Recognizer())
ctc = nn.CTCLoss(blank=0, reduction="mean", zero_infinity=True)
optimizer = optim.Adam(model.parameters(), lr=0.03)
for step in range(10):
    logp = model(x)
    loss = ctc(logp.permute(1, 0, 2), padded, input_lengths, target_lengths)
    flat = F.ctc_loss(
        logp.permute(1, 0, 2),
        torch.cat(targets),
        tuple(input_lengths.tolist()),
        tuple(target_lengths.tolist()),
        reduction="none",
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 3 == 0:
        print(
            step, f"{loss.item():.4f} {grad_norm(model):.4f}", [round(v, 3) for v in flat.tolist()]
        )


def beam(logp, width=4):
    beams = {(): (0.0, -math.inf)}
    for row in logp.tolist():
        new = {}
        for prefix, (pb, pnb) in beams.items():
            for c, p in enumerate(row):
                b, nb = new.get(prefix, (-math.inf, -math.inf))
                if c == 0:
                    new[prefix] = (np.logaddexp(b, p + np.logaddexp(pb, pnb)), nb)
                    continue
                if prefix and prefix[-1] == c:
                    new[prefix] = (b, np.logaddexp(nb, p + pnb))
                    gain = p + pb
                else:
                    gain = p + np.logaddexp(pb, pnb)
                longer = prefix + (c,)
                lb, lnb = new.get(longer, (-math.inf, -math.inf))
                new[longer] = (lb, np.logaddexp(lnb, gain))
        beams = dict(sorted(new.items(), key=lambda kv: -np.logaddexp(*kv[1]))[:width])
    return max(beams.items(), key=lambda kv: np.logaddexp(*kv[1]))


with torch.no_grad():
    for i in range(3):
        prefix, score = beam(model(x)[i, : input_lengths[i]])
        print(
            prefix,
            round(float(np.logaddexp(*score)), 3),
            torch.unique_consecutive(model(x)[i].argmax(-1)).tolist(),
        )
