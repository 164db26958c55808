"""Checks of the arguments that all losses share, and the reduction of a loss to one number."""

from __future__ import annotations

from tilegrad.base.errors import ShapeError
from tilegrad.tensor.handle.core import check_tensors, describe
from tilegrad.tensor.handle.size_arguments import same_shape, show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = ["IGNORED", "check_shapes", "reduced"]

# PyTorch's: no class has this number.
IGNORED = -100


def check_shapes(name: str, input: Tensor, target: Tensor) -> None:
    """Raise ShapeError unless both have one shape: stretching one to the other hides a mistake."""
    check_tensors(name, input, target)
    if not same_shape(input.shape, target.shape):
        raise ShapeError(
            f"{name}: shapes differ: {show_shape(input.shape)} and {show_shape(target.shape)}",
            input=describe(input.uop),
            target=describe(target.uop),
            rule="both have one shape; expand() one where it is to be repeated",
        )


def reduced(name: str, loss: Tensor, reduction: str) -> Tensor:
    """The mean or the sum of `loss`, or itself. Raises ConfigError for another `reduction`."""
    return loss._reduced(name, reduction)
