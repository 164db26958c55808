"""Zero-cost movement as algebra: the memory position of each element, and whether it is valid.

A `View` gives the positions of the elements of a shape: position = offset + sum(index * stride);
elements outside of its mask are zero. A chain of movement ops collapses to one `ShapeTracker`, a
chain of views in which the positions of each are the row-major elements of the one before. A second
view is added only where one cannot express the movement, and merged as soon as one can. Sizes,
strides and masks may be index nodes where a `Variable` takes part.

Views have a canonical form, so that equal ones compare equal: an axis that has one element, or one
valid element, has stride 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from tilegrad.base.errors import ShapeError
from tilegrad.ir.coordinates import coordinate_steps
from tilegrad.ir.rules import simplify
from tilegrad.ir.sizes import (
    Sizes,
    as_node,
    divide,
    highest,
    is_less,
    larger,
    row_major,
    shape_text,
    size_text,
    smaller,
    tidy,
    tidy_all,
)
from tilegrad.ir.uop import UOp, prod, sint

__all__ = ["View", "fit_axes", "merge_dims"]

Mask = tuple[tuple[sint, sint], ...]


# merging axes


class _AxisRun(NamedTuple):
    """Consecutive axes as one: `size` elements, `stride` apart; those from `low` to `high` are
    valid.

    `backed` counts the elements with positions of their own; it is 0 where all share one.
    """

    size: Any
    stride: Any
    backed: Any
    low: Any
    high: Any


def _runs(shape: Sizes, strides: Sizes, mask: Mask | None) -> tuple[list[_AxisRun], Any]:
    """The fewest equivalent runs, outermost first, and the offset to add.

    An axis of size 1 is assumed valid: a view that is empty, or may be, has no runs.
    """
    runs: list[_AxisRun] = []
    moved: Any = 0
    for axis, (size, stride) in enumerate(zip(shape, strides)):
        if isinstance(size, int) and size == 1:
            continue
        low, high = (0, size) if mask is None else mask[axis]
        backed = 0 if isinstance(stride, int) and stride == 0 else size
        last = runs[-1] if runs else None
        if last is not None and tidy(last.high - last.low) == 1:
            # One valid element outside: the valid elements are still contiguous.
            moved = moved + (last.stride - stride * size) * last.low
            first = last.low * size
            runs[-1] = _AxisRun(last.size * size, stride, backed, first + low, first + high)
        elif last is not None and tidy(stride * size) == last.stride and low == 0 and high == size:
            total, bounds = last.size * size, (last.low * size, last.high * size)
            runs[-1] = _AxisRun(total, stride, last.backed * size, *bounds)
        else:
            runs.append(_AxisRun(size, stride, backed, low, high))
        runs[-1] = _AxisRun(*tidy_all(runs[-1]))
    return runs, tidy(moved)


def merge_dims(
    shape: Sizes, strides: Sizes, mask: Mask | None = None
) -> tuple[tuple[sint, sint, sint], ...]:
    """Axes that one stride can traverse, merged: (elements, stride, elements backed by memory) of
    each.

    Axes of size 1 vanish. An axis of stride 0 merges with the next one only where a single element
    of it is valid.
    """
    return tuple((run.size, run.stride, run.backed) for run in _runs(shape, strides, mask)[0])


def _split(run: _AxisRun, sizes: Sequence[Any]) -> tuple[list[Any], list[tuple[Any, Any]]] | None:
    """Strides and mask of axes that together are `run`; None if its valid elements are no box
    there.
    """
    strides = [run.stride * step for step in row_major(tuple(sizes))]
    if run.low == 0 and run.high == run.size:
        return strides, [(0, size) for size in sizes]
    mask: list[tuple[Any, Any]] = []
    low, high, inner = run.low, run.high, run.size
    for position, size in enumerate(sizes):
        if inner is size or inner == size:
            rest = [(0, 1) for _ in sizes[position + 1 :]]
            return strides, [*mask, (low, high), *rest]
        inner = divide(inner, size)
        if not all(isinstance(bound, int) for bound in (low, high, inner)):
            return None
        if low % inner == 0 and high % inner == 0:
            full = [(0, rest) for rest in sizes[position + 1 :]]
            return strides, [*mask, (low // inner, high // inner), *full]
        if low // inner != (high - 1) // inner:
            return None
        pinned = low // inner
        mask.append((pinned, pinned + 1))
        low, high = low - pinned * inner, high - pinned * inner
    return None


@dataclass(frozen=True)
class View:
    """The positions of the elements of `shape`, in the canonical form of `View.create`."""

    shape: Sizes
    strides: Sizes
    offset: sint = 0
    mask: Mask | None = None

    @staticmethod
    def create(
        shape: Sizes, strides: Sizes | None = None, offset: sint = 0, mask: Mask | None = None
    ) -> View:
        """A view; row-major where `strides` is None. `mask` gives the valid elements of each axis,
        (first, past the last).

        Raises ShapeError if a size is negative, or strides or mask are not one per axis.
        """
        shape, offset = tidy_all(shape), tidy(offset)
        if any(highest(size) < 0 for size in shape):
            raise ShapeError(f"view: a size of {shape_text(shape)} is negative")
        strides = row_major(shape) if strides is None else tidy_all(strides)
        for what, given in (("strides", strides), ("mask", mask)):
            if given is not None and len(given) != len(shape):
                raise ShapeError(
                    f"view: {len(shape)} sizes and {len(given)} {what}", shape=shape_text(shape)
                )
        if any(size == 0 for size in shape):
            return View(shape, row_major(shape))
        strides = tuple([0 if size == 1 else stride for size, stride in zip(shape, strides)])
        if mask is not None:
            mask = tuple([tidy_all(bounds) for bounds in mask])
            extents = [tidy(high - low) for low, high in mask]
            if any(highest(extent) <= 0 for extent in extents):
                return View(shape, (0,) * len(shape), 0, ((0, 0),) * len(shape))
            for (low, _), extent, stride in zip(mask, extents, strides):
                offset = tidy(offset + stride * low) if extent == 1 else offset
            strides = tuple(
                [0 if extent == 1 else stride for extent, stride in zip(extents, strides)]
            )
            if all(low == 0 and high == size for (low, high), size in zip(mask, shape)):
                mask = None
        return View(shape, strides, offset, mask)

    @property
    def size(self) -> sint:
        """The number of elements."""
        return tidy(prod(self.shape))  # type: ignore[no-any-return]

    @property
    def box(self) -> Mask:
        """From where to where elements are valid, on each axis."""
        return self.mask or tuple((0, size) for size in self.shape)

    @cached_property
    def contiguous(self) -> bool:
        """Whether the elements lie at positions 0, 1, 2... and all are valid."""
        if self.mask is not None or self.offset != 0:
            return False
        plain = zip(self.shape, self.strides, row_major(self.shape))
        return all(size == 1 or stride == wanted for size, stride, wanted in plain)

    def _is_empty(self) -> bool:
        return self.mask is not None and any(low == high for low, high in self.mask)

    def _may_be_empty(self) -> bool:
        """Whether a Variable may leave an axis of size 1 without its element."""
        return self.mask is not None and any(
            size == 1 and bounds != (0, 1) for size, bounds in zip(self.shape, self.mask)
        )

    # movement

    def permute(self, axes: Sequence[int]) -> View:
        """Axis i of the result is axis `axes[i]`."""
        if sorted(axes) != list(range(len(self.shape))):
            text = (
                f"permute: {tuple(axes)} does not name each axis of {shape_text(self.shape)} once"
            )
            raise ShapeError(text)
        mask = None if self.mask is None else tuple(self.mask[axis] for axis in axes)
        shape, strides = (tuple(of[axis] for axis in axes) for of in (self.shape, self.strides))
        return View.create(shape, strides, self.offset, mask)

    def expand(self, shape: Sequence[sint]) -> View:
        """Axes of size 1 repeated up to `shape`."""
        sizes = fit_axes("expand", self.shape, tidy_all(shape))
        mask: list[Any] = []
        for axis, (old, new) in enumerate(zip(self.shape, sizes)):
            if old != new and old != 1:
                text = f"expand: {shape_text(self.shape)} does not fit {shape_text(sizes)}"
                raise ShapeError(
                    text, rule=f"axis {axis} has size {size_text(old)}; only size 1 expands"
                )
            low, high = (0, old) if self.mask is None else self.mask[axis]
            mask.append((low, high) if old == new else (low * new, high * new))
        return View.create(sizes, self.strides, self.offset, tuple(mask))

    def pad(self, padding: Sequence[tuple[sint, sint]]) -> View:
        """`padding[i]` is the number of invalid elements (before, after) on axis i."""
        fit_axes("pad", self.shape, padding)
        if any(highest(amount) < 0 for pair in padding for amount in pair):
            raise ShapeError(f"pad: {tuple(padding)} is negative", shape=shape_text(self.shape))
        shape: list[Any] = []
        mask: list[Any] = []
        offset: Any = self.offset
        for axis, (before, after) in enumerate(padding):
            low, high = (0, self.shape[axis]) if self.mask is None else self.mask[axis]
            shape.append(self.shape[axis] + before + after)
            mask.append((low + before, high + before))
            offset = offset - self.strides[axis] * before
        return View.create(tuple(shape), self.strides, offset, tuple(mask))

    def shrink(self, bounds: Sequence[tuple[sint, sint]]) -> View:
        """`bounds[i]` is (first, past the last) on axis i."""
        fit_axes("shrink", self.shape, bounds)
        shape: list[Any] = []
        mask: list[Any] = []
        offset: Any = self.offset
        for axis, (start, end) in enumerate(bounds):
            size = self.shape[axis]
            if highest(start) < 0 or is_less(end, start) or is_less(size, end):
                text = f"shrink: {size_text(start)} to {size_text(end)} does not lie in axis {axis}"
                raise ShapeError(f"{text} of {shape_text(self.shape)}")
            low, high = (0, size) if self.mask is None else self.mask[axis]
            extent = tidy(end - start)
            shape.append(extent)
            inside = (0, extent)
            if self.mask is not None:
                inside = larger(low - start, 0), smaller(high - start, extent)
            mask.append(inside)
            offset = offset + self.strides[axis] * start
        return View.create(tuple(shape), self.strides, offset, tuple(mask))

    def flip(self, axes: Sequence[bool]) -> View:
        """Axes reversed where `axes[i]` is true."""
        fit_axes("flip", self.shape, axes)
        strides, mask = list(self.strides), None if self.mask is None else list(self.mask)
        offset: Any = self.offset
        for axis, (size, is_flipped) in enumerate(zip(self.shape, axes)):
            if is_flipped:
                offset = offset + strides[axis] * (size - 1)
                strides[axis] = -1 * strides[axis]
                if mask is not None:
                    low, high = mask[axis]
                    mask[axis] = (size - high, size - low)
        return View.create(
            self.shape, tuple(strides), offset, None if mask is None else tuple(mask)
        )

    def reshape(self, shape: Sequence[sint]) -> View | None:
        """The same elements in the same order under another shape; None where one view cannot
        express it.

        Raises ShapeError if the number of elements differs.
        """
        sizes = tidy_all(shape)
        if sizes == self.shape:
            return self
        total = tidy(prod(sizes))
        if any(highest(size) < 0 for size in sizes) or total != self.size:
            old, new = (
                f"{shape_text(self.shape)} has {size_text(self.size)} elements",
                f"{shape_text(sizes)} has {size_text(total)}",
            )
            raise ShapeError(f"reshape: {old}, {new}")
        if total == 0 or self.contiguous:
            return View.create(sizes)
        if self._is_empty():
            return _nothing(sizes)
        if self._may_be_empty():
            return None
        runs, moved = _runs(self.shape, self.strides, self.mask)
        strides: list[Any] = []
        mask: list[Any] = []
        for run in runs:
            first, rest = len(strides), run.size
            taken = first
            while rest != 1:
                if taken == len(sizes) or (rest := divide(rest, sizes[taken])) is None:
                    return None
                taken += 1
            split = _split(run, sizes[first:taken])
            if split is None:
                return None
            strides += split[0]
            mask += split[1]
        ones = len(sizes) - len(strides)
        strides += [0] * ones
        mask += [(0, 1)] * ones
        return View.create(sizes, tuple(strides), self.offset + moved, tuple(mask))

    def minify(self) -> View:
        """The same elements in the same order on as few axes as one view needs."""
        if self._is_empty() or self._may_be_empty():
            return self
        runs, _ = _runs(self.shape, self.strides, self.mask)
        return self.reshape([run.size for run in runs]) or self

    def merge(self, other: View) -> View | None:
        """One view for `other`, whose positions are this one's elements; None if there is none."""
        if self.contiguous:
            return other
        if other.contiguous and other.size == self.size:
            return self.reshape(other.shape)
        if other._is_empty() or other.size == 0:
            return other
        if self._is_empty():
            return _nothing(other.shape)
        if self._may_be_empty():
            return None
        runs, moved = _runs(self.shape, self.strides, self.mask)
        return _through(runs, self.offset + moved, other)

    def __add__(self, other: View) -> View | None:
        return self.merge(other)

    # lowering

    def to_indexed_uops(self, idxs: Sequence[UOp], valid: UOp) -> tuple[UOp, UOp]:
        """The position of the element at `idxs`, and whether it and `valid` hold."""
        position = as_node(self.offset)
        for index, stride in zip(idxs, self.strides):
            position = position + index * as_node(stride)
        for axis, (low, high) in enumerate(self.mask or ()):
            if not (isinstance(low, int) and low == 0):
                valid = valid & (idxs[axis] * -1 < as_node(tidy(1 - low)))
            if high != self.shape[axis]:
                valid = valid & (idxs[axis] < as_node(high))
        return simplify(position), simplify(valid)


