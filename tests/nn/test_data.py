"""Data sets and the loader: order, joining, workers, errors."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from tilegrad import Tensor, nn
from tilegrad.base.errors import ConfigError, DataError, IndexBoundsError, ShapeError

DataLoader = nn.data.DataLoader


class Squares(nn.data.Dataset):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[int, dict[str, Any]]:
        if index == 7 and self.fails:
            raise KeyError("seven is missing")
        return index, {"square": np.float32(index * index), "name": f"n{index}"}

    def __init__(self, fails: bool = False):
        self.fails = fails


@pytest.mark.parametrize("workers", [0, 3])
def test_batches_are_in_order_and_joined_part_by_part(workers: int) -> None:
    batches = list(DataLoader(Squares(), 4, num_workers=workers))
    assert [index.tolist() for index, _ in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert batches[2][1]["square"].tolist() == [64.0, 81.0]
    assert batches[2][1]["name"] == ["n8", "n9"]
    assert isinstance(batches[0][0], Tensor)
    assert len(list(DataLoader(Squares(), 4, num_workers=workers, drop_last=True))) == 2


def test_the_order_is_by_the_seed() -> None:
    def order(loader: Any) -> list[int]:
        return [int(number) for batch in loader for number in batch.tolist()]

    loader = DataLoader(range(50), 8, shuffle=True, seed=3)
    first, second = order(loader), order(loader)
    assert sorted(first) == list(range(50)) and first != second
    again = DataLoader(range(50), 8, shuffle=True, seed=3, num_workers=2)
    assert [order(again), order(again)] == [first, second]
    drawn = []
    for _ in range(2):
        Tensor.manual_seed(5)
        drawn.append(order(DataLoader(range(50), 8, shuffle=True)))
    assert drawn[0] == drawn[1] != first
    assert order(DataLoader(range(50), 2, sampler=[4, 2, 0])) == [4, 2, 0]


def test_an_error_of_a_worker_has_its_own_traceback() -> None:
    loader = DataLoader(Squares(fails=True), 4, num_workers=2)
    with pytest.raises(KeyError, match="seven is missing") as caught:
        list(loader)
    assert "in __getitem__" in caught.value.__notes__[0]
    assert not [each for each in threading.enumerate() if "tilegrad-data" in each.name]


def test_a_loop_that_is_left_leaves_no_threads() -> None:
    for _ in DataLoader(Squares(), 1, num_workers=2):
        break
    assert not [each for each in threading.enumerate() if "tilegrad-data" in each.name]


@pytest.mark.nightly
def test_processes_are_spawned() -> None:
    data = nn.data.TensorDataset(np.arange(6), np.ones((6, 2)))
    batches = list(DataLoader(data, 4, num_workers=1, spawn=True))
    assert [index.tolist() for index, _ in batches] == [[0, 1, 2, 3], [4, 5]]


def test_progress_and_plain_arrays(capsys: pytest.CaptureFixture[str]) -> None:
    batches = list(DataLoader(range(4), 2, progress=True, tensors=False))
    assert isinstance(batches[0], np.ndarray)
    assert capsys.readouterr().err == "\r1/2 batches\r2/2 batches\n"


def test_splits_do_not_meet() -> None:
    parts = nn.data.random_split(range(10), [7, 3], seed=1)
    assert sorted([*parts[0].indices, *parts[1].indices]) == list(range(10))
    assert [parts[1][0]] == parts[1].indices[:1]


def test_what_is_no_data_set() -> None:
    with pytest.raises(DataError, match="a generator is no data set"):
        DataLoader(x for x in range(3))
    with pytest.raises(ConfigError, match="batch_size must be at least 1, not 0"):
        DataLoader(range(3), 0)
    with pytest.raises(ConfigError, match="shuffle and sampler are both given"):
        DataLoader(range(3), shuffle=True, sampler=[1])
    with pytest.raises(ShapeError, match=r"lengths differ, or there are none: \[2, 3\]"):
        nn.data.TensorDataset(np.ones(2), np.ones(3))
    with pytest.raises(ShapeError, match="add up to 5, not 3"):
        nn.data.random_split(range(3), [5])


def test_samplers() -> None:
    """A round draws anew, by the seed and the round's number."""
    drawn = nn.data.RandomSampler(range(50), seed=1)
    first, second = list(drawn), list(drawn)
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    assert list(nn.data.RandomSampler(range(50), seed=1)) == first
    assert len(list(nn.data.RandomSampler(range(3), num_samples=8))) == 8
    many = list(nn.data.WeightedRandomSampler([1.0, 3.0], 4000, seed=0))
    assert abs(sum(many) / 4000 - 0.75) < 0.03
    assert sorted(nn.data.WeightedRandomSampler([1.0, 0.0, 2.0], 2, replacement=False)) == [0, 2]
    with pytest.raises(ConfigError, match="WeightedRandomSampler: 2 of 1 positive weights"):
        nn.data.WeightedRandomSampler([1.0, 0.0], 2, replacement=False)


def test_processes_share_one_order() -> None:
    samplers = [nn.data.DistributedSampler(range(10), 3, rank, seed=5) for rank in range(3)]
    for epoch in (0, 1):
        parts = []
        for sampler in samplers:
            sampler.set_epoch(epoch)
            parts.append(list(sampler))
        assert {len(part) for part in parts} == {4}
        assert set().union(*parts) == set(range(10))


def test_batches_by_a_sampler_and_of_a_stream() -> None:
    batches = nn.data.BatchSampler(nn.data.SequentialSampler(range(5)), 2, drop_last=True)
    loader = nn.data.DataLoader(range(5), batch_sampler=batches)
    assert ([batch.tolist() for batch in loader], len(loader)) == ([[0, 1], [2, 3]], 2)
    with pytest.raises(ConfigError, match="batch_sampler stands for batch_size"):
        nn.data.DataLoader(range(5), 2, batch_sampler=batches)
    stream = nn.data.ChainDataset([range(3), range(2)])
    found = [batch.tolist() for batch in nn.data.DataLoader(stream, 2, drop_last=True)]
    assert found == [[0, 1], [2, 0]]
    with pytest.raises(ConfigError, match="the order of an IterableDataset is its own"):
        nn.data.DataLoader(stream, shuffle=True)


def test_sets_of_sets() -> None:
    both = nn.data.TensorDataset(Tensor([1, 2])) + nn.data.TensorDataset(Tensor([3]))
    assert [int(both[place][0]) for place in (0, 2, -1)] == [1, 3, 3]
    with pytest.raises(IndexBoundsError, match="ConcatDataset: no item 3 of 3"):
        both[3]
    with pytest.raises(ShapeError, match=r"StackDataset: lengths differ, or there are none: \[1"):
        nn.data.StackDataset([1], [2, 3])
    assert [len(part) for part in nn.data.random_split(range(11), [0.5, 0.3, 0.2])] == [6, 3, 2]


def test_items_that_are_no_batch() -> None:
    pairs = [(np.float32(i), i) for i in range(3)]
    found = [(float(x), int(y)) for x, y in nn.data.DataLoader(pairs, batch_size=None)]
    assert found == [(0.0, 0), (1.0, 1), (2.0, 2)]
    doubled = nn.data.DataLoader(range(3), batch_size=None, collate_fn=lambda item: item * 2)
    assert [int(item) for item in doubled] == [0, 2, 4] and len(doubled) == 3
