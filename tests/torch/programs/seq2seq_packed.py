"""A translator whose encoder reads packed sentences, with Luong attention, masks and scheduled sampling."""

import random

import numpy as np
import torch
from torch import nn, optim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

random.seed(3)
rng = np.random.default_rng(31)
PAD, SOS, EOS, VOCABULARY, HIDDEN = 0, 1, 2, 11, 6


def set_weights(module):
    for name, p in module.named_parameters():
        with torch.no_grad():
            p.copy_(torch.as_tensor(rng.uniform(-0.4, 0.4, p.size()), dtype=p.dtype))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, HIDDEN, padding_idx=PAD)
        self.rnn = nn.LSTM(HIDDEN, HIDDEN, num_layers=2, bidirectional=True, dropout=0.0)
        self.bridge = nn.ModuleDict({k: nn.Linear(2 * HIDDEN, HIDDEN) for k in ("h", "c")})

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(self.embed(tokens), lengths.cpu(), enforce_sorted=False)
        outputs, (h, c) = self.rnn(packed)
        outputs, out_lengths = pad_packed_sequence(outputs, padding_value=0.0)
        assert out_lengths.equal(lengths)
        h, c = (
            torch.tanh(self.bridge[k](torch.cat([s[-2], s[-1]], dim=-1)))
            for k, s in (("h", h), ("c", c))
        )
        return outputs, (h, c)


class LuongDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, HIDDEN, padding_idx=PAD)
        self.cell = nn.LSTMCell(HIDDEN, HIDDEN)
        self.general = nn.Linear(2 * HIDDEN, HIDDEN, bias=False)
        self.mix = nn.Linear(3 * HIDDEN, HIDDEN)
        self.project = nn.Linear(HIDDEN, VOCABULARY)

    def forward(self, token, state, memory, mask):
        h, c = self.cell(self.embed(token), state)
        scores = torch.einsum("bh,lbh->bl", h, self.general(memory))
        weights = scores.masked_fill(mask, float("-inf")).softmax(-1)
        context = torch.einsum("bl,lbd->bd", weights, memory)
        return self.project(torch.tanh(self.mix(torch.cat((h, context), 1)))), (h, c), weights


encoder, decoder = Encoder(), LuongDecoder()
set_weights(encoder)
set_weights(decoder)
sentences = [torch.tensor([*rng.integers(3, VOCABULARY, n).tolist(), EOS]) for n in (5, 3, 6, 2)]
source = pad_sequence(sentences, padding_value=PAD)
target = pad_sequence([s.flip(0).roll(-1) for s in sentences], padding_value=PAD)
lengths = torch.LongTensor([len(s) for s in sentences])
mask = (source == PAD).t()
criterion = nn.CrossEntropyLoss(ignore_index=PAD, reduction="sum")
optimizer = optim.Adam(
    [
        {"params": encoder.parameters()},
        {"params": decoder.parameters(), "lr": 0.05},
    ],
    lr=0.01,
)
for epoch in range(3):
    optimizer.zero_grad()
    memory, state = encoder(source, lengths)
    token = torch.full((source.size(1),), SOS, dtype=torch.long)
    loss, n_total = 0, 0
    for t in range(target.size(0)):
        logits, state, weights = decoder(token, state, memory, mask)
        loss = loss + criterion(logits, target[t])
        n_total += target[t].ne(PAD).sum().item()
        token = target[t] if random.random() < 0.6 else logits.argmax(1)
    (loss / n_total).backward()
    norms = [nn.utils.clip_grad_norm_(m.parameters(), 0.5) for m in (encoder, decoder)]
    optimizer.step()
    print(epoch, "%.5f" % (loss.item() / n_total), *("%.5f" % n for n in norms))
print(weights.masked_select(~mask).sum().item(), weights[mask].sum().item())
print(encoder.embed.weight.grad[PAD].abs().sum().item())
print(encoder.rnn.weight_ih_l1_reverse.grad.norm().item(), encoder.rnn.bias_hh_l0.grad.norm())
