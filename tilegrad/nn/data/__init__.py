"""Data sets, samplers, and the loader that makes batches of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilegrad.base.absent import refusing
from tilegrad.nn.data.loader import DataLoader, collate, default_collate
from tilegrad.nn.data.samplers import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from tilegrad.nn.data.sets import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DistributedSampler",
    "IterableDataset", "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset",
    "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "collate", "default_collate",
    "random_split",
]  # fmt: skip


if not TYPE_CHECKING:
    # Last, so that the imports above do not ask it.
    __getattr__ = refusing(__name__)
