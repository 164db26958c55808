"""What is a pair of values and indices in PyTorch, and the values alone here, is not unpacked."""

from collections.abc import Callable
from typing import Any

import pytest

from tilegrad import Tensor
from tilegrad.base.errors import DTypeError

ROWS = [[1, 5, 3], [7, 2, 9]]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda x: x.max(dim=1), "max"),
        (lambda x: x.max(1), "max"),
        (lambda x: x.min(dim=1), "min"),
        (lambda x: x.max(dim=1, keepdim=True), "max"),
        (lambda x: x.cummax(1), "cummax"),
        (lambda x: x.cummin(1), "cummin"),
    ],
)
def test_values_alone_are_not_unpacked_as_a_pair(call: Callable[[Any], Any], name: str) -> None:
    with pytest.raises(DTypeError, match=rf"{name}\(1\): these are the values alone"):
        _values, _indices = call(Tensor(ROWS))


def test_the_error_says_how_to_ask_for_the_indices() -> None:
    with pytest.raises(DTypeError, match=r"values = x\.max\(1\); indices = x\.argmax\(1\)"):
        _values, _indices = Tensor(ROWS).max(dim=1)


def test_values_alone_are_iterated() -> None:
    assert [value.item() for value in Tensor(ROWS).max(dim=1)] == [5, 9]
    first, second = list(Tensor(ROWS).max(dim=1))
    assert (first.item(), second.item()) == (5, 9)


def test_what_was_computed_from_them_is_a_tensor_like_any_other() -> None:
    first, second = Tensor(ROWS).max(dim=1) * 2
    assert (first.item(), second.item()) == (10, 18)
    left, right = Tensor([[1, 2], [3, 4]]).max()[None].expand(2)
    assert left.item() == right.item() == 4


def test_pairs_are_unpacked() -> None:
    for found in (Tensor(ROWS).median(dim=1), Tensor(ROWS).mode(1), Tensor(ROWS).sort(1)):
        values, indices = found
        assert values.shape == indices.shape
