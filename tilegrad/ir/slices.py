"""Slices of memory that a program takes at one offset after the other.

`data[i:i + 32]` in Python is a graph of its own for each number i, and so would be its kernels.
With a variable as the offset, it is the same graph everywhere:

before   SHRINK(BUFFER, ((64, 96),))
after    SHRINK(BUFFER, ((_place0, _place0 + 32),)), and _place0 is 64 in this launch
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tilegrad.ir.op import Ops
from tilegrad.ir.queries import below
from tilegrad.ir.uop import UOp

__all__ = [
    "MemorySlice", "find_slices", "is_number", "offset_name", "offset_number", "renamed",
    "with_variable_slices",
]  # fmt: skip

_PREFIX = "_place"
_NUMBERED = re.compile(r"_(place|number)(\d+)")
_ORDER = (Ops.RESHAPE, Ops.PERMUTE, Ops.DETACH)
# More would be too many parameters for a kernel.
_MOST = 64


class MemorySlice(NamedTuple):
    """An axis along which a SHRINK of memory, the node at `position`, takes `size` of `full`
    elements, from `start` on.
    """

    position: int
    axis: int
    start: int
    size: int
    full: int


def offset_name(number: int) -> str:
    """The name of the offset variable of slice `number`."""
    return f"{_PREFIX}{number}"


def offset_number(name: str) -> int | None:
    """The number of the slice whose offset variable has this name; for a number that changes from
    launch to launch, its own.
    """
    found = _NUMBERED.fullmatch(name)
    return None if found is None else int(found[2])


def is_number(name: str) -> bool:
    """Whether a numbered variable is a number that changes, no offset of a slice."""
    return not name.startswith(_PREFIX)


def renamed(name: str, number: int) -> str:
    """The name of a numbered variable with another number."""
    return f"{name.rstrip('0123456789')}{number}"


def find_slices(nodes: Sequence[UOp]) -> list[MemorySlice]:
    """The slices of memory that are read, or written where nothing else of that memory is used;
    none where there are very many. Other written memory stays as it is: whether two accesses
    overlap is decided on numbers.
    """
    found: list[MemorySlice] = []
    targets = _met_elsewhere(nodes)
    for position, node in enumerate(nodes):
        if node.op is not Ops.SHRINK or not all(
            isinstance(end, int) for w in node.arg for end in w
        ):
            continue
        base = below(node.src[0], _ORDER)
        if base.op is not Ops.BUFFER or base in targets:
            continue
        for axis, ((start, end), full) in enumerate(zip(node.arg, node.src[0].shape, strict=True)):
            if isinstance(full, int) and 0 < end - start < full:
                found.append(MemorySlice(position, axis, start, end - start, full))
    return found if len(found) <= _MOST else []


def with_variable_slices(nodes: Sequence[UOp], slices: Sequence[MemorySlice]) -> UOp:
    """The graph that consists of `nodes`, with a variable for the offset of each slice."""
    bounds: dict[UOp, list[tuple[UOp | int, UOp | int]]] = {}
    for number, each in enumerate(slices):
        node = nodes[each.position]
        offset = UOp.variable(offset_name(number), 0, each.full - each.size)
        bounds.setdefault(node, list(node.arg))[each.axis] = (offset, offset + each.size)
    return nodes[-1].substitute(
        {node: node.replace(arg=tuple(found)) for node, found in bounds.items()}
    )


def _met_elsewhere(nodes: Sequence[UOp]) -> set[UOp]:
    """The memory that is written, and read or written outside of the one slice too."""
    memory: dict[UOp, UOp] = {}
    for node in nodes:
        if node.op in (Ops.ASSIGN, Ops.AFTER):
            memory[node] = _memory_of(node.src[0], memory)
    counts = Counter(base for node, base in memory.items() if node.op is Ops.ASSIGN)
    if not counts:
        return set()
    found = {base for base, count in counts.items() if count > 1}
    known: dict[UOp, UOp] = {}
    for node in nodes:
        if node.op in _ORDER or node.op is Ops.AFTER:
            continue
        for source in node.src:
            base = below(source, _ORDER)
            if base in counts and (
                node.op is not Ops.SHRINK or known.setdefault(base, node) is not node
            ):
                found.add(base)
    return found


def _memory_of(node: UOp, known: Mapping[UOp, UOp]) -> UOp:
    """The memory that `node` views; `known` has that of assignments."""
    while node not in known and (node.op.is_movement or node.op is Ops.DETACH):
        node = node.src[0]
    return known.get(node, node)
