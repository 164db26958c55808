"""A kernel's last passes: reductions that have a closed form lose their loops, equal loops are
shared, neighbouring ones merged, and ranges and parameters get their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tilegrad.ir.args import KernelInfo
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp
from tilegrad.schedule.axes import merge_neighbours, share_loops, split_divided
from tilegrad.schedule.collapse import collapse
from tilegrad.schedule.keep import cut_rows
from tilegrad.schedule.parts import part_of
from tilegrad.schedule.phases import split_phases
from tilegrad.schedule.pieces import split_pieces
from tilegrad.target import Target

__all__ = ["finish", "renumbered"]


def finish(raw: UOp, outputs: list[UOp], target: Target, *, plain: bool) -> tuple[UOp, list[int]]:
    """Collapse, put the ranges in order, give the parameters their slots; which parameters of
    `raw` are read, in the order of those.
    """
    ast = collapse(raw)
    before = [part for part in raw.toposort() if part.op is Ops.RANGE]
    if not plain:
        ast, outputs = split_divided(*split_phases(share_loops(ast), outputs))
        ast, outputs = split_pieces(ast, outputs)
        ast = cut_rows(ast, target) or ast
    ast = _with_repeats(ast, outputs)
    alive = [part for part in ast.toposort() if part.op is Ops.RANGE]
    ast, out_order = merge_neighbours(ast, [part for part in outputs if part in alive])
    inner = _inner_ranges(ast, out_order)
    merged: list[UOp] = []
    for group in _groups(ast, inner):
        ast, ordered = merge_neighbours(ast, group)
        merged += ordered
    order = [*out_order, *merged]
    if (part := part_of(ast)) is not None:
        # Inside of the loops that the rows live in, and outside of all others.
        around = {loop for node in ast.toposort() if part in node.src for loop in node.src}
        shared = [loop for loop in out_order if loop in around]
        order = [*shared, part, *(loop for loop in order if loop not in (*shared, part))]
    gone = tuple(
        part.vmax + 1 for part in before if part not in alive and part.arg[1] is Axis.REDUCE
    )
    used = [node.arg for node in ast.toposort() if node.op is Ops.DEFINE_GLOBAL]
    slots = list(dict.fromkeys([0, *used]))
    ast = ast.replace(
        arg=KernelInfo(_label(ast, order, gone), tuple(part.arg[0] for part in order))
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
    """Stores that add the same to the same place in each turn of a loop, of which nothing is left
    then, add all of it at once.
    """
    gone = set(outputs) - set(ast.toposort())
    extents = [part.src[0] for part in outputs if part in gone]
    if not extents:
        return ast
    stores = [store for store in ast.src if store.op is Ops.STORE and store.arg is Ops.ADD]
    times: dict[UOp, UOp] = {}
    for store in stores:
        pointer, place, value, *gate = store.src
        for extent in extents:
            value = value * extent.cast(value.dtype)
        times[store] = store.replace(src=(pointer, place, simplify(value), *gate))
    return ast.substitute(times)


def _inner_ranges(ast: UOp, outputs: Iterable[UOp]) -> list[UOp]:
    taken = set(outputs)
    return [part for part in ast.toposort() if part.op is Ops.RANGE and part not in taken]


def _groups(ast: UOp, inner: list[UOp]) -> list[list[UOp]]:
    """The inner ranges, those of one fold or nest together, in the order of use."""
    groups: list[list[UOp]] = []
    seen: set[UOp] = set()
    for node in ast.toposort():
        if node.op in (Ops.REDUCE, Ops.END):
            own = [part for part in node.src[1:] if part.op is Ops.RANGE and part not in seen]
            seen.update(own)
            if own:
                # A nest stands before the folds in it.
                inside = _loops_inside(node)
                places = (place for place, group in enumerate(groups) if inside & {*group})
                groups.insert(next(places, len(groups)), own)
    rest = [part for part in inner if part not in seen]
    return [*groups, rest] if rest else groups


def _loops_inside(nest: UOp) -> set[UOp]:
    """The loops of folds and nests that stand inside those of `nest`."""
    own = {part for part in nest.src[1:] if part.op is Ops.RANGE}
    if nest.op is not Ops.END:
        return set()
    return {
        part
        for node in nest.toposort()
        if node.op in (Ops.REDUCE, Ops.END) and node is not nest and own & node.ranges
        for part in node.src[1:]
    }


def _label(ast: UOp, order: Sequence[UOp], gone: tuple[int, ...]) -> str:
    """The letter of the kernel's name, and the extents of reductions that collapsed: `r`, `E`, `C`
    or `r:15`.
    """
    stored = ast.src[0].src[2]
    is_fold = bool(gone) or any(part.arg[1] is Axis.REDUCE for part in order)
    letter = "r" if is_fold else "C" if stored.op is Ops.LOAD else "E"
    return letter + "".join(f":{extent}" for extent in gone)
