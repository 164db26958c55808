"""Online reductions: rows that do not fit go through a kernel slice by slice.

A kernel with rows in scratch (scratch_rows.py) needs all of a row before it goes on: a row's sum of
exponentials is of their distance from its largest element. But the reduction of a row's beginning
can be corrected later: where the largest element so far grows from m to M, the sum of
exp(x - m) * v is multiplied by exp(m - M).

    before   m = REDUCE(x, k, MAX),  s = REDUCE(exp(x - m) * v, k, ADD)             k: 0..n
    after    m = PREFIX(REDUCE(x, j, MAX), p)                             p: 0..n/size, j: 0..size
             s = REDUCE(RESCALED(REDUCE(exp(x - m) * v, j, ADD), exp(m before - m)), p, ADD)

Scratch then holds a slice of each row, and operands of all rows (keys, values, a matrix) are read a
slice at a time, by all rows before the next one. A factor that is invariant in the row (1 over the
sum of the exponentials) is known at its end only, so it leaves the sum.

Rescaled sums and their factors are float64 where a processor has it: a row of a million keys has
thousands of slices, whose roundings would add up in the one accumulator. Lanes of blocks have few
float64 units, and sum in float32.

A reduction that has no such correction (`x - mean`, squared) is refused.
"""

from __future__ import annotations

from typing import NamedTuple

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import next_number
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp, element_of, pointer_of, toposort
from tilegrad.target import Target

__all__ = ["Row", "longest_row", "reduce_online"]


_POWERS = (Ops.EXP, Ops.EXP2)
# Limits of compile time.
# Factors of one product that is summed over a row.
_MOST_FACTORS = 64


class Row(NamedTuple):
    """The rows of one length in scratch, nested in the same loops.

    Attributes:
        extent: elements of each.
        memories: the scratch arrays with one row each.
        ranges: the loops over the row, of loop nests, reductions and loads.
    """

    extent: UOp
    memories: frozenset[UOp]
    ranges: frozenset[UOp]

    @property
    def length(self) -> int:
        """The most elements of one row."""
        return int(self.extent.vmax)

    @property
    def nbytes(self) -> int:
        """Bytes of an element in each of the memories."""
        return sum(pointer_of(memory).base.itemsize for memory in self.memories)


class _Refused(Exception):
    """A reduction without a correction."""


def longest_row(root: UOp) -> Row | None:
    """The longest rows that the kernel of `root` has in scratch; None where it has none, or where
    they are read other than element by element in a loop.
    """
    nodes = root.toposort()
    loops_over: dict[UOp, set[UOp]] = {}
    for node in nodes:
        pointer = node.src[0] if node.op in (Ops.LOAD, Ops.STORE) else None
        if pointer is None:
            continue
        memory = pointer.src[0] if pointer.op is Ops.AFTER else pointer
        if memory.op is Ops.DEFINE_LOCAL:
            if node.index.op is not Ops.RANGE or node.is_gated:
                return None
            loops_over.setdefault(memory, set()).add(node.index)
    if not loops_over:
        return None
    start = max(loops_over, key=lambda memory: pointer_of(memory).size)
    length, memories, ranges = pointer_of(start).size, {start}, set(loops_over[start])
    while more := [
        each for each in loops_over if each not in memories and loops_over[each] & ranges
    ]:
        memories.update(more)
        ranges.update(*(loops_over[each] for each in more))
    extents = {loop.extent for loop in ranges}
    if len(extents) > 1:
        return None
    if any(pointer_of(memory).size != length for memory in memories):
        return None
    return Row(extents.pop(), frozenset(memories), frozenset(ranges))


def reduce_online(root: UOp, row: Row, size: int, target: Target) -> UOp | None:
    """`root` with the reductions of `row` over slices of `size`; None where a reduction of the
    whole row is needed before another one can begin.
    """
    cut = _Slicer(root, row, size, target)
    try:
        return cut.whole(root)
    except _Refused:
        return None


