"""Indices, labels and probabilities out of range: an error where the tensor is made, if they are
known then, and nothing runs for it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilegrad import Context, GlobalCounters, Tensor, nn
from tilegrad.base.errors import DataError, IndexBoundsError

F = nn.functional
TABLE = np.arange(6, dtype="f4").reshape(3, 2)
SCORES = np.zeros((2, 3), "f4")

# What takes an index of 5 into an axis of 3.
WRONG: dict[str, Callable[[Tensor], Tensor]] = {
    "cross_entropy": lambda i: F.cross_entropy(Tensor(SCORES), i),
    "nll_loss": lambda i: F.nll_loss(Tensor(SCORES), i),
    "Tensor.cross_entropy": lambda i: Tensor(SCORES).cross_entropy(i),
    "Embedding": lambda i: nn.Embedding(3, 2)(i),
    "getitem": lambda i: Tensor(TABLE)[i],
    "gather": lambda i: Tensor(TABLE).gather(0, i.reshape(2, 1)),
    "take": lambda i: Tensor([1, 2, 3]).take(i),
    "index_select": lambda i: Tensor(TABLE).index_select(0, i),
    "one_hot": lambda i: i.one_hot(3),
    "scatter": lambda i: Tensor([1, 2, 3]).scatter(0, i, Tensor([7, 8])),
    "scatter_add": lambda i: Tensor([1, 2, 3]).scatter_add(0, i, Tensor([7, 8])),
}

# The ways to a tensor whose values are known.
KNOWN: dict[str, Callable[[list[int]], Tensor]] = {
    "list": lambda values: Tensor(values),
    "array": lambda values: Tensor(np.array(values)),
    "memory": lambda values: (Tensor(values) + 0).realize(),
    "view": lambda values: Tensor([values]).reshape(2, 1).flatten(),
    "slice": lambda values: Tensor([9, *values, 9])[1:3],
    "row of memory": lambda values: (Tensor([[9, 9], values]) + 0).realize()[1],
    "column": lambda values: Tensor([[each, 0] for each in values])[:, 0],
    "flipped": lambda values: Tensor(values[::-1]).flip(0),
    "slice of many": lambda values: Tensor(np.array([9] * 70_000 + values))[70_000:],
    "cast": lambda values: Tensor(np.array([values], "u1")).reshape(2).cast("int64"),
    "copy": lambda values: Tensor([values])[0].contiguous().clone(),
    "constant": lambda values: Tensor.full((2,), values[1]),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("way", KNOWN)
def test_a_known_index_out_of_range_raises(name: str, way: str) -> None:
    # The third time the calls are known, and wait.
    for _ in range(3):
        index = KNOWN[way]([0, 5])
        with pytest.raises(IndexBoundsError, match="index 5 is out of range"):
            WRONG[name](index)


@pytest.mark.parametrize("way", KNOWN)
def test_only_what_a_view_shows_is_looked_at(way: str) -> None:
    for _ in range(3):
        index = KNOWN[way]([2, 1])
        assert Tensor(TABLE)[index].tolist() == TABLE[index.numpy()].tolist()


def test_a_narrow_cast_is_looked_at_behind_it() -> None:
    for _ in range(3):
        assert Tensor(TABLE)[Tensor([257, 0]).cast("uint8")].tolist() == TABLE[[1, 0]].tolist()


def test_what_is_still_to_be_computed_stays_so() -> None:
    index = Tensor([0, 4]) + 1
    before = GlobalCounters.kernel_count
    picked = Tensor(TABLE)[index]
    assert GlobalCounters.kernel_count == before
    assert picked.tolist() == [[2.0, 3.0], [0.0, 0.0]]


def test_check_finds_what_was_computed() -> None:
    with Context(CHECK=1), pytest.raises(IndexBoundsError, match="index 5 is out of range"):
        F.cross_entropy(Tensor(SCORES), Tensor([0, 4]) + 1).realize()


def test_an_array_is_looked_at_and_a_label_that_is_ignored_is_right() -> None:
    labels = np.zeros(1000, "i8")
    labels[7] = -100
    scores = Tensor.zeros(1000, 3)
    assert F.cross_entropy(scores, Tensor(labels)).item() == pytest.approx(np.log(3))
    labels[9] = 3
    with pytest.raises(IndexBoundsError, match=r"index 3 is out of range(?s:.*)at \[9\]"):
        F.cross_entropy(scores, Tensor(labels))


def test_a_label_that_counts_from_the_end_is_wrong() -> None:
    with pytest.raises(IndexBoundsError, match="index -1 is out of range"):
        F.nll_loss(Tensor(SCORES), Tensor([0, -1]))
    assert Tensor(TABLE)[Tensor([-1])].tolist() == [[4.0, 5.0]]


@pytest.mark.parametrize("given", [([0.5, 1.5], [0.0, 1.0]), ([0.5, 0.5], [0.0, -0.5])])
def test_a_probability_outside_of_0_to_1_raises(given: Any) -> None:
    share, target = map(Tensor, given)
    with pytest.raises(DataError, match=r"binary_cross_entropy: a \w+ is (1\.5|-0\.5)"):
        F.binary_cross_entropy(share, target)
    with pytest.raises(DataError, match=r"binary_crossentropy: a \w+ is (1\.5|-0\.5)"):
        share.binary_crossentropy(target)


def test_memory_that_was_never_written_to_is_not_looked_at() -> None:
    assert Tensor(TABLE)[Tensor.empty(2, dtype="int32")].shape == (2, 2)
