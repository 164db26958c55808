"""New arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilegrad.array_api.array import Array, as_array
from tilegrad.array_api.data_types import DEFAULT_INTEGER, meeting, plain
from tilegrad.array_api.operators import is_number
from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DTypeError
from tilegrad.tensor import Tensor
from tilegrad.tensor.handle.core import as_dtype
from tilegrad.tensor.storage.host_memory import flatten

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like",
    "linspace", "meshgrid", "ones", "ones_like", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip


def asarray(
    obj: Any, /, *, dtype: DType | None = None, device: str | None = None, copy: bool | None = None
) -> Array:
    """An array of a number, a nested list, an array of this or another library, or a tensor.

    A tensor is not copied; `.tensor` gives it back. `copy=True` always copies, `copy=False` raises
    ValueError where a copy is needed.

    >>> from tilegrad import array_api as xp
    >>> xp.asarray([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    kind = None if dtype is None else as_dtype(dtype)
    if isinstance(obj, (Array, Tensor)):
        return _again(obj, kind, device, copy)
    if copy is False:
        return _shared(obj, kind, device)
    if isinstance(obj, complex):
        raise DTypeError("asarray: there are no complex arrays")
    if isinstance(obj, (list, tuple)):
        return _listed(obj, kind, device)
    if kind is None and type(obj) is int:
        kind = _of_integers([obj])
    if hasattr(obj, "__dlpack__") and not hasattr(obj, "__array__"):
        found = Tensor.from_dlpack(obj, device, True)
        return Array(found if kind is None else found.cast(kind))
    return Array(Tensor(obj, dtype=kind, device=device))


def _again(obj: Array | Tensor, kind: DType | None, device: str | None, copy: bool | None) -> Array:
    """An array from an array or tensor."""
    tensor = obj.tensor if isinstance(obj, Array) else obj
    found = tensor if kind is None else tensor.cast(kind)
    if device is not None:
        found = found.to(device)
    if found is not tensor and copy is False:
        raise ValueError("asarray: another dtype or device needs a copy")
    if found is tensor and copy:
        found = tensor.clone()
    return obj if found is tensor and isinstance(obj, Array) else Array(found)


def _shared(obj: Any, kind: DType | None, device: str | None) -> Array:
    """An array over the memory of `obj`."""
    if not hasattr(obj, "__dlpack__"):
        raise ValueError(f"asarray: a {type(obj).__name__} needs a copy")
    found = Tensor.from_dlpack(obj, device, False)
    if kind not in (None, found.dtype):
        raise ValueError("asarray: another dtype needs a copy")
    return Array(found)


def _of_integers(values: Sequence[int]) -> DType:
    """The dtype of integers: the default one where it holds them."""
    least, most = min(values), max(values)
    for dtype in (DEFAULT_INTEGER, dtypes.uint64):
        if dtype.min <= least and most <= dtype.max:
            return dtype
    raise DTypeError(f"asarray: no integer holds {most if most > 0 else least}")


def _listed(obj: Any, kind: DType | None, device: str | None) -> Array:
    """A nested list of numbers, in which arrays may stand."""
    values, shape = flatten(obj)
    if any(isinstance(value, (Array, Tensor)) for value in values):
        arrays = [asarray(value, dtype=kind, device=device).tensor for value in values]
        found = arrays[0].dtype
        for each in arrays[1:]:
            found = meeting("asarray", found, each.dtype)
        joined = Tensor.stack(*[each.cast(found) for each in arrays])
        return Array(joined.reshape(*shape, *arrays[0].shape))
    values = [plain("asarray", value) if is_number(value) else value for value in values]
    if any(isinstance(value, complex) for value in values):
        raise DTypeError("asarray: there are no complex arrays")
    if not values:
        return Array(Tensor.zeros(shape, dtype=kind or dtypes.default_float, device=device))
    if kind is None and all(type(value) is int for value in values):
        kind = _of_integers(values)
    if kind is dtypes.bool:
        values = [bool(value) for value in values]
    return Array(Tensor(values, dtype=kind, device=device).reshape(shape))


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Array:
    """An array over the memory of `x`, an array of any library with `__dlpack__`; copied only where
    it must be, or with `copy=True`.

    >>> import numpy
    >>> from tilegrad import array_api as xp
    >>> xp.from_dlpack(numpy.arange(3)).shape
    (3,)
    """
    return Array(Tensor.from_dlpack(x, device, copy))


def _sizes(shape: Any) -> tuple[int, ...]:
    return tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)


def full(
    shape: Any, fill_value: Any, *, dtype: DType | None = None, device: str | None = None
) -> Array:
    """An array of `shape` of one value.

    >>> from tilegrad import array_api as xp
    >>> xp.full(2, 7).tensor.tolist()
    [7, 7]
    """
    if isinstance(fill_value, complex):
        raise DTypeError("full: there are no complex arrays")
    if isinstance(fill_value, Array):
        value = fill_value.tensor if dtype is None else fill_value.tensor.cast(dtype)
        return Array(value.broadcast_to(_sizes(shape)))
    value = plain("full", fill_value)
    if dtype is None:
        kind = _of_integers([value]) if type(value) is int else None
    else:
        kind = as_dtype(dtype)
    return Array(Tensor.full(_sizes(shape), value, dtype=kind, device=device))


def zeros(shape: Any, *, dtype: DType | None = None, device: str | None = None) -> Array:
    """An array of `shape` of zeros, float32 unless told otherwise.

    >>> from tilegrad import array_api as xp
    >>> xp.zeros((2,)).tensor.tolist()
    [0.0, 0.0]
    """
    return full(shape, 0, dtype=dtype or dtypes.default_float, device=device)


def ones(shape: Any, *, dtype: DType | None = None, device: str | None = None) -> Array:
    """An array of `shape` of ones, float32 unless told otherwise.

    >>> from tilegrad import array_api as xp
    >>> xp.ones(2, dtype=xp.int8).tensor.tolist()
    [1, 1]
    """
    return full(shape, 1, dtype=dtype or dtypes.default_float, device=device)


def empty(shape: Any, *, dtype: DType | None = None, device: str | None = None) -> Array:
    """An array of `shape` whose values are to be written; until then they are zeros.

    >>> from tilegrad import array_api as xp
    >>> xp.empty((2, 3)).shape
    (2, 3)
    """
    return zeros(shape, dtype=dtype, device=device)


def full_like(
    x: Array, /, fill_value: Any, *, dtype: DType | None = None, device: str | None = None
) -> Array:
    """An array of one value with the shape, dtype and device of `x`.

    >>> from tilegrad import array_api as xp
    >>> xp.full_like(xp.zeros(2), 3).tensor.tolist()
    [3.0, 3.0]
    """
    like = as_array("full_like", x)
    return full(like.shape, fill_value, dtype=dtype or like.dtype, device=device or like.device)


def zeros_like(x: Array, /, *, dtype: DType | None = None, device: str | None = None) -> Array:
    """Zeros with the shape, dtype and device of `x`.

    >>> from tilegrad import array_api as xp
    >>> xp.zeros_like(xp.asarray([1, 2])).tensor.tolist()
    [0, 0]
    """
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: Array, /, *, dtype: DType | None = None, device: str | None = None) -> Array:
    """Ones with the shape, dtype and device of `x`.

    >>> from tilegrad import array_api as xp
    >>> xp.ones_like(xp.asarray([True, False])).tensor.tolist()
    [True, True]
    """
    return full_like(x, 1, dtype=dtype, device=device)


