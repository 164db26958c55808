"""Which data a fold uses again: the two axes of a register tile, rated by what loading, packing and
storing cost, from static facts of the target.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp, prod
from tilegrad.optimize.facts import (
    ACCUMULATORS,
    FEW_ROWS,
    ROWS,
    nbytes_of,
    padded_to,
    power_below,
    stores,
    stride,
)
from tilegrad.optimize.opt import loop_order
from tilegrad.target import Target

__all__ = ["Reuse", "find_reuse"]

# So many rows of one axis are as good as more.
_ENOUGH_ROWS = 7
# The steps of a fold from which on its results may go through memory.
_WORTH_GATHERING = 32
# What a register tile is worth whose single elements are loaded behind gates.
_GATED = 0.7
# What one is worth that is one vector wide: each single element is loaded for one multiply-add.
_NARROW = 0.9
# A fold of so few steps takes as long as storing its results apart.
_SHALLOW = 512
# And what one is worth whose single elements come from memory, or each from a line of its own.
_FAR = 0.6
_SPREAD = 0.8
# What it costs to pack an element that is alone in memory, or by turning a tile, and to store one,
# in multiply-adds.
_PACKED = 48
_TURNED = 16
_SCATTERED = 32


@dataclass
class Reuse:
    """Output axes of a fold that move only some of its operands: one for lanes, others for rows.

    Attributes:
        stages: the parameter that the lanes move, if it can be packed.
        windows: a padded parameter of which overlapping parts are read, if it is not `stages`.
        cuts: loops to run outside of all, and how much of each stays inside.
    """

    lanes: UOp
    rows: list[UOp]
    stages: int | None
    windows: int | None
    cuts: list[tuple[UOp, int]]


def find_reuse(ast: UOp, fold: UOp, target: Target) -> Reuse | None:
    """The two axes of a register tile, if the fold has them."""
    width = target.lanes_of(fold.dtype)
    everywhere = [node for node in ast.toposort() if node.op is Ops.LOAD]
    loads = [
        node
        for node in fold.toposort()
        if node.op is Ops.LOAD and any(part in node.ranges for part in fold.src[1:])
    ]
    if width < 2 or len(loads) < 2:
        return None
    outputs = [
        part
        for part in loop_order(ast)
        if part.arg[1] is Axis.LOOP and part in fold.ranges and part.src[0].op is Ops.CONST
    ]
    store = stores(ast)[0]
    depth = int(prod(part.vmax + 1 for part in fold.src[1:]))
    inner = max(fold.src[1:], key=lambda part: ast.arg.order.index(part.arg[0]))
    best: tuple[float, Reuse] | None = None
    for lanes in outputs:
        moves = [load for load in loads if lanes in load.src[1].ranges]
        stays = [load for load in loads if lanes not in load.ranges]
        if not moves or not stays or lanes.src[0].arg < 4:
            continue
        rows = [
            part
            for part in outputs
            if part is not lanes
            and any(part in load.ranges for load in stays)
            and any(part not in load.ranges for load in moves)
        ]
        if not rows:
            continue
        rows.sort(
            key=lambda part: (
                min(part.src[0].arg, _ENOUGH_ROWS),
                stride(store.src[1], part) == 1,
                part.src[0].arg,
            ),
            reverse=True,
        )
        row, many = rows[0], min(int(prod(part.src[0].arg for part in rows)), 8)
        run = _run_of(store, rows, int(target.registers * ACCUMULATORS) // 2)
        if depth <= _SHALLOW and stride(store.src[1], lanes) != 1 and row not in run and run:
            rows = run
        elif row.src[0].arg >= FEW_ROWS:
            rows = [row]
        strided = [load for load in moves if stride(load.src[1], lanes) != 1]
        stage = _name_of(fold, moves, everywhere, None)
        if strided:
            # Only a packed operand can be strided along the lanes, and packing takes many uses.
            others = [part for part in outputs if part not in strided[0].ranges]
            left = int(prod(part.src[0].arg for part in others))
            left //= int(prod(min(part.src[0].arg, ROWS[0]) for part in rows if part in others))
            if stage is None or (left < 4 and len(rows) == 1):
                continue
        extent = lanes.src[0].arg
        quality = extent / padded_to(extent, min(width, power_below(extent)))
        quality *= min(power_below(extent), width) / width
        if extent < 2 * width:
            quality *= _NARROW
        if stride(store.src[1], lanes) != 1:
            quality *= depth / (depth + _SCATTERED)
        if strided:
            reused = int(prod(part.src[0].arg for part in outputs if part not in strided[0].ranges))
            turns = any(stride(strided[0].src[1], part) == 1 for part in fold.src[1:])
            quality *= reused / (reused + (_TURNED if turns else _PACKED))
        quality *= many / 8 * 0.5 + 0.5
        if extent > 2 * width and nbytes_of(stays) > target.cache_bytes[-1]:
            # Read again from memory for every few vectors of lanes.
            quality *= _FAR
        # What is computed from loads, or gated, for each element, where along neighbours a vector
        # serves: once, in a copy, or dearly.
        dear = [] if _is_plain(fold, stays) else stays
        window = _name_of(fold, dear, everywhere, lanes)
        if dear and window is None:
            quality *= _GATED
        if window is None and not any(
            stride(load.src[1], part) in (0, 1) for load in stays for part in (rows[0], inner)
        ):
            # A line of memory for each element.
            is_near = nbytes_of(stays) <= target.cache_bytes[min(1, len(target.cache_bytes) - 1)]
            quality *= _SPREAD if is_near else _FAR
        if best is None or quality > best[0] * 1.01:
            cuts = _cuts(fold, stays, rows[0], outputs, target) if len(rows) == 1 else []
            best = (quality, Reuse(lanes, rows, stage, window, cuts))
    return best[1] if best is not None else None


def _run_of(store: UOp, rows: list[UOp], most: int) -> list[UOp]:
    """Those of `rows`, outermost first, that together are neighbours in what is stored, at most
    `most` of them.
    """
    run: list[UOp] = []
    length = 1
    while True:
        part = next((row for row in rows if stride(store.src[1], row) == length), None)
        if part is None or length * part.src[0].arg > most:
            return run if length >= FEW_ROWS else []
        run.insert(0, part)
        length *= part.src[0].arg


def _cuts(
    fold: UOp, loads: list[UOp], row: UOp, outputs: list[UOp], target: Target
) -> list[tuple[UOp, int]]:
    """How to cut a fold whose steps are far apart in an operand of which rows are neighbours, as in
    `a.T @ b`: each step takes a line of memory for few of its elements, and before the next rows
    want the others, the caches have lost it. A part of the fold, for all rows, is read as it lies.
    """
    if len(loads) != 1 or stride(loads[0].src[1], row) != 1 or len(target.cache_bytes) < 2:
        return []
    (load,) = loads
    cache = target.cache_bytes[1] // load.dtype.itemsize
    steps = {part: stride(load.src[1], part) for part in fold.src[1:]}
    far = max(fold.src[1:], key=lambda part: steps[part] or 0)
    step, extent = steps[far], far.src[0]
    # Steps to the next element use up lines by themselves.
    if not step or any(abs(each or 0) == 1 for each in steps.values()):
        return []
    if extent.op is not Ops.CONST or step * extent.arg <= cache:
        return []
    parts = (count for count in range(extent.arg - 1, 0, -1) if extent.arg % count == 0)
    inside = next((count for count in parts if count * step <= cache // 2), 0)
    deep = int(prod(part.vmax + 1 for part in fold.src[1:])) // extent.arg * inside
    if deep < _WORTH_GATHERING:
        return []
    around = [part for part in outputs if part is not row and part in load.ranges]
    return [(far, inside), *((part, 1) for part in reversed(around))]


def _is_plain(fold: UOp, loads: list[UOp]) -> bool:
    """Whether `loads` are sides of the fold by themselves, without a gate."""
    return all(load in fold.src[0].src and len(load.src) == 2 for load in loads)


def _name_of(fold: UOp, wanted: list[UOp], loads: list[UOp], without: UOp | None) -> int | None:
    """What STAGE calls the operand with the loads `wanted`: a parameter that no other of the
    kernel's `loads` reads, or a side of the fold if the other side has none of them; `without` is a
    range that must not move it.
    """
    value = fold.src[0]
    sides = value.src if value.op.is_alu and len(value.src) == 2 else ()
    if len(wanted) == 1 and wanted[0].src[0].op is Ops.DEFINE_GLOBAL:
        memory, is_alone = wanted[0].src[0], not sides or wanted[0] in sides
        if is_alone and sum(load.src[0] is memory for load in loads) == 1:
            return int(memory.arg)
    reads = [{node for node in side.toposort() if node.op is Ops.LOAD} for side in sides]
    for place, side in enumerate(sides):
        if wanted and reads[place].issuperset(wanted) and reads[1 - place].isdisjoint(wanted):
            is_plain = all(node.op not in (Ops.REDUCE, Ops.AFTER) for node in side.toposort())
            return -1 - place if is_plain and without not in side.ranges else None
    return None
