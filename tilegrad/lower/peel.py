"""The last turns of a loop apart, where they alone need a mask.

An axis that vectors do not divide is padded, and every vector along it has a gate per lane. Only in
the last turn, or a few where chunks were padded alike, is any lane of it closed. A load with a mask
waits on many processors for the stores before it, and a store with one takes many times as long as
a whole one. So the loop runs that much less, without the gates, and its body comes once more behind
it, with them.

    before   i: 0..13     STORE(a, i*16, x, i*16 + (0..15) < 197)
    after    i: 0..12     STORE(a, i*16, x)
             STORE(a, 192, x, 192 + (0..15) < 197)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

__all__ = ["peel"]

# A body of more instructions is not repeated: it has more to do than to wait for a mask.
_MOST = 160
# More turns with gates than these are no end of a loop. Several are padded where chunks share.
_MOST_TURNS = 8
# What has a number of its own, which no copy may share.
_NUMBERED = (Ops.DEFINE_ACC, Ops.DEFINE_LOCAL)
# What stays where it stands.
_EFFECTS = (Ops.LOAD, Ops.STORE, Ops.ASSIGN, Ops.AFTER)


def peel(program: Sequence[UOp], target: Target) -> list[UOp]:
    """`program` with the last turn of innermost loops apart, where that opens all gates before."""
    program = list(program)
    if not target.has_mask:
        return program
    number = max((node.arg[0] for node in program if node.op is Ops.RANGE), default=0)
    place = 0
    while place < len(program):
        loop = program[place]
        end = _end_of_innermost(program, place)
        for turns in range(1, _MOST_TURNS + 1):
            shorter = _shorter(loop, turns, number + 1) if end is not None else None
            if end is None or shorter is None:
                break
            opened = _opened(program[place + 1 : end], loop, shorter)
            if opened:
                made = _apart(program, place, end, shorter, opened)
                program, number = (program, number) if made is None else (made, number + 2)
                break
        place += 1
    return program


def _end_of_innermost(program: list[UOp], place: int) -> int | None:
    """Where the loop that begins at `place` ends, if no other begins in it and it is short."""
    if program[place].op is not Ops.RANGE:
        return None
    for end in range(place + 1, min(place + _MOST, len(program))):
        if program[end].op is Ops.RANGE or program[end].op in _NUMBERED:
            return None
        if program[end].op is Ops.END:
            return end
    return None


def _shorter(loop: UOp, turns: int, number: int) -> UOp | None:
    extent = loop.src[0]
    if extent.op is not Ops.CONST or extent.arg < 3 * turns:
        return None
    left = UOp.const(extent.dtype, extent.arg - turns)
    return loop.replace(src=(left,), arg=(number, loop.arg[1]))


def _opened(body: list[UOp], loop: UOp, shorter: UOp) -> dict[UOp, UOp]:
    """The gates per lane in `body` that the shorter loop opens, as what they are then."""
    gates = {
        node.src[3]
        for node in body
        if node.op in (Ops.LOAD, Ops.STORE) and len(node.src) == 4 and node.src[3].dtype.lanes > 1
    }
    mapping = {loop: shorter}
    found: dict[UOp, UOp] = {}
    for node in body:
        made = _copied(node, mapping)
        if node in gates and made.vmin:
            found[node] = UOp.const(node.dtype, True)
    return found


def _apart(
    program: list[UOp], place: int, end: int, shorter: UOp, opened: dict[UOp, UOp]
) -> list[UOp] | None:
    """The loop from `place` to `end` as the shorter one, and the last turns behind it; None where
    something in it does not change from turn to turn.
    """
    loop, foot, body = program[place], program[end], program[place + 1 : end]
    whole: dict[UOp, UOp] = {loop: shorter, **opened}
    left = loop.src[0].arg - shorter.src[0].arg
    first = UOp.const(loop.dtype, shorter.src[0].arg)
    tail = loop.replace(src=(UOp.const(loop.dtype, left),), arg=(shorter.arg[0] + 1, loop.arg[1]))
    last: dict[UOp, UOp] = {loop: first if left == 1 else tail + first}
    turns = [_without_gate(node, whole) for node in body if node not in opened]
    again = [_copied(node, last) for node in body]
    if any(made is node for made, node in zip(again, body, strict=True)):
        return None
    before = program[:place]
    # Also what is made of open gates alone: another loop may have made the same of its own.
    own = set(body)
    fresh = [made for made in turns if made is not None and made not in own]
    head, known = _hoisted(
        program, before, (*shorter.src, *tail.src, first, *opened.values(), *fresh, *again)
    )
    there = _visible(before)
    if any(node in there and (node.op in _EFFECTS[1:] or not there[node]) for node in again):
        return None
    again = [node for node in dict.fromkeys(again) if node not in known and node not in there]
    closed, ended = (UOp(Ops.END, dtypes.void, (each,)) for each in (shorter, tail))
    behind = again if left == 1 else [tail, last[loop], *again, ended]
    # What waited for the loop, or for something in it, waits for both. What stands behind is later
    # anyway; loops around it are no concern of the foot's.
    both: dict[UOp, tuple[UOp, ...]] = {
        node: (whole.get(node, node), last[node])
        for node in body
        if node.op in (Ops.STORE, Ops.ASSIGN)
    }
    both[foot] = (closed,) if left == 1 else (closed, ended)
    return [
        *head,
        shorter,
        *dict.fromkeys(made for made in turns if made is not None and made not in known),
        closed,
        *behind,
        *_waiting(program[end + 1 :], both),
    ]


def _hoisted(
    program: list[UOp], before: list[UOp], wanted: Iterable[UOp]
) -> tuple[list[UOp], set[UOp]]:
    """The part of a program `before` a loop, with those of `wanted` that need no loop in front of
    all loops, where another last turn finds them; and what stands there.
    """
    start = next(number for number, node in enumerate(program) if node.op is Ops.RANGE)
    head, known = before[:start], set(before[:start])
    for node in wanted:
        if node not in known and node.op not in _EFFECTS and known.issuperset(node.src):
            head.append(node)
            known.add(node)
    return [*head, *before[start:]], known


def _waiting(rest: list[UOp], both: Mapping[UOp, tuple[UOp, ...]]) -> list[UOp]:
    """The end of a program, where what each of `both` was is two nodes now."""
    made: dict[UOp, UOp] = {}
    for node in rest:
        src: list[UOp] = []
        for source in node.src:
            src += both.get(source, (made.get(source, source),))
        is_same = tuple(src) == node.src
        made[node] = node if is_same else UOp(node.op, node.dtype, tuple(src), node.arg)
    return [made[node] for node in rest]


def _visible(program: list[UOp]) -> dict[UOp, bool]:
    """The nodes of the beginning of a program: whether the loop that each stands in is still
    open.
    """
    loops: list[UOp | None] = [None]
    home: dict[UOp, UOp | None] = {}
    for node in program:
        if node.op is Ops.RANGE:
            loops.append(node)
        elif node.op is Ops.END:
            loops.pop()
        home[node] = loops[-1]
    return {node: loop in loops for node, loop in home.items()}


def _copied(node: UOp, mapping: dict[UOp, UOp]) -> UOp:
    """`node` with its sources by `mapping`, which learns of it."""
    src = tuple(mapping.get(source, source) for source in node.src)
    made = node if src == node.src else UOp(node.op, node.dtype, src, node.arg)
    if made is not node:
        mapping[node] = made
    return made


def _without_gate(node: UOp, mapping: dict[UOp, UOp]) -> UOp | None:
    """As `_copied`, where gates that `mapping` opens are left out; None for a choice between two
    by such a gate, which is the first of them.
    """
    has_gate = node.op in (Ops.LOAD, Ops.STORE) and len(node.src) == 4
    if has_gate and _is_open(node.src[3], mapping):
        src = node.src[:2] if node.op is Ops.LOAD else node.src[:3]
        short = UOp(node.op, node.dtype, src, node.arg)
        mapping[node] = made = _copied(short, mapping)
        return made
    if node.op is Ops.WHERE and _is_open(node.src[0], mapping):
        mapping[node] = mapping.get(node.src[1], node.src[1])
        return None
    return _copied(node, mapping)


def _is_open(gate: UOp, mapping: dict[UOp, UOp]) -> bool:
    made = mapping.get(gate)
    return made is not None and made.op is Ops.CONST
