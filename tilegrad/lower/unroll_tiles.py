"""Loops over the tiles that an operand has in shared memory, unrolled.

An iteration computes with one tile while the next is filled (lower.copies). With a copy of the body
for each tile, the addresses of both differ by constants, and nothing is computed from the number of
the iteration but where the next tile comes from.

    before   u: 0..2 { BARRIER(u); FRAGMENT(LOAD(AFTER(shared, BARRIER), i + u*5120)) ... }
    after    BARRIER(0); FRAGMENT(LOAD(AFTER(shared, BARRIER), i)) ...
             BARRIER(1); FRAGMENT(LOAD(AFTER(shared, BARRIER), i + 5120)) ...
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.rewrite import graph_rewrite
from tilegrad.ir.rules import FOLDING
from tilegrad.ir.uop import UOp
from tilegrad.target import TILES, Target

__all__ = ["tiles_at_once", "unroll_tiles"]

# The most rounds of the tiles that are unrolled at once in a sum over several axes, whose last copy
# alone is of another iteration of the loops around, and the most matrix instructions of all.
_ROUNDS, _PRODUCTS = 7, 224
# Bytes of the widest copy.
_VECTOR = 16
_EFFECTS = (Ops.ASSIGN, Ops.STORE, Ops.COPY_ASYNC, Ops.COPY_TILE)


def unroll_tiles(program: Sequence[UOp], target: Target) -> list[UOp]:
    """`program` without innermost loops of as many iterations as there are tiles, in which lanes
    wait for each other and matrix units compute.
    """
    program = list(program)
    once = {node.arg or TILES for node in program if node.op is Ops.BARRIER}
    counts = {count * rounds for count in once for rounds in range(1, _ROUNDS + 1)}
    for loop in [node for node in program if _is_over_tiles(node, counts)]:
        start = program.index(loop)
        end = next(
            (at for at in range(start + 1, len(program)) if program[at].op in (Ops.RANGE, Ops.END)),
            start,
        )
        body = program[start + 1 : end]
        found = {node.op for node in body}
        is_innermost = loop in program[end].src and Ops.RANGE not in found
        if loop.extent.vmax not in once and not _is_of_a_sum(program, start, body):
            continue
        if is_innermost and {Ops.BARRIER, Ops.WMMA} <= found and _is_closed(program, start, end):
            program = _unrolled(program, start, end)
    return program


def tiles_at_once(trips: int, count: int, products: int) -> int:
    """The number of tiles of an unrolled iteration, in a sum over several axes: whole rounds of the
    `count` tiles in `trips`. A lane has `products` matrix instructions for each tile.
    """
    rounds = trips // count if trips % count == 0 else 0
    fitting = [
        each
        for each in range(1, min(_ROUNDS, _PRODUCTS // max(count * products, 1)) + 1)
        if rounds % each == 0
    ]
    return count * max(fitting, default=1)


def _is_over_tiles(node: UOp, counts: Collection[int]) -> bool:
    return node.op is Ops.RANGE and node.axis is Axis.REDUCE and node.extent.vmax in counts


def _is_of_a_sum(program: list[UOp], start: int, body: Sequence[UOp]) -> bool:
    """Whether a loop is the innermost of a sum over several axes, whose tiles are copied by
    vectors (lower.copies).
    """
    copied = [node.src[2].dtype.nbytes for node in body if node.op is Ops.COPY_ASYNC]
    is_moved = bool(copied) and min(copied) == _VECTOR
    return (
        is_moved
        and Ops.STORE not in {node.op for node in body}
        and _loops_around(program, start) > 0
    )


def _loops_around(program: list[UOp], start: int) -> int:
    return sum((node.op is Ops.RANGE) - (node.op is Ops.END) for node in program[:start])


def _is_closed(program: list[UOp], start: int, end: int) -> bool:
    """Whether nodes after the loop also wait for the loops around it, if there are any."""
    around = _loops_around(program, start)
    foot = program[end]
    users = (node for node in program[end + 1 :] if foot in node.src)
    return around == 0 or all(_has_other_end(node, foot) for node in users)


def _has_other_end(node: UOp, foot: UOp) -> bool:
    return any(source.op is Ops.END and source is not foot for source in node.src)


def _unrolled(program: list[UOp], start: int, end: int) -> list[UOp]:
    loop, foot, body = program[start], program[end], program[start + 1 : end]
    made = dict.fromkeys(program[:start])
    last: dict[UOp, UOp] = {}
    for trip in range(int(loop.extent.vmax)):
        last = {loop: UOp.const(loop.dtype, trip)}
        for node in (loop, *body):
            copy = last[node] if node is loop else _copied(node, last)
            if copy.op is Ops.ADD and copy.src[1].op is Ops.CONST:
                made.setdefault(copy.src[1])
            made.setdefault(copy)
    effects = tuple([last[node] for node in body if node.op in _EFFECTS])
    for node in program[end + 1 :]:
        # The END of a loop around this one comes after all that is in it.
        is_closed = _has_other_end(node, foot)
        src: list[UOp] = []
        for source in node.src:
            if source is not foot:
                src.append(last.get(source, source))
            elif not is_closed:
                src += [effect for effect in effects if effect not in src]
        new = UOp(node.op, node.dtype, tuple(src), node.arg)
        last[node] = node if tuple(src) == node.src else new
        made.setdefault(last[node])
    return list(made)


def _copied(node: UOp, mapping: dict[UOp, UOp]) -> UOp:
    """`node` with its sources replaced by `mapping`, to which the copy is added; a number where
    bounds know it.
    """
    src = tuple([mapping.get(source, source) for source in node.src])
    made = node if src == node.src else _simpler(UOp(node.op, node.dtype, src, node.arg))
    mapping[node] = made
    return made


def _simpler(node: UOp) -> UOp:
    """A value of integers as a number, a choice that is known as its side, and a sum with two
    numbers as a sum with one.
    """
    if not node.op.is_alu or node.dtype.is_float or node.dtype.lanes > 1:
        return node
    if node.op is Ops.WHERE and node.src[0].op is Ops.CONST:
        return node.src[1] if node.src[0].arg else node.src[2]
    if node.vmin == node.vmax:
        return UOp.const(node.dtype, node.vmin)
    if all(source.op is Ops.CONST for source in node.src):
        return graph_rewrite(node, FOLDING, name="lower.unroll_tiles")
    if node.op is not Ops.ADD or node.src[1].op is not Ops.CONST:
        return node
    left, right = node.src
    number = right.arg
    if left.op is Ops.ADD and left.src[1].op is Ops.CONST:
        left, number = left.src[0], number + left.src[1].arg
    return left + number if number else left
