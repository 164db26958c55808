"""Arguments that every layer takes, and checks of them and of its input."""

from __future__ import annotations

from typing import Any, TypedDict

from tilegrad.base.dtype import DType
from tilegrad.base.errors import ShapeError, SizeKindError
from tilegrad.tensor.handle.core import check_tensors, describe
from tilegrad.tensor.handle.size_arguments import same, show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = ["FactoryOptions", "check_size", "countable", "positive", "tuple_of"]


class FactoryOptions(TypedDict, total=False):
    """Where a layer's tensors are, and the dtype of its floats: keywords of layers with weights."""

    device: str | None
    dtype: DType | str | None


def check_size(
    layer: str, what: str, x: Tensor, axis: int, size: int, kind: type[ShapeError] = ShapeError
) -> None:
    """Raise ShapeError, or its `kind`, unless axis `axis` of `x`, its `what`, has the `size` of
    `layer`; DTypeError if `x` is no tensor.
    """
    check_tensors(layer, x)
    has_axis = -x.ndim <= axis < x.ndim
    if not has_axis or not same(x.shape[axis], size):
        raise kind(
            f"{layer}: the input has {x.shape[axis] if has_axis else 'no'} {what}, "
            f"the layer was made for {size}",
            input=describe(x.uop),
            rule=f"axis {axis} of {show_shape(x.shape)} must be {size}",
        )


def positive(layer: str, **sizes: Any) -> None:
    """Raise ShapeError unless each of `sizes` is above 0, SizeKindError for what is no integer."""
    _check_least(layer, 1, "an integer above 0", sizes)


def countable(layer: str, **sizes: Any) -> None:
    """As `positive`, of sizes that may be 0: a layer of no numbers."""
    _check_least(layer, 0, "an integer, 0 or more", sizes)


def _check_least(layer: str, least: int, rule: str, sizes: dict[str, Any]) -> None:
    for name, size in sizes.items():
        is_whole = isinstance(size, int) and not isinstance(size, bool)
        if not is_whole or size < least:
            raise (ShapeError if is_whole else SizeKindError)(
                f"{layer}: {name} must be {rule}, not {size!r}"
            )


def tuple_of(layer: str, name: str, value: Any, count: int, least: int = 0) -> tuple[int, ...]:
    """`value`, or one number for all axes, as `count` integers of at least `least`."""
    found = tuple(value) if isinstance(value, (tuple, list)) else (value,) * count
    is_fit = all(isinstance(each, int) and each >= least for each in found)
    if len(found) != count or not is_fit:
        is_whole = all(isinstance(each, int) for each in found)
        raise (ShapeError if is_whole else SizeKindError)(
            f"{layer}: {name} {value!r} does not fit",
            rule=f"an integer of at least {least}, or one for each of {count} axes",
        )
    return found
