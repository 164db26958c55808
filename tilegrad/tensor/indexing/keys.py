"""Keys: what stands between the brackets of `x[...]`, before it meets a tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DTypeError, IndexBoundsError, IndexKindError
from tilegrad.tensor.handle.core import Core, describe
from tilegrad.tensor.handle.size_arguments import as_int, show_shape, simple
from tilegrad.tensor.views.changing_picks import is_scalar

__all__ = [
    "PLAIN_ENTRIES", "KnownIndex", "as_index", "as_number_or_bool", "as_slice", "axes_of",
    "bounds_of", "entries_of", "first_of_neighbours", "from_the_front", "has_tensor",
    "index_outside", "is_one_index", "with_tensors_for_lists", "without_masks", "without_scalars",
]  # fmt: skip

PLAIN_ENTRIES = frozenset({int, slice, type(None), type(Ellipsis)})


def is_one_index(entry: Any) -> bool:
    """Whether an entry is a list of one integer, as in `x[:, [-1]]`."""
    return entry.__class__ is list and len(entry) == 1 and entry[0].__class__ is int


def as_slice(entry: list[int]) -> slice:
    """The slice of one element that a list of one index picks."""
    (index,) = entry
    return slice(index, index + 1 if index != -1 else None)


def with_tensors_for_lists(tensor: Any, key: tuple[Any, ...]) -> tuple[Any, ...]:
    """`key` of a tensor with integer tensors instead of lists of integers, which each pick along
    one axis; as it is beside a mask, which takes as many axes as it has.

    Raises IndexBoundsError for an integer outside.
    """
    beside = len([entry for entry in key if entry is not None and entry is not Ellipsis])
    found: list[Any] = []
    axis = 0
    for entry in key:
        kind = entry.__class__
        if kind is list and not is_one_index(entry):
            if entry and axis < tensor.ndim and all(each.__class__ is int for each in entry):
                rows = tensor._rows_on(tensor._as_index(entry), axis)
                entry = entry if rows is None else rows
        elif kind not in PLAIN_ENTRIES and kind is not list:
            if not isinstance(entry, Core) or not entry.dtype.is_int:
                return key
        found.append(entry)
        if entry is Ellipsis:
            axis += tensor.ndim - beside
        elif entry is not None:
            axis += 1
    return tuple(found)


def without_scalars(key: Any) -> Any:
    """A key with Python's integers where it has NumPy's."""
    if key.__class__ is tuple:
        is_any = any(map(is_scalar, key))
        return tuple([int(each) if is_scalar(each) else each for each in key]) if is_any else key
    return int(key) if is_scalar(key) else key


class KnownIndex:
    """A list or an array as an index: its values in row-major order, integers or all of them bools,
    and its shape.
    """

    def __init__(self, values: list[Any], shape: tuple[int, ...]):
        self.values, self.shape = values, shape

    @property
    def dtype(self) -> DType:
        is_mask = bool(self.values) and all(isinstance(value, bool) for value in self.values)
        return dtypes.bool if is_mask else dtypes.int32

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def positions_of_true(self) -> list[list[int]]:
        """For each axis, the indices along it of the true elements."""
        flat = [number for number, value in enumerate(self.values) if value]
        steps = [math.prod(self.shape[axis + 1 :]) for axis in range(self.ndim)]
        return [[number // step % size for number in flat] for step, size in zip(steps, self.shape)]


def entries_of(key: Any) -> list[Any]:
    """Entries of the index in `x[key]`, one for each axis. A list that is no array, as it holds
    tensors, slices, None, Ellipsis, or numbers beside lists, stands for a tuple, as in PyTorch and
    tinygrad; any other list is an array, as in NumPy.
    """
    if isinstance(key, tuple):
        return list(key)
    if isinstance(key, list):
        are_lists = [isinstance(entry, (list, tuple, range)) for entry in key]
        if (any(are_lists) and not all(are_lists)) or any(
            entry is None or entry is Ellipsis or isinstance(entry, (Core, slice)) for entry in key
        ):
            return list(key)
    return [key]


def as_number_or_bool(value: Any) -> int | bool:
    """An element of a list of indices: an integer, or a bool of a mask.

    Raises DTypeError for anything else.
    """
    if isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b":
        return bool(value)
    return as_index(value)


def as_index(value: Any) -> int:
    """`value` as an integer that picks an element. Raises IndexKindError for anything else."""
    try:
        return as_int("getitem", "an index", value)
    except DTypeError as error:
        raise IndexKindError(error.headline) from None


def from_the_front(position: Any, size: Any) -> Any:
    """A position counted from the front: what is negative, whatever its variables, counts from the
    end.
    """
    most = position if isinstance(position, int) else position.vmax
    return simple(size + position) if most < 0 else position


def axes_of(entry: Any) -> int:
    """How many axes an index stands for."""
    if entry is None or entry is Ellipsis:
        return 0
    return entry.ndim if isinstance(entry, (Core, KnownIndex)) and entry.dtype is dtypes.bool else 1


def without_masks(tensor: Any, key: tuple[Any, ...]) -> tuple[Any, ...]:
    """The entries of `key`, where for each mask the positions of its true elements stand."""
    if not any(map(_is_mask, key)):
        return key
    used = sum(map(axes_of, key))
    made: list[Any] = []
    axis = 0
    for entry in key:
        if _is_mask(entry) and used <= tensor.ndim:
            tensor._check_mask(entry.shape, axis)
            made += entry._true_columns()
        else:
            made.append(entry)
        axis += tensor.ndim - used if entry is Ellipsis else axes_of(entry)
    return tuple(made)


def _is_mask(entry: Any) -> bool:
    return isinstance(entry, Core) and entry.dtype is dtypes.bool and entry.ndim > 0


def first_of_neighbours(axes: Sequence[int]) -> int:
    """Where the axes of a pick stand in its result: where the first of the indexed `axes` stood,
    or in front, if others lie between these.
    """
    is_together = bool(axes) and axes[-1] - axes[0] == len(axes) - 1
    return axes[0] if is_together else 0


def has_tensor(key: Any) -> bool:
    """Whether an index holds a tensor, a sequence or an array: then it does not name a slice."""
    return any(
        isinstance(entry, (Core, list, tuple, range)) or hasattr(entry, "__array__")
        for entry in entries_of(key)
    )


def index_outside(tensor: Any, index: int, axis: int) -> IndexBoundsError:
    """The error of an index that an axis of `tensor` does not have."""
    size = tensor.shape[axis]
    return IndexBoundsError(
        f"getitem: index {index} is out of range for axis {axis} of size "
        f"{show_shape((size,))[1:-2]}",
        tensor=describe(tensor.uop),
        **bounds_of(size),
    )


def bounds_of(size: Any) -> dict[str, str]:
    """The indices that an axis of some size has, for an error."""
    if not isinstance(size, int):
        return {}
    return {"rule": f"from {-size} to {size - 1}" if size else "the axis has no elements"}
