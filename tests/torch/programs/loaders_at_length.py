"""Data sets, samplers, loaders, workers of a stream, and what they refuse."""

import math

import torch
from torch.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    get_worker_info,
    random_split,
)


class Squares(Dataset):
    def __init__(self, n, transform=None):
        self.n = n
        self.transform = transform

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        sample = {
            "x": torch.tensor([float(i), i + 0.5]),
            "y": i * i,
            "name": f"item{i}",
            "pair": (i, float(i)),
        }
        if self.transform:
            sample = self.transform(sample)
        return sample


ds = Squares(7)
for batch in DataLoader(ds, batch_size=3):
    print(batch["x"], batch["y"], batch["name"], batch["pair"])
for batch in DataLoader(ds, batch_size=3, drop_last=True):
    print(batch["y"])
dl = DataLoader(ds, batch_size=2)
print(len(dl), len(dl.dataset), dl.batch_size, dl.num_workers, dl.drop_last)
full = TensorDataset(torch.arange(10), torch.arange(10) * 2.0)
print(len(full), full[3], full[2:4])
a, b = random_split(full, [7, 3], generator=torch.Generator().manual_seed(42))
print(len(a), len(b), sorted(a.indices + b.indices))
print([len(s) for s in random_split(full, [0.5, 0.3, 0.2])])
try:
    random_split(full, [1, 2])
except ValueError:
    print("ValueError")
sub = Subset(full, [1, 3, 5])
print(len(sub), sub[1])
cat = ConcatDataset([sub, Subset(full, range(2))])
print(len(cat), cat[3], cat[-1], cat.cumulative_sizes)
both = sub + full
print(type(both).__name__, len(both))


class Range(IterableDataset):
    def __init__(self, start, end):
        self.start, self.end = start, end

    def __iter__(self):
        info = get_worker_info()
        if info is None:
            s, e = self.start, self.end
        else:
            per = int(math.ceil((self.end - self.start) / float(info.num_workers)))
            s = self.start + info.id * per
            e = min(s + per, self.end)
        return iter(range(s, e))


print(list(DataLoader(Range(3, 7), num_workers=0)))
print(list(DataLoader(Range(3, 7), num_workers=2)))
print(list(DataLoader(Range(3, 12), batch_size=4, num_workers=2)))
print(list(DataLoader(ChainDataset([Range(0, 2), Range(5, 7)]), batch_size=None)))
print(get_worker_info())


def collate(samples):
    xs = [s["x"] for s in samples]
    return torch.stack(xs).mean(0), torch.tensor([s["y"] for s in samples])


for m, y in DataLoader(ds, batch_size=4, collate_fn=collate):
    print(m, y)


def pad(batch):
    lens = torch.tensor([len(t) for t in batch])
    return torch.nn.utils.rnn.pad_sequence(batch, batch_first=True, padding_value=-1), lens


seqs = [torch.arange(n) for n in (3, 1, 4, 2)]
for p, l in DataLoader(seqs, batch_size=2, collate_fn=pad, num_workers=2):
    print(p, l)


class EveryOther(Sampler):
    def __init__(self, data):
        self.n = len(data)

    def __iter__(self):
        return iter(range(0, self.n, 2))

    def __len__(self):
        return (self.n + 1) // 2


print([b["y"].tolist() for b in DataLoader(ds, sampler=EveryOther(ds), batch_size=2)])
print(list(BatchSampler(SequentialSampler(range(7)), batch_size=3, drop_last=False)))
print([b["y"].tolist() for b in DataLoader(ds, batch_sampler=[[0, 1], [5], [2, 3, 4]])])
w = WeightedRandomSampler([0.0, 0.0, 1.0], 4, replacement=True)
print(list(w), len(w))
print(sorted(SubsetRandomSampler([4, 2, 9])), sorted(RandomSampler(range(5))))
rs = RandomSampler(range(5), replacement=True, num_samples=12)
print(len(rs), len(list(rs)))
g = torch.Generator()
g.manual_seed(0)
one = [
    x[0].tolist()
    for x in DataLoader(
        full, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(1)
    )
]
two = [
    x[0].tolist()
    for x in DataLoader(
        full, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(1)
    )
]
print(one == two, sorted(sum(one, [])))
print(default_collate([(1, 2.0, "a"), (3, 4.0, "b")]))
print(default_collate([{"a": torch.ones(2), "b": [1, 2]}, {"a": torch.zeros(2), "b": [3, 4]}]))
import numpy as np

print(
    default_collate([np.ones(2), np.zeros(2)]),
    default_collate([np.float32(1), np.float32(2)]),
    default_collate([True, False]),
)
try:
    DataLoader(full, shuffle=True, sampler=SequentialSampler(full))
except ValueError:
    print("ValueError")
try:
    DataLoader(full, batch_sampler=[[0]], batch_size=2)
except ValueError:
    print("ValueError")
try:
    next(iter(DataLoader([torch.ones(2), torch.ones(3)], batch_size=2)))
except RuntimeError as e:
    print(e)
try:
    DataLoader(Range(0, 1), shuffle=True)
except ValueError:
    print("ValueError")
try:
    TensorDataset(torch.ones(2), torch.ones(3))
except AssertionError:
    print("AssertionError")


def winit(i):
    torch.manual_seed(i)


print(
    [
        b[0].tolist()
        for b in DataLoader(
            full,
            batch_size=5,
            num_workers=2,
            worker_init_fn=winit,
            persistent_workers=True,
            prefetch_factor=2,
            pin_memory=False,
        )
    ]
)
it = iter(DataLoader(full, batch_size=8))
next(it)
print(next(it)[1])
try:
    next(it)
except StopIteration:
    print("stop")
from torch.utils.data import DistributedSampler, StackDataset

print(StackDataset(x=torch.arange(3), y=torch.arange(3) * 2)[1], StackDataset(full, full)[0])
print(list(DistributedSampler(range(10), num_replicas=3, rank=1, shuffle=False)))
