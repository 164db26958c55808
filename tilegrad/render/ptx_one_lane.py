"""Loops that one lane goes through by itself: copies of tiles, and units that add in tensor memory.

Units that follow each other add to the same columns, those of an accumulator; where they end, the
lane commits them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import CompileError
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.render.ptx_code import root
from tilegrad.render.ptx_wgmma import needless

__all__ = ["BESIDE", "commits_of", "is_late", "lanes_of", "loops_of_one_lane", "owner_of"]

# Ops that a loop of one lane may have, beside values.
_OF_ONE_LANE = frozenset({Ops.BARRIER, Ops.WAIT_TILE, Ops.ARRIVE, Ops.COPY_TILE})
BESIDE = frozenset(
    {Ops.WMMA, Ops.CONST, Ops.CAST, Ops.BITCAST, Ops.AFTER, Ops.DESCRIPTOR, Ops.GEP, Ops.VECTORIZE}
)


def owner_of(unit: UOp) -> UOp:
    """The accumulator to which a unit adds, or the first unit of those that follow each other."""
    while True:
        total = unit.src[2]
        while total.op is Ops.WAIT:
            total = total.src[0]
        if total.op is not Ops.WMMA:
            break
        unit = total
    total = root(total)
    if total.op is Ops.DEFINE_ACC:
        return total
    if any(each.op is not Ops.CONST or each.arg for each in lanes_of(total)):
        raise CompileError(f"render.ptx: {unit.arg.name} adds in tensor memory only")
    return unit


def is_late(node: UOp) -> bool:
    """Whether this waits for units."""
    return node.op is Ops.WAIT and node.dtype is not dtypes.void


def commits_of(body: Iterable[UOp]) -> int:
    """How often units begin in a loop's body: those that follow each other together."""
    found, is_open = 0, False
    for node in body:
        if node.op is Ops.WMMA:
            found, is_open = found + (not is_open), True
        elif not (node.op.is_alu or node.op in BESIDE):
            is_open = False
    return found


def loops_of_one_lane(program: Sequence[UOp]) -> dict[UOp, Sequence[UOp]]:
    """The innermost loops in which there is nothing but copies of tiles and units that read these
    and add in tensor memory, with their bodies: a lane needs no other for them.
    """
    units = [node for node in program if node.op is Ops.WMMA and node.arg.columns]
    if not units:
        return {}
    by_lanes = {root(node.src[0]) for node in program if node.op in (Ops.STORE, Ops.COPY_ASYNC)}
    skipped, owners = needless(program), set(map(owner_of, units))

    def is_fit(node: UOp) -> bool:
        if node.op is Ops.WAIT:
            return is_late(node)
        if node.op is Ops.ASSIGN:
            return root(node) in owners
        if node.op is Ops.DESCRIPTOR:
            return root(node.src[1]) not in by_lanes
        if node.op is Ops.WMMA:
            return bool(node.arg.columns) and owner_of(node) in owners
        return node.op in _OF_ONE_LANE or node.op.is_alu or node.op in BESIDE

    found: dict[UOp, Sequence[UOp]] = {}
    start = -1
    for at, node in enumerate(program):
        if node.op is Ops.RANGE:
            start = at
        elif node.op is Ops.END and start >= 0:
            loop = program[start]
            body = [each for each in program[start + 1 : at] if each not in skipped]
            start = -1
            if loop not in node.src or not commits_of(body):
                continue
            if all(map(is_fit, body)) and not _is_read(body, program[at + 1 :]):
                found[loop] = body
    return found


def _is_read(body: Sequence[UOp], rest: Iterable[UOp]) -> bool:
    """Whether a value of a loop's body is read behind the loop."""
    inside = {node for node in body if node.op not in (Ops.ASSIGN, Ops.CONST)}
    return any(source in inside for node in rest for source in node.src)


def lanes_of(node: UOp) -> Sequence[UOp]:
    return node.src if node.op is Ops.VECTORIZE else (node,)
