"""`torch.utils.data`: data sets, samplers and the loader, whose items and batches are tensors."""

from __future__ import annotations

import copy
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy

from tilegrad.base.errors import ConfigError, KindError
from tilegrad.nn import data as ours
from tilegrad.nn.data import BatchSampler, SequentialSampler
from tilegrad.tensor.handle.sizes import here
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.absent import refusing
from tilegrad.torch.aliases import also_known
from tilegrad.torch.creation import randint, randperm, tensor
from tilegrad.torch.random import Generator, initial_seed
from tilegrad.torch.tensor import Tensor, as_ours

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DistributedSampler",
    "IterableDataset", "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset",
    "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "default_collate",
    "default_convert", "get_worker_info", "random_split",
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
        return _items(self.dataset, [int(self.indices[each]) for each in indices])


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


def _items(dataset: Any, indices: Sequence[int]) -> Any:
    """Several items; of tensors their rows as arrays, which join in one copy."""
    if type(dataset) is TensorDataset and all(
        each.dtype.name != "bfloat16" for each in dataset.tensors
    ):
        return _Rows([array[list(indices)] for array in dataset._arrays()])
    if hasattr(dataset, "__getitems__"):
        return dataset.__getitems__(list(indices))
    return [dataset[index] for index in indices]


class _Rows:
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
    if isinstance(first, OurTensor):
        if any(each.requires_grad for each in batch):
            whole: Any = as_ours(first).stack(*[as_ours(each) for each in batch[1:]])
            return whole
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
        return tensor(batch, dtype="float64")  # type: ignore[arg-type]
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
        fix="pass a collate_fn to the DataLoader",
        line=here(),
    )


def random_split(
    dataset: Any, lengths: Sequence[float], generator: Generator | None = None
) -> list[Subset]:
    """Parts of a data set with so many items each, or with such shares of them, at random."""
    count = len(dataset)
    if lengths and math.isclose(sum(lengths), 1) and sum(lengths) <= 1.0000001:
        sizes = [math.floor(count * share) for share in lengths]
        for number in range(count - sum(sizes)):
            sizes[number % len(sizes)] += 1
    else:
        sizes = [int(size) for size in lengths]
    if sum(sizes) != count:
        raise ConfigError(
            f"random_split: lengths add up to {sum(sizes)}, there are {count} items", line=here()
        )
    order = randperm(count, generator=generator).tolist()
    ends = numpy.cumsum(sizes).tolist()
    return [Subset(dataset, order[end - size : end]) for end, size in zip(ends, sizes)]


class Sampler(Generic[Item]):
    """What gives indices in an order: a subclass gives `__iter__`."""

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
        _positive("num_samples", self.num_samples)

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
        _positive("num_samples", num_samples)
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
        from tilegrad.torch.creation import multinomial

        drawn = multinomial(
            self.weights, self.num_samples, self.replacement, generator=self.generator
        )
        yield from drawn.tolist()

    def __len__(self) -> int:
        return self.num_samples


DistributedSampler = ours.DistributedSampler


def _positive(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={value}")


def _check_workers(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool
) -> None:
    """Raises ConfigError for options that workers cannot have, or that need some."""
    if num_workers < 0 or timeout < 0:
        raise ConfigError(
            f"DataLoader: num_workers {num_workers} and timeout {timeout} cannot be negative",
            line=here(),
        )
    if not num_workers and (prefetch_factor is not None or persistent_workers):
        raise ConfigError(
            "DataLoader: prefetch_factor and persistent_workers need num_workers above 0",
            line=here(),
        )


def _check_batches(batch_size: int | None, drop_last: bool) -> None:
    """Raises for a size that no batch has, and for batches to drop where there are none."""
    if batch_size is not None:
        _positive("batch_size", batch_size)
    elif drop_last:
        raise ConfigError(
            "DataLoader: batch_size=None makes no batches, which drop_last could drop",
            line=here(),
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
            raise ConfigError("sampler option is mutually exclusive with shuffle", line=here())
        if self.is_stream and (has_order or batch_sampler is not None):
            raise ConfigError("DataLoader: the order of an IterableDataset is its own", line=here())
        if batch_sampler is not None and (batch_size != 1 or has_order or drop_last):
            raise ConfigError(
                "DataLoader: batch_sampler stands for batch_size, shuffle, sampler and drop_last",
                line=here(),
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
        items = _items(self.dataset, indices)
        if isinstance(items, _Rows):
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
    """What `get_worker_info` says while a worker goes through an IterableDataset."""

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


also_known(
    sys.modules[__name__],
    ("_utils", "_utils.collate", "dataset", "dataloader", "sampler", "distributed"),
    sys.modules[__name__],
    {},
)


if not TYPE_CHECKING:
    __getattr__ = refusing(__name__)
