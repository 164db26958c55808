"""Instructions of a load or a store in a shaped kernel: whole vectors, vectors and shuffles, rows
of a transpose, or lane by lane (chosen by ir.vector_lanes, made by lower).
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tilegrad.ir.op import UNROLLED, Axis, Ops
from tilegrad.ir.queries import memory_of, stride_of
from tilegrad.ir.rules import conjuncts, terms_of
from tilegrad.ir.uop import UOp, element_of, prod
from tilegrad.ir.vector_lanes import LEAST_ROWS, MOST_LOADS, is_transposed, span_of
from tilegrad.optimize.analysis.footprint import distinct
from tilegrad.target import Target

__all__ = ["Access", "access_of", "open_share"]

_REDUCED = (Axis.REDUCE, Axis.UNROLL)


@dataclass(frozen=True)
class Access:
    """Instructions in one iteration of the loops around an access: those that go to memory, and
    operations on values.
    """

    memory: float
    operations: float = 0.0

    def times(self, count: float, operations: float = 0.0) -> Access:
        """As many of them, each with some operations more."""
        return Access(self.memory * count, (self.operations + operations) * count)


def access_of(
    node: UOp, lanes: Mapping[UOp, int], target: Target, step: int, inner: UOp | None
) -> Access:
    """The instructions of the load or store `node`. `lanes` maps each axis that becomes lanes to
    their number; neighbouring lanes of a whole vector are `step` elements apart (a dot unit takes
    several neighbours at once); `inner` is the innermost loop around it.
    """
    index = node.index
    lane = next((axis for axis in lanes if axis in index.ranges), None)
    if lane is None or lanes[lane] < 2:
        return _gated(node, Access(_positions(index)), target, lanes, inner)
    width = lanes[lane]
    found = _gated(node, _vector(node, lane, width, step, target), target, lanes, inner)
    found = found.times(_positions(index, lane, width))
    shared = _shared_vectors(node, lane, width)
    return found if shared is None else Access(min(found.memory, shared), found.operations)


def _vector(node: UOp, lane: UOp, width: int, step: int, target: Target) -> Access:
    """One vector along `lane`."""
    index, is_store = node.index, node.op is Ops.STORE
    registers = target.registers_of(element_of(memory_of(node.src[0])), width)
    if lane in memory_of(node.src[0]).src:
        return Access(registers)
    if stride_of(index, lane) == step:
        return Access(registers + _split_share(node, lane, width * step, target))
    if _is_computed(node, [lane]):
        # Positions are taken out of a vector, elements inserted into one.
        return Access(width, 2 * width)
    span = span_of(index, lane, width)
    if is_store:
        if is_transposed(index, lane):
            # A vector of the rows of each lane.
            rows = _rows_beside(index, lane)
            return Access(width * -(-rows // width) / rows, math.log2(width))
        return Access(width, width)
    reach = None if span is None else abs(span) + 1
    if reach is not None and 1 < reach <= MOST_LOADS * width:
        vectors = -(-reach // width)
        return Access(vectors * registers, 2 * vectors * registers - 1)
    rows = _rows_beside(index, lane)
    if rows >= LEAST_ROWS and _has_gate_of_lanes(node, lane, target):
        return Access(max(width // rows, 1), math.log2(width))
    return Access(width, width)


def _split_share(node: UOp, lane: UOp, count: int, target: Target) -> float:
    """The share of accesses of `count` elements that cross a line of the cache: each is two."""
    found = terms_of(node.index)
    if found is None or not target.line_bytes:
        return 0.0
    steps, start = found
    size = element_of(memory_of(node.src[0])).itemsize
    apart = (times * (count if axis is lane else 1) for axis, times in steps.items())
    aligned = math.gcd(start * size, target.line_bytes, *(each * size for each in apart))
    return max(count * size - aligned, 0) / target.line_bytes


def _is_computed(node: UOp, lanes: Iterable[UOp]) -> bool:
    """Whether the position of an access is computed from loads of lanes."""
    own = frozenset(lanes)
    return any(
        each.op is Ops.LOAD and not own.isdisjoint(each.ranges) for each in node.index.toposort()
    )


def _rows_beside(index: UOp, lane: UOp) -> int:
    """Neighbours in memory along another unrolled axis."""
    extents = (
        axis.extent.vmax
        for axis in index.ranges
        if axis is not lane and axis.axis in UNROLLED and stride_of(index, axis) == 1
    )
    return max(extents, default=1)


def _has_gate_of_lanes(node: UOp, lane: UOp, target: Target) -> bool:
    """Whether all rows of a lane have one gate, or none, so that they may be one vector."""
    if not node.is_gated:
        return True
    rows = (
        axis
        for axis in node.index.ranges
        if axis is not lane and axis.axis in UNROLLED and stride_of(node.index, axis) == 1
    )
    return target.has_mask and all(axis not in node.gate.ranges for axis in rows)


def _positions(index: UOp, lane: UOp | None = None, width: int = 1) -> int:
    """How many different positions the unrolled copies of an access have, vectors counted once: a
    filter window beside rows reads many of its elements more than once.
    """
    moves, unknown = _moves(index, lane, width)
    return int(prod(count for _, count in distinct(moves))) * unknown


def _moves(index: UOp, lane: UOp | None, width: int) -> tuple[list[tuple[int, int]], int]:
    """The unrolled axes of an access as (step, iterations), and the iterations of those without a
    constant step; of `lane` the vectors of `width`.
    """
    moves: list[tuple[int, int]] = []
    unknown = 1
    for axis in index.ranges:
        if axis.axis not in UNROLLED:
            continue
        step, extent = stride_of(index, axis), int(axis.extent.vmax)
        if axis is lane:
            step, extent = (step if step is None else step * width), extent // width
        if step is None:
            unknown *= extent
        else:
            moves.append((abs(step), extent))
    return moves, unknown


def _shared_vectors(node: UOp, lane: UOp, width: int) -> int | None:
    """The vectors that cover the reads of the unrolled copies of a load with apart lanes, where
    copies take lanes out of the same ones (lower.share_vectors); None where they do not.
    """
    moves, unknown = _moves(node.index, lane, width)
    step = stride_of(node.index, lane)
    if node.op is not Ops.LOAD or node.is_gated or not step or abs(step) < 2:
        return None
    # Chunks that overlap share nothing with each other.
    reach, copies = abs(step) * (width - 1) + 1, unknown
    if reach > MOST_LOADS * width:
        return None
    for apart, count in distinct(moves):
        if apart <= reach:
            reach += int(apart * (count - 1))
        else:
            copies *= int(count)
    return copies * -(-reach // width)


def _gated(
    node: UOp, found: Access, target: Target, lanes: Mapping[UOp, int], inner: UOp | None
) -> Access:
    """`found` behind the gate of `node`, if it has one."""
    if not node.is_gated:
        return found
    tested = _tested(node, found, target, lanes, inner)
    if node.op is Ops.LOAD or not target.has_mask:
        return tested
    masked = _masked_stores(node.gate, lanes, inner) * (target.timing.masked_store - 1)
    return Access(tested.memory * (1 + masked), tested.operations)


def _tested(
    node: UOp, found: Access, target: Target, lanes: Mapping[UOp, int], inner: UOp | None
) -> Access:
    """`found` with what a gate takes that is not known when it is compiled."""
    gate = node.gate
    found = found.times(open_share(gate, lanes))
    if all(axis.axis in UNROLLED for axis in gate.ranges):
        return found
    has_lanes = _varies(gate, lanes)
    if not has_lanes and any(axis.axis in _REDUCED for axis in gate.ranges):
        # A loop runs over the open ones alone.
        return found
    if has_lanes and target.has_mask and _is_computed(node, lanes):
        # Closed lanes load the first element, so that no lane needs a branch.
        return found.times(1, 2.0)
    if has_lanes and not target.has_mask:
        return _branched(gate, found, target, lanes, inner)
    is_vector = any(axis in lanes for axis in node.index.ranges)
    if is_vector and found.memory > 2:
        # Lanes that are loaded one by one, each behind a branch.
        return found.times(1, target.timing.branch * found.memory)
    # Each condition that differs between lanes is compared and joined with the others.
    tests = [each for each in conjuncts(gate) if _varies(each, lanes)]
    share = sum(_masked_share(each, inner) for each in tests) if target.has_mask else len(tests)
    return found.times(1, 2.0 * share if has_lanes else found.memory)


def _branched(
    gate: UOp, found: Access, target: Target, lanes: Mapping[UOp, int], inner: UOp | None
) -> Access:
    """`found` where a vector has no mask: its lanes are loaded one by one, each behind a branch,
    but where all of them are known to be open, and in the iterations that others were peeled from.
    """
    width = max(lanes[axis] for axis in gate.ranges if axis in lanes)
    tests = [each for each in conjuncts(gate) if _varies(each, lanes)]
    opened = open_share(gate, lanes)
    closed = 1 - open_share(gate, lanes, is_whole=True) / opened if opened else 0.0
    closed *= min(sum(_apart_share(each, inner) for each in tests), 1.0)
    count = max(found.memory, width * opened)
    memory = found.memory + (count - found.memory) * closed
    return Access(memory, found.operations + target.timing.branch * count * closed)


def _apart_share(test: UOp, inner: UOp | None) -> float:
    """The share of iterations of the loop `inner` that are peeled, at the end or at the front, so
    that `test` holds in the others (lower.peel); all where there are none.
    """
    if inner is None or inner not in test.ranges or inner.extent.op is not Ops.CONST:
        return 1.0
    extent = inner.extent
    for count in (1, 2, 4):
        if extent.arg < 3 * count:
            break
        left = UOp.const(extent.dtype, extent.arg - count)
        shorter = inner.replace(src=(left,))
        for iteration in (shorter, shorter + count):
            if test.substitute({inner: iteration}).vmin:
                return float(count / extent.arg)
    return 1.0


def _masked_stores(gate: UOp, lanes: Mapping[UOp, int], inner: UOp | None) -> float:
    """The share of the vectors stored behind `gate` that have a mask: not those whose lanes are
    open in all iterations, and of a loop whose last iteration is peeled, those of that one.
    """
    opened = open_share(gate, lanes)
    masked = 1 - open_share(gate, lanes, is_whole=True) / opened if opened else 0.0
    if all(axis.axis in UNROLLED for axis in gate.ranges):
        return masked
    tests = [
        each for each in conjuncts(gate) if _varies(each, lanes) and not _is_alike(each, lanes)
    ]
    shares = (_masked_share(each, inner) if inner in each.ranges else 1.0 for each in tests)
    return masked * max(shares, default=0.0)


def _masked_share(test: UOp, inner: UOp | None) -> float:
    """The share of iterations of the loop `inner` that compute `test`: none where it is invariant,
    and of three or more the last one, which is peeled (lower.peel), where it holds before.
    """
    if inner is None:
        return 1.0
    if inner not in test.ranges:
        return 0.0
    extent = inner.extent
    if extent.op is not Ops.CONST or extent.arg < 3:
        return 1.0
    shorter = inner.replace(src=(UOp.const(extent.dtype, extent.arg - 1),))
    return 1 / extent.arg if test.substitute({inner: shorter}).vmin else 1.0


class _Test(NamedTuple):
    """Whether the sum of `steps`, each times its axis, is below `bound`, or is not."""

    steps: Sequence[int]
    bound: int
    is_negated: bool


def open_share(gate: UOp, lanes: Mapping[UOp, int], *, is_whole: bool = False) -> float:
    """The share of iterations and unrolled copies in which `gate` may be open: of a filter window
    beside rows, those that are not all padding (lower.skip leaves the others
    out). `lanes` maps each axis that becomes lanes to their number: a vector is left out where all
    of its lanes are closed. With `is_whole`, the share of copies in which all lanes are open, in
    every iteration.
    """
    groups: dict[tuple[UOp, ...], list[_Test]] = {}
    for each in conjuncts(gate):
        is_negated = each.op is Ops.XOR
        test = each.src[0] if is_negated else each
        found = terms_of(test.src[0]) if test.op is Ops.CMPLT else None
        if found is None or test.src[1].op is not Ops.CONST:
            continue
        steps, start = found
        if all(axis.op is Ops.RANGE for axis in steps):
            pick = max if is_negated is not is_whole else min
            if is_whole:
                loops = [axis for axis in steps if axis.axis not in UNROLLED]
                start += sum(pick(steps[axis] * int(axis.vmax), 0) for axis in loops)
                steps = {axis: step for axis, step in steps.items() if axis not in loops}
            # Along the longest axis the open positions are counted at once.
            axes = tuple(sorted(steps, key=lambda axis: (axis.extent.vmax, axis.number)))
            widths = [lanes.get(axis, 1) for axis in axes]
            # The lane that opens first, or last.
            reach = [steps[axis] * (width - 1) for axis, width in zip(axes, widths, strict=True)]
            first = sum(pick(each, 0) for each in reach)
            moves = [steps[axis] * width for axis, width in zip(axes, widths, strict=True)]
            made = _Test(moves, test.src[1].arg - start - first, is_negated)
            groups.setdefault(axes, []).append(made)
    return math.prod(
        _share_of([int(axis.extent.vmax) // lanes.get(axis, 1) for axis in axes], tests)
        for axes, tests in groups.items()
        if axes
    )


def _share_of(extents: list[int], tests: Sequence[_Test]) -> float:
    """The share of positions of axes in which all tests hold."""
    extents, tests = _joined(extents, tests)
    *around, extent = extents
    count = 0
    for at in itertools.product(*map(range, around)):
        low, high = 0, extent
        for steps, bound, is_negated in tests:
            *others, step = steps
            left = bound - sum(map(operator.mul, others, at))
            # The first position at which the test changes.
            if step > 0:
                border = -(-left // step)
            else:
                border = left // step + 1
            if (step > 0) is is_negated:
                low = max(low, border)
            else:
                high = min(high, border)
        count += max(high - low, 0)
    return count / (math.prod(around) * extent)


def _joined(extents: list[int], tests: Sequence[_Test]) -> tuple[list[int], list[_Test]]:
    """The same positions with axes as one that every test counts on from each other, as the blocks
    and lanes of a long sum; the longest is the last.
    """
    rows = [(extents[axis], *[test.steps[axis] for test in tests]) for axis in range(len(extents))]
    pairs = itertools.permutations(rows, 2)
    while found := next(
        ((low, high) for low, high in pairs if high[1:] == tuple(low[0] * s for s in low[1:])), None
    ):
        low, high = found
        rows.remove(low)
        rows.remove(high)
        rows.append((low[0] * high[0], *low[1:]))
        pairs = itertools.permutations(rows, 2)
    rows.sort()
    steps = list(zip(*rows, strict=True))[1:]
    return [row[0] for row in rows], [
        test._replace(steps=own) for test, own in zip(tests, steps, strict=True)
    ]


def _varies(gate: UOp, lanes: Mapping[UOp, int]) -> bool:
    """Whether a gate differs between lanes of a vector, and is not known when it is compiled. A
    reduction over lanes inside of it is one for all.
    """
    return not lanes.keys().isdisjoint(gate.ranges) and any(
        each.op.is_boolean
        and not lanes.keys().isdisjoint(each.ranges)
        and any(axis.axis not in UNROLLED for axis in each.ranges)
        for each in gate.toposort()
    )


def _is_alike(test: UOp, lanes: Mapping[UOp, int]) -> bool:
    """Whether a comparison of a position gives all lanes of each vector the same, as rows are whole
    vectors long: 16 of 32 elements behind a test are some vectors of eight, never a part of one.
    """
    found = terms_of(test.src[0]) if test.op is Ops.CMPLT else None
    if found is None or test.src[1].op is not Ops.CONST:
        return False
    steps, start = found
    own = [abs(steps[axis]) * lanes[axis] for axis in steps if axis in lanes]
    others = [step for axis, step in steps.items() if axis not in lanes]
    return len(own) == 1 and math.gcd(test.src[1].arg - start, *others) % own[0] == 0
