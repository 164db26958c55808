"""Data in batches: a loader that draws, joins and prefetches.

A data set is anything with `len` and `[index]`, or an `IterableDataset`. The loader gives batches
of tensors; workers fetch ahead, in threads, or in processes that are spawned, never forked. The
order of batches does not depend on the workers.
"""

from __future__ import annotations

import collections
import functools
import sys
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import numpy as np

from tilegrad.base.errors import ConfigError, DataError, article
from tilegrad.nn.data.samplers import BatchSampler, stream
from tilegrad.nn.data.sets import IterableDataset
from tilegrad.tensor.tensor import Tensor

__all__ = ["DataLoader", "collate", "default_collate"]


def collate(items: Sequence[Any]) -> Any:
    """Join items along a new first axis: numbers and arrays to arrays, element by element in
    tuples, lists and dicts; strings stay a list.

    Args:
        items: the items of a batch, all of the same structure and shapes.

    Returns an item whose arrays have shape (len(items), ...); numbers become int64 or float64
    arrays.

    Raises ShapeError if shapes differ.

    >>> nn.data.collate([(1, "a"), (2, "b")])
    (array([1, 2]), ['a', 'b'])
    """
    first = items[0]
    if isinstance(first, Mapping):
        return {key: collate([item[key] for item in items]) for key in first}
    if isinstance(first, (tuple, list)):
        columns = [collate(column) for column in zip(*items, strict=True)]
        return type(first)(columns) if isinstance(first, list) else tuple(columns)
    if isinstance(first, (str, bytes)):
        return list(items)
    arrays = [item.numpy() if isinstance(item, Tensor) else np.asarray(item) for item in items]
    joined = np.stack(arrays)
    return joined.astype(np.float32) if isinstance(first, float) else joined


default_collate = collate


def _tensors(batch: Any, device: str | None) -> Any:
    if isinstance(batch, Mapping):
        return {key: _tensors(each, device) for key, each in batch.items()}
    if isinstance(batch, (tuple, list)):
        columns = [_tensors(column, device) for column in batch]
        return tuple(columns) if isinstance(batch, tuple) else columns
    return Tensor(batch, device=device) if isinstance(batch, np.ndarray) else batch


# Objects that a spawned process works with; sent once.
_shared: list[Any] = []


def _begin(dataset: Any, collate_fn: Callable[[Sequence[Any]], Any]) -> None:
    _shared[:] = [dataset, collate_fn]


def _fetch_shared(indices: Sequence[int]) -> Any:
    dataset, collate_fn = _shared
    return _fetch(dataset, collate_fn, indices)


def _fetch(dataset: Any, collate_fn: Callable[[Sequence[Any]], Any], indices: Sequence[int]) -> Any:
    """The batch, or the error with the text of its traceback."""
    try:
        return collate_fn([dataset[index] for index in indices])
    except Exception as error:
        return _Failure(error, traceback.format_exc())


class _Failure:
    def __init__(self, error: Exception, text: str):
        self.error, self.text = error, text


def _first(items: Sequence[Any]) -> Any:
    return items[0]


def _of_first(function: Callable[[Any], Any], items: Sequence[Any]) -> Any:
    return function(items[0])


