"""N-gram language model with embeddings, and nearest words by cosine similarity."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

text = [
    "the",
    "cat",
    "sat",
    "on",
    "the",
    "mat",
    "the",
    "dog",
    "sat",
    "on",
    "the",
    "log",
    "the",
    "cat",
    "saw",
    "the",
    "dog",
]
vocab = sorted(set(text))
word_to_ix = {word: i for i, word in enumerate(vocab)}
ngrams = [([text[i - 2], text[i - 1]], text[i]) for i in range(2, len(text))]
rng = np.random.default_rng(14)


class NGram(nn.Module):
    def __init__(self, size, dim, context):
        super().__init__()
        self.embeddings = nn.Embedding(size, dim)
        self.linear1 = nn.Linear(context * dim, 16)
        self.linear2 = nn.Linear(16, size)

    def forward(self, inputs):
        embeds = self.embeddings(inputs).view((1, -1))
        out = F.relu(self.linear1(embeds))
        return F.log_softmax(self.linear2(out), dim=1)


model = NGram(len(vocab), 5, 2)
for p in model.parameters():
    p.data = torch.from_numpy(rng.normal(0, 0.5, tuple(p.shape)).astype(np.float32))
loss_function = nn.NLLLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(2):
    total = 0.0
    for context, target in ngrams:
        indices = torch.tensor([word_to_ix[w] for w in context], dtype=torch.long)
        model.zero_grad()
        loss = loss_function(model(indices), torch.tensor([word_to_ix[target]]))
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"{epoch} {total:.4f}")
vectors = model.embeddings.weight.detach()
similarity = F.cosine_similarity(vectors[word_to_ix["cat"]].unsqueeze(0), vectors)
values, indices = similarity.topk(3)
print([vocab[i] for i in indices.tolist()], [round(v, 3) for v in values.tolist()])
