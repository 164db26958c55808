"""Data sets of every kind: map style, iterable with workers, concatenated, random splits, collate_fn with padding, samplers, default_convert, pinned batches, drop_last."""

import collections

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    get_worker_info,
    random_split,
)
from torch.utils.data.dataloader import default_collate

Point = collections.namedtuple("Point", "x y")


class Sentences(Dataset):
    def __init__(self, lengths, transform=None):
        self.items = [torch.arange(1, n + 1) for n in lengths]
        self.transform = transform

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        item = self.items[index]
        return {
            "ids": self.transform(item) if self.transform else item,
            "label": index % 2,
            "name": f"n{index}",
        }


def collate(batch):
    batch = sorted(batch, key=lambda each: -len(each["ids"]))
    ids = pad_sequence([each["ids"] for each in batch], batch_first=True, padding_value=0)
    lengths = torch.tensor([len(each["ids"]) for each in batch])
    mask = torch.arange(ids.size(1))[None, :] < lengths[:, None]
    return (
        ids,
        lengths,
        mask,
        torch.LongTensor([each["label"] for each in batch]),
        [each["name"] for each in batch],
    )


for ids, lengths, mask, labels, names in DataLoader(
    Sentences([3, 5, 2, 4, 1]), batch_size=2, collate_fn=collate
):
    print(ids.tolist(), lengths, mask.sum().item(), labels, names)
loader = DataLoader(
    Sentences([2, 2, 2, 2], transform=lambda t: t * 10), batch_size=3, drop_last=True
)
print(len(loader), [b["ids"].shape for b in loader], next(iter(loader))["name"])


class Counter(IterableDataset):
    def __init__(self, start, end):
        self.start, self.end = start, end

    def __iter__(self):
        info = get_worker_info()
        if info is None:
            return iter(range(self.start, self.end))
        per = -(-(self.end - self.start) // info.num_workers)
        first = self.start + info.id * per
        return iter(range(first, min(first + per, self.end)))


print([b.tolist() for b in DataLoader(Counter(3, 10), batch_size=3)])
print(
    sorted(x for b in DataLoader(Counter(3, 10), batch_size=2, num_workers=2) for x in b.tolist())
)
print([int(b) for b in DataLoader(ChainDataset([Counter(0, 2), Counter(5, 8)]), batch_size=None)])
a, b = (
    TensorDataset(torch.arange(4), torch.arange(4) ** 2),
    TensorDataset(torch.arange(10, 13), torch.zeros(3, dtype=torch.long)),
)
both = ConcatDataset([a, b])
print(len(both), both[5], both.cumulative_sizes, both[-1])
stacked = StackDataset(image=torch.arange(4), text=["a", "b", "c", "d"])
print(stacked[2], len(stacked))
parts = random_split(range(10), [0.5, 0.3, 0.2], generator=torch.Generator().manual_seed(1))
print([len(p) for p in parts], sorted(i for p in parts for i in p.indices) == list(range(10)))
print(list(BatchSampler(SequentialSampler(range(7)), 3, drop_last=False)), Subset(a, [3, 1])[0])
for sampler in (
    RandomSampler(range(6)),
    RandomSampler(range(3), replacement=True, num_samples=8),
    SubsetRandomSampler([1, 4, 5]),
):
    picked = list(sampler)
    print(
        type(sampler).__name__,
        len(picked),
        sorted(set(picked)) == sorted(set(picked) & set(range(6))),
    )
print(
    default_collate([Point(1, 2.0), Point(3, 4.0)]),
    default_collate([{"k": np.ones(2)}, {"k": np.zeros(2)}]),
    default_collate([(1, "x"), (2, "y")]),
)
print(
    [x.tolist() for x in DataLoader(torch.arange(6).reshape(3, 2), batch_size=2)],
    [len(x) for x in DataLoader(list("abcde"), batch_size=2)],
)
seeded = [
    list(
        DataLoader(range(8), batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(5))
    )[0].tolist()
    for _ in range(2)
]
print(seeded[0] == seeded[1], sorted(seeded[0]) == list(range(8)))
seen = []
list(
    DataLoader(
        Sentences([1, 1]),
        num_workers=1,
        worker_init_fn=lambda i: seen.append(i),
        collate_fn=lambda b: b,
    )
)
epoch = DataLoader(a, batch_size=2, pin_memory=False, persistent_workers=False, timeout=0)
total = sum((x * y).sum() for _ in range(2) for x, y in epoch)
print(total.item(), epoch.batch_size, epoch.dataset is a, len(epoch.sampler))
