"""A kernel's last passes, a list: each line a pass, with the reason for its position. Then
neighbouring loops are merged, and ranges and parameters get their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce

from tilegrad.base.dtype import dtypes
from tilegrad.base.trace import PassRecord, trace
from tilegrad.ir.args import KernelInfo
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.pattern import Rule, UPat
from tilegrad.ir.proof import bounds_under
from tilegrad.ir.queries import loops_of, next_number, nodes_of
from tilegrad.ir.ranges import replace_ranges, slice_loop
from tilegrad.ir.rewrite import graph_rewrite
from tilegrad.ir.rules import simplify, terms_of
from tilegrad.ir.rules.sums import conjuncts
from tilegrad.ir.uop import UOp, toposort
from tilegrad.schedule.axes import merge_neighbours, share_loops, split_divided
from tilegrad.schedule.collapse import collapse
from tilegrad.schedule.scratch_rows import slice_rows
from tilegrad.schedule.strided import split_strided
from tilegrad.target import Target

__all__ = ["PASSES", "finish", "renumbered", "shorten_gates", "split_concatenation"]

State = tuple[UOp, Sequence[UOp]]
"""A kernel graph between two passes, and its output ranges, the outermost first."""

Pass = Callable[[UOp, Sequence[UOp], Target], State]


def _with_repeats(ast: UOp, outputs: Sequence[UOp]) -> UOp:
    """Stores that add the same value to one element in each iteration of a removed loop add the
    multiple at once.
    """
    gone = set(outputs) - set(ast.toposort())
    extents = [loop.extent for loop in outputs if loop in gone]
    if not extents:
        return ast
    stores = [store for store in ast.src if store.op is Ops.STORE and store.arg is Ops.ADD]
    times: dict[UOp, UOp] = {}
    for store in stores:
        pointer, index, value, *gate = store.src
        for extent in extents:
            value = value * extent.cast(value.dtype)
        times[store] = store.replace(src=(pointer, index, simplify(value), *gate))
    return ast.substitute(times)


PASSES: tuple[tuple[str, Pass], ...] = (
    # First: reductions with a closed form need no loop that other passes would shape.
    ("schedule.collapse", lambda ast, outputs, target: (collapse(ast), outputs)),
    # After collapse: an `arange` among the indices is its loop, and no sum any more.
    ("schedule.gates", lambda ast, outputs, target: (shorten_gates(ast), outputs)),
    # Before strided and divided, after which equal reductions have loops of different extents.
    ("schedule.share_loops", lambda ast, outputs, target: (share_loops(ast), outputs)),
    ("schedule.strided", lambda ast, outputs, target: split_strided(ast, outputs)),
    # After strided, which makes sums of the divisions by a stride.
    ("schedule.divided", lambda ast, outputs, target: split_divided(ast, outputs)),
    ("schedule.concatenation", lambda ast, outputs, target: split_concatenation(ast, outputs)),
    # After all that need a kernel without loop nests: rows in scratch are such.
    ("schedule.rows", lambda ast, outputs, target: (slice_rows(ast, target) or ast, outputs)),
    # Last: only now it is known which output ranges are gone.
    ("schedule.repeats", lambda ast, outputs, target: (_with_repeats(ast, outputs), outputs)),
)
# Passes that a kernel needs in any case; NOOPT leaves out the others.
_PLAIN = ("schedule.collapse", "schedule.gates", "schedule.repeats")
# Passes without work in a kernel that has none of these ops.
_NEEDED = {
    "schedule.gates": (Ops.CMPLT,),
    "schedule.strided": (Ops.FLOORMOD,),
    "schedule.divided": (Ops.FLOORDIV, Ops.FLOORMOD),
    "schedule.concatenation": (Ops.CMPLT,),
    "schedule.rows": (Ops.DEFINE_LOCAL,),
}


def finish(
    raw: UOp, outputs: Sequence[UOp], target: Target, *, plain: bool
) -> tuple[UOp, list[int]]:
    """Run the passes, order the ranges, and give the parameters their slots. Also gives the
    parameters of `raw` that are read, in the order of their slots.
    """
    record, ast = trace.get(), raw
    for name, apply in PASSES:
        if not plain or name in _PLAIN:
            before, needed = ast, _NEEDED.get(name, ())
            if not needed or any(node.op in needed for node in ast.toposort()):
                ast, outputs = apply(ast, outputs, target)
            if record is not None:
                record.append(PassRecord(name, before, ast))
    alive = ast.toposort()
    loops = [loop for loop in nodes_of(raw, Ops.RANGE) if loop.axis is Axis.REDUCE]
    gone = tuple(loop.vmax + 1 for loop in loops if loop not in alive)
    ast, order = _in_order(ast, outputs)
    used = [node.arg for node in nodes_of(ast, Ops.DEFINE_GLOBAL)]
    slots = list(dict.fromkeys([0, *used]))
    ast = ast.replace(
        arg=KernelInfo(_label(ast, order, gone), tuple(loop.number for loop in order))
    )
    return renumbered(ast, {old: slot for slot, old in enumerate(slots)}), slots[1:]


def _in_order(ast: UOp, outputs: Iterable[UOp]) -> tuple[UOp, list[UOp]]:
    """`ast` with neighbouring ranges merged, and its ranges, the outermost first."""
    alive = ast.toposort()
    ast, outer = merge_neighbours(ast, [loop for loop in outputs if loop in alive])
    order = list(outer)
    for group in _groups(ast, [loop for loop in nodes_of(ast, Ops.RANGE) if loop not in outer]):
        ast, ordered = merge_neighbours(ast, group)
        order += ordered
    if (slices := slice_loop(ast)) is not None:
        # Inside of the loops that the rows live in, and outside of all others.
        around = {loop for node in ast.toposort() if slices in node.src for loop in node.src}
        shared = [loop for loop in outer if loop in around]
        order = [*shared, slices, *(loop for loop in order if loop not in (*shared, slices))]
    return ast, order


def renumbered(ast: UOp, slots: Mapping[int, int]) -> UOp:
    """`ast` with its parameters numbered anew."""
    return ast.substitute(
        {node: node.replace(arg=slots[node.arg]) for node in nodes_of(ast, Ops.DEFINE_GLOBAL)}
    )


def _groups(ast: UOp, inner: list[UOp]) -> list[list[UOp]]:
    """The inner ranges in the order of use, those of one reduction or loop nest together."""
    groups: list[list[UOp]] = []
    seen: set[UOp] = set()
    for node in ast.toposort():
        if node.op in (Ops.REDUCE, Ops.END):
            own = [loop for loop in loops_of(node) if loop not in seen]
            seen.update(own)
            if own:
                # A loop nest stands before the reductions in it.
                inside = _loops_inside(node)
                positions = (position for position, group in enumerate(groups) if inside & {*group})
                groups.insert(next(positions, len(groups)), own)
    rest = [loop for loop in inner if loop not in seen]
    return [*groups, rest] if rest else groups


def _loops_inside(nest: UOp) -> set[UOp]:
    """The loops of reductions and loop nests that stand inside those of `nest`."""
    own = set(loops_of(nest))
    if nest.op is not Ops.END:
        return set()
    return {
        loop
        for node in nest.toposort()
        if node.op in (Ops.REDUCE, Ops.END) and node is not nest and own & node.ranges
        for loop in node.src[1:]
    }


def _label(ast: UOp, order: Sequence[UOp], gone: tuple[int, ...]) -> str:
    """The letter of the kernel's name, and the extents of reductions that collapsed: `r`, `E`, `C`
    or `r:15`.
    """
    stored = ast.src[0].value
    is_reduction = bool(gone) or any(loop.axis is Axis.REDUCE for loop in order)
    letter = "r" if is_reduction else "C" if stored.op is Ops.LOAD else "E"
    return letter + "".join(f":{extent}" for extent in gone)


def shorten_gates(ast: UOp) -> UOp:
    """`ast` with shorter gates where positions depend on loaded values.

    A position that was picked by indices of several axes is computed where each index is inside its
    axis. Whether the position is inside the memory follows from that, once an `arange` among the
    indices is its loop and no sum any more.

    before   data1[row * 1037 + data2[i]]
             where 0 <= data2[i] < 1037 and 0 <= row * 1037 + data2[i] < n
    after    data1[row * 1037 + data2[i]] where 0 <= data2[i] < 1037
    """
    return graph_rewrite(ast, _GATES)


def _shortened(load: UOp) -> UOp | None:
    if not load.is_gated:
        return None
    gate = load.gate
    conditions = found = conjuncts(gate)
    if len(found) < 3 or all(node.op is not Ops.LOAD for node in gate.toposort()):
        return None
    # The last ones first: the memory's bounds stand behind those of the indices.
    for condition in reversed(found[1:]):
        others = [each for each in conditions if each is not condition]
        if _follows(condition, others):
            conditions = others
    if len(conditions) == len(found):
        return None
    return load.replace(src=(*load.src[:3], reduce(UOp.__and__, conditions)))


# Loads inside of others first: a position and its gate go on reading the same.
_GATES = PatternMatcher(
    "gates",
    [Rule("shorten-gate", UPat(Ops.LOAD, name="load"), function=_shortened)],
)


def _follows(condition: UOp, others: Sequence[UOp]) -> bool:
    """Whether the other conditions imply a comparison with a constant."""
    is_negated = condition.op is Ops.XOR and condition.src[1].op is Ops.CONST
    comparison = condition.src[0] if is_negated else condition
    if comparison.op is not Ops.CMPLT or comparison.src[1].op is not Ops.CONST:
        return False
    value, limit = comparison.src
    low, high = bounds_under(value, reduce(UOp.__and__, others))
    return bool(low >= limit.arg if is_negated else high < limit.arg)


# Ops with ranges that are not those of the store.
_NESTS = (Ops.REDUCE, Ops.PREFIX, Ops.END, Ops.DEFINE_LOCAL)
# Tuning, worth shown by `bench/rows.py`, concatenations.
# Arithmetic operations of all slices together, below which one store is enough.
_WORTH_SPLITTING = 16

# Limits of compile time.
# Stores of one iteration: more would need more registers than there are.
_MOST = 8


def split_concatenation(ast: UOp, order: Sequence[UOp]) -> tuple[UOp, list[UOp]]:
    """Split an elementwise kernel of a concatenation: one store for each of its equal slices. Done
    where that saves arithmetic or leaves no gated load; `order` has the output ranges.

    The gradient of a value that was cut into gates, heads or halves is a concatenation: each
    element is that of one slice. One expression for all elements holds the work of all slices
    behind gates, and lanes do all of it. Unrolled, an iteration makes one element of each slice:
    there are no gates, and common values of slices are computed once. Slices that are only copied
    are stored the same way.

    before   STORE(a, i, (i < 64).where(f(x[i]), 0) + (i < 64).where(0, g(x[i - 64])))    i: 0..128
    after    STORE(a, j, f(x[j])), STORE(a, j + 64, g(x[j]))                              j: 0..64
    """
    if len(ast.src) != 1 or ast.src[0].op is not Ops.STORE or len(ast.src[0].src) != 3:
        return ast, list(order)
    nodes = ast.toposort()
    if any(node.op in _NESTS for node in nodes):
        return ast, list(order)
    work = _work([ast])
    is_gated = _has_gates([ast])
    if work < _WORTH_SPLITTING and not is_gated:
        return ast, list(order)
    for loop in order:
        edges = _edges(loop, nodes)
        size = math.gcd(*edges, int(loop.extent.vmax))
        if not edges or int(loop.extent.vmax) // size > _MOST:
            continue
        number = next_number(nodes)
        inner = UOp.range(size, number, loop.axis)
        count = int(loop.extent.arg) // size
        slices = [
            replace_ranges(ast, {loop: (inner + position * size, (inner,))}).src[0]
            for position in range(count)
        ]
        saves_work = work >= _WORTH_SPLITTING and _work(slices) * 2 <= work * count
        # Each edge lies between two slices: padding alone is no concatenation.
        is_even = is_gated and len(edges) == count - 1
        if saves_work or (is_even and not _has_gates(slices)):
            return UOp.sink(*slices, arg=ast.arg), [
                inner if each is loop else each for each in order
            ]
    return ast, list(order)


def _edges(loop: UOp, nodes: Iterable[UOp]) -> set[int]:
    """Positions at which comparisons of `loop` with numbers change."""
    edges: set[int] = set()
    if loop.extent.op is not Ops.CONST or loop.axis is not Axis.LOOP:
        return edges
    extent = int(loop.extent.arg)
    for node in nodes:
        if node.op is Ops.CMPLT and node.src[1].op is Ops.CONST and loop in node.src[0].ranges:
            found = terms_of(node.src[0])
            if found is None or list(found[0]) != [loop] or abs(found[0][loop]) != 1:
                continue
            scale, rest = found[0][loop], node.src[1].arg - found[1]
            edge = rest if scale == 1 else 1 - rest
            if 0 < edge < extent:
                edges.add(edge)
    return edges


def _has_gates(effects: Sequence[UOp]) -> bool:
    return any(node.op is Ops.LOAD and node.is_gated for node in toposort(effects))


def _work(effects: Sequence[UOp]) -> int:
    """Number of arithmetic nodes below the values; a node of several users counts once."""
    return sum(
        node.op.is_alu and node.dtype.scalar is not dtypes.index and node.dtype is not dtypes.bool
        for node in toposort(effects)
    )
