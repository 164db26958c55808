"""Folds of which only every second (third, ...) term counts, as a condition on a remainder says.

The gradient of a strided window by its input is such a sum: an element meets only those places of
the window that are a stride apart. Which ones depends on the element's own remainder, its phase. So
the element's range becomes two, and the fold runs over the places of that phase alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.ranges import pad_range, replace_ranges
from tilegrad.ir.rules import simplify, terms_of
from tilegrad.ir.uop import UOp, prod

__all__ = ["split_phases"]

# Shorter folds (windows alone) are written out, and lanes of both phases side by side serve better.
_WORTH_SPLITTING = 32


class _Phase(NamedTuple):
    """`condition` is that `stride` divides a multiple of `loop`, plus or minus `fold`, and more."""

    condition: UOp
    loop: UOp
    fold: UOp
    stride: int


def split_phases(ast: UOp, order: Sequence[UOp]) -> tuple[UOp, list[UOp]]:
    """Each fold over all terms of which only those of a phase count runs over these; `order` are
    the output ranges.

    before   REDUCE(LOAD(g, (y + k)//2, 0, (y + k)%2 < 1) * LOAD(w, k), k)     y: 0..8, k: 0..4
    after    REDUCE(LOAD(g, z + j + p) * LOAD(w, j*2 + p), j)                  z: 0..4, j: 0..2
    for y = z*2 + p, with p: 0..2, of which the places k = j*2 + (-p)%2 count
    """
    ranges = list(order)
    while (found := _find(ast, ranges)) is not None:
        condition, loop, fold, stride = found
        terms = terms_of(condition.src[0].src[0])
        assert terms is not None
        number = 1 + max(node.arg[0] for node in ast.toposort() if node.op is Ops.RANGE)
        ast = simplify(ast, {condition: UOp.const(dtypes.bool, True)})
        count = -(-fold.src[0].arg // stride)
        if count * stride != fold.src[0].arg:
            wide = UOp.range(count * stride, number, fold.arg[1])
            ast, fold, number = pad_range(ast, fold, wide), wide, number + 1
        outer = UOp.range(loop.src[0].arg // stride, number, loop.arg[1])
        phase = UOp.range(stride, number + 1, loop.arg[1])
        part = UOp.range(count, number + 2, fold.arg[1])
        # The first place of the phase: with it the stride divides the sum.
        scale = terms[0][found.fold]
        first = ((phase * terms[0][loop] + terms[1]) * -scale) % stride
        ast = replace_ranges(
            ast,
            {
                loop: (outer * stride + phase, (outer, phase)),
                fold: (part * stride + first, (part,)),
            },
        )
        place = ranges.index(loop)
        ranges[place : place + 1] = [outer, phase]
    return ast, ranges


def _find(ast: UOp, order: Sequence[UOp]) -> _Phase | None:
    nodes = ast.toposort()
    for condition in nodes:
        found = _read(condition, order)
        if found is None:
            continue
        closed = {condition: UOp.const(dtypes.bool, False)}
        folds = [node for node in nodes if node.op is Ops.REDUCE and found.fold in node.src]
        if folds and all(
            node.arg is Ops.ADD
            and _steps(node) >= _WORTH_SPLITTING
            and _is_nothing(simplify(node.src[0], closed), {})
            for node in folds
        ):
            return found
    return None


def _read(condition: UOp, order: Sequence[UOp]) -> _Phase | None:
    """What a comparison of a remainder with 1 says, if it is about an output and a fold."""
    if condition.op is not Ops.CMPLT or condition.src[0].op is not Ops.FLOORMOD:
        return None
    (total, by), limit = condition.src[0].src, condition.src[1]
    if limit.op is not Ops.CONST or limit.arg != 1 or by.op is not Ops.CONST or by.arg < 2:
        return None
    found = terms_of(total)
    if found is None or len(found[0]) != 2:
        return None
    loops = [part for part in found[0] if part in order and part.arg[1] is Axis.LOOP]
    folds = [part for part in found[0] if part.op is Ops.RANGE and part.arg[1] is Axis.REDUCE]
    if len(loops) != 1 or len(folds) != 1 or abs(found[0][folds[0]]) != 1:
        return None
    (loop,), (fold,) = loops, folds
    if any(part.src[0].op is not Ops.CONST for part in (loop, fold)) or loop.src[0].arg % by.arg:
        return None
    return _Phase(condition, loop, fold, int(by.arg))


def _steps(fold: UOp) -> int:
    return int(prod(part.vmax + 1 for part in fold.src[1:]))


def _is_nothing(value: UOp, known: dict[UOp, bool]) -> bool:
    """Whether a term adds nothing: it is zero, or a product with a zero that a gate put there. What
    the other factor is does not matter, as the padding was one of the product. `known` has the
    answers so far.
    """
    if value.op is Ops.MUL:
        if value not in known:
            known[value] = any(_is_nothing(factor, known) for factor in value.src)
        return known[value]
    return value.op is Ops.CONST and bool(value.arg == 0)
