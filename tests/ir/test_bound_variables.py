"""What a variable tells of itself, to code that asks whether it does."""

from __future__ import annotations

import pytest

from tilegrad import Variable
from tilegrad.base.errors import ShapeError


def test_hasattr_tells_whether_a_variable_is_bound() -> None:
    free = Variable("v", 1, 4)
    bound = free.bind(2)
    assert not hasattr(free, "val") and hasattr(bound, "val") and bound.val == 2
    assert not hasattr(bound + 1, "expr") and hasattr(free, "expr")


@pytest.mark.parametrize("name", ["shape", "dtype", "T", "item", "__array__", "__len__"])
def test_a_variable_is_asked_for_what_arrays_have(name: str) -> None:
    bound = Variable("v", 1, 4).bind(2)
    for each in (bound, bound + 1, Variable("v", 1, 4)):
        assert hasattr(each, name) == (name in ("shape", "dtype"))
    assert bound.shape == (bound + 1).shape == ()


def test_the_error_is_that_of_a_shape_as_well() -> None:
    with pytest.raises(ShapeError, match="has no bound value"):
        Variable("v", 1, 4).val  # noqa: B018
