"""A kernel's last passes, a list: each line a pass, with the reason for its position. Then
neighbouring loops are merged, and ranges and parameters get their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from tilegrad.base.trace import PassRecord, trace
from tilegrad.ir.args import KernelInfo
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import loops_of, nodes_of
from tilegrad.ir.ranges import slice_loop
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp
from tilegrad.schedule.axes import merge_neighbours, share_loops, split_divided
from tilegrad.schedule.collapse import collapse
from tilegrad.schedule.concatenation import split_concatenation
from tilegrad.schedule.gates import shorten_gates
from tilegrad.schedule.scratch_rows import slice_rows
from tilegrad.schedule.strided import split_strided
from tilegrad.target import Target

__all__ = ["PASSES", "finish", "renumbered"]


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


def finish(
    raw: UOp, outputs: Sequence[UOp], target: Target, *, plain: bool
) -> tuple[UOp, list[int]]:
    """Run the passes, order the ranges, and give the parameters their slots. Also gives the
    parameters of `raw` that are read, in the order of their slots.
    """
    record, ast = trace.get(), raw
    for name, apply in PASSES:
        if not plain or name in _PLAIN:
            before = ast
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
    for group in _groups(ast, _inner_ranges(ast, outer)):
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


def _inner_ranges(ast: UOp, outputs: Iterable[UOp]) -> list[UOp]:
    taken = set(outputs)
    return [loop for loop in nodes_of(ast, Ops.RANGE) if loop not in taken]


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
