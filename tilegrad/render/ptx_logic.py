"""Trees of AND, OR and XOR on 32 bits as one `lop3`, which computes any function of three values.

The function is a byte: its result for A = 0xF0, B = 0xCC and C = 0xAA. So it is found by computing
the tree of these three. XOR with all ones is a negation and takes no operand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.render.ptx_code import kind_of, root

__all__ = ["Fused", "fused_logic", "table"]

_TABLE = (0xF0, 0xCC, 0xAA)
_MOST_ON_THE_WAY = 5
_BITWISE = frozenset({Ops.AND, Ops.OR, Ops.XOR})


@dataclass(frozen=True)
class Fused:
    """The operands of a `lop3`, three at most, and its byte."""

    operands: tuple[UOp, ...]
    byte: int


def table(node: UOp, operands: Sequence[UOp]) -> int:
    """The byte of the tree at `node` over its `operands`."""
    return _value(node, dict(zip(operands, _TABLE))) & 0xFF


def _value(node: UOp, known: Mapping[UOp, int]) -> int:
    if node in known:
        return known[node]
    if node.op is Ops.CONST:
        return int(node.arg)
    left, right = (_value(source, known) for source in node.src)
    if node.op is Ops.AND:
        return left & right
    return left | right if node.op is Ops.OR else left ^ right


def _is_bitwise(node: UOp) -> bool:
    return node.op in _BITWISE and kind_of(node.dtype) == "b32"


def _is_plain(node: UOp) -> bool:
    """Whether a node is all zeros or all ones: the function of `lop3` includes it."""
    if node.op is not Ops.CONST or not node.dtype.is_int:
        return False
    return node.arg == 0 or (node.dtype.scalar.itemsize == 4 and int(node.arg) in (-1, 2**32 - 1))


def fused_logic(program: Sequence[UOp]) -> tuple[dict[UOp, Fused], set[UOp]]:
    """The nodes that become one `lop3` of several ops, and those that are inside one."""
    users: dict[UOp, list[UOp]] = {}
    home: dict[UOp, int] = {}
    loops, serial = [0], 0
    for node in program:
        if node.op is Ops.END:
            loops.pop()
        home[node] = loops[-1]
        if node.op is Ops.RANGE:
            serial += 1
            loops.append(serial)
        for source in node.src:
            users.setdefault(source, []).append(node)
    fused: dict[UOp, Fused] = {}
    inside: set[UOp] = set()
    for node in reversed(program):
        if not _is_bitwise(node) or node in inside:
            continue
        operands, within = _grown(node, users, home)
        if within:
            fused[node] = Fused(tuple(operands), table(node, operands))
            inside |= within
    return fused, inside


def _grown(
    top: UOp, users: Mapping[UOp, list[UOp]], home: Mapping[UOp, int]
) -> tuple[list[UOp], set[UOp]]:
    """The operands of the largest tree below `top` that has three of them at most, and its nodes
    without `top`. A node of the tree is used nowhere else, and stands in the same loop.

    On the way there may be more operands, as one that is there twice counts once in the end.
    """
    operands, within = _distinct(top.src), set[UOp]()
    best = operands, frozenset(within)
    while True:
        found = [
            _distinct(
                [used for each in operands for used in (each.src if each is node else (each,))]
            )
            if _is_inner(node, top, within, users, home)
            else []
            for node in operands
        ]
        fitting = [(len(wider), number) for number, wider in enumerate(found) if wider]
        if not fitting or min(fitting)[0] > _MOST_ON_THE_WAY:
            return best[0], set(best[1])
        _, number = min(fitting)
        within.add(operands[number])
        operands = found[number]
        if len(operands) <= len(_TABLE):
            best = operands, frozenset(within)


def _is_inner(
    node: UOp,
    top: UOp,
    within: set[UOp],
    users: Mapping[UOp, list[UOp]],
    home: Mapping[UOp, int],
) -> bool:
    """Whether the tree may grow by `node`."""
    if not _is_bitwise(node) or home.get(node) != home[top]:
        return False
    if any(user is not top and user not in within for user in users[node]):
        return False
    return not any(_may_change(source) for source in node.src)


def _may_change(node: UOp) -> bool:
    """Whether `node` may stand for the register of an accumulator, which a later reader would find
    changed.
    """
    if node.op is Ops.GEP or node.op is Ops.VECTORIZE:
        return any(_may_change(source) for source in node.src)
    return root(node).op is Ops.DEFINE_ACC


def _distinct(nodes: Sequence[UOp]) -> list[UOp]:
    return list(dict.fromkeys(node for node in nodes if not _is_plain(node)))
