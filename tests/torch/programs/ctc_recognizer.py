"""A recognizer of sequences trained with CTC, decoded greedily."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

rng = np.random.default_rng(31)


def filled(module, scale=0.2):
    for p in module.parameters():
        p.data.copy_(torch.from_numpy(rng.normal(0, scale, tuple(p.shape)).astype(np.float32)))
    return module


class Recognizer(nn.Module):
    def __init__(self, features, hidden, classes):
        super().__init__()
        self.conv = nn.Conv1d(features, hidden, 3, padding=1)
        self.rnn = nn.LSTM(hidden, hidden, bidirectional=True)
        self.head = nn.Linear(2 * hidden, classes)

    def forward(self, x):
        h = torch.relu(self.conv(x.permute(1, 2, 0))).permute(2, 0, 1)
        out, (h_n, c_n) = self.rnn(h)
        return F.log_softmax(self.head(out), dim=2), h_n


model = filled(Recognizer(6, 8, 5))
x = torch.from_numpy(rng.standard_normal((12, 3, 6)).astype(np.float32))
targets = torch.tensor([[1, 2, 3, 0], [2, 2, 4, 1], [3, 1, 0, 0]])
input_lengths = torch.tensor([12, 11, 9])
target_lengths = torch.tensor([3, 4, 2])
criterion = nn.CTCLoss(blank=0, zero_infinity=True)
optimizer = torch.optim.RMSprop(model.parameters(), lr=5e-3, momentum=0.5)
for step in range(6):
    optimizer.zero_grad()
    log_probs, state = model(x)
    loss = criterion(log_probs, targets, input_lengths, target_lengths)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 2.0)
    optimizer.step()
    print(f"step {step} loss {loss.item():.4f} norm {norm:.4f}")
best = log_probs.argmax(dim=-1).T
print(best.shape, state.shape)
for row, length in zip(best, input_lengths.tolist()):
    collapsed = torch.unique_consecutive(row[:length])
    print([int(c) for c in collapsed if c != 0])
flat = torch.cat([t[:n] for t, n in zip(targets, target_lengths)])
print(f"{F.ctc_loss(log_probs, flat, input_lengths, target_lengths, reduction='sum').item():.3f}")
