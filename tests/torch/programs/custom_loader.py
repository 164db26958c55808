"""A dataset, sampler, batch sampler and collate function of one's own; a split and a weighted draw."""

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


def init(model, seed=0):
    rng = np.random.RandomState(seed)
    with torch.no_grad():
        for p in model.parameters():
            bound = 1 / max(1, p.shape[-1] if p.dim() > 1 else p.numel()) ** 0.5
            p.copy_(torch.from_numpy(rng.uniform(-bound, bound, tuple(p.shape)).astype(np.float32)))
    return model


def grad_norm(model):
    return sum(p.grad.norm().item() ** 2 for p in model.parameters() if p.grad is not None) ** 0.5


from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    IterableDataset,
    Sampler,
    SequentialSampler,
    Subset,
    default_collate,
)


class Sequences(Dataset):
    def __init__(self, n):
        self.items = [(torch.arange(1, 2 + i % 4).float(), i % 2) for i in range(n)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        x, y = self.items[i]
        return {"x": x, "y": y, "name": f"item{i}"}


class ByLength(Sampler):
    def __init__(self, data):
        self.data = data

    def __iter__(self):
        return iter(sorted(range(len(self.data)), key=lambda i: (len(self.data[i]["x"]), i)))

    def __len__(self):
        return len(self.data)


def collate(batch):
    xs = nn.utils.rnn.pad_sequence([b["x"] for b in batch], batch_first=True, padding_value=-1)
    lengths = torch.tensor([len(b["x"]) for b in batch])
    return xs, lengths, torch.tensor([b["y"] for b in batch]), [b["name"] for b in batch]


data = Sequences(9)
loader = DataLoader(data, batch_size=4, sampler=ByLength(data), collate_fn=collate, drop_last=False)
for xs, lengths, y, names in loader:
    print(xs.tolist(), lengths.tolist(), y, names)
batches = BatchSampler(SequentialSampler(data), batch_size=3, drop_last=True)
print(len(batches), list(batches))
for xs, *_ in DataLoader(data, batch_sampler=batches, collate_fn=collate):
    print(xs.shape)


class Stream(IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        assert info is None
        yield from ({"a": torch.tensor([i, i + 1]), "b": (float(i), str(i))} for i in range(5))


for item in DataLoader(Stream(), batch_size=2):
    print(item)
both = ConcatDataset([Subset(data, [0, 2]), Subset(data, [1])])
print(
    len(both),
    both[2]["name"],
    both.cumulative_sizes,
    default_collate([1.5, 2.5]),
    default_collate([np.float32(1), np.float32(2)]),
)
print(default_collate([{"k": [1, 2]}, {"k": [3, 4]}]))
x = torch.randn(10, 2)
loader = DataLoader(
    TensorDataset(x, torch.arange(10)), batch_size=5, shuffle=True, num_workers=0, pin_memory=False
)
seen = torch.cat([i for _, i in loader])
print(sorted(seen.tolist()), len(loader), loader.dataset.tensors[0].shape)
try:
    TensorDataset(torch.ones(2), torch.ones(3))
except AssertionError as error:
    print("refused", error)
