"""Old values of memory whose slices were written one after the other: where they are by now.

A gradient needs values from before such writes, and a run leaves only the last version:

    outputs[t + 1] = f(outputs[t])        for each t; then outputs is read, then differentiated

But the slice that step t read is still there, as no later step wrote to it:

before   SHRINK(AFTER_t, ((t, t + 1),))
after    SHRINK(BUFFER, ((t, t + 1),))      the memory as the last write left it
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from tilegrad.engine.realize.request import Request
from tilegrad.engine.run.leaf_memory import buffer_of, is_overwritten, leaf
from tilegrad.ir.movement import reshape
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import below_reshapes, below_views
from tilegrad.ir.uop import UOp
from tilegrad.runtime.buffer import Buffer

__all__ = [
    "Box",
    "Move",
    "are_noted",
    "box_of",
    "newest_of",
    "note_slice_writes",
    "want_slice_writes",
]


class _Writes:
    """Writes of one run to slices of some memory. It holds no nodes, and those alone that came
    next: so it lives as long as somebody needs a version from before.

    Attributes:
        sizes: the shape of the memory.
        moves: for each write, in order, from the memory to the slice.
        following: the next run that wrote to slices of it, if nothing else has written meanwhile.
        version: how often the memory had been written after it.
    """

    def __init__(self, fresh: UOp, sizes: tuple[int, ...], moves: Sequence[Sequence[Move]]):
        self.sizes, self.moves = sizes, moves
        self.following: _Writes | None = None
        buffer = buffer_of(fresh)
        self.version = buffer.count_writes()
        self._leaf, self._buffer = weakref.ref(fresh), weakref.ref(buffer)
        self._reached: list[list[int]] | None = None

    def may_reach(self, box: Box, number: int) -> bool:
        """Whether a write behind the first `number` of them may have reached a box."""
        # Along one of the axes it is apart from all of them, or else it is looked at as met.
        return all(
            max(reached[first:end], default=0) > number
            for reached, (first, end) in zip(self.reached, box, strict=True)
        )

    @property
    def reached(self) -> list[list[int]]:
        """For each axis and each position along it, how many writes there are up to the last one
        that reached it.
        """
        if self._reached is None:
            self._reached = [[0] * size for size in self.sizes]
            for number, moves in enumerate(self.moves, 1):
                for reached, (first, end) in zip(self._reached, box_of(moves, self.sizes)):
                    reached[first:end] = [number] * (end - first)
        return self._reached

    def memory(self) -> UOp | None:
        """The leaf of the memory as they left it; None if that is not there any more."""
        found = self._leaf()
        if found is not None:
            return None if is_overwritten(found) else found
        buffer = self._buffer()
        if buffer is None or buffer.count_writes() != self.version:
            return None
        # No node stands on it any more, so no assignment can write to it.
        found = leaf(buffer)
        self._leaf = weakref.ref(found)
        return found


class _Version(NamedTuple):
    writes: _Writes
    # How many of the writes have led to it.
    number: int


# By version of some memory, the writes of the run that overwrote it.
_later: weakref.WeakKeyDictionary[UOp, _Version] = weakref.WeakKeyDictionary()
# The last of each memory.
_last: weakref.WeakKeyDictionary[Buffer, _Writes] = weakref.WeakKeyDictionary()
# Whether any tensor has required a gradient in this process.
_are_wanted = False


def want_slice_writes() -> None:
    """Note slice writes from now on: gradients may need values from before them."""
    global _are_wanted
    _are_wanted = True


def are_noted() -> bool:
    """Whether anything is known of versions that are still needed."""
    return bool(_later)


def _note(versions: Sequence[UOp], targets: Sequence[UOp], fresh: UOp) -> None:
    """Note that a run has made `versions` of some memory, each by a write to one of `targets`,
    slices of the version before, and left `fresh`. The first of `versions` is the memory before.
    """
    sizes = _shape_below(targets[-1])
    if not all(isinstance(size, int) for size in sizes):
        return
    # No moves at all: all of it.
    moves = [_moves_to(target, sizes) or [] for target in targets]
    buffer = buffer_of(fresh)
    # Versions are counted from now on, if they have not been: of the first writes there is no last.
    version = buffer.count_writes()
    writes, last = _Writes(fresh, sizes, moves), _last.get(buffer)
    if last is not None and last.version == version - 1 and last.sizes == sizes:
        last.following = writes
    _last[buffer] = writes
    for number, each in enumerate(versions[:-1]):
        _later[each] = _Version(writes, number)
        if each.op is Ops.ASSIGN and below_reshapes(each.src[0]).op is Ops.BUFFER:
            # All of it was written: a gradient knows the earlier memory as the value. A constant is
            # never lost, and lives for ever.
            if not each.src[1].is_constant:
                _later[each.src[1]] = _Version(writes, number)


def _shape_below(target: UOp) -> tuple[int, ...]:
    """The shape of the memory below the slice `target`, as its writers see it."""
    shape = target.shape
    while target.op.is_movement or target.op is Ops.DETACH:
        shape, target = target.shape, target.src[0]
    # A leaf is flat.
    return shape if len(target.shape) == 1 and prod(shape) == target.shape[0] else target.shape


def _moves_to(view: UOp, sizes: tuple[int, ...]) -> list[Move] | None:
    """From memory of shape `sizes` to a view of it; None where it has another shape below that."""
    found: list[Move] = []
    while view.op.is_movement or view.op is Ops.DETACH:
        found.append((view.op, view.arg))
        view = view.src[0]
    if view.shape != sizes:
        # A leaf is flat below the shape that its versions have.
        if not found or found.pop() != (Ops.RESHAPE, sizes):
            return None
    found.reverse()
    return found


def note_slice_writes(request: Request, written: Mapping[int, UOp]) -> None:
    """Note the writes of the run of `request` to slices of memory, whose leaves are `written`
    now.
    """
    if not _are_wanted:
        return
    nodes, versions_of = request.nodes, request.versions
    left = {request.sources[n][1]: n for n in versions_of if nodes[n].op is Ops.AFTER}
    if not left:
        return
    for number, fresh in written.items():
        assigns = [each for each in request.assigns if request.target_of(each) == number]
        versions = [number, *(left.get(each, each) for each in assigns)]
        made = {n for n in versions_of if request.target_of(n) == number} - left.keys()
        # A version that two of them overwrite has two that come next.
        is_chain = made == set(versions[1:]) and all(
            request.version_of(each) == before for each, before in zip(assigns, versions)
        )
        if is_chain:
            targets = [nodes[request.sources[each][0]] for each in assigns]
            _note([nodes[each] for each in versions], targets, fresh)


def _row_of(view: UOp, row: int) -> tuple[tuple[int, int], ...]:
    """The ends of a slice of one row."""
    return ((row, row + 1), *((0, size) for size in view.shape[1:]))


def newest_of(view: UOp, memory: UOp | None, row: int | None = None) -> UOp | None:
    """`view`, a view of an older version of memory, as a view of the version that is there now.
    None if a later write may have changed its elements, or no later write is known. `memory` held
    the version, if it was the last one of a run. With `row`, only that row counts.
    """
    version = below_views(view if memory is None else memory)
    known = _later.get(version)
    if known is None:
        return None
    sizes = known.writes.sizes
    moves = _moves_to(view, sizes)
    if moves is None:
        return None
    rows = () if row is None else ((Ops.SHRINK, _row_of(view, row)),)
    box = box_of((*moves, *rows), sizes)
    writes, number = known
    while not writes.may_reach(box, number):
        if writes.following is None:
            break
        writes, number = writes.following, 0
    else:
        return None
    found = writes.memory()
    if found is None:
        return None
    made = found if found.shape == sizes else reshape(found, sizes)
    for op, arg in moves:
        made = UOp(op, made.dtype, (made,), arg)
    return made


Move = tuple[Ops, Any]
"""The op and the argument of a movement node."""

Box = tuple[tuple[int, int], ...]


def box_of(moves: Iterable[Move], sizes: Sequence[int]) -> Box:
    """A box in memory of shape `sizes` that holds all that is seen through `moves`, the lowest
    first. Where they do more than shift, reverse and cut axes, it may be larger than needed.
    """
    box = [(0, size) for size in sizes]
    # For each axis of the view: the axis of the memory that it runs along (None for size 1), and
    # whether it runs from the end.
    axes: list[int | None] = list(range(len(sizes)))
    flipped = [False] * len(sizes)
    shape = list(sizes)
    for op, arg in moves:
        if op is Ops.SHRINK:
            if not all(isinstance(end, int) for ends in arg for end in ends):
                break
            for axis, (start, end), size in zip(axes, arg, shape, strict=True):
                if axis is not None:
                    first = box[axis][0]
                    box[axis] = (
                        (first + size - end, first + size - start)
                        if flipped[axis]
                        else (first + start, first + end)
                    )
            shape = [end - start for start, end in arg]
        elif op is Ops.PERMUTE:
            axes, shape = [axes[at] for at in arg], [shape[at] for at in arg]
        elif op is Ops.FLIP:
            for axis, is_flipped in zip(axes, arg, strict=True):
                if axis is not None and is_flipped:
                    flipped[axis] = not flipped[axis]
        elif op is Ops.RESHAPE and (same := _same_axes(shape, arg)) is not None:
            axes, shape = [None if at is None else axes[at] for at in same], list(arg)
        elif op is not Ops.DETACH:
            break
    return tuple(box)


def _same_axes(before: Sequence[int], after: Sequence[int]) -> list[int | None] | None:
    """For each axis of the shape `after` the one of `before` that it is, or None for a new one of
    size 1; None where a reshape does more than to add and take away axes of size 1.
    """
    same = [axis for axis, size in enumerate(before) if size != 1]
    if [before[axis] for axis in same] != [size for size in after if size != 1]:
        return None
    rest = iter(same)
    return [None if size == 1 else next(rest) for size in after]
