"""Statistics and the like: one result for many elements, and running sums.

Sums and products of integers are int64, or uint64 of those without a sign, as the standard asks
for.
"""

from __future__ import annotations

import math
from typing import Any

from tilegrad.array_api.array import Array, as_array
from tilegrad.array_api.data_types import DEFAULT_INTEGER
from tilegrad.array_api.manipulation import concat
from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.dtype_promotion import sum_dtype
from tilegrad.base.errors import ShapeError
from tilegrad.tensor import Tensor
from tilegrad.tensor.handle.core import as_dtype
from tilegrad.tensor.handle.size_arguments import as_axes, as_axis

__all__ = [
    "all", "any", "cumulative_prod", "cumulative_sum", "diff", "max", "mean", "min", "prod",
    "std", "sum", "var",
]  # fmt: skip


def sum(
    x: Array, /, *, axis: Any = None, dtype: DType | None = None, keepdims: bool = False
) -> Array:
    """The sum over `axis`, or over all; `dtype` is that of the result, and of the sum.

    >>> from tilegrad import array_api as xp
    >>> xp.sum(xp.asarray([[1, 2], [3, 4]]), axis=0).tensor.tolist()
    [4, 6]
    """
    tensor = as_array("sum", x).tensor
    return Array(tensor.sum(axis, keepdims, dtype=dtype or _of_sum(tensor.dtype)))


def prod(
    x: Array, /, *, axis: Any = None, dtype: DType | None = None, keepdims: bool = False
) -> Array:
    """The product over `axis`, with arguments as `sum`.

    >>> from tilegrad import array_api as xp
    >>> int(xp.prod(xp.asarray([2, 3])))
    6
    """
    tensor = as_array("prod", x).tensor
    return Array(tensor.prod(axis, keepdims, dtype=dtype or _of_sum(tensor.dtype)))


def _of_sum(dtype: DType) -> DType:
    """The dtype of sums and products of elements of `dtype`."""
    if dtype.is_float:
        return dtype
    return dtypes.uint64 if dtype in dtypes.unsigned else DEFAULT_INTEGER


