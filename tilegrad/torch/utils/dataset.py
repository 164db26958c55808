"""Data sets and samplers of `torch.utils.data`, and what joins items to batches of tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy

from tilegrad.base.errors import ConfigError, KindError
from tilegrad.nn import data as ours
from tilegrad.nn.data import BatchSampler, SequentialSampler
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.complex import Complex
from tilegrad.torch.complexes import stack, tensor
from tilegrad.torch.random import Generator
from tilegrad.torch.random_tensors import multinomial, randint, randperm
from tilegrad.torch.tensor import Tensor, as_ours

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "Dataset", "DistributedSampler", "Item",
    "IterableDataset", "JoinedRows", "RandomSampler", "Sampler", "SequentialSampler",
    "StackDataset", "Subset", "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler",
    "check_positive", "default_collate", "default_convert", "items_at", "random_split",
]  # fmt: skip

Item = TypeVar("Item", covariant=True)


class Dataset(ours.Dataset, Generic[Item]):
    """A data set by index: a subclass gives `__len__` and `__getitem__`."""


class IterableDataset(ours.IterableDataset, Generic[Item]):
    """A data set whose items come one after another."""


class ConcatDataset(ours.ConcatDataset, Dataset[Any]):
    """Data sets one after another."""


class ChainDataset(ours.ChainDataset):
    """Streams one after another."""


class StackDataset(ours.StackDataset):
    """Data sets side by side: items are tuples, or dicts, of theirs."""


class Subset(Dataset[Any]):
    """The items `indices` of another data set."""

    def __init__(self, dataset: Any, indices: Sequence[int]):
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[int(self.indices[each]) for each in index]]
        return self.dataset[int(self.indices[index])]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitems__(self, indices: list[int]) -> Any:
        """Several items."""
        return items_at(self.dataset, [int(self.indices[each]) for each in indices])


class TensorDataset(Dataset[Any]):
    """Rows of tensors of equal length: item i is the tuple of their rows i."""

    def __init__(self, *tensors: Any):
        self.tensors = tuple(as_ours(each) for each in tensors)
        sizes = {int(each.shape[0]) for each in self.tensors}
        if len(sizes) > 1:
            raise AssertionError("Size mismatch between tensors")
        self._rows: tuple[Any, ...] | None = None

    def _arrays(self) -> tuple[Any, ...]:
        if self._rows is None:
            self._rows = tuple(each.detach().numpy() for each in self.tensors)
        return self._rows

    def __getitem__(self, index: Any) -> Any:
        return tuple(each[index] for each in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])


def items_at(dataset: Any, indices: Sequence[int]) -> Any:
    """Several items; of tensors their rows as arrays, which join in one copy."""
    if type(dataset) is TensorDataset and all(
        each.dtype.name != "bfloat16" for each in dataset.tensors
    ):
        return JoinedRows([array[list(indices)] for array in dataset._arrays()])
    if hasattr(dataset, "__getitems__"):
        return dataset.__getitems__(list(indices))
    return [dataset[index] for index in indices]


class JoinedRows:
    """The rows of a batch, joined already."""

    def __init__(self, arrays: Sequence[Any]):
        self.arrays = arrays

    def items(self) -> list[Any]:
        """One tuple of tensors for each row."""
        return [tuple(tensor(row) for row in rows) for rows in zip(*self.arrays)]


def default_convert(data: Any) -> Any:
    """Arrays as tensors, in tuples, lists and dicts too."""
    if isinstance(data, numpy.ndarray):
        return tensor(data)
    if isinstance(data, Mapping):
        return {key: default_convert(each) for key, each in data.items()}
    if isinstance(data, (tuple, list)):
        fields = [default_convert(each) for each in data]
        return type(data)(*fields) if hasattr(data, "_fields") else type(data)(fields)
    return data


def default_collate(batch: Sequence[Any]) -> Any:
    """Items joined along a new first axis: numbers, arrays and tensors to tensors, by their parts
    in tuples, lists and dicts; texts stay as they are.
    """
    first = batch[0]
    if isinstance(first, Complex):
        return stack(list(batch))
    if isinstance(first, OurTensor):
        if any(each.requires_grad for each in batch):
            return as_ours(first).stack(*[as_ours(each) for each in batch[1:]])
        arrays = [each.detach().float() if each.dtype.name == "bfloat16" else each.detach()
                  for each in batch]  # fmt: skip
        odd = next((i for i, each in enumerate(arrays) if each.shape != first.shape), None)
        if odd is not None:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(first.shape)} at "
                f"entry 0 and {list(arrays[odd].shape)} at entry {odd}"
            )
        return tensor(numpy.stack([each.numpy() for each in arrays])).to(first.dtype)
    if isinstance(first, (numpy.ndarray, numpy.generic)):
        return tensor(numpy.stack([numpy.asarray(each) for each in batch]))
    if isinstance(first, float):
        return tensor(batch, dtype="float64")
    if isinstance(first, (bool, int)):
        return tensor(list(batch))
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        return {key: default_collate([each[key] for each in batch]) for key in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*[default_collate(field) for field in zip(*batch, strict=True)])
    if isinstance(first, (tuple, list)):
        if any(len(each) != len(first) for each in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        return [default_collate(field) for field in zip(*batch, strict=True)]
    raise KindError(
        f"default_collate: cannot join items of class {type(first).__name__}",
        remedy="pass a collate_fn to the DataLoader",
    )


def random_split(
    dataset: Any, lengths: Sequence[float], generator: Generator | None = None
) -> list[Subset]:
    """Random subsets of a data set of these sizes, or, where they add up to 1, these fractions."""
    count = len(dataset)
    if lengths and math.isclose(sum(lengths), 1) and sum(lengths) <= 1.0000001:
        sizes = [math.floor(count * share) for share in lengths]
        for number in range(count - sum(sizes)):
            sizes[number % len(sizes)] += 1
    else:
        sizes = [int(size) for size in lengths]
    if sum(sizes) != count:
        raise ConfigError(f"random_split: lengths add up to {sum(sizes)}, there are {count} items")
    order = randperm(count, generator=generator).tolist()
    ends = numpy.cumsum(sizes).tolist()
    return [Subset(dataset, order[end - size : end]) for end, size in zip(ends, sizes)]


class Sampler(Generic[Item]):
    """Gives indices in an order: a subclass gives `__iter__`."""

    def __init__(self, data_source: Any = None):
        pass

    def __iter__(self) -> Iterator[Item]:
        raise NotImplementedError


class RandomSampler(Sampler[int]):
    """Indices at random."""

    def __init__(
        self,
        data_source: Any,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ):
        if not isinstance(replacement, bool):
            raise TypeError(
                f"replacement should be a boolean value, but got replacement={replacement}"
            )
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self._count = num_samples
        check_positive("num_samples", self.num_samples)

    @property
    def num_samples(self) -> int:
        """How many indices there are."""
        return len(self.data_source) if self._count is None else self._count

    def __iter__(self) -> Iterator[int]:
        size = len(self.data_source)
        if self.replacement:
            drawn = randint(0, size, (self.num_samples,), generator=self.generator)
            yield from drawn.tolist()
            return
        left = self.num_samples
        while left > 0:
            order = randperm(size, generator=self.generator).tolist()[:left]
            left -= len(order)
            yield from order

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """Some indices in a random order."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None):
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        for number in randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[number]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices with probabilities by weight."""

    def __init__(
        self,
        weights: Any,
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ):
        check_positive("num_samples", num_samples)
        if not isinstance(replacement, bool):
            raise ValueError(
                f"replacement should be a boolean value, but got replacement={replacement}"
            )
        self.weights: Tensor = tensor(weights).double()
        if self.weights.ndim != 1:
            shape = tuple(self.weights.shape)
            raise ValueError(
                f"weights should be a 1d sequence but given weights have shape {shape}"
            )
        self.num_samples, self.replacement = num_samples, replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = multinomial(
            self.weights, self.num_samples, self.replacement, generator=self.generator
        )
        yield from drawn.tolist()

    def __len__(self) -> int:
        return self.num_samples


DistributedSampler = ours.DistributedSampler


def check_positive(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={value}")
