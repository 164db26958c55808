"""Data sets, samplers, workers, and what joins items to batches."""

from collections import namedtuple

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    get_worker_info,
    random_split,
)


class Squares(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return {"x": torch.tensor([i, i * i], dtype=torch.float32), "y": i % 2, "name": f"s{i}"}


for b in DataLoader(Squares(5), batch_size=2):
    print(b)


class Stream(IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        info = get_worker_info()
        if info is None:
            return iter(range(self.n))
        return iter(range(info.id, self.n, info.num_workers))


print([b.tolist() for b in DataLoader(Stream(7), batch_size=3)])
print(sorted(sum([b.tolist() for b in DataLoader(Stream(7), batch_size=2, num_workers=2)], [])))


class Evens(Sampler):
    def __init__(self, d):
        self.d = d

    def __iter__(self):
        return iter(range(0, len(self.d), 2))

    def __len__(self):
        return (len(self.d) + 1) // 2


dl = DataLoader(Squares(7), batch_size=2, sampler=Evens(Squares(7)), drop_last=True)
print(len(dl), [b["name"] for b in dl])


def pad(batch):
    xs = [torch.arange(n) for n in batch]
    return (
        torch.nn.utils.rnn.pad_sequence(xs, batch_first=True, padding_value=-1),
        torch.tensor([len(x) for x in xs]),
    )


for x, lost in DataLoader([3, 1, 4, 1, 5], batch_size=2, collate_fn=pad):
    print(x, lost)
print(
    [b.tolist() for b in BatchSampler(SequentialSampler(range(5)), 2, False)]
    if False
    else list(BatchSampler(SequentialSampler(range(5)), 2, False))
)
ds = TensorDataset(torch.arange(6).view(3, 2), torch.tensor([0, 1, 0]))
print(ds[1], len(ds), ds[0:2])
tr, va = random_split(Squares(10), [7, 3], generator=torch.Generator().manual_seed(0))
print(len(tr), len(va), sorted(tr.indices + va.indices))
fr = random_split(range(10), [0.5, 0.3, 0.2])
print([len(f) for f in fr])
print(
    ConcatDataset([Squares(2), Squares(3)])[3]["name"],
    len(Squares(2) + Squares(3)),
    Subset(Squares(9), [5, 7])[1]["name"],
)
ws = WeightedRandomSampler([0.0, 0.0, 1.0], 4)
print(list(ws))
print(default_collate([(1, 2.0, "a", np.float32(3)), (2, 3.0, "b", np.float32(4))]))
print(
    default_collate([np.ones(2), np.zeros(2)]),
    default_collate([[torch.ones(1), 1], [torch.zeros(1), 2]]),
)
dl = DataLoader(
    ds,
    batch_size=2,
    shuffle=True,
    num_workers=2,
    pin_memory=True,
    persistent_workers=True,
    prefetch_factor=2,
)
for e in range(2):
    print(sorted(sum([b[0][:, 0].tolist() for b in dl], [])))
print(dl.batch_size, dl.dataset is ds, dl.num_workers, type(dl.sampler).__name__, dl.drop_last)
it = iter(dl)
next(it)
next(it)
try:
    next(it)
except StopIteration:
    print("stop")


class Bad(Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, i):
        raise ValueError(f"bad {i}")


try:
    list(DataLoader(Bad(), batch_size=1))
except ValueError as e:
    print(e)
print(
    [b for b in DataLoader(["a", "bb", "c"], batch_size=2)],
    [b for b in DataLoader([1, 2, 3], batch_size=None)],
)

Pt = namedtuple("Pt", "a b")
print(default_collate([Pt(1, 2), Pt(3, 4)]))


def seed(i):
    print("worker", i) if False else None


print(len(list(DataLoader(Squares(4), batch_size=2, num_workers=1, worker_init_fn=seed))))
try:
    DataLoader(Squares(3), shuffle=True, sampler=Evens(Squares(3)))
except ValueError as e:
    print(str(e).splitlines()[0])
try:
    default_collate([torch.ones(2), torch.ones(3)])
except RuntimeError as e:
    print("RuntimeError", str(e)[:40])
print(
    next(iter(DataLoader(ds, batch_size=3)))[0].dtype,
    RandomSampler(ds, replacement=True, num_samples=5).num_samples,
)
sub = Subset(ds, torch.randperm(3)[:2].tolist())
print(len(sub))
