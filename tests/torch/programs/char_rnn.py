"""A character model: names by category, batch by batch, sampled greedily."""

import numpy as np
import torch
import torch.nn as nn


def init(model, seed=0):
    rng = np.random.RandomState(seed)
    with torch.no_grad():
        for p in model.parameters():
            bound = 1 / max(1, p.shape[-1] if p.dim() > 1 else p.numel()) ** 0.5
            p.copy_(torch.from_numpy(rng.uniform(-bound, bound, tuple(p.shape)).astype(np.float32)))
    return model


def grad_norm(model):
    return sum(p.grad.norm().item() ** 2 for p in model.parameters() if p.grad is not None) ** 0.5


import string
import unicodedata

all_letters = string.ascii_letters + " .,;'-"
n_letters = len(all_letters) + 1


def unicodeToAscii(s):
    return "".join(
        c
        for c in unicodedata.normalize("NFD", s)
        if unicodedata.category(c) != "Mn" and c in all_letters
    )


categories = {
    "Czech": ["Abl", "Adsit", "Ajdrna"],
    "Greek": ["Adamidis", "Alexandropoulos"],
    "Irish": ["\u00d3 S\u00e9aghdha".replace("\u00d3 ", "O'"), "Byrne"],
}
names = list(categories)


def categoryTensor(category):
    li = names.index(category)
    tensor = torch.zeros(1, len(names))
    tensor[0][li] = 1
    return tensor


def inputTensor(line):
    tensor = torch.zeros(len(line), 1, n_letters)
    for li in range(len(line)):
        tensor[li][0][all_letters.find(line[li])] = 1
    return tensor


def targetTensor(line):
    letter_indexes = [all_letters.find(line[li]) for li in range(1, len(line))]
    letter_indexes.append(n_letters - 1)
    return torch.LongTensor(letter_indexes)


class RNN(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.i2h = nn.Linear(len(names) + input_size + hidden_size, hidden_size)
        self.i2o = nn.Linear(len(names) + input_size + hidden_size, output_size)
        self.o2o = nn.Linear(hidden_size + output_size, output_size)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, category, input, hidden):
        input_combined = torch.cat((category, input, hidden), 1)
        hidden = self.i2h(input_combined)
        output = self.i2o(input_combined)
        output_combined = torch.cat((hidden, output), 1)
        output = self.softmax(self.o2o(output_combined))
        return output, hidden

    def initHidden(self):
        return torch.zeros(1, self.hidden_size)


criterion = nn.NLLLoss()
learning_rate = 0.05
rnn = init(RNN(n_letters, 16, n_letters))


def train(category_tensor, input_line_tensor, target_line_tensor):
    target_line_tensor.unsqueeze_(-1)
    hidden = rnn.initHidden()
    rnn.zero_grad()
    loss = torch.Tensor([0])
    for i in range(input_line_tensor.size(0)):
        output, hidden = rnn(category_tensor, input_line_tensor[i], hidden)
        loss += criterion(output, target_line_tensor[i])
    loss.backward()
    for p in rnn.parameters():
        p.data.add_(p.grad.data, alpha=-learning_rate)
    return output, loss.item() / input_line_tensor.size(0)


for category, lines in categories.items():
    for line in map(unicodeToAscii, lines):
        output, loss = train(categoryTensor(category), inputTensor(line), targetTensor(line))
        print(category, line, f"{loss:.4f}")
with torch.no_grad():
    category_tensor, input, hidden, name = (
        categoryTensor("Greek"),
        inputTensor("A"),
        rnn.initHidden(),
        "A",
    )
    for i in range(6):
        output, hidden = rnn(category_tensor, input[0], hidden)
        topv, topi = output.topk(1)
        topi = topi[0][0]
        if topi == n_letters - 1:
            break
        letter = all_letters[topi]
        name += letter
        input = inputTensor(letter)
print(name, f"{topv.item():.4f}")
