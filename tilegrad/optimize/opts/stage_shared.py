"""STAGE on a target with blocks: the tile of an operand that a block needs, in its shared memory.

The copy is written for the block as a whole, by loops of its own; `lower.copies` gives a slice of
it to each lane and has several tiles at once, so that a lane may fill the next one while others
read this one. So the Opts that come later, LOCAL, UPCAST and TC, only change who reads.

    before   REDUCE(LOAD(a, m*K + k0*8 + k1) * ..., k0, k1)
    after    REDUCE(LOAD(AFTER(shared, BARRIER(END(STORE(shared, k*132 + r, LOAD(a, ...)), k, r))),
                         k1*132 + m) * ..., k0, k1)              anew for each iteration of k0

Rows are padded so that lanes that read or write down a column meet different banks.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.base.dtype import AddressSpace, dtypes
from tilegrad.base.errors import OptError
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import next_number, trips_of
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp, prod
from tilegrad.optimize.opts.opt import Opt, axes_of, loop_order
from tilegrad.target import TILES

__all__ = ["stage_shared"]

# Axes with one value for the whole block: its number, and the loop that it is in.
_COMMON = (Axis.GLOBAL, Axis.REDUCE)


def stage_shared(ast: UOp, opt: Opt, load: UOp | None, layout: Sequence[object]) -> UOp:
    """Copy the elements of `load` that a block reads in one iteration of the reduce loop
    `opt.axis`.

    `layout` is empty, or the order of the inner ranges of `load`, outermost first, as positions
    among them, and the elements that the rows of the innermost one are padded by. A third number
    is the elements of a row in memory: longer rows are cut, and the first cuts of all come first.
    A fourth one says how many tiles there are at a time, if not two; all operands that are filled
    in one loop have as many as the one that wants fewest.
    """
    loop, outer = _loops(ast, opt)
    if load is None:
        raise OptError(
            f"stage: no one value {opt.arg}",
            opt=opt,
            names="a parameter that is loaded at one position, or ReduceOperand(Side.LEFT) or "
            "(Side.RIGHT) for what the largest reduction combines",
        )
    inner = [axis for axis in loop_order(ast) if axis in load.ranges and axis not in outer]
    if not inner or any(axis.extent.op is not Ops.CONST for axis in inner):
        raise OptError("stage: the tile of the operand has no known size", opt=opt)
    defaults: list[object] = [tuple(range(len(inner))), 0, 0, TILES]
    order, padding, row, tiles = [*layout, *defaults[len(layout) :]]
    if not isinstance(order, tuple) or sorted(order) != list(range(len(inner))):
        raise OptError(f"stage: {order} does not order the {len(inner)} inner ranges", opt=opt)
    if not isinstance(padding, int) or padding < 0 or (row and padding):
        raise OptError(f"stage: rows cannot be padded by {padding}", opt=opt)
    packed = [inner[position] for position in order]
    if not isinstance(row, int) or row < 0 or (row and packed[-1].extent.arg % row):
        raise OptError(f"stage: rows of {packed[-1].extent.arg} cannot be cut by {row}", opt=opt)
    if not isinstance(tiles, int) or tiles < TILES:
        raise OptError(f"stage: {tiles} tiles of an operand at a time", opt=opt, least=TILES)
    nodes = ast.toposort()
    number = next_number(nodes, Ops.DEFINE_LOCAL)
    extents = [int(axis.extent.arg) for axis in packed]
    strides = _strides(extents, padding)
    size = int(prod(extents)) if row else extents[0] * strides[0]
    pointer = load.dtype.ptr(size, AddressSpace.SHARED)
    memory = UOp(Ops.DEFINE_LOCAL, pointer, (loop,), number)
    first = next_number(ast.toposort())
    nest = [UOp.range(extent, first + rank, Axis.STAGE) for rank, extent in enumerate(extents)]
    value = load.substitute(dict(zip(packed, nest, strict=True)))
    filled = memory.store(_position(nest, strides, row), simplify(value)).end(*nest)
    known = _barrier(ast, loop)
    before = () if known is None else known.src
    fewest = tiles if known is None else min(tiles, known.arg or TILES)
    arg = fewest if fewest > TILES else None
    barrier = UOp(Ops.BARRIER, dtypes.void, (*before, filled), arg)
    read = memory.after(barrier).load(_position(packed, strides, row), dtype=load.dtype)
    mapping = {load: read} if known is None else {load: read, known: barrier}
    return simplify(ast.substitute(mapping))


def _loops(ast: UOp, opt: Opt) -> tuple[UOp, set[UOp]]:
    """The reduce loop in which the tile is filled, and all that is outside of the tile.

    Raises OptError where no tile can stand.
    """
    axes = axes_of(ast)
    if opt.axis is None or not 0 <= opt.axis < len(axes) or axes[opt.axis].axis != Axis.REDUCE:
        raise OptError(f"stage: axis {opt.axis} is no reduce loop of the kernel", opt=opt)
    if any(axis.axis is Axis.GROUP for axis in axes):
        raise OptError("stage: lanes share the reduction, each with a slice of its own", opt=opt)
    loop = axes[opt.axis]
    loops = loop_order(ast)
    around = loops[: loops.index(loop) + 1]
    grid = [axis for axis in loops if axis.axis is Axis.GLOBAL]
    return loop, {*grid, *(axis for axis in around if axis.axis in _COMMON)}


def _strides(extents: Sequence[int], padding: int) -> list[int]:
    """How far neighbours along each dimension lie apart, the rows of the last one padded."""
    rows = [*extents[1:-1], extents[-1] + (padding if len(extents) > 1 else 0)]
    if len(extents) == 1:
        return [1]
    return [*(int(prod(rows[position:])) for position in range(len(rows))), 1]


def _position(loops: Sequence[UOp], strides: Sequence[int], row: int) -> UOp:
    """The index of an element; where rows are cut, `strides` are those of whole rows."""
    total = UOp.const(dtypes.index, 0)
    if row:
        *others, last = loops
        length = last.extent.arg
        cuts = trips_of(others) * row
        total = last // row * cuts + last % row
        loops, strides = others, [stride // length * row for stride in strides[:-1]]
    for loop, stride in zip(loops, strides, strict=True):
        total = loop * stride + total
    return simplify(total)


def _barrier(ast: UOp, loop: UOp) -> UOp | None:
    """The barrier behind which the tiles of other operands are filled in the same iteration."""
    for node in ast.toposort():
        if node.op is Ops.BARRIER and all(each.op is Ops.END for each in node.src):
            if all(_memory(each).src == (loop,) for each in node.src):
                return node
    return None


def _memory(filled: UOp) -> UOp:
    return filled.src[0].src[0]
