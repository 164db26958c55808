"""Which data a reduction uses again: the two axes of a register tile, rated by the cost of loading,
packing and storing, from static facts of the target.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import loads_of, stride_of, trips_of
from tilegrad.ir.uop import UOp, prod
from tilegrad.optimize.analysis.facts import (
    COPIED,
    FEW_ROWS,
    PER_VECTOR,
    ROWS,
    is_known,
    padded_to,
    power_below,
    stores,
)
from tilegrad.optimize.generators.filter_padding import Padding, find_padding
from tilegrad.optimize.opts.opt import ReduceOperand, Side, StageOperand, loop_order
from tilegrad.target import Target

__all__ = ["Reuse", "find_reuses"]

# Tuning, worth shown by `bench/corpus.py`, families products, convolutions and gradients.
# Rows of one axis beyond which more gain nothing.
_ENOUGH_ROWS = 7
# Factor on the rating of a tile whose vector loads have a mask for each lane.
_SPREAD = 0.8


@dataclass
class Reuse:
    """Output axes of a reduction that move only some of its operands: one for lanes, others for
    rows.

    Attributes:
        stages: the operand that the lanes move, if it can be packed.
        overlapping: a padded parameter that is read in overlapping slices, if it is not `stages`.
        cuts: loops to run outside of all, and how much of each runs inside.
        padding: that of an operand which is read where it lies, as much of it is padding, and the
            rows do not move it.
        worth: an estimate of the share of the best possible.
    """

    lanes: UOp
    rows: list[UOp]
    stages: StageOperand | None
    overlapping: StageOperand | None
    cuts: list[tuple[UOp, int]]
    padding: Padding | None = None
    worth: float = 0.0


def find_reuses(
    ast: UOp,
    reduction: UOp,
    target: Target,
    given: Collection[int] = (),
    *,
    store: UOp | None = None,
    shared: UOp | None = None,
) -> list[Reuse]:
    """The two axes of a register tile, for each axis that can give the lanes, the most promising
    first. Copies of the parameters `given` cost nothing; `store` stores the results, where they are
    not the kernel's; `shared` is the axis that has to give the rows, if it is known.
    """
    store = stores(ast)[0] if store is None else store
    facts = _ReductionFacts(ast, reduction, target, given, store, shared)
    if facts.width < 2 or len(facts.loads) < 2:
        return []
    rated = [each for lanes in facts.outputs for each in _rated(facts, lanes)]
    # The outermost loop of equals.
    rated.sort(key=lambda each: -round(each[0], 2))
    found = []
    for worth, reuse in rated:
        reuse.worth = worth
        if len(reuse.rows) == 1 and reuse.padding is None:
            _, invariant = facts.sides(reuse.lanes)
            row = reuse.rows[0]
            reuse.cuts = _cuts(facts.reduction, invariant, row, facts.outputs, facts.target)
        found.append(reuse)
    return found


class _ReductionFacts:
    """Facts about a reduction before two of its axes are chosen.

    Attributes:
        given: parameters whose copies cost nothing.
        everywhere, loads: the kernel's loads, and those of them that the reduction goes over.
        outputs: the loops around the reduction, of an extent that is known well enough.
        depth, inner: its number of steps, and the innermost loop of them.
        width: the lanes of a vector.
        shared: the only axis that may give rows, if any.
    """

    def __init__(
        self,
        ast: UOp,
        reduction: UOp,
        target: Target,
        given: Collection[int],
        store: UOp,
        shared: UOp | None,
    ):
        self.reduction, self.target, self.store, self.shared = reduction, target, store, shared
        self.given = frozenset(given)
        loops = reduction.src[1:]
        self.everywhere = loads_of(ast)
        self.loads = [
            node for node in loads_of(reduction) if any(loop in node.ranges for loop in loops)
        ]
        self.outputs = [
            loop
            for loop in loop_order(ast)
            if loop.axis is Axis.LOOP and loop in reduction.ranges and is_known(loop)
        ]
        self.depth = trips_of(loops)
        self.inner = max(loops, key=lambda loop: ast.arg.order.index(loop.number))
        self.width = target.lanes_of(reduction.dtype)

    def sides(self, lanes: UOp) -> tuple[list[UOp], list[UOp]]:
        """The loads that `lanes` moves, and those that it does not."""
        moves = [load for load in self.loads if lanes in load.index.ranges]
        return moves, [load for load in self.loads if lanes not in load.ranges]

    @property
    def is_shallow(self) -> bool:
        """Whether the reduction takes no longer than storing its results one by one."""
        return self.depth <= COPIED * self.width

    def uses(self, load: UOp) -> int:
        """How often each element of `load` is used."""
        return int(prod((loop.vmax + 1) for loop in self.outputs if loop not in load.ranges))


def _rated(facts: _ReductionFacts, lanes: UOp) -> list[tuple[float, Reuse]]:
    """Worth of the axis `lanes` with the rows that go with it, if it can be one: with those beside
    which most iterations read no padding, and with those that are best otherwise.
    """
    reduction, (moves, invariant) = facts.reduction, facts.sides(lanes)
    if not moves or not invariant or (lanes.vmax + 1) < 4 or lanes is facts.shared:
        return []
    candidates = _row_axes(facts, lanes, moves, invariant)
    if not candidates:
        return []
    padding, beside = None, list[UOp]()
    if facts.shared is None and not facts.is_shallow:
        padding = find_padding(reduction, invariant)
    if padding is not None:
        gate = padding.load.gate
        beside = [loop for loop in candidates if loop not in gate.ranges]
        if lanes in gate.ranges or not beside or beside[0].vmax + 1 < _ENOUGH_ROWS:
            padding = None
    plain = _with_rows(facts, lanes, _rows(facts, lanes, candidates), candidates, None)
    if padding is None:
        return plain
    return [*_with_rows(facts, lanes, beside[:1], candidates, padding), *plain]


def _with_rows(
    facts: _ReductionFacts,
    lanes: UOp,
    rows: list[UOp],
    candidates: list[UOp],
    padding: Padding | None,
) -> list[tuple[float, Reuse]]:
    """Worth of two axes, if strided operands allow them."""
    reduction, (moves, invariant) = facts.reduction, facts.sides(lanes)
    stage = _name_of(reduction, moves, facts.everywhere, None)
    strided = next((load for load in moves if stride_of(load.index, lanes) != 1), None)
    if stage is not None and facts.given.issuperset(load.src[0].arg for load in moves):
        strided = None
    if strided is not None:
        # Only a packed operand can be strided along the lanes, and packing takes many uses.
        inside = [min((loop.vmax + 1), ROWS[0]) for loop in rows if loop not in strided.ranges]
        left = facts.uses(strided) // int(prod(inside))
        if stage is None or (left < 4 and len(rows) == 1):
            return []
    # Operands computed from loads, or gated, for each element, where along neighbours a vector
    # serves: computed once, in a copy, or at each use.
    dear = [] if padding is not None or _is_plain(reduction, invariant) else invariant
    overlapping = _name_of(reduction, dear, facts.everywhere, lanes)
    quality = _worth_of_lanes(facts, lanes, strided)
    quality *= min(int(prod((loop.vmax + 1) for loop in candidates)), 8) / 8 * 0.5 + 0.5
    if strided is None and any(lanes in gate.ranges for load in moves for gate in load.src[3:]):
        quality *= _SPREAD
    if padding is None:
        return [(quality, Reuse(lanes, rows, stage, overlapping, []))]
    return [(quality / padding.share, Reuse(lanes, rows, stage, None, [], padding))]


def _row_axes(
    facts: _ReductionFacts, lanes: UOp, moves: list[UOp], invariant: list[UOp]
) -> list[UOp]:
    """The axes that can be rows beside `lanes`, the best one first: they move loads that the lanes
    do not, and do not move all those that the lanes do.
    """
    rows = [
        loop
        for loop in facts.outputs
        if loop is not lanes
        and any(loop in load.ranges for load in invariant)
        and any(loop not in load.ranges for load in moves)
        and facts.shared in (None, loop)
    ]
    indices = (facts.store.index, *(load.index for load in invariant))
    rows.sort(
        key=lambda loop: (
            min(loop.vmax + 1, _ENOUGH_ROWS),
            any(stride_of(each, loop) == 1 for each in indices),
            loop.vmax + 1,
        ),
        reverse=True,
    )  # fmt: skip
    return rows


def _rows(facts: _ReductionFacts, lanes: UOp, candidates: list[UOp]) -> list[UOp]:
    """The candidates that are rows together: one that is long enough, or several."""
    row = candidates[0]
    run = _run_of(facts.store, candidates, facts.target.accumulators // 2)
    is_shallow = facts.is_shallow and stride_of(facts.store.index, lanes) != 1
    if is_shallow and row not in run and run:
        return run
    return [row] if (row.vmax + 1) >= FEW_ROWS else candidates


def _worth_of_lanes(facts: _ReductionFacts, lanes: UOp, strided: UOp | None) -> float:
    """How full the vectors are, less the cost of storing them and of packing the load `strided`."""
    extent, width = (lanes.vmax + 1), facts.width
    if extent > width:
        counts = (1, 2, 3)
        padded = min(padded_to(extent, each * width) * PER_VECTOR[each] for each in counts)
    else:
        padded = padded_to(extent, power_below(extent))
    quality = float(extent / padded)
    quality *= min(power_below(extent), width) / width
    if stride_of(facts.store.index, lanes) != 1:
        quality *= facts.depth / (facts.depth + COPIED)
    if strided is not None:
        uses = facts.uses(strided)
        quality *= uses / (uses + COPIED)
    return quality


def _run_of(store: UOp, rows: list[UOp], most: int) -> list[UOp]:
    """Those of `rows`, outermost first, that together are neighbours in the stored result, at most
    `most` of them.
    """
    run: list[UOp] = []
    length = 1
    while True:
        loop = next((row for row in rows if stride_of(store.index, row) == length), None)
        if loop is None or length * (loop.vmax + 1) > most:
            return run if length >= FEW_ROWS else []
        run.insert(0, loop)
        length *= loop.vmax + 1


def _cuts(
    reduction: UOp, loads: list[UOp], row: UOp, outputs: list[UOp], target: Target
) -> list[tuple[UOp, int]]:
    """How to tile a reduction whose iterations are far apart in an operand with neighbouring rows,
    as in `a.T @ b`: each step takes a line of memory for few of its elements, and
    before the next rows want the others, the caches have lost it. A tile of the reduce axis, for
    all rows, is read as it lies.
    """
    if len(loads) != 1 or stride_of(loads[0].src[1], row) != 1 or len(target.cache_bytes) < 2:
        return []
    (load,) = loads
    nearest, cache = (nbytes // load.dtype.itemsize for nbytes in target.cache_bytes[:2])
    steps = {loop: stride_of(load.index, loop) for loop in reduction.src[1:]}
    far = max(reduction.src[1:], key=lambda loop: steps[loop] or 0)
    step, extent = steps[far], far.extent
    # Steps to the next element use up lines by themselves.
    if not step or any(abs(each or 0) == 1 for each in steps.values()):
        return []
    if extent.op is not Ops.CONST or step * extent.arg <= nearest:
        return []
    # As many lines as the nearest cache has sets: more of them, far apart, crowd each other out.
    most = min(target.cache_sets, cache // 2 // step)
    inside = next((count for count in range(most, most // 4, -1) if extent.arg % count == 0), 0)
    if not inside or extent.arg <= 2 * target.cache_sets:
        return []
    around = [loop for loop in outputs if loop is not row and loop in load.ranges]
    return [(far, inside), *((loop, 1) for loop in reversed(around))]


def _is_plain(reduction: UOp, loads: list[UOp]) -> bool:
    """Whether `loads` are operands of the reduction by themselves, without a gate."""
    return all(load in reduction.src[0].src and not load.is_gated for load in loads)


def _name_of(
    reduction: UOp, wanted: list[UOp], loads: list[UOp], without: UOp | None
) -> StageOperand | None:
    """The name that STAGE has for the operand with the loads `wanted`: a parameter that no
    other of the kernel's `loads` reads, or an operand of the reduction if the other one has none of
    them; `without` is a range that must not move it.
    """
    value = reduction.src[0]
    sides = value.src if value.op.is_alu and len(value.src) == 2 else ()
    if len(wanted) == 1 and wanted[0].src[0].op is Ops.DEFINE_GLOBAL:
        memory, is_alone = wanted[0].src[0], not sides or wanted[0] in sides
        if is_alone and sum(load.src[0] is memory for load in loads) == 1:
            return int(memory.arg)
    reads = [set(loads_of(side)) for side in sides]
    for name, side in zip(Side, sides):
        own, other = reads[name.value], reads[1 - name.value]
        if wanted and own.issuperset(wanted) and other.isdisjoint(wanted):
            is_plain = all(node.op not in (Ops.REDUCE, Ops.AFTER) for node in side.toposort())
            return ReduceOperand(name) if is_plain and without not in side.ranges else None
    return None
