"""Why a graph is planned anew: the line of `DEBUG=1` beside the plans that came before.

    plan 4, as plan 3 but for a size: 32 became 33  x @ w  train.py:12

The signature of a graph is compared with those of the last plans that this process made. The
nearest one has the same ops in the same order, or at least begins as this one; the first difference
is shown, in the words of the user's program, and how many more there are. Nothing is printed for a
graph that resembles none of them: it is not planned anew, but for the first time.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from tilegrad.base.origin import user_expression, user_line
from tilegrad.engine.realize.request import Request
from tilegrad.ir.op import Ops

__all__ = ["tell"]

_MOST = 64
_OPS = {op.serial: op for op in Ops}
_SIZED = frozenset({Ops.RESHAPE, Ops.EXPAND, Ops.SHRINK, Ops.PAD, Ops.BUFFER, Ops.RAND})


class _CausedPlan(NamedTuple):
    number: int
    # As a request has it: for each node serial of the op, dtype, argument, numbers of sources.
    signature: tuple[Any, ...]
    constants: tuple[float, ...]
    slices: tuple[Any, ...]


class _Difference(NamedTuple):
    kind: str
    old: Any
    new: Any
    at: int


_recent: deque[_CausedPlan] = deque(maxlen=_MOST)
_numbers = itertools.count(1)


def tell(request: Request) -> None:
    """Print which plan is made for `request`, and how its signature differs from the nearest."""
    nodes = request.nodes
    plan = _CausedPlan(
        next(_numbers),
        request.signature(),
        tuple([nodes[number].arg for number in request.constants]),
        tuple([nodes[number].arg for number in request.slices]),
    )
    found = [(_differences(old, plan, request), old) for old in list(_recent)]
    near = [(differences, old) for differences, old in found if differences is not None]
    _recent.append(plan)
    head = f"plan {plan.number} of {len(nodes)} nodes"
    if not near:
        lengths = [(_common(old.signature, plan.signature), old) for _, old in found]
        length, old = max(reversed(lengths), key=lambda each: each[0], default=(0, plan))
        if length and length >= len(nodes) // 2:
            op = nodes[length].op.name if length < len(nodes) else "its end"
            print(
                f"{head}, as plan {old.number} for {length} nodes but for the structure: then {op}"
                f"  {_line_of(request, length)}".rstrip(),
                flush=True,
            )
        return
    # The last among equally near ones.
    differences, old = min(reversed(near), key=lambda each: len(each[0]))
    if not differences:
        print(f"{head}, as plan {old.number}: under other switches, or for other tensors alive")
        return
    first = differences[0]
    more = f", and {len(differences) - 1} more" if len(differences) > 1 else ""
    change = f"{_text(first.old)} became {_text(first.new)}"
    print(
        f"{head}, as plan {old.number} but for {first.kind}: {change}{more}  "
        f"{_line_of(request, first.at)}".rstrip(),
        flush=True,
    )


def _common(old: tuple[Any, ...], new: tuple[Any, ...]) -> int:
    """For how many nodes two signatures have the same ops on the same sources."""
    for at, (before, now) in enumerate(zip(old, new)):
        if not isinstance(before, tuple) or not isinstance(now, tuple):
            return at
        if before[0] != now[0] or before[3] != now[3]:
            return at
    return min(len(old), len(new))


def _differences(old: _CausedPlan, new: _CausedPlan, request: Request) -> list[_Difference] | None:
    """Differences between two signatures of the same ops; None if the ops differ."""
    if len(old.signature) != len(new.signature):
        return None
    found: list[_Difference] = []
    for at, (before, now) in enumerate(zip(old.signature, new.signature, strict=True)):
        if before == now:
            continue
        if not isinstance(before, tuple) or not isinstance(now, tuple) or before[0] != now[0]:
            return None
        if before[3] != now[3]:
            # Another graph of the same ops.
            return None
        if before[1] is not now[1]:
            found.append(_Difference("a dtype", before[1].name, now[1].name, at))
        elif before[2] != now[2]:
            op = _OPS[now[0]]
            kind = "a size" if op in _SIZED else "a number" if op is Ops.CONST else "an argument"
            # For a device and a size, or several sizes: those that differ.
            changed = _changed(before[2], now[2])
            found.append(_Difference(kind, *changed, at))
    constants = zip(request.constants, old.constants, new.constants)
    for at, first, second in constants:
        if first != second:
            found.append(_Difference("a number", first, second, at))
    for at, start, end in zip(request.slices, old.slices, new.slices):
        if start != end:
            found.append(_Difference("the offset of a slice", *_changed(start, end), at))
    return found


def _changed(old: Any, new: Any) -> tuple[Any, Any]:
    """The first parts of two arguments that differ."""
    while isinstance(old, tuple) and isinstance(new, tuple) and len(old) == len(new) > 0:
        old, new = next(pair for pair in zip(old, new, strict=True) if pair[0] != pair[1])
    return old, new


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _line_of(request: Request, at: int) -> str:
    """The user's text and line of node number `at`, or of its first user that has one."""
    nodes = request.nodes
    users: Sequence[int] = [at] if at < len(nodes) else []
    for _ in range(8):
        for number in users:
            origin = nodes[number].origin
            if origin:
                return f"{user_expression(origin)}  {user_line(origin)}".strip()
        above = {*users}
        users = [n for n, sources in enumerate(request.sources) if not above.isdisjoint(sources)]
    return ""
