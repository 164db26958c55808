"""A bidirectional GRU over packed sequences of several lengths."""

import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

rng = np.random.default_rng(6)
lengths = [7, 3, 5, 2]
sequences = [torch.tensor(rng.integers(1, 20, n)) for n in lengths]
labels = torch.tensor([1.0, 0.0, 1.0, 0.0])


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 6, padding_idx=0)
        self.gru = nn.GRU(6, 8, bidirectional=True, batch_first=True)
        self.out = nn.Linear(16, 1)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(
            self.embed(x), lengths, batch_first=True, enforce_sorted=False
        )
        output, hidden = self.gru(packed)
        output, sizes = pad_packed_sequence(output, batch_first=True)
        last = torch.cat([hidden[0], hidden[1]], dim=1)
        return self.out(last).squeeze(1), output, sizes


model = Tagger()
with torch.no_grad():
    for p in model.parameters():
        p.copy_(torch.tensor(rng.normal(0, 0.3, tuple(p.shape)), dtype=torch.float32))
    model.embed.weight[0].zero_()
padded = pad_sequence(sequences, batch_first=True, padding_value=0)
print(padded.shape, padded[1].tolist())
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
for _ in range(5):
    logits, output, sizes = model(padded, torch.tensor(lengths))
    loss = nn.functional.binary_cross_entropy_with_logits(logits, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
print(output.shape, sizes.tolist())
print(f"{model.embed.weight.grad[0].abs().sum().item():.4f}")
print(f"{output[1, 3:].abs().sum().item():.4f}")
