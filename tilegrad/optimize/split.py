"""Splitting a range in two and putting loops in another order: what most Opts are made of."""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.ir.args import KernelInfo
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.ranges import replace_ranges
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp
from tilegrad.optimize.opt import loop_order

__all__ = ["next_number", "put_outside", "reorder", "split"]


def next_number(ast: UOp) -> int:
    """A number that no range of the kernel has."""
    return 1 + max((node.arg[0] for node in ast.toposort() if node.op is Ops.RANGE), default=-1)


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
    extent = loop.src[0]
    rest = simplify(extent // amount)
    number = next_number(ast)
    big = UOp.range(rest, number, outer or loop.arg[1])
    small = UOp.range(amount, number + 1, inner)
    is_whole = rest.op is Ops.CONST and rest.arg == 1
    if is_whole:
        value, loops = small, [small]
    else:
        value, loops = (small * rest + big if top else big * amount + small), [big, small]
    order = list(ast.arg.order)
    position = order.index(loop.arg[0])
    remaining = [] if is_whole else [big.arg[0]]
    if hoist and not is_whole:
        del order[position]
        order.insert(position, small.arg[0])
        order.insert(0 if outer is Axis.THREAD else _after_tiles(ast), big.arg[0])
    elif last:
        order[position : position + 1] = remaining
        order.append(small.arg[0])
    else:
        order[position : position + 1] = [*remaining, small.arg[0]]
    return reorder(replace_ranges(ast, {loop: (value, loops)}), order)


def put_outside(ast: UOp, loop: UOp) -> UOp:
    """`loop` outside of all loops but chunks and the tiles made before."""
    order = [number for number in ast.arg.order if number != loop.arg[0]]
    order.insert(_after_tiles(ast), loop.arg[0])
    return reorder(ast, order)


def _after_tiles(ast: UOp) -> int:
    """How many loops stand outside: chunks, and tiles made before."""
    opts = ast.arg.opts
    tiles: int = sum(opt.op.name == "TILE" for opt in opts)
    chunks = sum(loop.arg[1] is Axis.THREAD for loop in loop_order(ast))
    return tiles + chunks
