"""Segments for all sizes: equal calls over leaves that differ in sizes only run one plan.

Calls that have templates of all sizes (`tensor.calls.sized`) are one structure at each size. If the
plan of a segment is one for a range of sizes (`engine.realize.size_ranges`), what it has to know of
other sizes follows from those of the leaves: the lengths of its launches, and constants such as the
divisor of a mean. These are found at a few made-up sizes, as polynomials, and the plan is asked at
each of them whether it is for those. So no node is made for sizes that come later.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from tilegrad.base.dtype import DType
from tilegrad.engine.realize import realize as engine
from tilegrad.engine.realize.bindings import Binding, constants_of
from tilegrad.engine.realize.launch_numbers import changing_bits, variable_name
from tilegrad.engine.realize.request import Request
from tilegrad.engine.realize.size_ranges import SizeCounts
from tilegrad.ir.op import Ops
from tilegrad.ir.size_patterns import TRIED, Shapes, Sizes, collected, examples_of
from tilegrad.ir.sized_templates import Formula, fitted, fitted_share, made
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.waiting import Call, Input
from tilegrad.tensor.storage.leaf_kinds import (
    DrawKind,
    Kind,
    LeafKind,
    NumberKind,
    SizedKind,
    SliceOfMemory,
    slice_of,
)
from tilegrad.tensor.storage.memory import base_of
from tilegrad.tensor.storage.memory_below import Base, node_of
from tilegrad.tensor.storage.nodes_elsewhere import (
    MEMORY,
    NodesElsewhere,
    Position,
    chain_of,
    is_at_end,
    long_axis,
    shape_below,
)
from tilegrad.tensor.storage.noted_runs import Outcome, PlainNodes, ResultsAlive, Segment
from tilegrad.tensor.storage.signatures import WaitingCalls, bases_of

__all__ = ["LeafSizes", "SizedSegment", "sized_segment", "sizes_before"]

# The fewest sizes at which a segment is tried.
_NEEDED = 5


class LeafSizes(NamedTuple):
    """Sizes of the leaves of a segment: their shapes, and the elements of their memory."""

    shapes: Shapes
    memory: tuple[int, ...]


def sizes_before(segment: Segment, found: WaitingCalls) -> LeafSizes:
    """The sizes of leaves, for the next run of equal calls."""
    memory = [kind.size if isinstance(kind, LeafKind) else 0 for kind in segment.kinds]
    return LeafSizes(tuple([leaf.shape for leaf in found.leaves]), tuple(memory))


class SizedSegment:
    """A segment at all sizes.

    Attributes:
        segment: what was noted at one size.
        unknowns: for each unknown, where it is.
        fixed: for each leaf with such sizes the shape, where the unknowns are None.
        lengths: the variables of the launches as formulas of the unknowns; `shares` those that are
            the bits of a float, with its dtype.
    """

    __slots__ = ("counts", "fixed", "lengths", "segment", "shares", "unknowns")

    def __init__(
        self,
        segment: Segment,
        unknowns: Sequence[Sequence[Position]],
        fixed: Mapping[int, tuple[int | None, ...]],
        lengths: Mapping[str, Formula],
        shares: Mapping[str, tuple[Formula, DType]],
    ):
        self.segment, self.unknowns, self.fixed = segment, unknowns, fixed
        self.lengths, self.shares = lengths, shares
        # The runs of nodes count the sizes that are to have a plan of their own, until they do.
        self.counts = SizeCounts()

    def sizes_of(self, leaves: Sequence[Input]) -> tuple[int, ...] | None:
        """The unknowns; None if the leaves have other shapes."""
        sizes: list[int] = []
        for positions in self.unknowns:
            number, axis, more = positions[0]
            size = _size_at(leaves[number], axis) - more
            for other, other_axis, more in positions[1:]:
                if _size_at(leaves[other], other_axis) != size + more:
                    return None
            sizes.append(size)
        for number, shape in self.fixed.items():
            for size, wanted in zip(leaves[number].shape, shape, strict=True):
                if wanted is not None and size != wanted:
                    return None
        return tuple(sizes)

    def bases_of(
        self, leaves: Sequence[Input]
    ) -> tuple[list[Base], list[UOp], dict[str, int]] | None:
        """As `signatures.bases_of`, with the values of all variables that follow from the sizes."""
        found = bases_of(leaves, self.segment.kinds)
        values = None if found is None else self.values_of(leaves)
        if values is None or found is None:
            return None
        found[2].update(values)
        return found

    def values_of(self, leaves: Sequence[Input]) -> dict[str, int] | None:
        """The values of the variables that follow from the sizes of leaves; None if they have other
        shapes, or sizes that came so often that they are to have a plan of their own.
        """
        sizes = self.sizes_of(leaves)
        if sizes is None or self.counts.recur_often(sizes):
            return None
        values = {name: made(formula, sizes) for name, formula in self.lengths.items()}
        for name, (formula, dtype) in self.shares.items():
            bits = changing_bits(made(formula, sizes), dtype)
            if bits is None:
                return None
            values[name] = bits
        return values


def sized_segment(
    segment: Segment,
    found: WaitingCalls,
    plain: PlainNodes,
    asked: Call,
    others: ResultsAlive,
    before: Sequence[LeafSizes],
) -> SizedSegment | None:
    """The segment at all sizes, of leaves that had other sizes `before` when equal calls ran; None
    if what runs does not follow from those that differ.
    """
    if len(others.runs) != 1:
        return None
    request, binding, _, _ = others.runs[0]
    outcomes = _reshaped(segment, found)
    if request.lengths_of is None or outcomes is None:
        return None
    nodes = [*plain.leaves.values()]
    memory = sizes_before(segment, found).memory
    growing = {
        at for at, now in enumerate(memory) if any(each.memory[at] != now for each in before)
    }
    tried = kinds = None
    unknowns: list[list[Position]] = []
    for unknowns in _unknowns(found, before, memory):
        kinds = _kinds(segment, nodes, unknowns, growing)
        if kinds is not None:
            here = [
                _size_at(found.leaves[number], axis) - more for (number, axis, more), *_ in unknowns
            ]
            # A slice of a certain length has none in a shorter tensor.
            for above in ([0] * len(here), here):
                tried = _tried(found, plain, asked, request, binding, unknowns, growing, above)
                if tried is not None:
                    break
        if tried is not None:
            break
    variables = None
    if tried is not None and kinds is not None:
        variables = _variables(binding, *tried, _names_of(kinds))
    if kinds is None or variables is None:
        return None
    fixed: dict[int, tuple[int | None, ...]] = {}
    positions = {(number, axis) for several in unknowns for number, axis, _ in several}
    for number in {number for number, _ in positions}:
        fixed[number] = tuple([
            None if (number, axis) in positions else size
            for axis, size in enumerate(found.leaves[number].shape)
        ])  # fmt: skip
    elsewhere = Segment(
        kinds, binding, segment.inputs, segment.values, outcomes, segment.copies, None
    )
    return SizedSegment(elsewhere, unknowns, fixed, *variables)


def _tried(
    found: WaitingCalls,
    plain: PlainNodes,
    asked: Call,
    request: Request,
    binding: Binding,
    unknowns: Sequence[Sequence[Position]],
    growing: Collection[int],
    above: Sequence[int],
) -> tuple[list[Request], list[tuple[int, ...]]] | None:
    """The request of a run at some sizes that the plan serves, and these; None if it serves too few
    of them. The sizes are larger than those `above` which they are tried.
    """

    def asked_for(sizes: Sizes) -> Request | None:
        nodes = NodesElsewhere(found, plain, unknowns, sizes, growing).calls()
        if nodes is None or request.lengths_of is None:
            return None
        other = _request(found, nodes, asked)
        lengths = request.lengths_of(other)
        if lengths is None or not _has_equal_constants(request, other, binding):
            return None
        other.lengths = lengths
        return other

    most = _NEEDED + len(unknowns)
    return collected(examples_of(TRIED, above), asked_for, _NEEDED, most)


def _size_at(leaf: Input, axis: int) -> int:
    """The size of a leaf along an axis, or the elements of the memory below."""
    if axis != MEMORY:
        size: int = leaf.shape[axis]
        return size
    if isinstance(leaf, Call) and leaf.value is not None:
        return leaf.value.buffer.size
    node = leaf if isinstance(leaf, UOp) else node_of(leaf) if isinstance(leaf, Call) else None
    stored = None if node is None else engine.realized(node)
    base = None if node is None else base_of(stored or node)
    return -1 if base is None or base.op is not Ops.BUFFER else int(base.arg.size)


def _unknowns(
    found: WaitingCalls, before: Sequence[LeafSizes], memory: Sequence[int]
) -> Iterator[list[list[Position]]]:
    """The leaves and axes whose sizes are others than `before`, as unknowns: first, sizes that
    always changed by as much are one, which a tensor and what a `cat` has added to it are; then
    each size is one of its own. Those that are equal by chance part as soon as they differ once.
    """
    changed: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for number, leaf in enumerate(found.leaves):
        shapes = [each.shapes[number] for each in before]
        if any(len(shape) != len(leaf.shape) for shape in shapes):
            return
        if all(shape == leaf.shape for shape in shapes):
            # A slice that has one size, of memory that may grow.
            sizes = *[each.memory[number] for each in before], memory[number]
            if len({*sizes}) > 1:
                changed.setdefault(sizes, []).append((number, MEMORY))
        for axis, now in enumerate(leaf.shape):
            sizes = *[shape[axis] for shape in shapes], now
            if len({*sizes}) > 1:
                changed.setdefault(sizes, []).append((number, axis))
    if not changed:
        return
    joined: dict[tuple[int, ...], list[Position]] = {}
    least: dict[tuple[int, ...], int] = {}
    for sizes, positions in sorted(changed.items()):
        now = sizes[-1]
        moved = tuple([now - old for old in sizes])
        first = least.setdefault(moved, now)
        joined.setdefault(moved, []).extend([(*each, now - first) for each in positions])
    yield [*joined.values()]
    if len(joined) < len(changed):
        yield [[(*each, 0) for each in positions] for positions in changed.values()]


def _kinds(
    segment: Segment,
    nodes: Sequence[UOp],
    unknowns: Sequence[Sequence[Position]],
    growing: Collection[int],
) -> tuple[Kind, ...] | None:
    """The kinds of the leaves; those that have `unknowns` cover all of their memory, or are slices
    of it. That of the leaves `growing` has other sizes as well.
    """
    sized = {number for each in unknowns for number, axis, _ in each if axis != MEMORY}
    changing_of = _changing_memory(segment, nodes, unknowns)
    kinds: list[Kind] = []
    for number, kind in enumerate(segment.kinds):
        if number not in sized:
            kinds.append(_of_changing_memory(kind, nodes[number], changing_of))
            continue
        if not isinstance(kind, LeafKind) or kind.steps is None or kind.dtype is None:
            return None
        if any(op is Ops.SHRINK for op, _, _ in kind.steps):
            found = _slice_of_leaf(nodes[number], kind)
            if found is None:
                return None
            shape, sliced, starts, detaches = found
            changing = _changing(sliced, nodes[number].shape, number, unknowns)
            whole = changing_of.get(kind.base)
            # Along these the memory has a size of its own, which another leaf tells.
            apart = {
                axis
                for axis, unknown in changing.items()
                if whole is not None
                and whole[0] == shape
                and whole[1].get(axis, unknown) != unknown
            }
            if any(starts[axis] for axis in apart):
                return None
            below = [
                None if axis in apart or (number in growing and axis in changing) else size
                for axis, size in enumerate(shape)
            ]
            margins = [
                None if axis in apart else size - length
                for axis, (size, length) in enumerate(zip(shape, sliced))
            ]
            kinds.append(kind.as_slice(below, margins, starts, detaches))
            continue
        ops = tuple([op for op, _, _ in kind.steps if op is not Ops.RESHAPE])
        if any(op is not Ops.COPY and op is not Ops.DETACH for op in ops):
            return None
        kinds.append(SizedKind(ops, kind.dtype, kind.device, kind.base))
    return tuple(kinds)


def _changing_memory(
    segment: Segment, nodes: Sequence[UOp], unknowns: Sequence[Sequence[Position]]
) -> dict[int, tuple[tuple[int, ...], dict[int, int]]]:
    """By number, the memory that a leaf with unknowns covers: its shape, and by unknown axis which
    unknown it is.
    """
    found: dict[int, tuple[tuple[int, ...], dict[int, int]]] = {}
    every = [(number, axis, n) for n, each in enumerate(unknowns) for number, axis, _ in each]
    for number, axis, unknown in every:
        kind = segment.kinds[number]
        if not isinstance(kind, LeafKind):
            continue
        if axis == MEMORY:
            shape = shape_below(chain_of(nodes[number]), kind.size)
            if shape is not None:
                found.setdefault(kind.base, (shape, {long_axis(shape): unknown}))
        elif kind.size == math.prod(nodes[number].shape):
            found.setdefault(kind.base, (nodes[number].shape, {}))[1].setdefault(axis, unknown)
    return found


def _of_changing_memory(
    kind: Kind, node: UOp, changing_of: Mapping[int, tuple[tuple[int, ...], Mapping[int, int]]]
) -> Kind:
    """The kind of a leaf that has one size: of a slice of memory that has others, such as the last
    element of a sequence that grows, one that says from which end it is counted.
    """
    if not isinstance(kind, LeafKind) or kind.base not in changing_of or kind.steps is None:
        return kind
    found = _slice_of_leaf(node, kind)
    if found is None:
        return kind
    shape, sliced, starts, detaches = found
    whole, axes = changing_of[kind.base]
    if shape != whole:
        return kind
    begins = [
        start - size if axis in axes and is_at_end(start, length, size) else start
        for axis, (size, length, start) in enumerate(zip(shape, sliced, starts))
    ]
    below = [None if axis in axes else size for axis, size in enumerate(shape)]
    return kind.as_slice(below, [None] * len(shape), begins, detaches)


def _slice_of_leaf(node: UOp, kind: LeafKind) -> SliceOfMemory | None:
    """The result of `slice_of` for a leaf and its node."""
    moves = [(each.op, each.arg, each.shape) for each in reversed(chain_of(node))]
    return slice_of(moves, kind.size) if moves and kind.dtype is not None else None


def _names_of(kinds: Sequence[Kind]) -> set[str]:
    """The variables of launches whose values leaves give."""
    found: set[str | None] = set()
    for kind in kinds:
        if isinstance(kind, NumberKind):
            found.add(kind.variable)
        elif isinstance(kind, DrawKind):
            found.update(kind.names or ())
        elif isinstance(kind, LeafKind):
            found.update([name for names in kind.offsets for name in names or ()])
    return {name for name in found if name is not None}


def _changing(
    sliced: tuple[int, ...],
    shape: tuple[int, ...],
    number: int,
    unknowns: Sequence[Sequence[Position]],
) -> dict[int, int]:
    """The axes of a slice whose sizes are unknown, and which unknowns they are, where leaf `number`
    has its `shape` above it.
    """
    axes = {
        axis: n
        for n, positions in enumerate(unknowns)
        for leaf, axis, _ in positions
        if leaf == number
    }
    below = [axis for axis, size in enumerate(sliced) if size != 1]
    above = [axis for axis, size in enumerate(shape) if size != 1]
    return {axis: axes[other] for axis, other in zip(below, above) if other in axes}


def _reshaped(segment: Segment, found: WaitingCalls) -> tuple[Outcome, ...] | None:
    """Outcomes of the calls, where results that are memory in another shape have that of the call;
    None if one is another view of memory, unless it has one shape at all sizes.
    """
    outcomes: list[Outcome] = []
    for outcome in segment.outcomes:
        call = found.calls[outcome.call]
        # An alias, which has no steps, has the shape of its input.
        if outcome.moves and (call.pattern is not None or not call.template.steps):
            if call.pattern is not None and call.pattern.has_one_shape(call.slot):
                # Then so has the memory: it has as many elements.
                if all(op in (Ops.RESHAPE, Ops.PERMUTE) for op, _, _ in outcome.moves):
                    outcomes.append(outcome)
                    continue
            shape = call.shape
            is_last = outcome.moves[-1][2] == shape
            if not is_last or any(op is not Ops.RESHAPE for op, _, _ in outcome.moves):
                return None
            outcome = outcome._replace(moves=None)
        outcomes.append(outcome)
    return tuple(outcomes)


def _request(found: WaitingCalls, nodes: Mapping[Call, UOp], asked: Call) -> Request:
    """The request of a run."""
    request = Request(_not_stored)
    todo = [*dict.fromkeys([nodes[each] for each in found.roots(asked)])]
    request.want(todo)
    retained = ResultsAlive([nodes[each] for each in found.alive]).retained(request)
    request.want([node for node in retained if node not in todo])
    # As those of a run (`engine.realize`).
    request.roots.sort()
    return request


def _not_stored(node: UOp) -> None:
    """No value of such a graph was computed."""


def _has_equal_constants(request: Request, other: Request, binding: Binding) -> bool:
    """Whether the constants that are no variables of the launches are equal."""
    if len(request.constants) != len(other.constants):
        return False
    changing = {number for uses in binding.numbers for number in uses}
    return all(
        mine == theirs
        for number, mine, theirs in zip(
            request.constants, constants_of(request), constants_of(other), strict=True
        )
        if number not in changing
    )


def _variables(
    binding: Binding,
    requests: Sequence[Request],
    examples: Sequence[tuple[int, ...]],
    own: Collection[str],
) -> tuple[dict[str, Formula], dict[str, tuple[Formula, DType]]] | None:
    """The variables of the launches as formulas of the sizes, but for those of the leaves' `own`,
    such as the position of a slice; the second are constants, by their dtypes.
    """
    lengths: dict[str, Formula] = {}
    shares: dict[str, tuple[Formula, DType]] = {}
    seen = [dict(binding.launch_variables(request)) for request in requests]
    constants = {variable_name(position): uses[0] for position, uses in enumerate(binding.numbers)}
    for name in [each for each in seen[0] if each not in own]:
        number = constants.get(name)
        if number is None:
            formula = fitted([each[name] for each in seen], examples)
            if formula is None:
                return None
            lengths[name] = formula
            continue
        nodes = [request.nodes[number] for request in requests]
        values, dtype = [node.arg for node in nodes], nodes[0].dtype
        formula = fitted(values, examples)
        if formula is None and dtype.is_float:
            formula = fitted_share(values, examples)
        bits = [each[name] for each in seen]
        if formula is None or bits != [
            changing_bits(made(formula, sizes), dtype) for sizes in examples
        ]:
            return None
        shares[name] = formula, dtype
    return lengths, shares
