"""Data sets, samplers, splits, collation and loaders."""

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
    Subset,
    TensorDataset,
    random_split,
)


class Squares(Dataset):
    def __init__(self, count, transform=None):
        self.count, self.transform = count, transform

    def __len__(self):
        return self.count

    def __getitem__(self, idx):
        sample = {"x": np.array([idx, idx**2], dtype=np.float32), "y": idx % 3, "name": f"n{idx}"}
        return self.transform(sample) if self.transform else sample


class ToTensor:
    def __call__(self, sample):
        return {**sample, "x": torch.from_numpy(sample["x"]) / 2}


class Stream(IterableDataset):
    def __iter__(self):
        yield from range(5)


for batch in DataLoader(Squares(5, ToTensor()), batch_size=2):
    print(batch["x"].tolist(), batch["y"].tolist(), batch["y"].dtype is torch.int64, batch["name"])
features = torch.arange(12.0).view(6, 2)
dataset = TensorDataset(features, torch.arange(6))
print(dataset[1][0].tolist(), dataset[-1][1].item(), len(dataset))
train, valid = random_split(dataset, [4, 2], generator=torch.Generator().manual_seed(0))
print(len(train), len(valid), sorted(train.indices + valid.indices))
print([len(part) for part in random_split(range(10), [0.5, 0.3, 0.2])])
loader = DataLoader(dataset, batch_size=4, shuffle=True, drop_last=True)
seen = torch.cat([y for _, y in loader])
print(len(loader), len(seen), len(set(seen.tolist())))
both = ConcatDataset([Subset(dataset, [0, 1]), Subset(dataset, [5])])
print([both[i][1].item() for i in range(len(both))])
print([b.tolist() for b in DataLoader(Stream(), batch_size=2)])
print(list(BatchSampler(SequentialSampler(range(5)), batch_size=2, drop_last=False)))


def collate(items):
    xs, ys = zip(*items)
    return torch.stack(xs), torch.tensor(ys) * 10


for x, y in DataLoader(dataset, batch_size=3, collate_fn=collate):
    print(x.shape, y.tolist())
for x, y in DataLoader(dataset, batch_size=3, num_workers=2):
    print(x.sum().item(), y.tolist())
print([type(x).__name__ for x in next(iter(DataLoader([(1, 2.0), (3, 4.0)], batch_size=2)))])
print(next(iter(DataLoader([1.5, 2.5], batch_size=2))).dtype.itemsize)
