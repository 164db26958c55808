"""Ranges of integers as one comparison.

A pixel is inside of an image where its row and column are in a range each: two comparisons for
either, which `ptxas` compiles to two instructions. One comparison of unsigned numbers is enough, as
a number below the lower end becomes large.

    before   AND(AND(g, NOT(CMPLT(x, 1))), CMPLT(x, 57))
    after    AND(g, CMPLT(BITCAST(x - 1) : uint, 56))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.rules import conjuncts
from tilegrad.ir.uop import UOp

__all__ = ["join_ranges"]


class _End(NamedTuple):
    """That `base` is at least `number`, or less than it."""

    base: UOp
    number: int
    is_low: bool


def join_ranges(program: Sequence[UOp]) -> list[UOp]:
    """`program` with both ends of a range compared at once, where nothing wraps."""
    done: dict[UOp, UOp] = {}
    made: dict[UOp, None] = {}
    for node in program:
        src = tuple([done.get(source, source) for source in node.src])
        new = node.over(src)
        if node.op is Ops.AND and node.dtype is dtypes.bool:
            new = _joined(new)
            for each in new.toposort():
                made.setdefault(each)
        done[node] = new
        made.setdefault(new)
    if all(before is after for before, after in done.items()):
        return [*program]
    return _without_idle(list(made), program)


def _joined(condition: UOp) -> UOp:
    """A conjunction without pairs of ends of one range."""
    found = conjuncts(condition)
    ends = [_end(each) for each in found]
    left: list[UOp] = []
    gone: set[int] = set()
    for number, (each, end) in enumerate(zip(found, ends, strict=True)):
        if number in gone:
            continue
        other = next(
            (
                position
                for position in range(number + 1, len(ends))
                if position not in gone and (joined := _range(end, ends[position])) is not None
            ),
            None,
        )
        if other is None:
            left.append(each)
            continue
        gone.add(other)
        joined = _range(end, ends[other])
        assert joined is not None
        left.append(joined)
    if not gone:
        return condition
    total = left[0]
    for each in left[1:]:
        total = UOp(Ops.AND, dtypes.bool, (total, each))
    return total


def _end(condition: UOp) -> _End | None:
    is_low = condition.op is Ops.XOR and condition.src[1].op is Ops.CONST
    compared = condition.src[0] if is_low else condition
    if compared.op is not Ops.CMPLT or (is_low and not condition.src[1].arg):
        return None
    left, right = compared.src
    if left.dtype is not dtypes.int32:
        return None
    if right.op is Ops.CONST:
        base, offset = _split(left)
        return _End(base, right.arg - offset, is_low)
    if left.op is Ops.CONST and not is_low:
        base, offset = _split(right)
        return _End(base, left.arg + 1 - offset, True)
    return None


def _split(value: UOp) -> tuple[UOp, int]:
    if value.op is Ops.ADD and value.src[1].op is Ops.CONST:
        return value.src[0], int(value.src[1].arg)
    return value, 0


def _range(one: _End | None, other: _End | None) -> UOp | None:
    """Both ends as one comparison; None where they are of no range, or a difference may wrap."""
    if one is None or other is None or one.base is not other.base or one.is_low == other.is_low:
        return None
    low, high = (one.number, other.number) if one.is_low else (other.number, one.number)
    base, least, most = one.base, dtypes.int32.min, dtypes.int32.max
    if not (low < high and least <= base.vmin - low and base.vmax - low <= most):
        return None
    moved = base + -low if low else base
    unsigned = UOp(Ops.BITCAST, dtypes.uint32, (moved,))
    return UOp(Ops.CMPLT, dtypes.bool, (unsigned, UOp.const(dtypes.uint32, high - low)))


def _without_idle(program: Sequence[UOp], before: Sequence[UOp]) -> list[UOp]:
    """`program` without the nodes that only removed comparisons used. Nodes without users in
    `before` stay.
    """
    unused = set(before) - {source for node in before for source in node.src}
    used: set[UOp] = set()
    left: list[UOp] = []
    for node in reversed(program):
        is_pure = node.op.is_alu or node.op is Ops.CONST
        if node in used or node in unused or not is_pure:
            left.append(node)
            used.update(node.src)
    return left[::-1]
