"""Loop peeling: the last iterations apart, where only they need a mask, and the first ones.

An axis that vectors do not divide is padded, and every vector along it has a gate per lane. Only in
the last iteration, or in a few where chunks were padded alike, is a lane closed. On many processors
a masked load waits for the stores before it, and a masked store takes many times as long as a plain
one. So the loop runs that much less, without the gates, and a copy of its body follows, with them.

    before   i: 0..13     STORE(a, i*16, x, i*16 + (0..15) < 197)
    after    i: 0..12     STORE(a, i*16, x)
             STORE(a, 192, x, 192 + (0..15) < 197)

Without masks each element of such a vector is loaded behind a branch. There the first iteration is
peeled as well, where a row begins with padding; a masked load takes no longer there than others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import next_number
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

__all__ = ["peel"]

# The most instructions in a body that is copied: a longer one hides the latency of a mask. A branch
# for each lane is never hidden; there the number is a limit of compile time.
_MOST, _MOST_BRANCHES = 160, 1024
# The most iterations that are peeled. Several are padded where chunks share an axis.
_MOST_PEELED = 8
# Nodes with a number of their own, which no copy may share.
_NUMBERED = (Ops.DEFINE_ACC, Ops.DEFINE_LOCAL)
# Nodes that are not hoisted.
_EFFECTS = (Ops.LOAD, Ops.STORE, Ops.ASSIGN, Ops.AFTER)


def peel(program: Sequence[UOp], target: Target) -> list[UOp]:
    """`program` with the last iterations of innermost loops peeled, where that opens all gates
    before them; without masks also the first.
    """
    program = list(program)
    number = next_number(program)
    for is_front in (False,) if target.has_mask else (False, True):
        position = 0
        while position < len(program):
            made = _peeled(program, position, number, target, is_front=is_front)
            program, number = (program, number) if made is None else (made, number + 2)
            position += 1
    return program


def _peeled(
    program: list[UOp], position: int, number: int, target: Target, *, is_front: bool
) -> list[UOp] | None:
    """`program` with iterations of the loop at `position` apart, the fewest that open a gate."""
    most = _MOST if target.has_mask else _MOST_BRANCHES
    loop, end = program[position], _end_of_innermost(program, position, most)
    tests = {} if end is None else _gates(program[position + 1 : end], target)
    for count in range(1, _MOST_PEELED + 1) if tests else ():
        shorter = _shorter(loop, count, number)
        if end is None or shorter is None:
            break
        left = UOp.const(loop.dtype, count if is_front else 0)
        whole = shorter + left if is_front else shorter
        opened = _opened(tests, loop, whole)
        if opened:
            return _apart(program, position, end, shorter, whole, tests)
    return None


def _end_of_innermost(program: list[UOp], position: int, most: int) -> int | None:
    """The position of the END of the loop at `position`, if the loop is innermost and has at most
    `most` instructions.
    """
    if program[position].op is not Ops.RANGE:
        return None
    for end in range(position + 1, min(position + most, len(program))):
        if program[end].op is Ops.RANGE or program[end].op in _NUMBERED:
            return None
        if program[end].op is Ops.END:
            return end
    return None


def _shorter(loop: UOp, count: int, number: int) -> UOp | None:
    extent = loop.extent
    if extent.op is not Ops.CONST or extent.arg < 3 * count:
        return None
    left = UOp.const(extent.dtype, extent.arg - count)
    return loop.replace(src=(left,), arg=(number, loop.axis))


def _gates(body: list[UOp], target: Target) -> dict[UOp, bool]:
    """The nodes of `body` that its gates per lane need, each with whether it is one of them;
    without masks, lanes of a gate and its conditions are gates of their own.
    """
    gates = {
        node.gate
        for node in body
        if node.op in (Ops.LOAD, Ops.STORE) and node.is_gated
        if node.gate.dtype.lanes > 1 or (node.gate.op is Ops.GEP and not target.has_mask)
    }
    needed = set(gates)
    for node in reversed(body) if gates else ():
        if node in needed:
            needed.update(node.src)
            if node in gates and node.op in (Ops.GEP, Ops.AND) and not target.has_mask:
                gates.update(node.src)
    return {node: node in gates for node in body if node in needed}


def _opened(tests: Mapping[UOp, bool], loop: UOp, whole: UOp) -> dict[UOp, UOp]:
    """The gates of `tests` that are open for the iterations `whole` of a loop, with their value."""
    mapping = {loop: whole}
    found: dict[UOp, UOp] = {}
    for node, is_gate in tests.items():
        made = _copied(node, mapping)
        if is_gate and made.vmin:
            found[node] = UOp.const(node.dtype, True)
    return found


def _apart(
    program: list[UOp],
    position: int,
    end: int,
    shorter: UOp,
    iteration: UOp,
    tests: Mapping[UOp, bool],
) -> list[UOp] | None:
    """The loop from `position` to `end` as the shorter one, whose iterations are `iteration` of it,
    followed by the last ones or after the first ones; None where some node of it is invariant.
    """
    loop, foot, body = program[position], program[end], program[position + 1 : end]
    is_front, opened = iteration is not shorter, _opened(tests, loop, iteration)
    whole: dict[UOp, UOp] = {loop: iteration, **opened}
    left = loop.extent.arg - shorter.extent.arg
    first = UOp.const(loop.dtype, 0 if is_front else shorter.extent.arg)
    tail = loop.replace(src=(UOp.const(loop.dtype, left),), arg=(shorter.number + 1, loop.axis))
    apart = first if left == 1 else tail + first
    others = _opened(tests, loop, apart)
    last: dict[UOp, UOp] = {loop: apart, **others}
    iterations = [_ungated(node, whole) for node in body if node not in opened]
    made_again = [(node, _ungated(node, last)) for node in body if node not in others]
    if any(made is node for node, made in made_again):
        return None
    again = [made for _, made in made_again if made is not None]
    # Nodes made of open gates alone too: another loop may have made the same node.
    own = set(body)
    fresh = [made for made in iterations if made is not None and made not in own]
    numbers = (*shorter.src, *tail.src, UOp.const(loop.dtype, left), first)
    found = _before_both(
        program, position, (*numbers, *opened.values(), *others.values()), fresh, again
    )
    if found is None:
        return None
    head, known = found
    again = [node for node in dict.fromkeys(again) if node not in known]
    closed, ended = (UOp(Ops.END, dtypes.void, (each,)) for each in (shorter, tail))
    peeled = again if left == 1 else [tail, apart, *again, ended]
    inside = [shorter, *([iteration] if is_front else [])]
    inside += dict.fromkeys(made for made in iterations if made is not None and made not in known)
    inside.append(closed)
    # Users of an effect in the loop, or of the loop itself, now wait for both copies. Later
    # instructions follow anyway; the END is not inside the loops around it.
    both: dict[UOp, tuple[UOp, ...]] = {
        node: (whole.get(node, node), last.get(node, node))
        for node in body
        if node.op in (Ops.STORE, Ops.ASSIGN)
    }
    both[foot] = (closed,) if left == 1 else (closed, ended)
    return [
        *head,
        *(peeled if is_front else inside),
        *(inside if is_front else peeled),
        *_waiting(program[end + 1 :], both),
    ]


def _before_both(
    program: list[UOp],
    position: int,
    numbers: Sequence[UOp],
    fresh: Sequence[UOp],
    again: Sequence[UOp],
) -> tuple[list[UOp], set[UOp]] | None:
    """The program before the loop at `position`, with all of `numbers`, `fresh` and `again` that
    can stand there, and the nodes that need not be made in the loop or in the copy of its body:
    what is the same in both stands once. None where that has an effect, or is there in a loop that
    has ended.
    """
    before = program[:position]
    head, known = _hoisted(program, before, (*numbers, *fresh, *again))
    there = _visible(before)
    known_before = {node for node in (*again, *fresh) if node in there and node not in known}
    if any(node.op in _EFFECTS[1:] or not there[node] for node in known_before):
        return None
    # Parts of a gate that the loop does not move.
    twice = set(fresh).intersection(again) - known - known_before
    shared = [node for node in dict.fromkeys(fresh) if node in twice]
    if any(node.op in _EFFECTS for node in shared):
        return None
    return [*head, *shared], known | known_before | twice


def _hoisted(
    program: list[UOp], before: list[UOp], wanted: Iterable[UOp]
) -> tuple[list[UOp], set[UOp]]:
    """The start of a program `before` a loop, with the `wanted` nodes that need no loop hoisted out
    of all loops, where another peeled loop finds them; and the nodes there.
    """
    start = next(number for number, node in enumerate(program) if node.op is Ops.RANGE)
    head, known = before[:start], set(before[:start])
    for node in wanted:
        if node not in known and node.op not in _EFFECTS and known.issuperset(node.src):
            head.append(node)
            known.add(node)
    return [*head, *before[start:]], known


def _waiting(rest: list[UOp], both: Mapping[UOp, tuple[UOp, ...]]) -> list[UOp]:
    """The rest of a program, in which two nodes replace each key of `both`."""
    made: dict[UOp, UOp] = {}
    for node in rest:
        src: list[UOp] = []
        for source in node.src:
            src += both.get(source, (made.get(source, source),))
        is_same = tuple(src) == node.src
        made[node] = node if is_same else UOp(node.op, node.dtype, tuple(src), node.arg)
    return [made[node] for node in rest]


def _visible(program: list[UOp]) -> dict[UOp, bool]:
    """The nodes of the start of a program, each with whether its loop is still open."""
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
    """`node` with its sources replaced by `mapping`, to which the copy is added."""
    src = tuple([mapping.get(source, source) for source in node.src])
    made = node.over(src)
    if made is not node:
        mapping[node] = made
    return made


def _ungated(node: UOp, mapping: dict[UOp, UOp]) -> UOp | None:
    """As `_copied`, without the gates that `mapping` opens. A select by such a gate is its first
    side, and a conjunction with one is its other side: None.
    """
    has_gate = node.op in (Ops.LOAD, Ops.STORE) and node.is_gated
    if has_gate and _is_open(node.gate, mapping):
        src = node.src[:2] if node.op is Ops.LOAD else node.src[:3]
        short = UOp(node.op, node.dtype, src, node.arg)
        mapping[node] = made = _copied(short, mapping)
        return made
    if node.op is Ops.WHERE and _is_open(node.src[0], mapping):
        mapping[node] = mapping.get(node.src[1], node.src[1])
        return None
    if node.op is Ops.AND:
        for one, other in (node.src, node.src[::-1]):
            if _is_open(one, mapping):
                mapping[node] = mapping.get(other, other)
                return None
    return _copied(node, mapping)


def _is_open(gate: UOp, mapping: dict[UOp, UOp]) -> bool:
    made = mapping.get(gate)
    return made is not None and made.op is Ops.CONST
