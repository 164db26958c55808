"""The number of blocks of a launch, where it depends on the lengths of the launch (ir.lengths).

A kernel keeps it in postfix order, in lists that JSON holds: numbers, names of variables, and ops
with how many operands they take, as `["_length0", 31, ["ADD", 2], 32, ["FLOORDIV", 2]]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["Size", "blocks_at", "blocks_of", "size_from"]

Entry = int | str | tuple[str, int]
Size = int | tuple[Entry, ...]

_AXES = ("gidx0", "gidx1", "gidx2")


def blocks_of(program: Sequence[UOp]) -> tuple[Size, ...] | None:
    """The blocks along each axis of the launch; None where they are numbers."""
    found: dict[str, Size] = dict.fromkeys(_AXES, 1)
    for node in program:
        if node.op is Ops.SPECIAL and node.name in found:
            found[node.name] = _postfix(node.arg[1])
    sizes = tuple(found.values())
    return None if all(isinstance(size, int) for size in sizes) else sizes


def _postfix(size: int | UOp) -> Size:
    if isinstance(size, int):
        return size
    # An op before its operands, the last of them first; that in reverse order.
    found: list[Entry] = []
    waiting = [size]
    while waiting:
        node = waiting.pop()
        if node.op is Ops.CONST:
            found.append(int(node.arg))
        elif node.op is Ops.DEFINE_VAR:
            found.append(str(node.name))
        else:
            if node.op is not Ops.CAST:
                found.append((node.op.name, len(node.src)))
            waiting += node.src
    return tuple(reversed(found))


def blocks_at(sizes: Sequence[Size], variables: Mapping[str, int]) -> tuple[int, ...]:
    """The blocks along each axis for the values of the variables."""
    return tuple([size if isinstance(size, int) else _value(size, variables) for size in sizes])


def _value(size: tuple[Entry, ...], variables: Mapping[str, int]) -> int:
    values: list[int] = []
    for entry in size:
        if isinstance(entry, int):
            values.append(entry)
        elif isinstance(entry, str):
            values.append(variables[entry])
        else:
            name, count = entry
            evaluate = Ops[name].evaluate
            assert evaluate is not None
            operands = values[-count:]
            values[-count:] = [evaluate(*operands)]
    (value,) = values
    return value


def size_from(given: Any) -> Size:
    """A size as `blocks_of` made it, from the values that JSON has read.

    Raises ValueError for anything else.
    """
    if type(given) is int:
        return given
    found: list[Entry] = []
    depth = 0
    for entry in given if isinstance(given, (list, tuple)) else ():
        if type(entry) is int or isinstance(entry, str):
            found.append(entry)
            depth += 1
            continue
        if not isinstance(entry, (list, tuple)) or len(entry) != 2:
            raise ValueError(f"{entry!r} is no part of a size")
        name, count = entry
        op = Ops.__members__.get(name)
        if op is None or op.evaluate is None or type(count) is not int or not 0 < count <= depth:
            raise ValueError(f"{entry!r} is no op of a size")
        found.append((name, count))
        depth -= count - 1
    if depth != 1:
        raise ValueError(f"{given!r} is no size")
    return tuple(found)
