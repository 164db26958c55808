"""The same elements in another order or shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.array_api.array import Array, as_array
from tilegrad.array_api.data_types import meeting
from tilegrad.base.errors import ShapeError
from tilegrad.tensor import Tensor
from tilegrad.tensor.handle.size_arguments import as_axis

__all__ = [
    "concat", "expand_dims", "flip", "moveaxis", "permute_dims", "repeat", "reshape", "roll",
    "squeeze", "stack", "tile", "unstack",
]  # fmt: skip


def _as_one_dtype(name: str, arrays: Sequence[Any]) -> list[Tensor]:
    tensors = [as_array(name, each).tensor for each in arrays]
    if not tensors:
        raise ShapeError(f"{name}: at least one array is needed")
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = meeting(name, dtype, tensor.dtype)
    return [tensor.cast(dtype) for tensor in tensors]


def _axes(axis: Any) -> tuple[int, ...]:
    return tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)


def concat(arrays: Any, /, *, axis: int | None = 0) -> Array:
    """The arrays one after another along `axis`; with None, their elements in a row.

    >>> from tilegrad import array_api as xp
    >>> xp.concat([xp.asarray([1]), xp.asarray([2, 3])]).tensor.tolist()
    [1, 2, 3]
    """
    tensors = _as_one_dtype("concat", arrays)
    if axis is None:
        tensors, axis = [tensor.flatten() for tensor in tensors], 0
    if len(tensors) == 1:
        return Array(tensors[0].clone())
    return Array(tensors[0].cat(*tensors[1:], dim=axis))


def stack(arrays: Any, /, *, axis: int = 0) -> Array:
    """The arrays, all of one shape, along a new axis.

    >>> from tilegrad import array_api as xp
    >>> xp.stack([xp.asarray([1, 2]), xp.asarray([3, 4])], axis=1).tensor.tolist()
    [[1, 3], [2, 4]]
    """
    tensors = _as_one_dtype("stack", arrays)
    at_axis = as_axis("stack", axis, tensors[0].ndim + 1)
    for tensor in tensors:
        if tensor.shape != tensors[0].shape:
            raise ShapeError(f"stack: shapes differ: {tensors[0].shape} and {tensor.shape}")
    return concat([Array(tensor.unsqueeze(at_axis)) for tensor in tensors], axis=at_axis)


def unstack(x: Array, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The parts of an array along `axis`, without it.

    >>> from tilegrad import array_api as xp
    >>> [each.tensor.tolist() for each in xp.unstack(xp.asarray([[1, 2], [3, 4]]))]
    [[1, 2], [3, 4]]
    """
    tensor = as_array("unstack", x).tensor
    at_axis = as_axis("unstack", axis, tensor.ndim)
    lead = (slice(None),) * at_axis
    return tuple([Array(tensor[(*lead, at)]) for at in range(tensor._sizes[at_axis])])


def expand_dims(x: Array, /, axis: int) -> Array:
    """The array with a new axis of size 1.

    Raises IndexBoundsError for one that it cannot have.

    >>> from tilegrad import array_api as xp
    >>> xp.expand_dims(xp.ones(3), axis=1).shape
    (3, 1)
    """
    tensor = as_array("expand_dims", x).tensor
    return Array(tensor.unsqueeze(as_axis("expand_dims", axis, tensor.ndim + 1)))


def squeeze(x: Array, /, axis: Any) -> Array:
    """The array without axes of size 1.

    Raises ShapeError for an axis of another size.

    >>> from tilegrad import array_api as xp
    >>> xp.squeeze(xp.ones((1, 3)), axis=0).shape
    (3,)
    """
    tensor = as_array("squeeze", x).tensor
    gone = {as_axis("squeeze", each, tensor.ndim) for each in _axes(axis)}
    for gone_axis in gone:
        if tensor._sizes[gone_axis] != 1:
            raise ShapeError(
                f"squeeze: axis {gone_axis} has size {tensor._sizes[gone_axis]}, not 1"
            )
    return Array(tensor.reshape([s for at, s in enumerate(tensor._sizes) if at not in gone]))


