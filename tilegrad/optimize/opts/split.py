"""Splitting a range in two and putting loops in another order: the steps of most Opts."""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.ir.args import KernelInfo
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import next_number
from tilegrad.ir.ranges import replace_ranges
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp
from tilegrad.optimize.opts.opt import loop_order

__all__ = ["put_outside", "reorder", "split"]


def reorder(ast: UOp, order: Sequence[int]) -> UOp:
    """The kernel with the loop order `order`."""
    info = ast.arg
    return ast.replace(arg=KernelInfo(info.name, tuple(order), info.opts))


def split(
    ast: UOp,
    loop: UOp,
    amount: int,
    inner: Axis,
    *,
    outer: Axis | None = None,
    last: bool = False,
    hoist: bool = False,
    top: bool = False,
) -> UOp:
    """`loop` as outer * amount + inner. The outer loop has the position of `loop`, or is hoisted;
    the inner follows it or is last.

    With `top`, both change roles: loop = inner * (extent / amount) + outer.
    """
    extent = loop.extent
    rest = simplify(extent // amount)
    number = next_number(ast.toposort())
    big = UOp.range(rest, number, outer or loop.axis)
    small = UOp.range(amount, number + 1, inner)
    is_whole = rest.op is Ops.CONST and rest.arg == 1
    if is_whole:
        value, loops = small, [small]
    else:
        value, loops = (small * rest + big if top else big * amount + small), [big, small]
    order = list(ast.arg.order)
    position = order.index(loop.number)
    remaining = [] if is_whole else [big.number]
    if hoist and not is_whole:
        del order[position]
        order.insert(position, small.number)
        order.insert(0 if outer is Axis.THREAD else _after_tiles(ast), big.number)
    elif last:
        order[position : position + 1] = remaining
        order.append(small.number)
    else:
        order[position : position + 1] = [*remaining, small.number]
    return reorder(replace_ranges(ast, {loop: (value, loops)}), order)


def put_outside(ast: UOp, loop: UOp) -> UOp:
    """`loop` outside of all loops but chunks and the tiles made before."""
    order = [number for number in ast.arg.order if number != loop.number]
    order.insert(_after_tiles(ast), loop.number)
    return reorder(ast, order)


def _after_tiles(ast: UOp) -> int:
    """How many loops stand outside: chunks, and tiles made before."""
    opts = ast.arg.opts
    tiles: int = sum(opt.op.name == "TILE" for opt in opts)
    chunks = sum(loop.axis is Axis.THREAD for loop in loop_order(ast))
    return tiles + chunks
