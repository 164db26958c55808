"""Kinds of the leaves of waiting calls: memory under some moves, a number, random words, or memory
whose sizes may be others. A segment is run again where the leaves are of the kinds that it was
noted for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeGuard

from tilegrad.base.dtype import DType
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.waiting import Moves

__all__ = [
    "DrawKind", "Kind", "LeafKind", "NumberKind", "SizedKind", "SizedSliceKind", "SliceOfMemory",
    "is_draw", "slice_of", "takes_moves", "takes_offsets",
]  # fmt: skip


class LeafKind(NamedTuple):
    """The kind of a leaf of calls. Where it is a chain of `steps`, from the top down to memory
    number `base` of `size` elements: those, and the `moves` from the memory up if they only move.
    Else `key` says all of it, and `steps` is None. Where the offset of a slice may be another one,
    it is the value of a variable of the launches: `offsets` has for each of `steps` None or its
    variables by axis.
    """

    steps: tuple[tuple[Ops, DType, Any], ...] | None
    moves: Moves | None
    dtype: DType | None
    size: int
    device: str
    base: int
    key: tuple[Any, ...]
    offsets: tuple[tuple[str | None, ...] | None, ...] = ()

    def as_slice(
        self,
        shape: Sequence[int | None],
        margins: Sequence[int | None],
        starts: Sequence[int],
        detaches: int,
    ) -> SizedSliceKind:
        """The kind of the same leaf where sizes may be others, of one that is a slice."""
        assert self.dtype is not None
        below = tuple(shape), tuple(margins), tuple(starts), detaches
        return SizedSliceKind(*below, self.dtype, self.device, self.base)


class NumberKind(NamedTuple):
    """The condition on a number that is a leaf: of `dtype`, and of these `bits`, or the value of a
    `variable` of the launches where that has a name. No `bits` are those of a number that only
    stands in calls that wait on: it may be any.
    """

    dtype: DType
    bits: int | None
    variable: str | None = None


class DrawKind(NamedTuple):
    """The condition on a leaf of random words: of `shape`, on `device`. Its seed and offset are the
    values of three variables of the launches, of these `names` if the plan needs it.
    """

    shape: tuple[int, ...]
    device: str
    names: tuple[str, str, str] | None = None

    def values_of(self, draw: UOp) -> Iterator[tuple[str, int]]:
        """The values of the variables for a draw."""
        if self.names is not None:
            yield from zip(self.names, draw.arg.launch_values)


class SizedKind(NamedTuple):
    """The kind of a leaf whose sizes may be others: all elements of memory number `base`, on
    `device`, in their order, by way of these `ops` beside RESHAPE, from the top down.
    """

    ops: tuple[Ops, ...]
    dtype: DType
    device: str
    base: int


class SizedSliceKind(NamedTuple):
    """The kind of a leaf whose sizes may be others: a slice of memory number `base` on `device`.
    Below the slice the memory has `shape`, where None stands for the slice's size along that axis
    plus that of `margins`, or for any number where `margins` has None. The slice begins at
    `starts`, from the end of the axis if that is negative, with `detaches` DETACH on the way. Axes
    of one element may be left out above it, or added.
    """

    shape: tuple[int | None, ...]
    margins: tuple[int | None, ...]
    starts: tuple[int, ...]
    detaches: int
    dtype: DType
    device: str
    base: int

    def has(self, moves: Sequence[tuple[Ops, Any, tuple[Any, ...]]], size: int) -> bool:
        """Whether the steps from memory of `size` elements up to a leaf are such a slice."""
        found = slice_of(moves, size)
        if found is None:
            return False
        shape, sliced, starts, detaches = found
        if detaches != self.detaches or len(shape) != len(self.shape):
            return False
        for size, length, start, wanted, margin, wanted_start in zip(
            shape, sliced, starts, self.shape, self.margins, self.starts
        ):
            if start != (wanted_start if wanted_start >= 0 else size + wanted_start):
                return False
            if wanted is None and margin is not None:
                wanted = length + margin
            if wanted is not None and size != wanted:
                return False
        return True


# The shape below, that of the slice, where it begins, and the number of DETACH.
SliceOfMemory = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]


def is_draw(node: Any) -> TypeGuard[UOp]:
    """Whether a leaf is random words that are in no memory."""
    return isinstance(node, UOp) and node.op is Ops.RAND and node.stored is None


def slice_of(moves: Sequence[tuple[Ops, Any, tuple[Any, ...]]], size: int) -> SliceOfMemory | None:
    """The shape below a slice of memory of `size` elements, that of the slice, where it begins, and
    the number of DETACH; None for steps that are more than a slice.
    """
    shape: tuple[int, ...] = (size,)
    starts: list[int] = []
    sliced: tuple[int, ...] = ()
    detaches = 0
    is_done = False
    for op, arg, after in moves:
        if op is Ops.DETACH:
            detaches += 1
        elif is_done:
            return None
        elif op is Ops.SHRINK:
            before = starts or [0] * len(arg)
            starts = [first + start for first, (start, _) in zip(before, arg)]
            sliced = after
        elif op is not Ops.RESHAPE:
            return None
        elif not starts:
            shape = after
        else:
            is_done = True
            if [size for size in after if size != 1] != [size for size in sliced if size != 1]:
                return None
    return (shape, sliced, (*starts,), detaches) if starts else None


Kind = LeafKind | NumberKind | SizedKind | SizedSliceKind | DrawKind


def takes_moves(moves: Moves, kind: LeafKind, values: dict[str, int]) -> bool:
    """Whether the moves from memory up to a leaf are those of `kind`, but for offsets that are
    variables, which are added to `values`.
    """
    if not kind.offsets:
        return moves is kind.moves or moves == kind.moves
    steps = kind.steps or ()
    if len(moves) != len(steps):
        return False
    for (op, arg, _), step, names in zip(reversed(moves), steps, kind.offsets):
        if op is not step[0]:
            return False
        if names is None:
            if arg != step[2]:
                return False
        elif not takes_offsets(arg, step[2], names, values):
            return False
    return True


def takes_offsets(
    now: Any, noted: Any, names: tuple[str | None, ...], values: dict[str, int]
) -> bool:
    """Whether a slice has the sizes of the one that was `noted`, and the same offset where that has
    no name; `values` takes the others.
    """
    for pair, before, name in zip(now, noted, names):
        if pair == before and name is None:
            continue
        start, end = pair
        if name is None or end - start != before[1] - before[0]:
            return False
        if values.setdefault(name, start) != start:
            return False
    return True
