"""Which language a name is from: a recurrent network over one-hot letters, with a Dataset, split and confusion matrix."""

import string
import unicodedata

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import Dataset, Subset

allowed_characters = string.ascii_letters + " .,;'_"
n_letters = len(allowed_characters)


def unicode_to_ascii(s):
    return "".join(
        c
        for c in unicodedata.normalize("NFD", s)
        if unicodedata.category(c) != "Mn" and c in allowed_characters
    )


def letter_to_index(letter):
    found = allowed_characters.find(letter)
    return allowed_characters.find("_") if found < 0 else found


def line_to_tensor(line):
    tensor = torch.zeros(len(line), 1, n_letters)
    for li, letter in enumerate(line):
        tensor[li][0][letter_to_index(letter)] = 1
    return tensor


class NamesDataset(Dataset):
    def __init__(self, table):
        labels = []
        self.data, self.data_tensors, self.labels = [], [], []
        for label, names in table.items():
            for name in names:
                self.data.append(name)
                self.data_tensors.append(line_to_tensor(unicode_to_ascii(name)))
                labels.append(label)
        self.labels_uniq = list(table)
        self.labels_tensors = [
            torch.tensor([self.labels_uniq.index(each)], dtype=torch.long) for each in labels
        ]
        self.labels = labels

    def __len__(self):
        return len(self.data)

    def __getitem__(self, idx):
        return self.labels_tensors[idx], self.data_tensors[idx], self.labels[idx], self.data[idx]


class CharRNN(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super().__init__()
        self.rnn = nn.RNN(input_size, hidden_size)
        self.h2o = nn.Linear(hidden_size, output_size)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, line_tensor):
        rnn_out, hidden = self.rnn(line_tensor)
        return self.softmax(self.h2o(hidden[0]))


dataset = NamesDataset(
    {
        "Polish": ["Kowalski", "Nowak", "Wójcik", "Zieliński"],
        "Irish": ["O'Neal", "Murphy", "Ó Súilleabháin"],
        "Greek": ["Papadopoulos", "Nikolaidis", "Georgiou"],
    }
)
train_set, test_set = torch.utils.data.random_split(
    dataset, [0.7, 0.3], generator=torch.Generator().manual_seed(2024)
)
print(len(train_set), len(test_set), isinstance(train_set, Subset))
rng = np.random.RandomState(5)
rnn = CharRNN(n_letters, 12, len(dataset.labels_uniq))
for p in rnn.parameters():
    p.data = torch.from_numpy(rng.uniform(-0.3, 0.3, tuple(p.shape)).astype("float32"))
print(rnn)
optimizer = torch.optim.SGD(rnn.parameters(), lr=0.15)
criterion = nn.NLLLoss()
for epoch in range(1, 4):
    rnn.zero_grad()
    current_loss = 0
    for start in range(0, len(dataset), 4):
        batch_loss = 0
        for i in range(start, min(start + 4, len(dataset))):
            label_tensor, text_tensor, _, _ = dataset[i]
            batch_loss += criterion(rnn.forward(text_tensor), label_tensor)
        batch_loss.backward()
        nn.utils.clip_grad_norm_(rnn.parameters(), 3)
        optimizer.step()
        optimizer.zero_grad()
        current_loss += batch_loss.item() / 4
    print(f"{epoch}: \t average batch loss = {current_loss:.5f}")

confusion = torch.zeros(3, 3)
rnn.eval()
with torch.no_grad():
    for i in range(len(dataset)):
        label_tensor, text_tensor, label, text = dataset[i]
        output = rnn(text_tensor)
        top_n, top_i = output.topk(1)
        guess_i = top_i[0].item()
        confusion[dataset.labels_uniq.index(label)][guess_i] += 1
for i in range(3):
    denom = confusion[i].sum()
    if denom > 0:
        confusion[i] = confusion[i] / denom
print(confusion.cpu().numpy().round(3))