def flip(x: Array, /, *, axis: Any = None) -> Array:
    """The elements in the opposite order along `axis`, or along all.

    >>> from tilegrad import array_api as xp
    >>> xp.flip(xp.asarray([1, 2, 3])).tensor.tolist()
    [3, 2, 1]
    """
    tensor = as_array("flip", x).tensor
    axes = tuple(range(tensor.ndim)) if axis is None else _axes(axis)
    return Array(tensor.flip(*axes) if axes else tensor.clone())


def moveaxis(x: Array, source: Any, destination: Any, /) -> Array:
    """The array with the axes `source` at `destination`, the others in their order.

    >>> from tilegrad import array_api as xp
    >>> xp.moveaxis(xp.ones((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    tensor = as_array("moveaxis", x).tensor
    return Array(tensor.movedim(_axes(source), _axes(destination)))


def permute_dims(x: Array, /, axes: tuple[int, ...]) -> Array:
    """The array with its axes in the order `axes`.

    >>> from tilegrad import array_api as xp
    >>> xp.permute_dims(xp.ones((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    tensor = as_array("permute_dims", x).tensor
    return Array(tensor.permute(*axes) if axes else tensor)


def repeat(x: Array, repeats: Any, /, *, axis: int | None = None) -> Array:
    """Each element `repeats` times, a number or one for each, along `axis` or in a row.

    >>> from tilegrad import array_api as xp
    >>> xp.repeat(xp.asarray([1, 2]), 2).tensor.tolist()
    [1, 1, 2, 2]
    """
    tensor = as_array("repeat", x).tensor
    if axis is None:
        tensor, axis = tensor.flatten(), 0
    if isinstance(repeats, Array):
        counts = repeats.tensor.broadcast_to((tensor._sizes[axis],)).tolist()
        order = [number for number, count in enumerate(counts) for _ in range(count)]
        lead = (slice(None),) * as_axis("repeat", axis, tensor.ndim)
        index = Tensor.zeros((0,), dtype="int32") if not order else Tensor(order)
        return Array(tensor[(*lead, index)])
    return Array(tensor.repeat_interleave(int(repeats), axis))


def reshape(x: Array, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Array:
    """The same elements in another shape; one of its sizes may be -1.

    Raises ShapeError where they do not fit.

    >>> from tilegrad import array_api as xp
    >>> xp.reshape(xp.asarray([1, 2, 3, 4]), (2, -1)).tensor.tolist()
    [[1, 2], [3, 4]]
    """
    tensor = as_array("reshape", x).tensor
    return Array((tensor.clone() if copy else tensor).reshape(tuple(shape)))


def roll(x: Array, /, shift: Any, *, axis: Any = None) -> Array:
    """The elements moved by `shift` along `axis`, or in a row; those that leave come in again.

    >>> from tilegrad import array_api as xp
    >>> xp.roll(xp.asarray([1, 2, 3]), 1).tensor.tolist()
    [3, 1, 2]
    """
    tensor = as_array("roll", x).tensor
    whole = tensor.flatten() if axis is None else tensor
    axes: tuple[int, ...] = (0,) if axis is None else _axes(axis)
    shifts = _axes(shift)
    if axis is not None and isinstance(axis, int):
        axes = axes * len(shifts)
    if len(shifts) == 1:
        shifts = shifts * len(axes)
    for move, each in zip(shifts, axes):
        size = whole._sizes[as_axis("roll", each, whole.ndim)]
        if size and move % size:
            whole = whole.roll(move % size, each)
    return Array(whole.reshape(tensor.shape) if whole is not tensor else tensor.clone())


def tile(x: Array, repetitions: tuple[int, ...], /) -> Array:
    """The array side by side, as often along each axis as `repetitions` says.

    >>> from tilegrad import array_api as xp
    >>> xp.tile(xp.asarray([1, 2]), (2,)).tensor.tolist()
    [1, 2, 1, 2]
    """
    tensor = as_array("tile", x).tensor
    counts = tuple(repetitions)
    counts = (1,) * (tensor.ndim - len(counts)) + counts
    lead = (1,) * (len(counts) - tensor.ndim)
    sizes = (*lead, *tensor._sizes)
    spread = tensor.reshape([each for size in sizes for each in (1, size)])
    around = [each for count, size in zip(counts, sizes) for each in (count, size)]
    joined = spread.expand(around) if around else spread
    return Array(joined.reshape([count * size for count, size in zip(counts, sizes)]))
