"""Data sets, samplers, and the loader that makes batches of them."""

from __future__ import annotations

from tilegrad.base.absent import refuse_others
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
from tilegrad.nn.data.sets import *

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DistributedSampler",
    "IterableDataset", "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset",
    "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "collate", "default_collate",
    "random_split",
]  # fmt: skip

refuse_others(__name__)  # Last, so that the imports above do not ask it.
