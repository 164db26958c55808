"""Which operands a driver could cancel, so that a program that relies on rounding would not get it.

The Vulkan drivers of several vendors share a compiler that treats floats as real numbers wherever a
shader does not forbid it, and WGSL has no way to forbid it. It would simplify

    (x + y) - y        x
    (x + 1.5e7) - 1.5e7   x, where the sum was meant to round x to a whole number
    x * 0, x - x, x + 0   0, 0 and x, whatever x is
    x + y < x          y < 0
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.render.inline import value_of

__all__ = ["operands_to_seal"]

_SUMS = frozenset({Ops.ADD, Ops.SUB})
_COMPARISONS = frozenset({Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE})


def operands_to_seal(u: UOp) -> set[int]:
    """The positions of those operands of a float operation that must not be seen through."""
    if u.op not in _SUMS and u.op not in _COMPARISONS and u.op is not Ops.MUL:
        return set()
    a, b = map(value_of, u.src[:2])
    found = {
        number for number, (own, other) in enumerate(((a, b), (b, a))) if _cancels(u.op, own, other)
    }
    # One of two is enough.
    return {0} if found == {0, 1} else found


def _cancels(op: Ops, own: UOp, other: UOp) -> bool:
    if own.op is Ops.CONST:
        # The sum with -0 is unchanged, and so is the difference with 0.
        return op is not Ops.CMPLT and op in _SUMS | {Ops.MUL} and own.arg == 0
    if op is Ops.MUL:
        is_choice = own.op is Ops.CAST and own.src[0].dtype.kind == "bool"
        is_choice |= own.op is Ops.WHERE and all(_is_zero_or_one(each) for each in own.src[1:])
        return is_choice or (own.op is Ops.MUL and bool(_constants(own)) and other.op is Ops.CONST)
    if op in _SUMS and _without_sign(own) is _without_sign(other):
        return (op is Ops.SUB) is (own is other)
    if own.op in _SUMS:
        return bool({*_terms(own)} & {*_terms(other)}) or (
            bool(_constants(own)) and other.op is Ops.CONST
        )
    is_product = own.op is Ops.MUL and other.op is Ops.MUL and op in _SUMS
    return is_product and bool({*map(value_of, own.src)} & {*map(value_of, other.src)})


def _is_zero_or_one(node: UOp) -> bool:
    return node.op is Ops.CONST and node.arg in (0, 1) and math.copysign(1, node.arg) > 0


def _constants(node: UOp) -> list[UOp]:
    return [source for source in map(value_of, node.src) if source.op is Ops.CONST]


def _terms(node: UOp) -> Iterator[UOp]:
    """Terms of the sum or difference `node`, whatever the signs, and the node itself."""
    own = _without_sign(node)
    yield own
    if own.op in _SUMS:
        yield from (_without_sign(value_of(source)) for source in own.src)


def _without_sign(node: UOp) -> UOp:
    if node.op is Ops.NEG:
        return value_of(node.src[0])
    if node.op is Ops.MUL and node.src[1].op is Ops.CONST and node.src[1].arg == -1:
        return value_of(node.src[0])
    return node
