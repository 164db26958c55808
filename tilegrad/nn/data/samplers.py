"""Which items a loader takes, and in which order.

A sampler is anything that gives indices when it is iterated over. An order is drawn by a seed and
the number of the round, or without a seed by the stream that `Tensor.manual_seed` begins.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any

import numpy as np

from tilegrad.base.errors import ConfigError
from tilegrad.tensor.indexing.generator import generator
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "BatchSampler", "DistributedSampler", "RandomSampler", "Sampler", "SequentialSampler",
    "SubsetRandomSampler", "WeightedRandomSampler", "stream",
]  # fmt: skip


def stream(seed: Any) -> np.random.Generator:
    """A stream of `seed`, or one that the stream of tensors' random numbers begins."""
    return np.random.default_rng(list(generator.take(2)) if seed is None else seed)


class Sampler:
    """Base of samplers: a subclass defines `__iter__`, which gives indices.

    Raises NotImplementedError where the subclass does not.

    >>> class Backwards(nn.data.Sampler):
    ...     def __iter__(self):
    ...         return iter([2, 1, 0])
    >>> list(Backwards())
    [2, 1, 0]
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError


class SequentialSampler(Sampler):
    """All indices in order: 0 to len - 1.

    Args:
        data_source: what has a length.

    >>> list(nn.data.SequentialSampler([7, 8, 9]))
    [0, 1, 2]
    """

    def __init__(self, data_source: Sized):
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class _Drawn(Sampler):
    """Indices that are drawn anew in each round."""

    def __init__(self, seed: int | None):
        self.seed, self.epoch = seed, 0

    def _stream(self) -> np.random.Generator:
        self.epoch += 1
        return stream(None if self.seed is None else [self.seed, self.epoch - 1])


class RandomSampler(_Drawn):
    """All indices in random order.

    Args:
        data_source: what has a length.
        replacement: draw each index independently.
        num_samples: number of indices, by default all.
        seed: seed of the order; by default the stream of `Tensor.manual_seed`.

    Raises ShapeError for more samples than indices without `replacement`.

    >>> sorted(nn.data.RandomSampler([7, 8, 9]))
    [0, 1, 2]
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        seed: int | None = None,
    ):
        super().__init__(seed)
        self.data_source, self.replacement = data_source, replacement
        self.num_samples = len(data_source) if num_samples is None else num_samples

    def __iter__(self) -> Iterator[int]:
        count, random = len(self.data_source), self._stream()
        if self.replacement:
            return iter(random.integers(count, size=self.num_samples).tolist())
        rounds = -(-self.num_samples // max(count, 1))
        drawn = [random.permutation(count).tolist() for _ in range(rounds)]
        return itertools.islice(itertools.chain(*drawn), self.num_samples)

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(_Drawn):
    """Given indices in random order.

    Args:
        indices: the indices.
        seed: seed of the order; by default the stream of `Tensor.manual_seed`.

    Shape: it gives len(indices) numbers.

    >>> sorted(nn.data.SubsetRandomSampler([4, 2]))
    [2, 4]
    """

    def __init__(self, indices: Sequence[int], seed: int | None = None):
        super().__init__(seed)
        self.indices = list(indices)

    def __iter__(self) -> Iterator[int]:
        order = self._stream().permutation(len(self.indices))
        return iter([self.indices[number] for number in order])

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(_Drawn):
    """Indices drawn with probabilities proportional to weights.

    Args:
        weights: a weight for each index, not negative, (n,).
        num_samples: number of draws.
        replacement: whether an index can be drawn more than once.
        seed: seed of the draws; by default the stream of `Tensor.manual_seed`.

    Raises ConfigError for weights that are negative or all 0, or fewer than are drawn without
    replacement.

    >>> list(nn.data.WeightedRandomSampler([0.0, 1.0], 3))
    [1, 1, 1]
    """

    def __init__(
        self,
        weights: Any,
        num_samples: int,
        replacement: bool = True,
        seed: int | None = None,
    ):
        super().__init__(seed)
        array = weights.numpy() if isinstance(weights, Tensor) else np.asarray(weights)
        self.weights = array.astype(np.float64)
        self.num_samples, self.replacement = num_samples, replacement
        count = int((self.weights > 0).sum())
        if (self.weights < 0).any() or not count or (not replacement and count < num_samples):
            raise ConfigError(
                f"WeightedRandomSampler: {num_samples} of {count} positive weights",
                rule="weights are 0 or more, one at least more; as many as are drawn for once",
            )

    def __iter__(self) -> Iterator[int]:
        shares = self.weights / self.weights.sum()
        drawn = self._stream().choice(
            len(shares), self.num_samples, replace=self.replacement, p=shares
        )
        return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """Lists of `batch_size` indices of another sampler.

    Args:
        sampler: gives the indices.
        batch_size: length of a list.
        drop_last: leave out the last list if it is short.

    Raises ConfigError unless `batch_size` is positive.

    >>> list(nn.data.BatchSampler(range(5), 2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool):
        if batch_size < 1:
            raise ConfigError(f"BatchSampler: batch_size must be at least 1, not {batch_size}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        count = len(self.sampler) if isinstance(self.sampler, Sized) else len(list(self.sampler))
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


class DistributedSampler(Sampler):
    """Share of one process of many: every `num_replicas`-th index, from `rank` on, of an order that
    is the same in all processes.

    The order depends on `seed` and `set_epoch`. The first indices are repeated at the end, so that
    all processes have equally many.

    Args:
        dataset: what has a length.
        num_replicas: number of processes.
        rank: number of this process, from 0.
        shuffle: whether the order is random.
        seed: seed of the order.
        drop_last: leave out the last indices instead of repeating the first.

    Raises ConfigError unless `rank` is 0 to num_replicas - 1.

    >>> list(nn.data.DistributedSampler(range(5), 2, 1, shuffle=False))
    [1, 3, 0]
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int,
        rank: int,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ):
        if not 0 <= rank < num_replicas:
            raise ConfigError(f"DistributedSampler: rank {rank} of {num_replicas} replicas")
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0

    def set_epoch(self, epoch: int) -> None:
        """Let the next round have the order of this number."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        count, total = len(self.dataset), len(self) * self.num_replicas
        order = stream([self.seed, self.epoch]).permutation(count).tolist()
        if not self.shuffle:
            order = list(range(count))
        whole = itertools.islice(itertools.cycle(order), total if count else 0)
        return itertools.islice(whole, self.rank, None, self.num_replicas)

    def __len__(self) -> int:
        count = len(self.dataset)
        return count // self.num_replicas if self.drop_last else -(-count // self.num_replicas)
