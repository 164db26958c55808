"""Tensors of another library become ours by value, and are named as that library's where they are
refused.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import tilegrad
import tilegrad.torch as torch
from tilegrad.base.errors import DeviceError, DTypeError

VALUES = np.array([[1.5, -2.0], [0.25, 8.0]], np.float32)


class OtherDType:
    """A dtype that says nothing of its kind, as PyTorch's."""

    is_complex = False


class Tensor:
    """Values of another library: an array only where no gradient is asked for."""

    dtype = OtherDType()

    def __init__(self, values: np.ndarray, requires_grad: bool = False):
        self.values, self.requires_grad = values, requires_grad
        self.shape = values.shape

    def detach(self) -> Tensor:
        return Tensor(self.values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self.requires_grad:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
        return self.values


@pytest.mark.parametrize("requires_grad", [False, True])
def test_values_are_copied(requires_grad: bool) -> None:
    other = Tensor(VALUES.copy(), requires_grad)
    makers = (torch.tensor, torch.as_tensor, torch.asarray, tilegrad.Tensor, torch.nn.Parameter)
    for make in makers:
        np.testing.assert_array_equal(make(other).detach().numpy(), VALUES)


def test_what_is_refused_is_named_with_its_package() -> None:
    package = __name__.partition(".")[0]
    with pytest.raises(TypeError, match=rf"not a {package}\.Tensor"):
        torch.stack([Tensor(VALUES)])
    with pytest.raises(DTypeError, match=rf"cannot use a {package}\.Tensor as an operand"):
        torch.nn.Linear(2, 2)(Tensor(VALUES))


def test_a_picture_needs_no_dtype() -> None:
    class Picture:
        __array_interface__ = VALUES.__array_interface__

    np.testing.assert_array_equal(torch.tensor(Picture()).numpy(), VALUES)


def test_a_device_that_is_not_there_is_said_of_to() -> None:
    with pytest.raises(DeviceError) as raised:
        torch.ones(2).to("mps" if sys.platform == "linux" else "cuda")
    assert "_to_complex" not in str(raised.value)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool", "complex64"])
def test_pytorchs_own(dtype: str) -> None:
    theirs = pytest.importorskip("torch")
    other = theirs.tensor([[1, 0, 2]], dtype=getattr(theirs, dtype))
    for each in (other, other.requires_grad_() if other.is_floating_point() else other):
        made = torch.tensor(each)
        assert str(made.dtype) == f"torch.{dtype}"
        assert made.tolist() == other.tolist()
