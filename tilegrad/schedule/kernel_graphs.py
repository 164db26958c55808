"""Movement ops become index arithmetic: one stored value, and all that is computed with it, becomes
a kernel graph.

From the element that the kernel stores, indices flow backwards. A movement op changes them, an
elementwise op hands them on, a reduction adds ranges, and at memory they become a load. Movement
thus costs nothing and leaves no trace but in the index. A value may be needed at several indices;
each is a value of its own, and interning makes equal ones one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilegrad.base.dtype import AddressSpace, dtypes
from tilegrad.base.errors import InternalError
from tilegrad.base.trace import counters
from tilegrad.ir.lengths import extent_of, memory_shape
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.rules import simplify, simplify_under
from tilegrad.ir.runs import runs_of
from tilegrad.ir.shape_tracker import ShapeTracker
from tilegrad.ir.sizes import is_one, is_zero
from tilegrad.ir.uop import UOp, prod
from tilegrad.schedule.random_words import random_word

__all__ = ["KernelBuilder", "flat_index", "maximum_shape"]

TRUE = UOp.const(dtypes.bool, True)
Index = tuple[UOp, ...]
Steps = Generator[tuple[UOp, Index, UOp], UOp, UOp]


def maximum_shape(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """Sizes as memory has them: the maximum of a symbolic one."""
    return tuple(size.vmax if isinstance(size, UOp) else size for size in shape)


def flat_index(index: Index, shape: tuple[Any, ...]) -> UOp:
    """The row-major position of `index` in memory of `shape`."""
    return ravel(index, memory_shape(shape))


def unflatten(position: UOp, shape: tuple[Any, ...]) -> Index:
    """The index in `shape` of the row-major `position`."""
    index: list[UOp] = []
    stride: Any = 1
    for axis, size in reversed(list(enumerate(shape))):
        at = position if isinstance(stride, int) and stride == 1 else position // stride
        index.append(at if axis == 0 else at % size)
        stride = stride * size
    return tuple(simplify(at) for at in reversed(index))


def ravel(index: Index, shape: tuple[Any, ...]) -> UOp:
    """The row-major position of `index` among the elements of a (perhaps symbolic) `shape`."""
    position = UOp.const(dtypes.index, 0)
    stride: Any = 1
    for at, size in zip(reversed(index), reversed(shape), strict=True):
        position = at * stride + position
        stride = stride * size
    return simplify(position)


def _tracked(node: UOp, is_stored: Callable[[UOp], bool]) -> tuple[UOp, ShapeTracker] | None:
    """The memory below a maximal chain of movement ops, and the chain as one tracker. None over
    computed values, also over padded ones that are stored because the chain is too long.

    Memory of a symbolic shape has the strides of its largest sizes, so such chains are resolved op
    by op.
    """
    chain: list[UOp] = []
    while node.op.is_movement and not (node.op is Ops.PAD and is_stored(node)):
        chain.append(node)
        node = node.src[0]
    if node.op not in (Ops.BUFFER, Ops.AFTER) or any(
        isinstance(size, UOp) for each in (node, *chain) for size in each.shape
    ):
        return None
    tracker = ShapeTracker.from_shape(node.shape)
    for each in reversed(chain):
        tracker = getattr(tracker, each.op.name.lower())(each.arg)
    return node, tracker.simplify()


@dataclass
class InScratch:
    """A value that lives in scratch inside the kernel, between the loop nest that writes it and
    those that read it.
    """

    shared: tuple[int, ...]
    number: int


@dataclass
class KernelBuilder:
    """Builds the graph of one kernel.

    Attributes:
        parameter: gives the pointer parameter of a stored value or a buffer.
        is_stored: whether a value is read from memory here.
        in_scratch: values that live in scratch, with the axes along which the outer ranges run.
        running: the ranges of scans, which must run in order.
    """

    parameter: Callable[[UOp], UOp]
    is_stored: Callable[[UOp], bool]
    in_scratch: dict[UOp, InScratch] = field(default_factory=dict)
    number: int = 0
    running: set[UOp] = field(default_factory=set)
    reads: dict[UOp, list[Index]] = field(default_factory=dict)
    _memo: dict[tuple[UOp, Index, UOp], UOp] = field(default_factory=dict)
    _scratch: dict[tuple[UOp, Index], UOp] = field(default_factory=dict)
    _numbers: set[int] = field(default_factory=set)

    @property
    def evaluated(self) -> list[tuple[UOp, Index, UOp]]:
        """Every value asked for so far, with its index and the condition."""
        return list(self._memo)

    @property
    def size(self) -> int:
        """How many values were asked for so far."""
        return len(self._memo)

    def range(self, extent: Any, axis: Axis) -> UOp:
        """A new range; an extent of 1 needs none. A symbolic extent is simplified first, as the
        range is looked up in the simplified kernel.
        """
        if isinstance(extent, UOp):
            extent = simplify(extent)
        if isinstance(extent, int) and extent == 1:
            return UOp.const(dtypes.index, 0)
        self.number += 1
        return UOp.range(extent, self.number - 1, axis)

    def start(self, node: UOp, index: Index) -> UOp:
        """The element of the stored value `node` at `index`, computed here."""
        return self._run((node, index, TRUE), self.compute(node, index, TRUE))

    def value(self, node: UOp, index: Index, valid: UOp = TRUE) -> UOp:
        """The element of `node` at `index`; it is only asked for where `valid` holds."""
        request = (node, index, valid)
        known = self._memo.get(request)
        return self._run(request, self._steps(*request)) if known is None else known

    def take_in(self, node: UOp) -> None:
        """Compute `node`, which is no longer stored, wherever it was read: `size`, `reads` and
        `running` are updated, and values built so far do not change.
        """
        del self.reads[node]
        for request in [each for each in self._memo if each[0] is node]:
            self._run(request, self._steps(*request))

    def _run(self, request: tuple[UOp, Index, UOp], steps: Steps) -> UOp:
        """Drive `steps`, and those of every value that it asks for, without recursion."""
        running = [(request, steps)]
        answer: UOp | None = None
        before = len(self._memo)
        while True:
            request, steps = running[-1]
            try:
                wanted = steps.send(answer)  # type: ignore[arg-type]
            except StopIteration as done:
                answer = self._memo[request] = done.value
                running.pop()
                if not running:
                    counters.visits += len(self._memo) - before
                    return done.value  # type: ignore[no-any-return]
                continue
            answer = self._memo.get(wanted)
            if answer is None:
                running.append((wanted, self._steps(*wanted)))

    def _steps(self, node: UOp, index: Index, valid: UOp) -> Steps:
        """The value of `node`, asking for those of its sources by `yield`."""
        op = node.op
        if op in (Ops.CONST, Ops.DEFINE_VAR):
            return node
        if (
            op.is_movement
            and not self.is_stored(node)
            and (found := _tracked(node, self.is_stored)) is not None
        ):
            leaf, tracker = found
            self.reads.setdefault(leaf, []).append(index)
            position, inside = tracker.to_indexed_uops(index)
            both = simplify(valid & inside)
            if _is_never(both):
                return UOp.const(node.dtype, 0)
            return _or_zero(inside, self._load(self.parameter(leaf), position, both, node))
        if node in self.in_scratch:
            return (yield from self._from_scratch(node, index, valid))
        if op in (Ops.BUFFER, Ops.AFTER) or self.is_stored(node):
            self.reads.setdefault(node, []).append(index)
            return self._load(self.parameter(node), flat_index(index, node.shape), valid, node)
        return (yield from self.compute(node, index, valid))

    def compute(self, node: UOp, index: Index, valid: UOp) -> Steps:
        """As `_steps`, for a value that is computed here even if it is stored."""
        op = node.op
        if op in (Ops.CONST, Ops.DEFINE_VAR):
            return node
        if op is Ops.PAD:
            return (yield from self._pad(node, index, valid))
        if op.is_movement:
            return (yield node.src[0], _source_index(node, index, valid), valid)
        if op is Ops.REDUCE_AXIS:
            function, axes = node.arg[:2]
            ranges = {axis: self.range(node.src[0].shape[axis], Axis.REDUCE) for axis in axes}
            inner = tuple(ranges.get(axis, at) for axis, at in enumerate(index))
            value = yield node.src[0], inner, valid
            loops = tuple(at for at in ranges.values() if at.op is Ops.RANGE)
            return UOp(Ops.REDUCE, node.dtype, (value, *loops), function) if loops else value
        if op is Ops.PREFIX_AXIS:
            return (yield from self._prefix(node, index, valid))
        if op is Ops.GATHER:
            return (yield from self._gather(node, index, valid))
        if op is Ops.RAND:
            return random_word(node.arg, ravel(index, node.shape))
        if op in (Ops.CONTIGUOUS, Ops.DETACH, Ops.COPY):
            return (yield node.src[0], index, valid)
        if op is Ops.ASSIGN:
            return (yield node.src[1], index, valid)
        if op.is_alu or op in (Ops.CAST, Ops.BITCAST):
            operands: list[UOp] = []
            for source in node.src:
                operands.append((yield source, index if source.shape else (), valid))
            return UOp(op, node.dtype, tuple(operands), node.arg)
        raise InternalError(
            f"schedule.index met a {op} node inside a kernel", node=repr(node)[:300]
        )

    def _pad(self, node: UOp, index: Index, valid: UOp) -> Steps:
        (source,) = node.src
        inside = TRUE
        moved: list[UOp] = []
        for at, (before, after), size in zip(index, node.arg, source.shape, strict=True):
            if not is_zero(before):
                inside = inside & (at < before).logical_not()
            if not is_zero(after):
                inside = inside & (at < before + size)
            moved.append(at if is_zero(before) else simplify(at - before))
        inside = simplify(inside)
        both = simplify(valid & inside)
        if _is_never(both):
            return UOp.const(node.dtype, 0)
        return _or_zero(inside, (yield source, _under(tuple(moved), both), both))

    def _prefix(self, node: UOp, index: Index, valid: UOp) -> Steps:
        """An element of a scan. Its axis is an output range, as schedule.fuse stores a scan before
        any movement of it.
        """
        function, axis = node.arg
        value = yield node.src[0], index, valid
        loop = index[axis]
        if loop.op is Ops.CONST:
            return value
        assert loop.op is Ops.RANGE and valid is TRUE, "a prefix that is moved"
        self.running.add(loop)
        return UOp(Ops.PREFIX, node.dtype, (value, loop), (function, 1))

    def _gather(self, node: UOp, index: Index, valid: UOp) -> Steps:
        table, rows = node.src
        depth = len(rows.shape)
        picked = yield rows, index[:depth], valid
        named = TRUE
        if picked.op is Ops.WHERE and picked.src[2].op is Ops.CONST and picked.src[2].arg < 0:
            # Several indices: the sum of their positions, where each is inside its axis.
            named, picked = picked.src[:2]
        row = simplify(picked.cast(dtypes.index))
        inside = simplify(named & (row < 0).logical_not() & (row < table.shape[0]))
        both = simplify(valid & inside)
        return _or_zero(inside, (yield table, (row, *index[depth:]), both))

    def _load(self, pointer: UOp, position: UOp, valid: UOp, node: UOp) -> UOp:
        if valid is TRUE:
            return pointer.load(position, dtype=node.dtype)
        position = simplify_under(position, valid, final=True)
        # A position that is always inside needs no gate: the element would seem to depend on all
        # ranges of the condition.
        if _is_inside(pointer, position, node):
            return pointer.load(position, dtype=node.dtype)
        return pointer.load(position, UOp.const(node.dtype, 0), valid, dtype=node.dtype)

    def _from_scratch(self, node: UOp, index: Index, valid: UOp) -> Steps:
        """An element of scratch, which a loop nest inside the shared ranges fills."""
        in_scratch = self.in_scratch[node]
        outer = tuple(index[axis] for axis in in_scratch.shared)
        if any(at.op not in (Ops.RANGE, Ops.CONST) for at in outer):
            # No loop runs over a row that is moved, as by a roll: its elements are computed where
            # they are needed, under the condition that they exist.
            return (yield from self.compute(node, index, valid))
        inner_axes = [axis for axis in range(len(index)) if axis not in in_scratch.shared]
        shape = tuple(node.shape[axis] for axis in inner_axes)
        filled = self._scratch.get((node, outer))
        if filled is None:
            size = prod(maximum_shape(shape))
            lives_in = tuple(at for at in outer if at.op is Ops.RANGE)
            number = self._scratch_number(in_scratch)
            memory = UOp(
                Ops.DEFINE_LOCAL, node.dtype.ptr(size, AddressSpace.SCRATCH), lives_in, number
            )
            loops = {axis: self.range(node.shape[axis], Axis.LOOP) for axis in inner_axes}
            inside = tuple(loops.get(axis, at) for axis, at in enumerate(index))
            value = yield from self.compute(node, inside, _within(outer, in_scratch.shared, node))
            largest = maximum_shape(shape)
            written = memory.store(flat_index(tuple(loops.values()), largest), value)
            filled = memory.after(
                written.end(*[loop for loop in loops.values() if loop.op is Ops.RANGE])
            )
            self._scratch[node, outer] = filled
        position = flat_index(tuple(index[axis] for axis in inner_axes), maximum_shape(shape))
        return self._load(filled, position, valid, node)

    def _scratch_number(self, in_scratch: InScratch) -> int:
        """The number of new scratch. A value that lives there for two indices of the ranges outside
        of it has two numbers.
        """
        number = in_scratch.number
        if number in self._numbers:
            number = 1 + max(*self._numbers, *(each.number for each in self.in_scratch.values()))
        self._numbers.add(number)
        return number


def _is_never(condition: UOp) -> bool:
    return condition.op is Ops.CONST and not condition.arg


def _or_zero(inside: UOp, value: UOp) -> UOp:
    """`value` where `inside` holds, else zero."""
    return value if inside.op is Ops.CONST else inside.where(value, UOp.const(value.dtype, 0))


def _is_inside(pointer: UOp, position: UOp, node: UOp) -> bool:
    """Whether `position` lies in the memory of the stored `node` at all values of variables. A
    length has memory for its value, not for its maximum.
    """
    if position.vmin < 0:
        return False
    extent = extent_of(node.shape) if pointer.op is Ops.DEFINE_GLOBAL else None
    if extent is None:
        return bool(position.vmax < pointer.dtype.size)  # type: ignore[attr-defined]
    inside = simplify(position < extent)
    return inside.op is Ops.CONST and bool(inside.arg)


def _within(outer: Index, axes: Sequence[int], node: UOp) -> UOp:
    """Whether `node` has elements at `outer` along `axes`: a kernel may store more elements than
    the value has, where it is padded or concatenated.
    """
    found = TRUE
    for at, size in zip(outer, (node.shape[axis] for axis in axes), strict=True):
        if at.op is Ops.RANGE and at.src[0] is not size:
            found = found & (at < size)
    return simplify(found)


def _source_index(node: UOp, index: Index, valid: UOp) -> Index:
    """Where in its source the element at `index` of a movement node lies."""
    op, arg, shape = node.op, node.arg, node.src[0].shape
    if op is Ops.RESHAPE:
        return _under(_reshaped(node, index, valid), valid)
    if op is Ops.PERMUTE:
        return tuple(index[arg.index(axis)] for axis in range(len(arg)))
    if op is Ops.EXPAND:
        zero = UOp.const(dtypes.index, 0)
        return tuple(
            zero if is_one(size) and not is_one(wide) else at
            for at, size, wide in zip(index, shape, node.shape, strict=True)
        )
    if op is Ops.FLIP:
        return tuple(
            simplify(size - 1 - at) if flip else at
            for at, flip, size in zip(index, arg, node.shape, strict=True)
        )
    assert op is Ops.SHRINK
    return tuple(simplify(at + start) for at, (start, _) in zip(index, arg, strict=True))


def _reshaped(node: UOp, index: Index, valid: UOp) -> Index:
    """The index in the source of a RESHAPE, for each group of axes by itself."""
    shape = node.src[0].shape
    inner_index = [UOp.const(dtypes.index, 0)] * len(shape)
    for theirs, ours in runs_of(shape, node.shape):
        if len(theirs) == 1 and len(ours) == 1:
            inner_index[theirs[0]] = index[ours[0]]
            continue
        position = ravel(
            tuple(index[axis] for axis in ours), tuple(node.shape[axis] for axis in ours)
        )
        if valid is not TRUE:
            position = simplify_under(position, valid)
        inner = unflatten(position, tuple(shape[axis] for axis in theirs))
        for axis, at in zip(theirs, inner, strict=True):
            inner_index[axis] = at
    return tuple(inner_index)


def _under(index: Index, valid: UOp) -> Index:
    """`index`, simplified under the condition `valid`."""
    return index if valid is TRUE else tuple(simplify_under(at, valid) for at in index)
