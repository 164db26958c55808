"""Finding, picking, ordering, and sets."""

from __future__ import annotations

from typing import Any, NamedTuple

from tilegrad.array_api.array import Array, as_array
from tilegrad.array_api.data_types import as_operands
from tilegrad.array_api.operators import is_number
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import ShapeError
from tilegrad.tensor import Tensor
from tilegrad.tensor.handle.broadcasting import broadcast_shape
from tilegrad.tensor.handle.size_arguments import as_axis

__all__ = [
    "argmax", "argmin", "argsort", "count_nonzero", "nonzero", "searchsorted", "sort", "take",
    "take_along_axis", "unique_all", "unique_counts", "unique_inverse", "unique_values", "where",
]  # fmt: skip


def argmax(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """The position of the first largest element along `axis`, or in a row.

    >>> from tilegrad import array_api as xp
    >>> int(xp.argmax(xp.asarray([1, 3, 2])))
    1
    """
    return Array(as_array("argmax", x).tensor.argmax(axis, keepdims))


def argmin(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """The position of the first smallest element along `axis`, or in a row.

    >>> from tilegrad import array_api as xp
    >>> int(xp.argmin(xp.asarray([2, 1, 3])))
    1
    """
    return Array(as_array("argmin", x).tensor.argmin(axis, keepdims))


def count_nonzero(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """How many elements over `axis` are not zero.

    >>> from tilegrad import array_api as xp
    >>> int(xp.count_nonzero(xp.asarray([0, 3, 0])))
    1
    """
    tensor = as_array("count_nonzero", x).tensor
    return Array(tensor.cast(dtypes.bool).cast(dtypes.int32).sum(axis, keepdims))


def nonzero(x: Array, /) -> tuple[Array, ...]:
    """For each axis, the indices along it of the elements that are not zero.

    Raises ShapeError for an array without axes.

    >>> from tilegrad import array_api as xp
    >>> [each.tensor.tolist() for each in xp.nonzero(xp.asarray([[0, 1], [1, 0]]))]
    [[0, 1], [1, 0]]
    """
    tensor = as_array("nonzero", x).tensor
    if not tensor.ndim:
        raise ShapeError("nonzero: an array without axes has no positions")
    indices = tensor.nonzero()
    return tuple([Array(indices[:, axis]) for axis in range(tensor.ndim)])


def searchsorted(
    x1: Array, x2: Any, /, *, side: str = "left", sorter: Array | None = None
) -> Array:
    """Where in `x1`, which is in order (or is so by `sorter`), each element of `x2` would go:
    before equal ones, or with `side="right"` after them.

    >>> from tilegrad import array_api as xp
    >>> xp.searchsorted(xp.asarray([1, 3, 5]), xp.asarray([3, 4])).tensor.tolist()
    [1, 2]
    """
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted: side is 'left' or 'right', not {side!r}")
    order, values = as_operands("searchsorted", as_array("searchsorted", x1), x2)
    if sorter is not None:
        order = order[sorter.tensor]
    return Array(order.searchsorted(values, right=side == "right"))


def where(condition: Array, x1: Any, x2: Any, /) -> Array:
    """The elements of `x1` where `condition` is true, else those of `x2`; one may be a number.

    >>> from tilegrad import array_api as xp
    >>> xp.where(xp.asarray([True, False]), xp.asarray([1, 2]), 0).tensor.tolist()
    [1, 0]
    """
    mask = as_array("where", condition).tensor
    if is_number(x1) and is_number(x2):
        x1 = Array(Tensor(x1, device=mask.device))
    first, second = as_operands("where", x1, x2)
    shape = broadcast_shape("where", [mask.uop, first.uop, second.uop])
    return Array(mask.where(first, second).broadcast_to(shape))


def take(x: Array, indices: Array, /, *, axis: int | None = None) -> Array:
    """The slices along `axis` that `indices` name.

    >>> from tilegrad import array_api as xp
    >>> xp.take(xp.asarray([1, 2, 3]), xp.asarray([2, 0])).tensor.tolist()
    [3, 1]
    """
    tensor = as_array("take", x).tensor
    if axis is None and tensor.ndim != 1:
        raise ShapeError(f"take: an array of {tensor.ndim} axes needs axis=")
    dim = as_axis("take", axis or 0, tensor.ndim)
    return Array(tensor[(*(slice(None),) * dim, as_array("take", indices).tensor)])


def take_along_axis(x: Array, indices: Array, /, *, axis: int = -1) -> Array:
    """For each row along `axis` the elements that that row of `indices` names.

    >>> from tilegrad import array_api as xp
    >>> xp.take_along_axis(xp.asarray([[1, 2], [3, 4]]), xp.asarray([[1], [0]])).tensor.tolist()
    [[2], [3]]
    """
    tensor = as_array("take_along_axis", x).tensor
    index = as_array("take_along_axis", indices).tensor
    if tensor.ndim != index.ndim:
        raise ShapeError(f"take_along_axis: {index.ndim} axes of indices for {tensor.ndim}")
    dim = as_axis("take_along_axis", axis, tensor.ndim)
    rows = [1 if at == dim else size for at, size in enumerate(tensor._sizes)]
    theirs = [1 if at == dim else size for at, size in enumerate(index._sizes)]
    shape = list(
        broadcast_shape(
            "take_along_axis",
            [Tensor.zeros(tuple(rows)).uop, Tensor.zeros(tuple(theirs)).uop],
        )
    )
    table = tensor.broadcast_to(
        tuple([tensor._sizes[at] if at == dim else size for at, size in enumerate(shape)])
    )
    wanted = index.broadcast_to(
        tuple([index._sizes[at] if at == dim else size for at, size in enumerate(shape)])
    )
    return Array(table.gather(dim, wanted))


def sort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The elements in order along `axis`, NaN last, equal ones in their order.

    >>> from tilegrad import array_api as xp
    >>> xp.sort(xp.asarray([3, 1, 2])).tensor.tolist()
    [1, 2, 3]
    """
    return Array(as_array("sort", x).tensor.sort(axis, descending)[0])


def argsort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The positions of the elements along `axis`, in the order of `sort`.

    >>> from tilegrad import array_api as xp
    >>> xp.argsort(xp.asarray([3, 1, 2])).tensor.tolist()
    [1, 2, 0]
    """
    return Array(as_array("argsort", x).tensor.argsort(axis, descending))


# sets


class UniqueAll(NamedTuple):
    """Result of `unique_all`."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """Result of `unique_counts`."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """Result of `unique_inverse`."""

    values: Array
    inverse_indices: Array


class _Groups:
    """The elements of an array in order, and where a new value begins among them."""

    def __init__(self, name: str, x: Any):
        tensor = as_array(name, x).tensor
        self.shape = tensor._sizes
        flat = tensor.flatten()
        self.count = flat._sizes[0]
        values, self.order = flat.sort(0)
        self.values = values.contiguous()
        is_first = self.values[1:].ne(self.values[:-1])
        one = Tensor.ones((min(self.count, 1),), dtype=dtypes.bool, device=tensor.device)
        self.is_first = one.cat(is_first) if self.count > 1 else one
        self.starts = self.is_first.nonzero()[:, 0].contiguous()

    def unique(self) -> Array:
        return Array(self.values[self.starts])

    def indices(self) -> Array:
        return Array(self.order[self.starts])

    def counts(self) -> Array:
        end = Tensor.full((1,), self.count, dtype=self.starts.dtype, device=self.starts.device)
        ends = self.starts[1:].cat(end) if self.count else self.starts
        return Array(ends - self.starts)

    def inverse(self) -> Array:
        if not self.count:
            return Array(Tensor.zeros(self.shape, dtype=dtypes.int32, device=self.values.device))
        group = self.is_first.cast(dtypes.int32).cumsum(0) - 1
        return Array(group[self.order.argsort(0)].reshape(self.shape))


def unique_all(x: Array, /) -> UniqueAll:
    """The different values in order; where each is found first; for each element the position of
    its value; and how often each value occurs. Each NaN is a value of its own.

    >>> from tilegrad import array_api as xp
    >>> [each.tensor.tolist() for each in xp.unique_all(xp.asarray([3, 1, 3]))]
    [[1, 3], [1, 0], [1, 0, 1], [1, 2]]
    """
    groups = _Groups("unique_all", x)
    return UniqueAll(groups.unique(), groups.indices(), groups.inverse(), groups.counts())


def unique_counts(x: Array, /) -> UniqueCounts:
    """The different values in order, and how often each occurs.

    >>> from tilegrad import array_api as xp
    >>> [each.tensor.tolist() for each in xp.unique_counts(xp.asarray([3, 1, 3]))]
    [[1, 3], [1, 2]]
    """
    groups = _Groups("unique_counts", x)
    return UniqueCounts(groups.unique(), groups.counts())


def unique_inverse(x: Array, /) -> UniqueInverse:
    """The different values in order, and for each element the position of its value.

    >>> from tilegrad import array_api as xp
    >>> [each.tensor.tolist() for each in xp.unique_inverse(xp.asarray([3, 1, 3]))]
    [[1, 3], [1, 0, 1]]
    """
    groups = _Groups("unique_inverse", x)
    return UniqueInverse(groups.unique(), groups.inverse())


def unique_values(x: Array, /) -> Array:
    """The different values in order.

    >>> from tilegrad import array_api as xp
    >>> xp.unique_values(xp.asarray([3, 1, 3])).tensor.tolist()
    [1, 3]
    """
    return _Groups("unique_values", x).unique()
