"""Strided reductions: by a condition on a remainder, only every second (third, ...) term counts.

The gradient of a strided convolution by its input is such a sum: an element meets only every
stride-th position of the filter window. The element's own remainder says which. So the element's
range becomes two, and the reduction runs over the positions of one remainder alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilegrad.base.dtype import dtypes
from tilegrad.ir.neutral import is_always
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import loads_of, loops_of, next_number, trips_of
from tilegrad.ir.ranges import pad_range, replace_ranges
from tilegrad.ir.rules import simplify, terms_of
from tilegrad.ir.uop import UOp

__all__ = ["split_strided"]

# Tuning, worth shown by `bench/corpus.py`, pooling and gradients of convolutions.
# Terms from which on remainders of any kind pay. Shorter reductions stay where one of a remainder
# has one term, or each remainder has weights of its own: then lanes of all remainders side by side
# are faster (bench/corpus.py, gradients of pools).
_LONG = 16


class _Strided(NamedTuple):
    """`condition` says that `stride` divides a multiple of `loop`, plus or minus `reduce`, and a
    constant.
    """

    condition: UOp
    loop: UOp
    reduce: UOp
    stride: int


def split_strided(ast: UOp, order: Sequence[UOp]) -> tuple[UOp, list[UOp]]:
    """Each strided reduction runs over the terms of its remainder alone; `order` are the output
    ranges.

    before   REDUCE(LOAD(g, (y + k)//2, 0, (y + k)%2 < 1) * LOAD(w, k), k)     y: 0..8, k: 0..4
    after    REDUCE(LOAD(g, z + j + p) * LOAD(w, j*2 + p), j)                  z: 0..4, j: 0..2
    for y = z*2 + p, with p: 0..2, and the terms k = j*2 + (-p)%2 count; an extent of y that the
    stride does not divide is rounded up
    """
    ranges = list(order)
    while (found := _find(ast, ranges)) is not None:
        condition, loop, reduce, stride = found
        terms = terms_of(condition.src[0].src[0])
        assert terms is not None
        number = next_number(ast.toposort())
        ast = simplify(ast, {condition: UOp.const(dtypes.bool, True)})
        count = -(-reduce.extent.arg // stride)
        if count * stride != reduce.extent.arg:
            wide = UOp.range(count * stride, number, reduce.axis)
            ast, reduce, number = pad_range(ast, reduce, wide), wide, number + 1
        if rest := -loop.extent.arg % stride:
            wide = UOp.range(loop.extent.arg + rest, number, loop.axis)
            ranges[ranges.index(loop)] = wide
            ast, loop, number = pad_range(ast, loop, wide), wide, number + 1
        outer = UOp.range(loop.extent.arg // stride, number, loop.axis)
        remainder = UOp.range(stride, number + 1, loop.axis)
        quotient = UOp.range(count, number + 2, reduce.axis)
        # The first term of the remainder: with it the stride divides the sum.
        scale = terms[0][found.reduce]
        first = ((remainder * terms[0][found.loop] + terms[1]) * -scale) % stride
        ast = replace_ranges(
            ast,
            {
                loop: (outer * stride + remainder, (outer, remainder)),
                reduce: (quotient * stride + first, (quotient,)),
            },
        )
        position = ranges.index(loop)
        ranges[position : position + 1] = [outer, remainder]
    return ast, ranges


def _find(ast: UOp, order: Sequence[UOp]) -> _Strided | None:
    nodes = ast.toposort()
    for condition in nodes:
        found = _read(condition, order)
        if found is None:
            continue
        closed = {condition: UOp.const(dtypes.bool, False)}
        reductions = [node for node in nodes if node.op is Ops.REDUCE and found.reduce in node.src]
        if reductions and all(
            node.arg is Ops.ADD
            and (trips_of(loops_of(node)) >= _LONG or _is_worthy(node, found))
            and is_always(simplify(node.src[0], closed), 0)
            for node in reductions
        ):
            return found
    return None


def _is_worthy(reduce: UOp, strided: _Strided) -> bool:
    """Whether the remainders of a short reduction have several terms, and no weights."""
    loads = loads_of(reduce)
    return strided.reduce.vmax >= strided.stride and all(
        strided.loop in load.ranges for load in loads if strided.reduce in load.ranges
    )


def _read(condition: UOp, order: Sequence[UOp]) -> _Strided | None:
    """A comparison of a remainder with 1, if it is about an output loop and a reduce loop."""
    if condition.op is not Ops.CMPLT or condition.src[0].op is not Ops.FLOORMOD:
        return None
    (total, by), limit = condition.src[0].src, condition.src[1]
    if limit.op is not Ops.CONST or limit.arg != 1 or by.op is not Ops.CONST or by.arg < 2:
        return None
    found = terms_of(total)
    if found is None or len(found[0]) != 2:
        return None
    loops = [each for each in found[0] if each in order and each.axis is Axis.LOOP]
    reductions = [each for each in found[0] if each.op is Ops.RANGE and each.axis is Axis.REDUCE]
    if len(loops) != 1 or len(reductions) != 1 or abs(found[0][reductions[0]]) != 1:
        return None
    (loop,), (reduce,) = loops, reductions
    if any(each.src[0].op is not Ops.CONST for each in (loop, reduce)) or loop.vmax < by.arg:
        return None
    return _Strided(condition, loop, reduce, int(by.arg))
