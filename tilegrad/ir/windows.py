"""Windows of memory that a program cuts out at one place after the other.

`data[i:i + 32]` in Python is a graph of its own for each number i, and so would be its kernels. A
window whose place is a variable is the same graph everywhere:

before   SHRINK(BUFFER, ((64, 96),))
after    SHRINK(BUFFER, ((_place0, _place0 + 32),)), and _place0 is 64 in this launch
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = [
    "Window", "find_windows", "open_windows", "place_name", "place_number",
]  # fmt: skip

_PREFIX = "_place"
_NUMBERED = re.compile(r"_(place|number)(\d+)")
_ORDER = (Ops.RESHAPE, Ops.PERMUTE, Ops.DETACH)
# More would be more parameters than a kernel should have.
_MOST = 64


class Window(NamedTuple):
    """An axis along which a SHRINK of memory, the node at `position`, takes `size` of `full`
    elements, from `start` on.
    """

    position: int
    axis: int
    start: int
    size: int
    full: int


def _place_variable(number: int, window: Window) -> UOp:
    """Where the window begins, as a launch-time variable."""
    return UOp.variable(place_name(number), 0, window.full - window.size)


def place_name(number: int) -> str:
    """The name of the variable for the place of window `number`."""
    return f"{_PREFIX}{number}"


def place_number(name: str) -> int | None:
    """The number of the window whose place a variable of this name is; of a number that changes
    from launch to launch, its own.
    """
    found = _NUMBERED.fullmatch(name)
    return None if found is None else int(found[2])


def find_windows(nodes: Sequence[UOp]) -> list[Window]:
    """The windows of memory that are read, or written where nothing else of that memory is touched;
    none where these are very many. Otherwise what is written to stays as it is: which parts of it
    others meet is asked of numbers.
    """
    found: list[Window] = []
    targets = _met_elsewhere(nodes)
    for position, node in enumerate(nodes):
        if node.op is not Ops.SHRINK or not all(
            isinstance(end, int) for w in node.arg for end in w
        ):
            continue
        base = _base_of(node.src[0])
        if base.op is not Ops.BUFFER or base in targets:
            continue
        for axis, ((start, end), full) in enumerate(zip(node.arg, node.src[0].shape, strict=True)):
            if isinstance(full, int) and 0 < end - start < full:
                found.append(Window(position, axis, start, end - start, full))
    return found if len(found) <= _MOST else []


def open_windows(nodes: Sequence[UOp], windows: Sequence[Window]) -> UOp:
    """The graph that consists of `nodes`, with a variable for the position of each slice."""
    bounds: dict[UOp, list[tuple[UOp | int, UOp | int]]] = {}
    for number, window in enumerate(windows):
        node = nodes[window.position]
        place = _place_variable(number, window)
        bounds.setdefault(node, list(node.arg))[window.axis] = (place, place + window.size)
    return nodes[-1].substitute(
        {node: node.replace(arg=tuple(found)) for node, found in bounds.items()}
    )


def _met_elsewhere(nodes: Sequence[UOp]) -> set[UOp]:
    """The memory that is written to and read or written outside the one slice, too."""
    memory: dict[UOp, UOp] = {}
    for node in nodes:
        if node.op in (Ops.ASSIGN, Ops.AFTER):
            memory[node] = _memory_of(node.src[0], memory)
    counts = Counter(base for node, base in memory.items() if node.op is Ops.ASSIGN)
    if not counts:
        return set()
    found = {base for base, count in counts.items() if count > 1}
    window: dict[UOp, UOp] = {}
    for node in nodes:
        if node.op in _ORDER or node.op is Ops.AFTER:
            continue
        for source in node.src:
            base = _base_of(source)
            if base in counts and (
                node.op is not Ops.SHRINK or window.setdefault(base, node) is not node
            ):
                found.add(base)
    return found


def _memory_of(node: UOp, known: Mapping[UOp, UOp]) -> UOp:
    """The memory that `node` views; `known` has that of assignments."""
    while node not in known and (node.op.is_movement or node.op is Ops.DETACH):
        node = node.src[0]
    return known.get(node, node)


def _base_of(node: UOp) -> UOp:
    while node.op in _ORDER:
        node = node.src[0]
    return node
