"""Skip-gram with negative sampling on a small text."""

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


text = (
    "the quick brown fox jumps over the lazy dog and the quick cat sleeps near the lazy fox".split()
)
vocab = sorted(set(text))
index = {w: i for i, w in enumerate(vocab)}
pairs = [
    (index[text[i]], index[text[j]])
    for i in range(len(text))
    for j in range(max(0, i - 2), min(len(text), i + 3))
    if i != j
]
centers, contexts = torch.tensor(pairs, dtype=torch.long).t()


class SkipGram(nn.Module):
    def __init__(self, vocab_size, dim):
        super().__init__()
        self.center = nn.Embedding(vocab_size, dim, sparse=True)
        self.context = nn.Embedding(vocab_size, dim, sparse=True)

    def forward(self, center, positive, negative):
        v = self.center(center)
        pos = (v * self.context(positive)).sum(1)
        neg = torch.bmm(self.context(negative), v.unsqueeze(2)).squeeze(2)
        return -(F.logsigmoid(pos) + F.logsigmoid(-neg).sum(1)).mean()


model = init(SkipGram(len(vocab), 8))
optimizer = optim.SparseAdam(list(model.parameters()), lr=0.05)
rng = np.random.RandomState(1)
for epoch in range(5):
    negatives = torch.from_numpy(rng.randint(0, len(vocab), (len(centers), 4)))
    optimizer.zero_grad()
    loss = model(centers, contexts, negatives)
    loss.backward()
    optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
emb = F.normalize(model.center.weight.detach(), dim=1)
sim = emb @ emb.T
sim.fill_diagonal_(-1)
value, best = sim[index["fox"]].max(0)
print(vocab[best.item()], round(value.item(), 4))
