"""One kernel for slices at many offsets: `for t in range(n): out[t] = f(h)` has n in one graph.

before   STORE(p, i + 64, x), STORE(p, i + 128, x), STORE(p, i + 192, x)   in three kernels
after    STORE(p, i + 64 * _place0, x)                                     in one, launched with 1,
                                                                           2 and 3
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd
from typing import NamedTuple

from tilegrad.ir.op import Ops
from tilegrad.ir.slices import offset_name
from tilegrad.ir.uop import UOp, pointer_of
from tilegrad.schedule.offset_regions import split_index
from tilegrad.schedule.order import UnorderedItem

__all__ = ["has_offsets", "share_offsets"]


class _Opened(NamedTuple):
    """A kernel with free offsets, variables that stand for `values`."""

    ast: UOp
    variables: tuple[UOp, ...]
    values: tuple[int, ...]


def share_offsets(order: Sequence[UnorderedItem]) -> list[UnorderedItem]:
    """The items of a schedule, where kernels that are equal but for the offsets of the slices that
    they read or write, three or more of them, are one that takes its offsets when it is launched.
    """
    opened: dict[UOp, _Opened] = {}
    alike: dict[tuple[UOp, str], dict[UOp, _Opened]] = {}
    for item in order:
        if item.ast is None:
            continue
        if item.ast not in opened:
            opened[item.ast] = _opened(item.ast)
        if opened[item.ast].values:
            several = alike.setdefault((opened[item.ast].ast, item.device), {})
            several[item.ast] = opened[item.ast]
    # Two stay as they are: their offsets are known when they are compiled.
    shared = {key: _shared(each) for key, each in alike.items() if len(each) > 2}
    if not shared:
        return list(order)
    return [
        item if item.ast is None else _with_shared(item, opened[item.ast], shared) for item in order
    ]


def _with_shared(
    item: UnorderedItem,
    opened: _Opened,
    shared: dict[tuple[UOp, str], tuple[UOp, tuple[int, ...]]],
) -> UnorderedItem:
    """An item with the kernel that it shares with others, if it does."""
    found = shared.get((opened.ast, item.device))
    if found is None:
        return item
    ast, factors = found
    first = len(item.offset_names)
    named = {
        variable: _offset(first + number, variable, factor)
        for number, (variable, factor) in enumerate(zip(opened.variables, factors, strict=True))
    }
    values = [value // factor for value, factor in zip(opened.values, factors, strict=True)]
    return replace(item, ast=ast.substitute(named), offset_names=(*item.offset_names, *values))


def has_offsets(ast: UOp) -> bool:
    """Whether a kernel may be one of several that differ in offsets."""
    return bool(_opened(ast).values)


def _opened(ast: UOp) -> _Opened:
    """A kernel with a variable for each number that is added to indices into memory."""
    nodes = ast.toposort()
    written = {node.src[0] for node in nodes if node.op is Ops.STORE}
    room: dict[int, int] = {}
    accesses: dict[UOp, tuple[UOp, int]] = {}
    for node in nodes:
        if node.op not in (Ops.LOAD, Ops.STORE):
            continue
        pointer = node.src[0]
        if node.op is Ops.LOAD and pointer in written:
            # Whether two accesses meet is decided on numbers.
            return _Opened(ast, (), ())
        rest, number = split_index(node.src[1])
        size = pointer_of(pointer).size if pointer.op is Ops.DEFINE_GLOBAL else 0
        if number <= 0 or size <= 0:
            continue
        low, high = rest.bounds
        if low < 0 or high + number >= size:
            # A gate keeps it inside.
            continue
        room[number] = min(room.get(number, size), size - 1 - high)
        accesses[node.src[1]] = rest, number
    if not accesses:
        return _Opened(ast, (), ())
    variables = {
        number: UOp.variable(f"_free{position}", 0, room[number])
        for position, number in enumerate(room)
    }
    mapping = {index: rest + variables[number] for index, (rest, number) in accesses.items()}
    return _Opened(ast.substitute(mapping), tuple(variables.values()), tuple(room))


def _shared(several: dict[UOp, _Opened]) -> tuple[UOp, tuple[int, ...]]:
    """The kernel of several that are alike, and for each of its offsets the divisor of all."""
    rows = [each.values for each in several.values()]
    first = next(iter(several.values()))
    return first.ast, tuple([gcd(*column) for column in zip(*rows, strict=True)])


def _offset(number: int, variable: UOp, factor: int) -> UOp:
    """The offset of slice `number`: its variable counts in steps of `factor`."""
    _, _, high = variable.arg
    return UOp.variable(offset_name(number), 0, high // factor) * factor
