"""`torch.utils.data.DataLoader`: batches of a data set, by threads that fetch ahead."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Generic

from tilegrad.base.errors import ConfigError
from tilegrad.nn import data as ours
from tilegrad.torch.complexes import tensor
from tilegrad.torch.random import Generator, initial_seed
from tilegrad.torch.utils.dataset import (
    BatchSampler,
    Item,
    JoinedRows,
    RandomSampler,
    check_positive,
    default_collate,
    default_convert,
    items_at,
)

__all__ = ["DataLoader", "get_worker_info"]


def _check_workers(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool
) -> None:
    """Raises ConfigError for options that workers cannot have, or that need some."""
    if num_workers < 0 or timeout < 0:
        raise ConfigError(
            f"DataLoader: num_workers {num_workers} and timeout {timeout} cannot be negative"
        )
    if not num_workers and (prefetch_factor is not None or persistent_workers):
        raise ConfigError(
            "DataLoader: prefetch_factor and persistent_workers need num_workers above 0"
        )


def _check_batches(batch_size: int | None, drop_last: bool) -> None:
    """Raises for a size that no batch has, and for batches to drop where there are none."""
    if batch_size is not None:
        check_positive("batch_size", batch_size)
    elif drop_last:
        raise ConfigError(
            "DataLoader: batch_size=None makes no batches, which drop_last could drop"
        )


class DataLoader(Generic[Item]):
    """Batches of a data set, each time it is iterated over.

    Workers are threads that fetch ahead; `worker_init_fn` runs in none, as they share all memory.
    Those of an IterableDataset are in this thread: each goes through a copy of the data set, with
    `get_worker_info()` of its own.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Sequence[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ):
        self.is_stream = isinstance(dataset, ours.IterableDataset)
        has_order = bool(shuffle) or sampler is not None
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        _check_batches(batch_size, drop_last)
        if sampler is not None and shuffle:
            raise ConfigError("sampler option is mutually exclusive with shuffle")
        if self.is_stream and (has_order or batch_sampler is not None):
            raise ConfigError("DataLoader: the order of an IterableDataset is its own")
        if batch_sampler is not None and (batch_size != 1 or has_order or drop_last):
            raise ConfigError(
                "DataLoader: batch_sampler stands for batch_size, shuffle, sampler and drop_last"
            )
        self.dataset, self.num_workers = dataset, num_workers
        self.drop_last, self.generator, self.pin_memory = drop_last, generator, pin_memory
        self.prefetch_factor = (prefetch_factor or 2) if num_workers else None
        self.timeout, self.persistent_workers, self.in_order = timeout, persistent_workers, in_order
        self.multiprocessing_context = multiprocessing_context
        self.pin_memory_device = pin_memory_device
        plain = default_convert if batch_size is None and batch_sampler is None else default_collate
        self.collate_fn = plain if collate_fn is None else collate_fn
        self.batch_size = None if batch_sampler is not None else batch_size
        self.sampler: Any = sampler
        if shuffle:
            self.sampler = RandomSampler(dataset, generator=generator)
        elif sampler is None and batch_sampler is None and not self.is_stream:
            self.sampler = range(len(dataset))
        self.batch_sampler: Any = batch_sampler
        if self.batch_size is not None and not self.is_stream:
            self.batch_sampler = BatchSampler(self.sampler, self.batch_size, drop_last)
        self.worker_init_fn = worker_init_fn
        if worker_init_fn is not None and num_workers and not self.is_stream:
            warnings.warn("DataLoader: workers are threads: worker_init_fn is not called",
                          stacklevel=2)  # fmt: skip

    def __len__(self) -> int:
        if self.batch_sampler is not None:
            return len(self.batch_sampler)
        if self.batch_size is None:
            return len(self.dataset if self.sampler is None else self.sampler)
        count = len(self.dataset)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        if self.is_stream:
            yield from self._stream()
        elif self.batch_sampler is None:
            for index in self.sampler:
                yield self.collate_fn(self.dataset[index])
        elif not self.num_workers:
            for indices in self.batch_sampler:
                yield self._joined(list(indices))
        else:
            yield from self._ahead()

    def _stream(self) -> Iterator[Any]:
        if not self.num_workers:
            yield from self._items_of(self.dataset)
            return
        # One batch of each worker in turn, each with a copy of the data set that it may change.
        streams: list[Any] = []
        for number in range(self.num_workers):
            own = copy.copy(self.dataset)
            info = WorkerInfo(number, self.num_workers, initial_seed() + number, own)
            with info:
                if self.worker_init_fn is not None:
                    self.worker_init_fn(number)
                streams.append((info, iter(self._items_of(own))))
        while streams:
            for info, stream in list(streams):
                with info:
                    found = next(stream, streams)
                if found is streams:
                    streams.remove((info, stream))
                else:
                    yield found

    def _items_of(self, dataset: Any) -> Iterator[Any]:
        if self.batch_size is None:
            for item in dataset:
                yield self.collate_fn(item)
            return
        for items in BatchSampler(dataset, self.batch_size, self.drop_last):
            yield self.collate_fn(items)

    def _joined(self, indices: list[int]) -> Any:
        items = items_at(self.dataset, indices)
        if isinstance(items, JoinedRows):
            if self.collate_fn is default_collate:
                return [tensor(array) for array in items.arrays]
            items = items.items()
        return self.collate_fn(items)

    def _ahead(self) -> Iterator[Any]:
        """Batches that threads fetch ahead, in their order."""
        fetched = ours.DataLoader(
            self.dataset,
            num_workers=self.num_workers,
            prefetch=self.prefetch_factor or 2,
            batch_sampler=[[indices] for indices in map(list, self.batch_sampler)],  # type: ignore[list-item]
            collate_fn=lambda items: items[0],
            tensors=False,
        )
        fetched.dataset = _Batches(self)
        yield from fetched


class _Batches:
    """A data set whose items are the batches of a loader, by lists of indices."""

    def __init__(self, loader: DataLoader[Any]):
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader.dataset)

    def __getitem__(self, indices: Any) -> Any:
        return self._loader._joined(indices)


class WorkerInfo:
    """Result of `get_worker_info` while a worker goes through an IterableDataset."""

    def __init__(self, id: int, num_workers: int, seed: int, dataset: Any):
        self.id, self.num_workers, self.seed, self.dataset = id, num_workers, seed, dataset

    def __enter__(self) -> None:
        self._token = _worker.set(self)

    def __exit__(self, *error: object) -> None:
        _worker.reset(self._token)


_worker: ContextVar[WorkerInfo | None] = ContextVar("worker", default=None)


def get_worker_info() -> WorkerInfo | None:
    """The worker of an IterableDataset that asks; None elsewhere: the threads of a data set by
    index share it.
    """
    return _worker.get()
