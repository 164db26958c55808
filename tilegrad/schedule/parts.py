"""Rows that do not fit go through a kernel part by part.

A kernel that keeps rows in scratch (keep.py) needs all of a row before it goes on: the sum over a
row of exponentials is of their distance from its largest element. But what a fold of a row's
beginning gives can be put right later: where the largest element so far grows from m to M, all
that was summed of exp(x - m) * v is exp(m - M) of what it was.

    before   m = REDUCE(x, k, MAX),  s = REDUCE(exp(x - m) * v, k, ADD)             k: 0..n
    after    m = PREFIX(REDUCE(x, j, MAX), p)                             p: 0..n/size, j: 0..size
             s = REDUCE(RESCALED(REDUCE(exp(x - m) * v, j, ADD), exp(m before - m)), p, ADD)

Scratch then holds a part of each row, and what all rows pass over (keys, values, a matrix) is
passed over a part at a time, by all rows before the next one. A factor that is the same all
along the row (1 over the sum of the exponentials) is known at its end only, so it leaves the sum.

What is rescaled is summed in float64 where a processor has it, and so is by how much: a row of a
million keys has thousands of slices, whose roundings would add up in the one accumulator. Lanes of
blocks have few float64 units, and sum in float32.

What makes an earlier fold of a row unlike a function of its part (`x - mean`, squared) is refused.
"""

from __future__ import annotations

from typing import NamedTuple

from tilegrad.base.dtype import DType, Pointer, dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp, toposort
from tilegrad.target import Target

__all__ = ["Row", "in_parts", "longest_row", "part_of"]


_POWERS = (Ops.EXP, Ops.EXP2)
# Of one product that is summed along a row.
_MOST_FACTORS = 64


class Row(NamedTuple):
    """The rows of one length that scratch holds, nested in the same loops.

    Attributes:
        extent: elements of each.
        memories: the scratch that holds one each.
        ranges: those that go along the row: of nests, folds and loads.
    """

    extent: UOp
    memories: frozenset[UOp]
    ranges: frozenset[UOp]

    @property
    def length(self) -> int:
        """The most elements that one has."""
        return int(self.extent.vmax)

    @property
    def nbytes(self) -> int:
        """Bytes of an element in each of the memories."""
        return sum(_pointer(memory).base.itemsize for memory in self.memories)


class _Refused(Exception):
    """What cannot be put right later."""


def _pointer(memory: UOp) -> Pointer:
    assert isinstance(memory.dtype, Pointer)
    return memory.dtype


def longest_row(root: UOp) -> Row | None:
    """The longest rows that the kernel of `root` keeps in scratch; None where it has none, or where
    they are read other than element by element along a loop.
    """
    nodes = root.toposort()
    along: dict[UOp, set[UOp]] = {}
    for node in nodes:
        pointer = node.src[0] if node.op in (Ops.LOAD, Ops.STORE) else None
        if pointer is None:
            continue
        memory = pointer.src[0] if pointer.op is Ops.AFTER else pointer
        if memory.op is Ops.DEFINE_LOCAL:
            if node.src[1].op is not Ops.RANGE or len(node.src) > 3:
                return None
            along.setdefault(memory, set()).add(node.src[1])
    if not along:
        return None
    start = max(along, key=lambda memory: _pointer(memory).size)
    length, memories, ranges = _pointer(start).size, {start}, set(along[start])
    while more := [each for each in along if each not in memories and along[each] & ranges]:
        memories.update(more)
        ranges.update(*(along[each] for each in more))
    extents = {part.src[0] for part in ranges}
    if len(extents) > 1:
        return None
    if any(_pointer(memory).size != length for memory in memories):
        return None
    return Row(extents.pop(), frozenset(memories), frozenset(ranges))


def in_parts(root: UOp, row: Row, size: int, target: Target) -> UOp | None:
    """`root` that goes over `row` in parts of `size`; None where a fold of the whole row is needed
    before another one can begin.
    """
    cut = _Cut(root, row, size, target)
    try:
        return cut.whole(root)
    except _Refused:
        return None