def max(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """The largest element over `axis`; NaN if there is one.

    Raises ShapeError if there is no element.

    >>> from tilegrad import array_api as xp
    >>> int(xp.max(xp.asarray([1, 3, 2])))
    3
    """
    return Array(as_array("max", x).tensor.max(axis, keepdims))


def min(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """The smallest element over `axis`; NaN if there is one.

    Raises ShapeError if there is no element.

    >>> from tilegrad import array_api as xp
    >>> int(xp.min(xp.asarray([2, 1, 3])))
    1
    """
    return Array(as_array("min", x).tensor.min(axis, keepdims))


def mean(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """The mean over `axis`; NaN of no elements.

    >>> from tilegrad import array_api as xp
    >>> float(xp.mean(xp.asarray([1.0, 2.0])))
    1.5
    """
    return Array(as_array("mean", x).tensor.mean(axis, keepdims))


def var(x: Array, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The variance over `axis`: squared distances from the mean, divided by their number less
    `correction`.

    >>> from tilegrad import array_api as xp
    >>> float(xp.var(xp.asarray([1.0, 3.0])))
    1.0
    """
    return Array(_variance("var", x, axis, correction, keepdims))


def std(x: Array, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The square root of the variance over `axis`.

    >>> from tilegrad import array_api as xp
    >>> float(xp.std(xp.asarray([1.0, 3.0]), correction=1.0)) ** 2 - 2 < 1e-6
    True
    """
    return Array(_variance("std", x, axis, correction, keepdims).sqrt())


def _variance(name: str, x: Any, axis: Any, correction: float, keepdims: bool) -> Tensor:
    tensor = as_array(name, x).tensor._floating()
    axes = as_axes(name, axis, tensor.ndim)
    count = math.prod([tensor._sizes[each] for each in axes])
    wide = tensor.cast(sum_dtype(tensor.dtype))
    distance = wide - wide.mean(axes, keepdim=True)
    total = (distance * distance).sum(axes, keepdims)
    left = count - correction
    # Numbers that are as few as the correction, or fewer, have no variance.
    found = total / left if left > 0 else total * math.nan
    return found.cast(tensor.dtype)


def cumulative_sum(
    x: Array,
    /,
    *,
    axis: int | None = None,
    dtype: DType | None = None,
    include_initial: bool = False,
) -> Array:
    """The sums of the elements up to each along `axis`; with `include_initial` after a zero.

    >>> from tilegrad import array_api as xp
    >>> xp.cumulative_sum(xp.asarray([1, 2, 3]), include_initial=True).tensor.tolist()
    [0, 1, 3, 6]
    """
    tensor, at_axis = _running("cumulative_sum", x, axis, dtype)
    return _with_initial(tensor.cumsum(at_axis).cast(tensor.dtype), at_axis, 0, include_initial)


def cumulative_prod(
    x: Array,
    /,
    *,
    axis: int | None = None,
    dtype: DType | None = None,
    include_initial: bool = False,
) -> Array:
    """The products of the elements up to each along `axis`; with `include_initial` after a one.

    >>> from tilegrad import array_api as xp
    >>> xp.cumulative_prod(xp.asarray([1, 2, 3])).tensor.tolist()
    [1, 2, 6]
    """
    tensor, at_axis = _running("cumulative_prod", x, axis, dtype)
    return _with_initial(tensor.cumprod(at_axis).cast(tensor.dtype), at_axis, 1, include_initial)


def _running(name: str, x: Any, axis: int | None, dtype: DType | None) -> tuple[Tensor, int]:
    """The operand of a running sum, in the dtype of its result, and its axis."""
    tensor = as_array(name, x).tensor
    if axis is None and tensor.ndim != 1:
        raise ShapeError(f"{name}: an array of {tensor.ndim} axes needs axis=")
    kind = _of_sum(tensor.dtype) if dtype is None else as_dtype(dtype)
    return tensor.cast(kind), as_axis(name, axis or 0, tensor.ndim)


def _with_initial(tensor: Tensor, at_axis: int, initial: int, is_wanted: bool) -> Array:
    if not is_wanted:
        return Array(tensor)
    shape = [1 if at == at_axis else size for at, size in enumerate(tensor._sizes)]
    first = Tensor.full(tuple(shape), initial, dtype=tensor.dtype, device=tensor.device)
    return Array(first.cat(tensor, dim=at_axis))


def all(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """Whether all elements over `axis` are true, or not zero.

    >>> from tilegrad import array_api as xp
    >>> bool(xp.all(xp.asarray([True, False])))
    False
    """
    return Array(as_array("all", x).tensor.all(axis, keepdims))


def any(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """Whether any element over `axis` is true, or not zero.

    >>> from tilegrad import array_api as xp
    >>> bool(xp.any(xp.asarray([True, False])))
    True
    """
    return Array(as_array("any", x).tensor.any(axis, keepdims))


def diff(
    x: Array,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Array | None = None,
    append: Array | None = None,
) -> Array:
    """The differences of neighbours along `axis`, `n` times over; `prepend` and `append` stand
    before and after the elements.

    >>> from tilegrad import array_api as xp
    >>> xp.diff(xp.asarray([1, 4, 9])).tensor.tolist()
    [3, 5]
    """
    array = as_array("diff", x)
    at_axis = as_axis("diff", axis, array.ndim)
    if n < 0:
        raise ValueError(f"diff: n is 0 or more, not {n}")
    if n and (prepend is not None or append is not None):
        array = concat(
            [each for each in (prepend, array, append) if each is not None], axis=at_axis
        )
    tensor = array.tensor
    lead = (slice(None),) * at_axis
    for _ in range(n):
        after, before = tensor[(*lead, slice(1, None))], tensor[(*lead, slice(None, -1))]
        tensor = after.ne(before) if tensor.dtype.kind == "bool" else after - before
    return Array(tensor if n else tensor.clone())