class DataLoader:
    """Batches of a data set, each time it is iterated over.

    An exception in a worker is raised in the loop, with the worker's traceback in its notes.

    Args:
        shuffle: a new order in each round, by `seed` and the round's number, or without `seed` by
            the stream that `Tensor.manual_seed` begins.
        drop_last: leave out the last batch if it is short.
        num_workers: how many threads, or with `spawn` processes, fetch ahead; 0 fetches when a
            batch is asked for. Processes are given the data set and `collate_fn` pickled, and the
            program needs `if __name__ == "__main__":`.
        prefetch: batches that each worker is ahead.
        collate_fn: joins a list of items.
        sampler: gives the indices in order, in place of `shuffle`.
        batch_sampler: gives lists of indices, in place of all that makes batches.
        tensors: give tensors on `device`; without it what `collate_fn` gives.
        progress: write a line to stderr as batches go by.
        pin_memory, persistent_workers: taken for other libraries' sake, and do nothing.
        dataset: what has a length and items by index, or an `IterableDataset`.
        batch_size: number of items in a batch; None gives the items as they are, one by one.
        seed: seed of the order.
        spawn: workers are processes, not threads.
        device: name of the device.

    Shape: items of shapes (...) give batches (batch_size, ...); the last may be shorter.

    Raises ConfigError for options that exclude each other or a number below its least, DataError
    for what is no data set.

    >>> loader = nn.data.DataLoader(range(5), batch_size=2)
    >>> [batch.tolist() for batch in loader], len(loader)
    ([[0, 1], [2, 3], [4]], 3)
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        num_workers: int = 0,
        prefetch: int = 2,
        collate_fn: Callable[[Sequence[Any]], Any] = collate,
        sampler: Iterable[int] | None = None,
        seed: int | None = None,
        spawn: bool = False,
        tensors: bool = True,
        device: str | None = None,
        progress: bool = False,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        pin_memory: bool = False,
        persistent_workers: bool = False,
    ):
        if batch_size is None:
            # Items as they are, one by one.
            batch_size = 1
            collate_fn = (
                _first if collate_fn is collate else functools.partial(_of_first, collate_fn)
            )
        numbers = {"batch_size": (batch_size, 1), "prefetch": (prefetch, 1)}
        for name, (value, least) in {**numbers, "num_workers": (num_workers, 0)}.items():
            if value < least:
                raise ConfigError(f"DataLoader: {name} must be at least {least}, not {value}")
        if shuffle and sampler is not None:
            raise ConfigError("DataLoader: shuffle and sampler are both given")
        is_plain = batch_size == 1 and not shuffle and sampler is None and not drop_last
        if batch_sampler is not None and not is_plain:
            raise ConfigError(
                "DataLoader: batch_sampler stands for batch_size, shuffle, sampler and drop_last"
            )
        self._is_stream = isinstance(dataset, IterableDataset)
        if self._is_stream and (shuffle or sampler is not None or batch_sampler is not None):
            raise ConfigError("DataLoader: the order of an IterableDataset is its own")
        if not self._is_stream and not (
            hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
        ):
            raise DataError(
                f"DataLoader: {article(type(dataset).__name__)} is no data set",
                rule="it has a length, and items by index",
            )
        self.dataset, self.batch_size, self.shuffle = dataset, batch_size, shuffle
        self.drop_last, self.num_workers, self.prefetch = drop_last, num_workers, prefetch
        self.collate_fn, self.sampler, self.seed = collate_fn, sampler, seed
        self.spawn, self.tensors, self.device, self.progress = spawn, tensors, device, progress
        self.batch_sampler = batch_sampler
        self.epoch = 0

    def __len__(self) -> int:
        if self.batch_sampler is not None:
            given: Any = self.batch_sampler
            return len(given)
        count = len(self.dataset if self.sampler is None else list(self.sampler))
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def _batches(self) -> list[list[int]]:
        if self.batch_sampler is not None:
            return [list(batch) for batch in self.batch_sampler]
        order: list[int]
        if self.sampler is not None:
            order = list(self.sampler)
        elif self.shuffle:
            seed: Any = None if self.seed is None else [self.seed, self.epoch]
            order = stream(seed).permutation(len(self.dataset)).tolist()
        else:
            order = list(range(len(self.dataset)))
        size = self.batch_size
        batches = [order[start : start + size] for start in range(0, len(order), size)]
        return batches[:-1] if self.drop_last and batches and len(batches[-1]) < size else batches

    def __iter__(self) -> Iterator[Any]:
        if self._is_stream:
            for items in BatchSampler(self.dataset, self.batch_size, self.drop_last):
                batch = self.collate_fn(items)
                yield _tensors(batch, self.device) if self.tensors else batch
            return
        batches = self._batches()
        self.epoch += 1
        found = self._fetched(batches) if self.num_workers else self._plain(batches)
        try:
            for number, batch in enumerate(found, start=1):
                if isinstance(batch, _Failure):
                    batch.error.add_note(f"in a worker of DataLoader:\n{batch.text}")
                    raise batch.error
                if self.progress:
                    end = "\n" if number == len(batches) else ""
                    line = f"\r{number}/{len(batches)} batches"
                    print(line, end=end, file=sys.stderr, flush=True)
                yield _tensors(batch, self.device) if self.tensors else batch
        finally:
            # An error that is kept keeps this frame: the workers are not to wait for that.
            found.close()

    def _plain(self, batches: list[list[int]]) -> Generator[Any, None, None]:
        for indices in batches:
            yield self.collate_fn([self.dataset[index] for index in indices])

    def _fetched(self, batches: list[list[int]]) -> Generator[Any, None, None]:
        pool: Executor
        if self.spawn:
            import multiprocessing

            pool = ProcessPoolExecutor(
                self.num_workers,
                multiprocessing.get_context("spawn"),
                _begin,
                (self.dataset, self.collate_fn),
            )
        else:
            pool = ThreadPoolExecutor(self.num_workers, "tilegrad-data")
        waiting: collections.deque[Future[Any]] = collections.deque()
        try:
            for indices in batches:
                if self.spawn:
                    waiting.append(pool.submit(_fetch_shared, indices))
                else:
                    waiting.append(pool.submit(_fetch, self.dataset, self.collate_fn, indices))
                if len(waiting) >= self.num_workers * self.prefetch:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