def _nothing(shape: Sizes) -> View | None:
    """The view of `shape` in which no element is valid; None without axes, as a mask needs one."""
    if not shape:
        return None
    return View.create(shape, (0,) * len(shape), 0, ((0, 0),) * len(shape))


def fit_axes(name: str, shape: Sizes, given: Sequence[Any]) -> tuple[Any, ...]:
    """`given`, one for each axis of `shape`. Raises ShapeError for another number of them."""
    if len(given) != len(shape):
        raise ShapeError(
            f"{name}: {len(given)} values for the {len(shape)} axes of {shape_text(shape)}"
        )
    return tuple(given)


def _through(runs: list[_AxisRun], offset: Any, other: View) -> View | None:
    """`other`, whose positions are elements of `runs`, as one view: where no position carries from
    a run into the next, the changes of the coordinates are the strides.
    """
    numbers = [
        other.offset,
        *other.strides,
        *(value for bounds in other.mask or () for value in bounds),
    ]
    for run in runs:
        numbers += [run.size, run.low, run.high]
    if not all(isinstance(value, int) for value in [*numbers, *other.shape]):
        return None
    sizes = [run.size for run in runs]
    steps = coordinate_steps(sizes, other.offset, other.strides, other.box)  # type: ignore[arg-type]
    if steps.carries(sizes):
        return None
    box, origin, changes = steps
    strides: list[Any] = [
        sum(by * run.stride for by, run in zip(change, runs)) for change in changes
    ]
    mask, is_nothing = list(box), False
    for number, run in enumerate(runs):
        least, most = steps.bounds(number)
        if least >= run.low and most < run.high:
            continue
        moved = [axis for axis, step in enumerate(steps.reach(number)) if step]
        if len(moved) > 1:
            return None
        if not moved:
            is_nothing = True
            continue
        # One axis alone changes this coordinate: the run's valid elements are an interval of that
        # axis.
        (axis,) = moved
        first, by = origin[number], changes[axis][number]
        near, far = (
            (run.low - first, run.high - 1 - first)
            if by > 0
            else (first - run.high + 1, first - run.low)
        )
        start, end = -(-near // abs(by)), far // abs(by) + 1
        base, (low, high) = box[axis][0], mask[axis]
        mask[axis] = (max(low, base + start), max(low, min(high, base + end)))
    if is_nothing:
        return _nothing(other.shape)
    base_offset = offset + sum(coordinate * run.stride for coordinate, run in zip(origin, runs))
    base_offset -= sum(low * stride for (low, _), stride in zip(box, strides))
    return View.create(other.shape, tuple(strides), base_offset, tuple(mask))
