"""Speech as a tutorial has it: framed features, convolutions, a packed bidirectional GRU, CTC with lengths, greedy and beam decoding, word errors."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    unpack_sequence,
)

rng = np.random.default_rng(52)
ALPHABET = "_abcd"


class CNNLayerNorm(nn.Module):
    def __init__(self, n_feats):
        super().__init__()
        self.layer_norm = nn.LayerNorm(n_feats)

    def forward(self, x):
        return self.layer_norm(x.transpose(2, 3).contiguous()).transpose(2, 3).contiguous()


class ResidualCNN(nn.Module):
    def __init__(self, channels, n_feats):
        super().__init__()
        self.cnn = nn.Conv2d(channels, channels, 3, 1, padding=1)
        self.norm = CNNLayerNorm(n_feats)

    def forward(self, x):
        return x + self.cnn(F.gelu(self.norm(x)))


class SpeechModel(nn.Module):
    def __init__(self, n_feats=8, channels=3, hidden=6):
        super().__init__()
        self.cnn = nn.Conv2d(1, channels, 3, stride=(2, 1), padding=1)
        self.res = nn.Sequential(*[ResidualCNN(channels, n_feats // 2) for _ in range(2)])
        self.fully = nn.Linear(channels * n_feats // 2, hidden)
        self.gru = nn.GRU(hidden, hidden, num_layers=2, batch_first=True, bidirectional=True)
        self.classifier = nn.Sequential(
            nn.Linear(2 * hidden, hidden), nn.GELU(), nn.Linear(hidden, len(ALPHABET))
        )

    def forward(self, x, lengths):
        x = self.res(self.cnn(x))
        b, c, f, t = x.size()
        x = self.fully(x.view(b, c * f, t).transpose(1, 2))
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, _ = self.gru(packed)
        out, lengths = pad_packed_sequence(out, batch_first=True, total_length=t)
        return F.log_softmax(self.classifier(out), dim=2).transpose(0, 1), lengths


def greedy(log_probs, lengths):
    found = []
    for row, n in zip(log_probs.argmax(2).t(), lengths):
        kept = torch.unique_consecutive(row[:n])
        found.append("".join(ALPHABET[i] for i in kept[kept != 0]))
    return found


def beam(log_probs, width=3):
    beams = {"": (0.0, -np.inf)}
    for step in log_probs.tolist():
        new = {}
        for text, (blank, other) in beams.items():
            total = np.logaddexp(blank, other)
            for i, lp in enumerate(step):
                if i == 0:
                    b, o = new.get(text, (-np.inf, -np.inf))
                    new[text] = (np.logaddexp(b, total + lp), o)
                else:
                    ch = ALPHABET[i]
                    base = blank if text and text[-1] == ch else total
                    b, o = new.get(text + ch, (-np.inf, -np.inf))
                    new[text + ch] = (b, np.logaddexp(o, base + lp))
                    if text and text[-1] == ch:
                        b, o = new.get(text, (-np.inf, -np.inf))
                        new[text] = (b, np.logaddexp(o, other + lp))
        beams = dict(sorted(new.items(), key=lambda kv: -np.logaddexp(*kv[1]))[:width])
    return max(beams, key=lambda k: np.logaddexp(*beams[k]))


model = SpeechModel()
for p in model.parameters():
    p.data.copy_(torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape))))
x = torch.from_numpy(rng.normal(size=(3, 1, 8, 12))).float()
lengths, targets = torch.tensor([12, 9, 10]), torch.tensor([1, 2, 2, 3, 4, 1, 2])
target_lengths = torch.tensor([3, 2, 2])
criterion = nn.CTCLoss(blank=0, zero_infinity=True)
optimizer = torch.optim.AdamW(model.parameters(), 5e-3)
scheduler = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, max_lr=2e-2, steps_per_epoch=1, epochs=5, anneal_strategy="linear"
)
for epoch in range(4):
    optimizer.zero_grad()
    output, out_lengths = model(x, lengths)
    loss = criterion(output, targets, out_lengths, target_lengths)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    scheduler.step()
    print(
        f"{epoch} {loss.item():.5f} {model.gru.weight_hh_l1_reverse.grad.norm():.5f} {scheduler.get_last_lr()[0]:.5f}"
    )
model.eval()
with torch.no_grad():
    output, out_lengths = model(x, lengths)
print([len(t) for t in greedy(output, out_lengths)], len(beam(output[:, 0])))
none = F.ctc_loss(output, targets, out_lengths, target_lengths, reduction="none")
print(none, F.ctc_loss(output, targets, out_lengths, target_lengths, reduction="sum"))
impossible = F.ctc_loss(
    output[:2],
    torch.tensor([[1, 1, 1]] * 3),
    torch.tensor([2, 2, 2]),
    torch.tensor([3, 3, 3]),
    reduction="none",
)
print(
    impossible,
    F.ctc_loss(output[:2], torch.tensor([[1, 1, 1]] * 3), (2, 2, 2), (3, 3, 3), zero_infinity=True),
)
packed = pack_sequence([torch.ones(3, 2), torch.ones(2, 2) * 2, torch.ones(1, 2) * 3])
print(
    packed.batch_sizes,
    packed.data[:, 0],
    isinstance(packed, PackedSequence),
    [len(t) for t in unpack_sequence(packed)],
)
