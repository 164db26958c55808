"""Networks whose shape is that of each example: a child-sum Tree-LSTM over expression trees, a
pointer network that sorts, packed sequences of unequal lengths through stacked LSTMs.
"""

import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence, unpack_sequence


def fill(model, seed):
    rng = np.random.RandomState(seed)
    for p in model.parameters():
        nn.init.constant_(p, 0.0)
        with torch.no_grad():
            p.add_(torch.tensor(rng.uniform(-0.35, 0.35, tuple(p.shape)), dtype=p.dtype))
    return model


class Tree:
    def __init__(self, word, children=()):
        self.word, self.children = word, list(children)

    def value(self):
        values = [c.value() for c in self.children]
        return self.word if not values else (sum(values) if self.word % 2 else max(values))

    def depth(self):
        return 1 + max((c.depth() for c in self.children), default=0)


def grow(draw, depth):
    if depth == 0 or draw.random() < 0.3:
        return Tree(draw.randint(0, 7))
    return Tree(8 + draw.randint(0, 1), [grow(draw, depth - 1) for _ in range(draw.randint(1, 3))])


class ChildSumTreeLSTM(nn.Module):
    def __init__(self, words, inside, size):
        super().__init__()
        self.size = size
        self.embedding = nn.Embedding(words, inside)
        self.ioux, self.iouh = nn.Linear(inside, 3 * size), nn.Linear(size, 3 * size, bias=False)
        self.fx, self.fh = nn.Linear(inside, size), nn.Linear(size, size, bias=False)
        self.out = nn.Sequential(nn.Linear(size, 8), nn.ReLU6(), nn.Linear(8, 1))

    def node(self, x, child_c, child_h):
        iou = self.ioux(x) + self.iouh(child_h.sum(0, keepdim=True))
        i, o, u = iou.chunk(3, dim=1)
        f = torch.sigmoid(self.fh(child_h) + self.fx(x).repeat(len(child_h), 1))
        c = torch.mul(i.sigmoid(), u.tanh()) + torch.sum(torch.mul(f, child_c), dim=0, keepdim=True)
        return c, torch.mul(o.sigmoid(), c.tanh())

    def encode(self, tree):
        states = [self.encode(child) for child in tree.children]
        if states:
            child_c, child_h = map(lambda s: torch.cat(s, dim=0), zip(*states))
        else:
            child_c = child_h = self.fh.weight.new_zeros(1, self.size)
        return self.node(self.embedding(torch.tensor([tree.word])), child_c, child_h)

    def forward(self, tree):
        return self.out(self.encode(tree)[1]).squeeze()


draw = random.Random(3)
trees = [grow(draw, 3) for _ in range(8)]
wanted = torch.tensor([t.value() / 10 for t in trees])
print("depths", [t.depth() for t in trees], [f"{v:.1f}" for v in wanted.tolist()])
model = fill(ChildSumTreeLSTM(10, 6, 8), 0)
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1, weight_decay=1e-4)
for epoch in range(3):
    optimizer.zero_grad()
    total = 0.0
    for tree, target in zip(trees, wanted):
        loss = F.smooth_l1_loss(model(tree), target)
        (loss / len(trees)).backward()
        total += loss.item()
    optimizer.step()
    print(
        f"tree {epoch} {total:.5f} {model.iouh.weight.grad.norm():.5f} {model.embedding.weight.grad.abs().sum():.4f}"
    )


class Pointer(nn.Module):
    """Points at its inputs, one after the other, each once."""

    def __init__(self, hidden):
        super().__init__()
        self.encoder, self.decoder = nn.LSTM(1, hidden, batch_first=True), nn.LSTMCell(1, hidden)
        self.w1, self.w2 = (
            nn.Linear(hidden, hidden, bias=False),
            nn.Linear(hidden, hidden, bias=False),
        )
        self.v = nn.Linear(hidden, 1, bias=False)
        self.start = nn.Parameter(torch.FloatTensor(1).fill_(-1.0))

    def forward(self, x, target=None):
        n, length = x.shape
        keys, (h, c) = self.encoder(x.unsqueeze(-1))
        h, c = h.squeeze(0), c.squeeze(0)
        mask = torch.zeros_like(x, dtype=torch.bool)
        given, logits, picks = self.start.expand(n, 1), [], []
        for step in range(length):
            h, c = self.decoder(given, (h, c))
            scores = self.v(torch.tanh(self.w1(keys) + self.w2(h).unsqueeze(1))).squeeze(-1)
            scores = scores.masked_fill(mask, float("-inf"))
            pick = scores.argmax(-1) if target is None else target[:, step]
            mask = mask.scatter(1, pick.unsqueeze(1), True)
            given = x.gather(1, pick.view(-1, 1))
            logits.append(scores)
            picks.append(pick)
        return torch.stack(logits, 1), torch.stack(picks, 1)


rng = np.random.RandomState(1)
values = torch.from_numpy(rng.rand(12, 5).astype(np.float32))
order = values.argsort(dim=1)
pointer = fill(Pointer(10), 2)
optimizer = torch.optim.Adam(pointer.parameters(), lr=0.01)
for step in range(4):
    logits, _ = pointer(values, order)
    loss = F.nll_loss(F.log_softmax(logits, -1).flatten(0, 1), order.reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(pointer.parameters(), 2.0)
    optimizer.step()
    print(f"pointer {step} {loss.item():.5f} {norm.item():.5f} {pointer.start.grad.item():.6f}")
with torch.no_grad():
    _, picks = pointer.eval()(values[:3])
    print("picks", picks.tolist(), picks.sort(1).values.unique(dim=0).tolist())

lines = [torch.from_numpy(rng.randn(n, 3).astype(np.float32)) for n in (4, 2, 6, 3)]
packed = pack_sequence(lines, enforce_sorted=False)
print(
    "packed", packed.batch_sizes.tolist(), packed.sorted_indices.tolist(), tuple(packed.data.shape)
)
rnn = fill(nn.LSTM(3, 5, num_layers=2, bidirectional=True, proj_size=0, dropout=0.0), 3)
out, (h, c) = rnn(packed)
padded, sizes = pad_packed_sequence(out, padding_value=-1.0, total_length=7)
(padded[padded != -1].sum() + c.pow(2).sum() + h[-1].prod()).backward()
print(
    tuple(padded.shape),
    sizes.tolist(),
    f"{h.sum().item():.5f}",
    [f"{p.grad.norm():.4f}" for n, p in rnn.named_parameters() if "weight" in n],
)
print([f"{each.mean().item():.5f}" for each in unpack_sequence(out)])
