"""Tensors of more axes than arrays of the host can have: an error of ours says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilegrad import Tensor
from tilegrad.base.errors import ShapeError

SHAPE = (1,) * 64 + (3,)
WAYS: dict[str, Callable[[Tensor], Any]] = {
    "numpy": lambda x: x.numpy(),
    "asarray": np.asarray,
    "array": np.array,
    "array without a copy": lambda x: np.asarray(x, copy=False),
    "from_dlpack": np.from_dlpack,
    "data": lambda x: x.data(),
    "apply": lambda x: x.apply(lambda values: values).tolist(),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_realized", [False, True])
def test_what_has_no_array_is_a_shape_error(way: str, is_realized: bool) -> None:
    x = Tensor([1.0, 2.0, 3.0]).reshape(SHAPE)
    with pytest.raises(
        ShapeError, match="65 axes, and arrays of the host have at most 64"
    ) as found:
        WAYS[way](x.realize() if is_realized else x + 1)
    assert "flatten()" in str(found.value) and "test_many_axes.py" in str(found.value)


@pytest.mark.parametrize("way", WAYS)
def test_64_axes_have_one(way: str) -> None:
    found = WAYS[way](Tensor([1.0, 2.0, 3.0]).reshape(SHAPE[1:]).realize())
    assert np.shape(found) == SHAPE[1:] or way == "apply"


def test_lists_have_any_number_of_axes() -> None:
    found = Tensor([1.0, 2.0, 3.0]).reshape(SHAPE).tolist()
    for _ in SHAPE[:-1]:
        (found,) = found
    assert found == [1.0, 2.0, 3.0]
