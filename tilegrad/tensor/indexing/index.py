"""Picking elements: `x[...]` with numbers, slices, None, Ellipsis, integer tensors and masks.

Numbers and slices are movement. Integer tensors pick through one op, GATHER, which takes rows of a
table: the indexed axes are moved to the front and joined into one, the indices become one position
in it. Only the rows that are picked are read. An index that lies outside, found in data when a
kernel runs, picks zeros and writes nothing; one that Python knows raises.

A mask stands for the positions where it is true, one integer tensor for each of its axes. How many
there are only its values tell, so a mask that is a tensor is computed when it indexes; a list or an
array of bools is known.

Where NumPy and PyTorch differ (a number and a tensor separated by a slice), PyTorch is followed:
the number picks first, and so does a tensor without axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from tilegrad.base.config import config
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import IndexBoundsError, IndexKindError, ShapeError, StepError
from tilegrad.base.origin import composed
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.masks import picked_now
from tilegrad.tensor.calls.templates import slicing, templated
from tilegrad.tensor.handle.aliases import valued
from tilegrad.tensor.handle.core import Core, check_devices, compute, describe
from tilegrad.tensor.handle.size_arguments import (
    NO_VARIABLES,
    Variables,
    as_int,
    as_size,
    index_dtype,
    is_zero,
    merge,
    multiply,
    same,
    show_shape,
    simple,
)  # fmt: skip
from tilegrad.tensor.indexing.counted_tensors import Creation
from tilegrad.tensor.indexing.keys import (
    PLAIN_ENTRIES,
    KnownIndex,
    as_index,
    as_number_or_bool,
    as_slice,
    axes_of,
    entries_of,
    first_of_neighbours,
    from_the_front,
    index_outside,
    is_one_index,
    with_tensors_for_lists,
    without_masks,
    without_scalars,
)  # fmt: skip
from tilegrad.tensor.storage.checked import checked
from tilegrad.tensor.storage.host_memory import flatten
from tilegrad.tensor.views.changing_picks import picked_at_inputs
from tilegrad.tensor.views.in_memory import view_of_all, views_of_memory

__all__ = ["Indexing"]


class Indexing(Creation):
    """Indexing methods."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Self:
        """The elements that `key` picks: by numbers, slices of any step, None for a new axis,
        Ellipsis, symbolic integers, integer tensors, lists and arrays, masks, or a tuple of these.

        A mask that is a tensor is computed at once, as its values tell the size of the result;
        `masked_select` with a size, `where` and `masked_fill` compute nothing.

        Raises IndexBoundsError for an index that is known to lie outside its axis, for too many
        indices, and for a mask of other sizes than its axes; DTypeError for an index of another
        kind; ShapeError if integer tensors do not broadcast.

        >>> x = Tensor([[1, 2], [3, 4]])
        >>> x[:, ::-1].tolist()
        [[2, 1], [4, 3]]
        >>> x[x > 2].tolist()
        [3, 4]
        """
        kind = key.__class__
        if kind in PLAIN_ENTRIES or (kind is tuple and PLAIN_ENTRIES.issuperset(map(type, key))):
            views: list[Self] | None = views_of_memory(self, (key,))
            if views is not None:
                return views[0]
            view: Self | None = view_of_all(self, key)
            if view is None:
                view = picked_at_inputs(self, key)
            return self._cut(key) if view is None else view
        if (plain := without_scalars(key)) is not key:
            return self[plain]
        if kind is self.__class__ and self._is_checked(key):
            return self._rows_at(key)
        if is_one_index(key):
            key = (key,)
        elif kind is self.__class__ and key.ndim and key.dtype is dtypes.bool:
            # The elements that the mask picks depend on its positions alone.
            self._by_axis_fits(key)
            picked: Self | None = picked_now(self, key)
            if picked is not None:
                return picked
            key = tuple(key._true_columns())
        elif kind is list or (hasattr(key, "__array__") and not isinstance(key, Core)):
            entries = entries_of(key)
            entry = self._as_index(entries[0]) if len(entries) == 1 else None
            if isinstance(entry, KnownIndex):
                rows = self._known_rows(entry)
                if rows is not None:
                    return self._rows_at(rows)
                key = (entry,)
        if kind is tuple:
            key = without_masks(self, with_tensors_for_lists(self, key))
        if self._are_checked(key):
            return self._picked_at(key)
        viewed, tensors = self._viewed(key)
        return viewed._picked(tensors) if tensors else viewed

    @slicing
    def _cut(self, key: Any) -> Self:
        """The view that numbers, slices, None and Ellipsis pick."""
        # One slice or number, which mostly is another one than before, as that has a template.
        kind = key.__class__
        if kind is slice and self.ndim and self._has_elements():
            return self._sliced(0, key)
        if kind is int and self.ndim:
            row = self._at(0, key)
            return row._with_ones(row.shape[1:])
        return self._viewed(key)[0]

    def _known_rows(self, entry: KnownIndex) -> Self | None:
        """The tensor of integers that pick rows; None for a mask, and where a run checks indices.

        Raises IndexBoundsError for what lies outside.
        """
        return self._rows_on(entry, 0) if self.ndim else None

    def _rows_on(self, entry: KnownIndex, axis: int) -> Self | None:
        """As `_known_rows`, for elements picked along an axis."""
        if config.CHECK or entry.dtype is dtypes.bool:
            return None
        (rows,) = self._by_axis(entry, axis)
        return rows if rows.device == self.device else None

    def _are_checked(self, key: Any, name: str = "getitem") -> bool:
        """Whether the entries of `key` are numbers, slices, None, Ellipsis, and integer tensors
        that lie inside as far as is known.

        Raises IndexBoundsError for what is known to lie outside.
        """
        if config.CHECK or key.__class__ is not tuple:
            return False
        beside = len([entry for entry in key if entry is not None and entry is not Ellipsis])
        tensors: list[tuple[Self, int]] = []
        axis = 0
        for entry in key:
            if entry is Ellipsis:
                axis += self.ndim - beside
            elif isinstance(entry, Core):
                if not entry.dtype.is_int or entry.device != self.device:
                    return False
                tensors.append((entry, axis))  # type: ignore[arg-type]  # every tensor is one
                axis += 1
            elif entry is not None:
                if is_one_index(entry):
                    if axis >= self.ndim or not self._is_inside(axis, entry[0]):
                        return False
                elif entry.__class__ not in PLAIN_ENTRIES:
                    return False
                axis += 1
        if not 0 < axis <= self.ndim or sum(entry is Ellipsis for entry in key) > 1:
            return False
        lists = sum(map(is_one_index, key))
        if lists > 1 or (lists and tensors):
            # Those that pick together.
            return False
        for entry, axis in tensors:
            checked(name, entry, self.shape[axis], axis)
        return True

    def _is_checked(self, key: Self) -> bool:
        """Whether `key` is an integer tensor that picks rows, and lies inside as far as is known.

        Raises IndexBoundsError for what is known to lie outside.
        """
        if config.CHECK or not key.dtype.is_int or not self.ndim or self.device != key.device:
            return False
        checked("getitem", key, self.shape[0], 0)
        return True

    @templated
    @valued
    def _picked_at(self, key: tuple[Any, ...]) -> Self:
        """The elements at integer tensors, or one list, beside numbers, slices, None, Ellipsis."""
        if any(map(is_one_index, key)):
            # A copy of a slice, as a list picks copies.
            sliced = tuple([as_slice(entry) if is_one_index(entry) else entry for entry in key])
            return self._copy_of(self._viewed(sliced)[0])
        viewed, tensors = self._viewed(key)
        return viewed._picked(tensors)

    def _is_inside(self, axis: int, index: int) -> bool:
        size = self.shape[axis]
        return isinstance(size, int) and -size <= index < size

    @templated
    @valued
    def _rows_at(self, key: Self) -> Self:
        """The rows that one integer tensor picks along the first axis."""
        viewed, tensors = self._viewed(key)
        return viewed._picked(tensors)

    def _viewed(self, key: Any) -> tuple[Self, dict[int, Self]]:
        """The view that numbers, slices, None and Ellipsis pick, and the tensors that index its
        axes.
        """
        keys = self._completed(key)
        x = self
        axis = 0
        tensors: dict[int, Self] = {}
        shape: list[Any] = []
        for entry in keys:
            if entry is None:
                shape.append(1)
                continue
            if isinstance(entry, slice):
                if not (entry.start is entry.stop is entry.step is None):
                    x = x._sliced(axis, entry)
                shape.append(x.shape[axis])
            elif isinstance(entry, Core):
                tensors[len(shape)] = type(self)._of(entry.uop, entry.device, entry._variables)
                shape.append(x.shape[axis])
            else:
                x = x._at(axis, entry)
            axis += 1
        return x._with_ones(tuple(shape)), tensors

    def _completed(self, key: Any) -> list[Any]:
        """One index for each axis, and None for each new one."""
        keys = [self._as_index(entry) for entry in entries_of(key)]
        dots = [at for at, entry in enumerate(keys) if entry is Ellipsis]
        if len(dots) > 1:
            raise IndexBoundsError("getitem: more than one Ellipsis")
        used = sum(axes_of(entry) for entry in keys)
        if used > self.ndim:
            raise IndexBoundsError(
                f"getitem: {used} indices for {self.ndim} axes", tensor=describe(self.uop)
            )
        at = dots[0] if dots else len(keys)
        whole = [*keys[:at], *[slice(None)] * (self.ndim - used), *keys[at + 1 :]]
        completed: list[Any] = []
        axis = 0
        for entry in whole:
            completed += self._by_axis(entry, axis)
            axis += axes_of(entry)
        return completed

    def _as_index(self, entry: Any) -> Any:
        """An index as a number, slice, None, Ellipsis, tensor or array."""
        if (
            entry is None
            or entry is Ellipsis
            or isinstance(entry, (slice, UOp))
            or type(entry) is int
        ):
            return entry
        if isinstance(entry, (list, tuple, range)):
            entry = KnownIndex(*flatten(list(entry)))
        elif hasattr(entry, "__array__") and not isinstance(entry, Core):
            if getattr(entry, "shape", None) == ():
                if entry.dtype.kind == "b":
                    raise IndexKindError("getitem: a bool is no index")
                return as_index(entry)
            entry = KnownIndex(entry.reshape(-1).tolist(), tuple(entry.shape))
        if isinstance(entry, KnownIndex):
            entry.values = [
                value if type(value) is int else as_number_or_bool(value) for value in entry.values
            ]
            return entry
        if not isinstance(entry, Core):
            if isinstance(entry, bool):
                raise IndexKindError("getitem: a bool is no index")
            return as_index(entry)
        if entry.dtype is dtypes.bool and not entry.ndim:
            raise IndexKindError("getitem: a bool is no index", mask=describe(entry.uop))
        if entry.dtype.is_float:
            raise IndexKindError(
                f"getitem: an index must be an integer, not {entry.dtype.name}",
                tensor=describe(self.uop),
                index=describe(entry.uop),
                remedy="cast the index: .cast(dtypes.int32)",
            )
        return entry

    def _by_axis(self, entry: Any, axis: int) -> list[Any]:
        """An index, whose first axis is `axis`, as one for each axis: masks become integers."""
        if not isinstance(entry, (KnownIndex, Core)):
            return [entry]
        is_mask = entry.dtype is dtypes.bool
        if is_mask:
            self._check_mask(entry.shape, axis)
        if isinstance(entry, Core):
            mask: Any = entry
            return mask._true_columns() if is_mask else [entry]
        if is_mask:
            return [
                type(self)(list(positions), device=self.device, dtype=dtypes.int32)
                for positions in entry.positions_of_true()
            ]
        size = self.shape[axis]
        limit = size if isinstance(size, int) else int(size.vmax)
        outside = next((each for each in entry.values if not -limit <= each < limit), None)
        if outside is not None:
            raise index_outside(self, outside, axis)
        kind = index_dtype((2 * limit,))
        return [type(self)(entry.values, device=self.device, dtype=kind).reshape(entry.shape)]

    def _by_axis_fits(self, mask: Self) -> None:
        """Raise IndexBoundsError unless the first axes have the sizes of `mask`."""
        if mask.ndim > self.ndim:
            raise IndexBoundsError(
                f"getitem: {mask.ndim} indices for {self.ndim} axes", tensor=describe(self.uop)
            )
        self._check_mask(mask.shape, 0)

    def _check_mask(self, sizes: Sequence[Any], axis: int) -> None:
        """Raise IndexBoundsError unless the axes from `axis` on have the sizes of a mask."""
        for number, size in enumerate(sizes, axis):
            if not same(size, self.shape[number]):
                raise IndexBoundsError(
                    f"getitem: a mask of size {show_shape((size,))[1:-2]} does not fit axis "
                    f"{number} of size {show_shape((self.shape[number],))[1:-2]}",
                    tensor=describe(self.uop),
                )

    def _at(self, axis: int, index: Any) -> Self:
        """Axis `axis` cut to one element."""
        size = self.shape[axis]
        if isinstance(index, UOp):
            position, variables = as_size("getitem", index)
            position = from_the_front(position, size)
            return self._holding(variables).shrink(
                [
                    (position, simple(position + 1)) if other == axis else None
                    for other in range(self.ndim)
                ]
            )
        limit = size if isinstance(size, int) else int(size.vmax)
        if not -limit <= index < limit:
            raise index_outside(self, index, axis)
        start = index if index >= 0 else simple(size + index)
        return self._slice(axis, start, simple(start + 1))

    def _sliced(self, axis: int, entry: slice) -> Self:
        """Axis `axis` cut by a slice; a step takes the first of each group."""
        size = self.shape[axis]
        step = 1 if entry.step is None else as_int("getitem", "a step", entry.step)
        if step == 0:
            raise StepError("getitem: slice step is 0")
        if isinstance(size, UOp) or isinstance(entry.start, UOp) or isinstance(entry.stop, UOp):
            return self._sliced_symbolic(axis, entry, step)
        for bound in (entry.start, entry.stop):
            if bound is not None:
                as_int("getitem", "a slice bound", bound)
        start, stop, step = entry.indices(size)
        count = len(range(start, stop, step))
        if not count:
            return self._slice(axis, 0, 0)
        last = start + (count - 1) * step
        x = self._slice(axis, min(start, last), max(start, last) + 1)
        stride = abs(step)
        if step < 0 and count > 1:
            # A single element is not reversed, and a flip that reverses nothing is a copy.
            x = self._as_view(x.flip(axis))
        if stride == 1:
            return x
        around = [
            (0, count * stride - x._length(axis)) if other == axis else (0, 0)
            for other in range(x.ndim)
        ]
        lead, after = x.shape[:axis], x.shape[axis + 1 :]
        groups = x.pad(around).reshape(*lead, count, stride, *after)
        return self._as_view(groups._slice(axis + 1, 0, 1).reshape(*lead, count, *after))

    def _sliced_symbolic(self, axis: int, entry: slice, step: int) -> Self:
        """Axis `axis` cut by a slice with symbolic bounds, or of a symbolic size."""
        size: Any = self.shape[axis]
        if step < 0 and not (entry.start is entry.stop is None):
            raise ShapeError(
                "getitem: a symbolic slice with bounds and a negative step",
                remedy="two slices: x[start:stop][::-1]",
            )
        variables: Variables = NO_VARIABLES
        ends: list[Any] = []
        for bound, default in ((entry.start, 0), (entry.stop, size)):
            position, found = (
                (default, NO_VARIABLES) if bound is None else as_size("getitem", bound)
            )
            variables = merge(variables, found)
            position = from_the_front(position, size)
            # Python cuts a slice that reaches too far.
            most = size if isinstance(size, int) else size.vmax
            ends.append(
                size
                if isinstance(position, int) and isinstance(most, int) and position > most
                else position
            )
        x = self._holding(variables)._slice(axis, ends[0], ends[1])
        if step < 0:
            x = self._as_view(x.flip(axis))
        return x if abs(step) == 1 else self._as_view(x._every(axis, abs(step)))

    def _every(self, axis: int, step: int) -> Self:
        """Each `step`-th element of an axis, from its first on."""
        lead, size, after = self.shape[:axis], self.shape[axis], self.shape[axis + 1 :]
        count: Any = simple((size + (step - 1)) // step)
        around = [
            (0, simple(count * step - size)) if other == axis else (0, 0)
            for other in range(self.ndim)
        ]
        groups = self.pad(around).reshape(*lead, count, step, *after)
        return groups._slice(axis + 1, 0, 1).reshape(*lead, count, *after)

    @valued
    @composed
    def _picked(self, tensors: dict[int, Self]) -> Self:
        """The rows that integer tensors pick along the axes that they index."""
        axes = sorted(tensors)
        indices = [tensors[axis] for axis in axes]
        check_devices("getitem", [self, *indices])
        nodes = indices[0]._meet("getitem", *indices[1:], unify=False)
        shape = max((node.shape for node in nodes), key=len)
        rest = [axis for axis in range(self.ndim) if axis not in tensors]
        table = self.permute(*axes, *rest)
        lead, tail = table.shape[: len(axes)], table.shape[len(axes) :]
        position, inside = self._flat_position(
            [
                checked("getitem", index._like(node), self.shape[axis], axis)
                for index, node, axis in zip(indices, nodes, axes)
            ],
            lead,
        )
        position = position.expand(shape)
        if len(axes) > 1:
            # A position may be inside the joined axis though an index is outside of its own.
            position = inside.where(position, -1)
        rows = table.reshape(multiply(lead), *tail)._rows(position)
        numbers = [axis for axis in axes if not tensors[axis].ndim]
        number = first_of_neighbours(
            [axis - sum(other < axis for other in numbers) for axis in axes if axis not in numbers]
        )
        depth = len(shape)
        order = [*range(depth, depth + number), *range(depth), *range(depth + number, rows.ndim)]
        return rows.permute(order)

    def _flat_position(self, indices: Sequence[Self], sizes: Sequence[Any]) -> tuple[Self, Self]:
        """Where indices into axes of `sizes` point in these axes joined, and whether each is inside
        its own.
        """
        wide = index_dtype(sizes)
        position: Self | None = None
        inside: Self | None = None
        for index, size in zip(indices, sizes):
            number = self._size_number(size)
            if index.dtype.itemsize < 4 or wide is dtypes.int64:
                index = index.cast(wide)
            if index.dtype.kind == "int":
                index = (index < 0).where(index + number, index)
            is_inside = (index >= 0) & (index < number)
            inside = is_inside if inside is None else inside & is_inside
            position = index if position is None else position * number + index
        assert position is not None and inside is not None
        return position, inside

    def _rows(self, position: Self) -> Self:
        """GATHER: rows along axis 0; those outside are zero."""
        is_empty = any(is_zero(size) for size in (*self.shape, *position.shape))
        if is_empty and self.uop.is_constant:
            return self._like(UOp.const(self.dtype, 0)).expand(*position.shape, *self.shape[1:])
        from_index = position._joined(position.uop, self)
        return self._joined(compute(Ops.GATHER, self.dtype, (self.uop, position.uop)), from_index)
