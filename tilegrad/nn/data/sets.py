"""Data sets: by index, or one item after another; joined, cut and split."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tilegrad.base.errors import DataError, IndexBoundsError, ShapeError
from tilegrad.nn.data.samplers import stream
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "ChainDataset", "ConcatDataset", "Dataset", "IterableDataset", "StackDataset", "Subset",
    "TensorDataset", "random_split",
]  # fmt: skip


class Dataset:
    """Data set by index: a subclass defines `__len__` and `__getitem__`.

    Raises NotImplementedError where the subclass does not.

    >>> class Squares(nn.data.Dataset):
    ...     def __len__(self):
    ...         return 3
    ...
    ...     def __getitem__(self, index):
    ...         return index**2
    >>> [Squares()[i] for i in range(3)]
    [0, 1, 4]
    """

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def __add__(self, other: Any) -> ConcatDataset:
        return ConcatDataset([self, other])


class TensorDataset(Dataset):
    """Rows of arrays or tensors of equal length: item i is the tuple of their rows i. Tensors are
    read to the host once.

    Args:
        arrays: arrays or tensors of shapes (n, ...).

    Shape: an item is a tuple of NumPy arrays without the first axis.

    Raises ShapeError unless the lengths agree.

    >>> nn.data.TensorDataset(Tensor([1, 2]), Tensor([3, 4]))[1]
    (array(2, dtype=int32), array(4, dtype=int32))
    """

    def __init__(self, *arrays: Any):
        self.arrays = [
            each.numpy() if isinstance(each, Tensor) else np.asarray(each) for each in arrays
        ]
        lengths = [len(each) for each in self.arrays]
        if not lengths or len(set(lengths)) > 1:
            raise ShapeError(f"TensorDataset: lengths differ, or there are none: {lengths}")

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return tuple(np.asarray(each[index]) for each in self.arrays)

    def __len__(self) -> int:
        return len(self.arrays[0])


class Subset(Dataset):
    """Chosen items of another data set.

    Shape: items as those of `dataset`.

    Args:
        dataset: the data set.
        indices: the positions of the items.

    Shape: an item keeps the shape that `dataset` gives it.

    >>> len(nn.data.Subset(range(10), [3, 4]))
    2
    """

    def __init__(self, dataset: Any, indices: Sequence[int]):
        self.dataset, self.indices = dataset, list(indices)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset):
    """Data sets one after another.

    Shape: items as those of `datasets`.

    Args:
        datasets: data sets with lengths.

    Shape: an item keeps the shape that its data set gives it.

    Raises DataError if there is none, IndexBoundsError for an index outside.

    >>> both = nn.data.ConcatDataset([[1, 2], [3]])
    >>> [both[i] for i in range(len(both))], both[-1]
    ([1, 2, 3], 3)
    """

    def __init__(self, datasets: Iterable[Any]):
        self.datasets = list(datasets)
        if not self.datasets:
            raise DataError("ConcatDataset: there is no data set")
        self.cumulative_sizes = list(itertools.accumulate(len(each) for each in self.datasets))

    def __getitem__(self, index: int) -> Any:
        count = len(self)
        if not -count <= index < count:
            raise IndexBoundsError(f"ConcatDataset: no item {index} of {count}")
        index %= count
        number = bisect.bisect_right(self.cumulative_sizes, index)
        before = self.cumulative_sizes[number - 1] if number else 0
        return self.datasets[number][index - before]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


class StackDataset(Dataset):
    """Data sets of equal length side by side: item i is the tuple of their items i, or a dict where
    they are given by name.

    Args:
        datasets: data sets with lengths.
        named: the same by name.

    Shape: a tuple or dict of items.

    Raises ShapeError unless the lengths agree.

    >>> nn.data.StackDataset([1, 2], ["a", "b"])[1], nn.data.StackDataset(x=[5], y=[6])[0]
    ((2, 'b'), {'x': 5, 'y': 6})
    """

    def __init__(self, *datasets: Any, **named: Any):
        self.datasets: Any = named or datasets
        lengths = [len(each) for each in (named.values() if named else datasets)]
        if not lengths or len(set(lengths)) > 1 or (datasets and named):
            raise ShapeError(
                f"StackDataset: lengths differ, or there are none: {lengths}",
                rule="all in order, or all by name",
            )

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.datasets, dict):
            return {name: each[index] for name, each in self.datasets.items()}
        return tuple(each[index] for each in self.datasets)

    def __len__(self) -> int:
        first = self.datasets.values() if isinstance(self.datasets, dict) else self.datasets
        return len(next(iter(first)))


class IterableDataset:
    """Data set that gives one item after another: a subclass defines `__iter__`. A loader takes
    them in that order, without workers.

    Raises NotImplementedError where the subclass does not.

    >>> class Count(nn.data.IterableDataset):
    ...     def __iter__(self):
    ...         return iter(range(3))
    >>> [batch.tolist() for batch in nn.data.DataLoader(Count(), batch_size=2)]
    [[0, 1], [2]]
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError

    def __add__(self, other: Any) -> ChainDataset:
        return ChainDataset([self, other])


class ChainDataset(IterableDataset):
    """Items of one data set after those of another.

    Args:
        datasets: iterables.

    Shape: items as those of `datasets`.

    >>> list(nn.data.ChainDataset([[1, 2], [3]]))
    [1, 2, 3]
    """

    def __init__(self, datasets: Iterable[Any]):
        self.datasets = list(datasets)

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain(*self.datasets)


def random_split(dataset: Any, lengths: Sequence[float], seed: int | None = None) -> list[Subset]:
    """Split a data set at random, without repetition.

    Args:
        dataset: what has a length.
        lengths: lengths that add up to the whole, or shares that add up to 1; items that shares
            leave over go to the first subsets, one each.
        seed: seed of the order; by default the stream of `Tensor.manual_seed`.

    Returns a list of `Subset`.

    Raises ShapeError unless the lengths add up.

    >>> [len(part) for part in nn.data.random_split(list(range(10)), [7, 3])]
    [7, 3]
    >>> [len(part) for part in nn.data.random_split(list(range(10)), [0.75, 0.25])]
    [8, 2]
    """
    count = len(dataset)
    sizes = [int(length) for length in lengths]
    if math.isclose(sum(lengths), 1) and any(length != int(length) for length in lengths):
        sizes = [math.floor(count * share) for share in lengths]
        left = count - sum(sizes)
        sizes = [size + (number < left) for number, size in enumerate(sizes)]
    if sum(sizes) != count:
        raise ShapeError(
            f"random_split: lengths {list(lengths)} add up to {sum(lengths)}, not {count}"
        )
    order = stream(seed).permutation(count).tolist()
    ends = np.cumsum([0, *sizes]).tolist()
    return [Subset(dataset, order[a:b]) for a, b in itertools.pairwise(ends)]