def empty_like(x: Array, /, *, dtype: DType | None = None, device: str | None = None) -> Array:
    """As `empty`, with the shape, dtype and device of `x`.

    >>> from tilegrad import array_api as xp
    >>> xp.empty_like(xp.ones((2, 3))).shape
    (2, 3)
    """
    return zeros_like(x, dtype=dtype, device=device)


def arange(
    start: Any,
    /,
    stop: Any = None,
    step: Any = 1,
    *,
    dtype: DType | None = None,
    device: str | None = None,
) -> Array:
    """Numbers from `start` (0 if only one is given) to `stop`, which is left out, by `step`.

    >>> from tilegrad import array_api as xp
    >>> xp.arange(1, 7, 2).tensor.tolist()
    [1, 3, 5]
    """
    first, end = (0, start) if stop is None else (start, stop)
    first, end, step = (plain("arange", value) for value in (first, end, step))
    numbers = (first, end, step)
    if dtype is not None:
        kind = as_dtype(dtype)
    elif all(isinstance(value, int) for value in numbers):
        kind = _of_integers([int(value) for value in (first, end)])
    else:
        kind = dtypes.default_float
    count = max(math.ceil((end - first) / step), 0)
    if all(isinstance(value, int) for value in numbers):
        count = len(range(first, end, step))
    if not kind.is_float and all(isinstance(value, int) for value in numbers):
        last = first + (count - 1) * step
        if count and kind.min <= first <= kind.max and kind.min <= last <= kind.max:
            steps = Tensor.arange(count, dtype=dtypes.int64, device=device)
            return Array((steps * step + _wrapped(first)).cast(kind))
    # A count of its own: rounding must not tell how many there are.
    steps = Tensor.arange(count, dtype=dtypes.float64, device=device)
    return Array((steps * float(step) + float(first)).cast(kind))