class _Slicer:
    """Makes a kernel anew. Each value has two versions: `inside` the loop over the slices it is
    that of a slice, with the reductions of the row so far; as a `whole`, that of all slices.
    """

    def __init__(self, root: UOp, row: Row, size: int, target: Target):
        nodes = root.toposort()
        self.has_doubles = target.supports(dtypes.float64) and not target.has_locals
        number = next_number(nodes)
        self.row, self.size = row, size
        self.slices = UOp.range(simplify((row.extent + (size - 1)) // size), number, Axis.REDUCE)
        # The last slice may be shorter.
        extent = simplify((row.extent - self.slices * size).minimum(size))
        # The position within the slice, for each loop over the row.
        self.positions = {
            loop: UOp.range(extent, number + position, loop.axis)
            for position, loop in enumerate(
                sorted(row.ranges, key=lambda loop: loop.number), start=1
            )
        }
        self.reductions = {
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
        """Whether a value needs a reduction of the row."""
        for node in toposort([root], stop=self.waits.__contains__):
            if node not in self.waits:
                self.waits[node] = node in self.reductions or any(map(self.waits.get, node.src))
        return self.waits[root]

    def _visit(self, root: UOp) -> None:
        for node in toposort([root], stop=self.inner.__contains__):
            if node in self.inner:
                continue
            if node in self.reductions:
                self._reduce(node)
                continue
            self.inner[node] = self._inner(node)
            is_open = node.ranges & self.row.ranges or any(
                memory in node.src for memory in self.row.memories
            )
            self.outer[node] = None if is_open else self._made(node, self.outer)

    def _inner(self, node: UOp) -> UOp | None:
        if node in self.positions:
            return self.slices * self.size + self.positions[node]
        if node in self.row.memories:
            pointer = pointer_of(node)
            lives_in = (*node.src, self.slices)
            return node.replace(dtype=pointer.base.ptr(self.size, pointer.space), src=lives_in)
        made = self._made(node, self.inner)
        if made is None:
            return None
        if node.op is Ops.AFTER:
            return made.replace(dtype=made.src[0].dtype)
        if node.op is Ops.END:
            return made.replace(
                src=tuple(self.positions.get(old, new) for old, new in zip(node.src, made.src))
            )
        memory = node.src[0] if node.op in (Ops.LOAD, Ops.STORE) else None
        if memory is not None and (memory.src[0] if memory.op is Ops.AFTER else memory) in (
            self.row.memories
        ):
            where, _, *rest = made.src
            made = made.replace(src=(where, self.positions[node.src[1]], *rest))
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
        return node.over(new)

    def _reduce(self, reduction: UOp) -> None:
        """Make a reduction of the row: of the slices so far, and of all."""
        value, *ranges = reduction.src
        ranges = [self.positions.get(loop, loop) for loop in ranges]
        if not self.is_waiting(value):
            partial = UOp(Ops.REDUCE, reduction.dtype, (self.inside(value), *ranges), reduction.arg)
            self.inner[reduction] = self._so_far(reduction, partial, 1)
            self.before[reduction] = self._so_far(reduction, partial, 0)
            self.outer[reduction] = UOp(
                Ops.REDUCE, reduction.dtype, (partial, self.slices), reduction.arg
            )
            return
        self.inner[reduction] = self.outer[reduction] = None
        if reduction.arg is not Ops.ADD or not reduction.dtype.is_float:
            return
        factors = _ProductFactors([], [], [])
        try:
            self._gather(value, factors)
        except _Refused:
            return
        partial = UOp(
            Ops.REDUCE, reduction.dtype, (_product(factors.inside), *ranges), reduction.arg
        )
        if factors.corrections:
            wide = self._wide(reduction.dtype)
            change = _product(factors.corrections).cast(wide)
            partial = UOp(Ops.RESCALED, wide, (partial.cast(wide), change))
        total = UOp(Ops.REDUCE, partial.dtype, (partial, self.slices), reduction.arg).cast(
            reduction.dtype
        )
        self.outer[reduction] = _product(
            [total, *(each.cast(reduction.dtype) for each in factors.outside)]
        )

    def _wide(self, dtype: DType) -> DType:
        """The dtype of rescaled sums."""
        return dtypes.float64 if self.has_doubles else dtype

    def _so_far(self, reduction: UOp, partial: UOp, count: int) -> UOp:
        """The result of `reduction` over the slices before this one, and with this one if `count`
        is 1. The largest of nothing is finite, so that its distance from itself is 0.
        """
        found = UOp(Ops.PREFIX, reduction.dtype, (partial, self.slices), (reduction.arg, count))
        if reduction.arg is Ops.MAX and reduction.dtype.is_float:
            return found.maximum(UOp.const(reduction.dtype, -reduction.dtype.largest))
        return found

    def _gather(self, value: UOp, factors: _ProductFactors) -> None:
        """Split a product that is summed over the row into its factors."""
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
            memory, position = self._memory_of(value), value.src[1]
            varying, invariant = self._content(memory)
            factors.outside.extend(map(self.whole, invariant))
            if self._is_plain(varying):
                factors.inside.append(self._filled(memory, self.positions[position]))
                factors.corrections.extend(map(self._correction, filter(self.is_waiting, varying)))
            else:
                for each in varying:
                    self._gather(each.substitute({self.at(memory): position}), factors)
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
        """Factors of the value stored to scratch: those that vary in the row, and those that are
        invariant.
        """
        found, stack = [], [self.stores[memory].value]
        while stack:
            value = stack.pop()
            while _is_rounding(value) and self.is_waiting(value):
                (value,) = value.src
            both = _factors(value)
            if both is not None:
                stack += reversed(both)
            else:
                found.append(value)
        invariant = [
            each for each in found if not each.ranges & self.row.ranges and self.is_waiting(each)
        ]
        return [each for each in found if each not in invariant], invariant

    def _is_plain(self, varying: list[UOp]) -> bool:
        """Whether a sum of these factors can be corrected later as it is."""
        return all(each.op in _POWERS or not self.is_waiting(each) for each in varying)

    def _filled(self, memory: UOp, position: UOp) -> UOp:
        """An element of scratch with a slice of a row, without its invariant factors, and so not
        rounded before it is summed.
        """
        if memory not in self.filled:
            varying, _ = self._content(memory)
            value = _product([self.inside(each) for each in varying])
            pointer = value.dtype.ptr(self.size, pointer_of(memory).space)
            mine, filled_at = (
                self.inside(memory).replace(dtype=pointer),
                self.positions[self.at(memory)],
            )
            self.filled[memory] = mine.after(mine.store(filled_at, value).end(filled_at))
        return self.filled[memory].load(position, dtype=element_of(self.filled[memory]))

    def _found(self, value: UOp) -> UOp:
        """An exponential, loaded from scratch where it is there."""
        (loop,) = value.ranges & self.row.ranges
        for memory in self.stores:
            varying, _ = self._content(memory)
            if varying == [value.substitute({loop: self.at(memory)})]:
                return self._filled(memory, self.positions[loop])
        return self.inside(value)

    def at(self, memory: UOp) -> UOp:
        """The loop in which a nest fills scratch."""
        return self.stores[memory].src[1]

    def _correction(self, value: UOp) -> UOp:
        """The factor by which the sum of exp(x - m) is multiplied as m, the largest x so far,
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
        (loop,) = value.ranges & self.row.ranges
        if largest.src[0].substitute({largest.src[1]: loop}) is not x:
            raise _Refused
        before = self.before[largest]
        for limit in least:
            before = before.maximum(limit)
        wide = self._wide(value.dtype)
        change = before.cast(wide) + self.inside(shift).cast(wide)
        return UOp(value.op, wide, (change,))


class _ProductFactors(NamedTuple):
    """A product: the factors summed in each slice, those that the sum is multiplied by, and those
    that the sum of the slices before is multiplied by.
    """

    inside: list[UOp]
    outside: list[UOp]
    corrections: list[UOp]


def _is_rounding(value: UOp) -> bool:
    return value.op is Ops.CAST and value.dtype.is_float and value.src[0].dtype.is_float


def _factors(value: UOp) -> tuple[UOp, UOp] | None:
    """The two factors of a product; None for another value."""
    if value.op is Ops.FDIV:
        dividend, divisor = value.src
        return dividend, UOp(Ops.RECIP, divisor.dtype, (divisor,))
    return value.src if value.op is Ops.MUL else None  # type: ignore[return-value]


def _product(factors: list[UOp]) -> UOp:
    first, *rest = factors
    for factor in rest:
        first = first * factor
    return simplify(first)