def part_of(root: UOp) -> UOp | None:
    """The range over the parts of rows, if `root` goes over them so."""
    memories = (node for node in root.toposort() if node.op is Ops.DEFINE_LOCAL)
    loops = (loop for memory in memories for loop in memory.src)
    return next((loop for loop in loops if loop.arg[1] is Axis.REDUCE), None)


class _Cut:
    """Makes a kernel anew. Of each value there are two: `inside` the loop over the parts it is that
    of a part, with what folds of the row gave so far; as a `whole`, that of all parts.
    """

    def __init__(self, root: UOp, row: Row, size: int, target: Target):
        nodes = root.toposort()
        self.has_doubles = target.supports(dtypes.float64) and not target.has_locals
        number = 1 + max(node.arg[0] for node in nodes if node.op is Ops.RANGE)
        self.row, self.size = row, size
        self.part = UOp.range(simplify((row.extent + (size - 1)) // size), number, Axis.REDUCE)
        # Of the last part, there may be less.
        extent = simplify((row.extent - self.part * size).minimum(size))
        # The place within the part, for each range of the row.
        self.places = {
            part: UOp.range(extent, number + place, part.arg[1])
            for place, part in enumerate(sorted(row.ranges, key=lambda part: part.arg[0]), start=1)
        }
        self.folds = {
            node for node in nodes if node.op is Ops.REDUCE and row.ranges & set(node.src[1:])
        }
        self.stores = {
            node.src[0]: node
            for node in nodes
            if node.op is Ops.STORE and node.src[0] in row.memories
        }
        self.waits: dict[UOp, bool] = {}
        self.inner: dict[UOp, UOp | None] = {}
        self.before: dict[UOp, UOp] = {}
        self.filled: dict[UOp, UOp] = {}
        self.outer: dict[UOp, UOp | None] = {}

    def inside(self, root: UOp) -> UOp:
        self._visit(root)
        found = self.inner[root]
        if found is None:
            raise _Refused
        return found

    def whole(self, root: UOp) -> UOp:
        self._visit(root)
        found = self.outer[root]
        if found is None:
            raise _Refused
        return found

    def is_waiting(self, root: UOp) -> bool:
        """Whether a value needs a fold of the row."""
        for node in toposort([root], stop=self.waits.__contains__):
            if node not in self.waits:
                self.waits[node] = node in self.folds or any(map(self.waits.get, node.src))
        return self.waits[root]

    def _visit(self, root: UOp) -> None:
        for node in toposort([root], stop=self.inner.__contains__):
            if node in self.inner:
                continue
            if node in self.folds:
                self._fold(node)
                continue
            self.inner[node] = self._inner(node)
            is_open = node.ranges & self.row.ranges or any(
                memory in node.src for memory in self.row.memories
            )
            self.outer[node] = None if is_open else self._made(node, self.outer)

    def _inner(self, node: UOp) -> UOp | None:
        if node in self.places:
            return self.part * self.size + self.places[node]
        if node in self.row.memories:
            pointer = _pointer(node)
            lives_in = (*node.src, self.part)
            return node.replace(dtype=pointer.base.ptr(self.size, pointer.place), src=lives_in)
        made = self._made(node, self.inner)
        if made is None:
            return None
        if node.op is Ops.AFTER:
            return made.replace(dtype=made.src[0].dtype)
        if node.op is Ops.END:
            return made.replace(
                src=tuple(self.places.get(old, new) for old, new in zip(node.src, made.src))
            )
        memory = node.src[0] if node.op in (Ops.LOAD, Ops.STORE) else None
        if memory is not None and (memory.src[0] if memory.op is Ops.AFTER else memory) in (
            self.row.memories
        ):
            where, _, *rest = made.src
            made = made.replace(src=(where, self.places[node.src[1]], *rest))
        return made

    @staticmethod
    def _made(node: UOp, known: dict[UOp, UOp | None]) -> UOp | None:
        src: list[UOp] = []
        for source in node.src:
            made = known[source]
            if made is None:
                return None
            src.append(made)
        new = tuple(src)
        return node if new == node.src else UOp(node.op, node.dtype, new, node.arg)

    def _fold(self, fold: UOp) -> None:
        """A fold along the row: of a part, so far, and of all parts."""
        value, *ranges = fold.src
        ranges = [self.places.get(part, part) for part in ranges]
        if not self.is_waiting(value):
            part = UOp(Ops.REDUCE, fold.dtype, (self.inside(value), *ranges), fold.arg)
            self.inner[fold] = self._running(fold, part, 1)
            self.before[fold] = self._running(fold, part, 0)
            self.outer[fold] = UOp(Ops.REDUCE, fold.dtype, (part, self.part), fold.arg)
            return
        self.inner[fold] = self.outer[fold] = None
        if fold.arg is not Ops.ADD or not fold.dtype.is_float:
            return
        factors = _Factors([], [], [])
        try:
            self._gather(value, factors)
        except _Refused:
            return
        part = UOp(Ops.REDUCE, fold.dtype, (_product(factors.inside), *ranges), fold.arg)
        if factors.corrections:
            wide = self._wide(fold.dtype)
            change = _product(factors.corrections).cast(wide)
            part = UOp(Ops.RESCALED, wide, (part.cast(wide), change))
        total = UOp(Ops.REDUCE, part.dtype, (part, self.part), fold.arg).cast(fold.dtype)
        self.outer[fold] = _product([total, *(each.cast(fold.dtype) for each in factors.outside)])

    def _wide(self, dtype: DType) -> DType:
        """What is rescaled is summed in it."""
        return dtypes.float64 if self.has_doubles else dtype

    def _running(self, fold: UOp, part: UOp, count: int) -> UOp:
        """What `fold` gives of the parts before this one, and of this one, if `count` is 1. The
        largest of nothing is finite, so that its distance from itself is 0.
        """
        found = UOp(Ops.PREFIX, fold.dtype, (part, self.part), (fold.arg, count))
        if fold.arg is Ops.MAX and fold.dtype.is_float:
            return found.maximum(UOp.const(fold.dtype, -fold.dtype.largest))
        return found

    def _gather(self, value: UOp, factors: _Factors) -> None:
        """Take apart a product that is summed along the row."""
        if len(factors.inside) + len(factors.outside) > _MOST_FACTORS:
            raise _Refused
        if not self.is_waiting(value):
            factors.inside.append(self.inside(value))
        elif (both := _factors(value)) is not None:
            for factor in both:
                self._gather(factor, factors)
        elif not value.ranges & self.row.ranges:
            factors.outside.append(self.whole(value))
        elif _is_rounding(value):
            first = len(factors.inside)
            self._gather(value.src[0], factors)
            factors.inside[first:] = [each.cast(value.dtype) for each in factors.inside[first:]]
        elif value.op is Ops.LOAD:
            memory, place = self._memory_of(value), value.src[1]
            along, apart = self._content(memory)
            factors.outside.extend(map(self.whole, apart))
            if self._is_plain(along):
                factors.inside.append(self._filled(memory, self.places[place]))
                factors.corrections.extend(map(self._correction, filter(self.is_waiting, along)))
            else:
                for each in along:
                    self._gather(each.substitute({self.at(memory): place}), factors)
        elif value.op in _POWERS:
            factors.inside.append(self._found(value))
            factors.corrections.append(self._correction(value))
        else:
            raise _Refused

    def _memory_of(self, load: UOp) -> UOp:
        memory = load.src[0].src[0] if load.src[0].op is Ops.AFTER else load.src[0]
        if memory not in self.stores:
            raise _Refused
        return memory

    def _content(self, memory: UOp) -> tuple[list[UOp], list[UOp]]:
        """The factors of what is stored to scratch that are others along the row, and those that
        are the same.
        """
        found, stack = [], [self.stores[memory].src[2]]
        while stack:
            value = stack.pop()
            while _is_rounding(value) and self.is_waiting(value):
                (value,) = value.src
            both = _factors(value)
            if both is not None:
                stack += reversed(both)
            else:
                found.append(value)
        apart = [
            each for each in found if not each.ranges & self.row.ranges and self.is_waiting(each)
        ]
        return [each for each in found if each not in apart], apart

    def _is_plain(self, along: list[UOp]) -> bool:
        """Whether a part of these factors can be put right later as it is."""
        return all(each.op in _POWERS or not self.is_waiting(each) for each in along)

    def _filled(self, memory: UOp, place: UOp) -> UOp:
        """An element of scratch that holds a part of a row, without what is the same all along it,
        and so not rounded before it is summed.
        """
        if memory not in self.filled:
            along, _ = self._content(memory)
            value = _product([self.inside(each) for each in along])
            pointer = value.dtype.ptr(self.size, _pointer(memory).place)
            mine, filled_at = (
                self.inside(memory).replace(dtype=pointer),
                self.places[self.at(memory)],
            )
            self.filled[memory] = mine.after(mine.store(filled_at, value).end(filled_at))
        return self.filled[memory].load(place, dtype=_element(self.filled[memory]))

    def _found(self, value: UOp) -> UOp:
        """An exponential, read where scratch holds it."""
        (place,) = value.ranges & self.row.ranges
        for memory in self.stores:
            along, _ = self._content(memory)
            if along == [value.substitute({place: self.at(memory)})]:
                return self._filled(memory, self.places[place])
        return self.inside(value)

    def at(self, memory: UOp) -> UOp:
        """The range over which a nest fills scratch."""
        return self.stores[memory].src[1]

    def _correction(self, value: UOp) -> UOp:
        """By what all that was summed of exp(x - m) is multiplied as m, the largest x so far,
        grows.
        """
        (distance,) = value.src
        if distance.op is not Ops.ADD:
            raise _Refused
        x, shift = distance.src
        if self.is_waiting(x):
            x, shift = shift, x
        if shift.op is not Ops.MUL or shift.src[1].op is not Ops.CONST or shift.src[1].arg != -1:
            raise _Refused
        largest, *least = shift.src[:1]
        if largest.op is Ops.MAX and largest.src[1].op is Ops.CONST:
            largest, *least = largest.src
        if largest not in self.before or largest.arg is not Ops.MAX or len(largest.src) != 2:
            raise _Refused
        (along,) = value.ranges & self.row.ranges
        if largest.src[0].substitute({largest.src[1]: along}) is not x:
            raise _Refused
        before = self.before[largest]
        for limit in least:
            before = before.maximum(limit)
        wide = self._wide(value.dtype)
        change = before.cast(wide) + self.inside(shift).cast(wide)
        return UOp(value.op, wide, (change,))


class _Factors(NamedTuple):
    """A product: what is summed of each part, what the sum is multiplied by, and what is so with
    all that was summed before.
    """

    inside: list[UOp]
    outside: list[UOp]
    corrections: list[UOp]


def _is_rounding(value: UOp) -> bool:
    return value.op is Ops.CAST and value.dtype.is_float and value.src[0].dtype.is_float


def _element(pointer: UOp) -> DType:
    assert isinstance(pointer.dtype, Pointer)
    return pointer.dtype.base


def _factors(value: UOp) -> tuple[UOp, UOp] | None:
    """The two values of which this is the product."""
    if value.op is Ops.FDIV:
        dividend, divisor = value.src
        return dividend, UOp(Ops.RECIP, divisor.dtype, (divisor,))
    return value.src if value.op is Ops.MUL else None  # type: ignore[return-value]


def _product(factors: list[UOp]) -> UOp:
    first, *rest = factors
    for factor in rest:
        first = first * factor
    return simplify(first)
