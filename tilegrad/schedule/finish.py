"""A kernel's last passes: reductions that have a closed form lose their loops, equal loops are
shared, neighbouring ones merged, and ranges and parameters get their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tilegrad.ir.args import KernelInfo
from tilegrad.ir.op import Axis, Ops
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

__all__ = ["finish", "renumbered"]


def finish(raw: UOp, outputs: list[UOp], target: Target, *, plain: bool) -> tuple[UOp, list[int]]:
    """Collapse, put the ranges in order, give the parameters their slots; which parameters of
    `raw` are read, in the order of those.
    """
    ast = shorten_gates(collapse(raw))
    before = [loop for loop in raw.toposort() if loop.op is Ops.RANGE]
    if not plain:
        ast, outputs = split_divided(*split_strided(share_loops(ast), outputs))
        ast, outputs = split_concatenation(ast, outputs)
        ast = slice_rows(ast, target) or ast
    ast = _with_repeats(ast, outputs)
    alive = [loop for loop in ast.toposort() if loop.op is Ops.RANGE]
    ast, out_order = merge_neighbours(ast, [loop for loop in outputs if loop in alive])
    inner = _inner_ranges(ast, out_order)
    merged: list[UOp] = []
    for group in _groups(ast, inner):
        ast, ordered = merge_neighbours(ast, group)
        merged += ordered
    order = [*out_order, *merged]
    if (slices := slice_loop(ast)) is not None:
        # Inside of the loops that the rows live in, and outside of all others.
        around = {loop for node in ast.toposort() if slices in node.src for loop in node.src}
        shared = [loop for loop in out_order if loop in around]
        order = [*shared, slices, *(loop for loop in order if loop not in (*shared, slices))]
    gone = tuple(loop.vmax + 1 for loop in before if loop not in alive and loop.axis is Axis.REDUCE)
    used = [node.arg for node in ast.toposort() if node.op is Ops.DEFINE_GLOBAL]
    slots = list(dict.fromkeys([0, *used]))
    ast = ast.replace(
        arg=KernelInfo(_label(ast, order, gone), tuple(loop.number for loop in order))
    )
    return renumbered(ast, {old: slot for slot, old in enumerate(slots)}), slots[1:]


def renumbered(ast: UOp, slots: Mapping[int, int]) -> UOp:
    """`ast` with its parameters numbered anew."""
    return ast.substitute(
        {
            node: node.replace(arg=slots[node.arg])
            for node in ast.toposort()
            if node.op is Ops.DEFINE_GLOBAL
        }
    )


def _with_repeats(ast: UOp, outputs: list[UOp]) -> UOp:
    """Stores that add an equal value to the same element in each iteration of a loop add all of it
    at once. Simplifying has removed the loop.
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


def _inner_ranges(ast: UOp, outputs: Iterable[UOp]) -> list[UOp]:
    taken = set(outputs)
    return [loop for loop in ast.toposort() if loop.op is Ops.RANGE and loop not in taken]


def _groups(ast: UOp, inner: list[UOp]) -> list[list[UOp]]:
    """The inner ranges in the order of use, those of one reduction or loop nest together."""
    groups: list[list[UOp]] = []
    seen: set[UOp] = set()
    for node in ast.toposort():
        if node.op in (Ops.REDUCE, Ops.END):
            own = [loop for loop in node.src[1:] if loop.op is Ops.RANGE and loop not in seen]
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
    own = {loop for loop in nest.src[1:] if loop.op is Ops.RANGE}
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
