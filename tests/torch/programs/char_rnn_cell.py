"""A recurrent network, step by step, that learns to spell a word."""

import numpy as np
import torch
import torch.nn as nn

text = "hello world"
vocabulary = sorted(set(text))
index = {c: i for i, c in enumerate(vocabulary)}
data = torch.tensor([index[c] for c in text])
rng = np.random.default_rng(7)


class CharRNN(nn.Module):
    def __init__(self, size, hidden):
        super().__init__()
        self.hidden = hidden
        self.i2h = nn.Linear(size + hidden, hidden)
        self.h2o = nn.Linear(hidden, size)
        self.softmax = nn.LogSoftmax(dim=-1)

    def forward(self, x, h):
        h = torch.tanh(self.i2h(torch.cat((x, h), -1)))
        return self.softmax(self.h2o(h)), h

    def init_hidden(self):
        return torch.zeros(1, self.hidden)


model = CharRNN(len(vocabulary), 10)
for p in model.parameters():
    nn.init.zeros_(p)
    p.data += torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape))).float()
criterion = nn.NLLLoss()
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
one_hot = nn.functional.one_hot(data, len(vocabulary)).float()
for epoch in range(5):
    h = model.init_hidden()
    loss = 0
    for i in range(len(text) - 1):
        out, h = model(one_hot[i].unsqueeze(0), h)
        loss += criterion(out, data[i + 1].view(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{epoch}: {loss.item() / (len(text) - 1):.4f}")
h, letters = model.init_hidden(), "h"
with torch.no_grad():
    for _ in range(5):
        out, h = model(one_hot[text.index(letters[-1])].unsqueeze(0), h)
        letters += vocabulary[out.argmax(1).item()]
print(len(letters), f"{out.max().item():.4f}")