def _wrapped(value: int) -> int:
    """`value` in 64 bits with a sign; a cast to uint64 wraps it back."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def linspace(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    endpoint: bool = True,
) -> Array:
    """`num` numbers evenly apart from `start` to `stop`, which is left out with `endpoint=False`.

    >>> from tilegrad import array_api as xp
    >>> xp.linspace(0, 1, 3).tensor.tolist()
    [0.0, 0.5, 1.0]
    """
    kind = dtypes.default_float if dtype is None else as_dtype(dtype)
    first, last = float(plain("linspace", start)), float(plain("linspace", stop))
    gaps = num - 1 if endpoint else num
    steps = Tensor.arange(num, dtype=dtypes.float64, device=device)
    if not num:
        return Array(steps.cast(kind))
    share = steps / max(gaps, 1)
    # From both ends, so that both are exact, and no difference overflows.
    values = (share < 0.5).where(
        first * (1.0 - share) + last * share, last - (last * (1.0 - share) - first * (1.0 - share))
    )
    return Array(values.cast(kind))


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DType | None = None,
    device: str | None = None,
) -> Array:
    """A matrix of ones on diagonal `k`, zeros elsewhere.

    >>> from tilegrad import array_api as xp
    >>> xp.eye(2, k=1, dtype=xp.int8).tensor.tolist()
    [[0, 1], [0, 0]]
    """
    columns = n_rows if n_cols is None else n_cols
    kind = dtypes.default_float if dtype is None else as_dtype(dtype)
    row = Tensor.arange(n_rows, dtype=dtypes.int64, device=device).reshape(n_rows, 1)
    column = Tensor.arange(columns, dtype=dtypes.int64, device=device).reshape(1, columns)
    return Array((row + k).eq(column).cast(kind))


def tril(x: Array, /, *, k: int = 0) -> Array:
    """The matrices of `x` with zeros above diagonal `k`.

    >>> from tilegrad import array_api as xp
    >>> xp.tril(xp.ones((2, 2))).tensor.tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    return Array(as_array("tril", x).tensor.tril(k))


def triu(x: Array, /, *, k: int = 0) -> Array:
    """The matrices of `x` with zeros below diagonal `k`.

    >>> from tilegrad import array_api as xp
    >>> xp.triu(xp.ones((2, 2))).tensor.tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    return Array(as_array("triu", x).tensor.triu(k))


def meshgrid(*arrays: Array, indexing: str = "xy") -> tuple[Array, ...]:
    """Coordinates of a grid from those along each axis; `indexing="ij"` keeps the axes' order,
    `"xy"` exchanges the first two.

    >>> from tilegrad import array_api as xp
    >>> [each.shape for each in xp.meshgrid(xp.ones(2), xp.ones(3))]
    [(3, 2), (3, 2)]
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing is 'xy' or 'ij', not {indexing!r}")
    tensors = [as_array("meshgrid", each).tensor for each in arrays]
    count = len(tensors)
    order = list(range(count))
    if indexing == "xy" and count > 1:
        order[:2] = [1, 0]
    sizes = [tensor._sizes[0] if tensor.ndim else 1 for tensor in tensors]
    shape = [0] * count
    for position, axis in enumerate(order):
        shape[axis] = sizes[position]
    made: list[Array] = []
    for position, tensor in enumerate(tensors):
        around = [1] * count
        around[order[position]] = sizes[position]
        made.append(Array(tensor.reshape(around).broadcast_to(tuple(shape))))
    return tuple(made)
