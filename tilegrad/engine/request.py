"""What a run is asked for, in one walk: the graph with numbers for its nodes, and its form.

The form is what equal graphs over other memory share: all that is decided of a run follows from it
(`engine.forms`). So of a graph whose form has run before nothing is made anew, not even the graph
in which memory stands for what was computed: its nodes are found here by number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from typing import Any

from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, alive

__all__ = ["Request"]

_FLOAT_BITS = Struct("<d")
# What a window of memory is seen through (ir.windows).
_ORDER = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.DETACH})
# Arguments that are equal only if they mean the same, and cost nothing to keep.
_PLAIN = frozenset({type(None), tuple, str, int, bool, Ops})


class Request:
    """The graphs of some roots, each node once, sources first. What was computed before counts as
    the memory that holds it.

    `stored` gives [movement of] the BUFFER that holds a node's value, if it was computed.

    Attributes:
        nodes: the nodes by number.
        sources: for each number, those of its sources.
        numbers: the number of a node; of one that was computed, that of its memory.
        roots: the numbers of what is wanted.
        assigns: the numbers of assignments.
        windows: the numbers of windows of memory whose places are integers.
    """

    __slots__ = (
        "_arguments", "_stored", "_text", "_views", "assigns", "nodes", "numbers", "roots",
        "sources", "windows",
    )  # fmt: skip

    def __init__(self, stored: Callable[[UOp], UOp | None]):
        self._stored = stored
        self.nodes: list[UOp] = []
        self.sources: list[tuple[int, ...]] = []
        self.numbers: dict[UOp, int] = {}
        self.roots: list[int] = []
        self.assigns: list[int] = []
        self.windows: list[int] = []
        self._arguments: dict[Any, int] = {}
        self._text: list[Any] = []
        self._views: set[int] = set()

    def want(self, roots: Iterable[UOp]) -> None:
        """Ask for `roots` too."""
        for root in roots:
            self._walk(root)
            self.roots.append(self.numbers[root])

    def form(self) -> tuple[Any, ...]:
        """What equal graphs over other memory share: of windows of memory all but the places, and
        of random draws all but the numbers drawn.
        """
        return (*self._text, *self.roots)

    def target_of(self, assign: int) -> int:
        """The memory that assignment number `assign` writes to."""
        place = self.sources[assign][0]
        while self.nodes[place].op is not Ops.BUFFER:
            place = self.sources[place][0]
        return place

    def version_of(self, assign: int) -> int:
        """The memory that assignment number `assign` writes to, as the one before left it."""
        place = self.sources[assign][0]
        while self.nodes[place].op.is_movement:
            place = self.sources[place][0]
        return place

    def _walk(self, root: UOp) -> None:
        numbers, stored = self.numbers, self._stored
        stack = [root]
        while stack:
            node = stack[-1]
            if node in numbers:
                stack.pop()
                continue
            if node.stored is not None and (memory := stored(node)) is not None:
                if memory in numbers:
                    numbers[node] = numbers[memory]
                    stack.pop()
                else:
                    stack.append(memory)
                continue
            missing = [source for source in node.src if source not in numbers]
            if missing:
                missing.reverse()
                stack += missing
                continue
            stack.pop()
            self._enter(node)
            if node.op is Ops.LOOP:
                # What somebody holds of a loop is made as it runs anyway.
                stack += _held_parts(node)

    def _enter(self, node: UOp) -> None:
        """Number `node`, whose sources have theirs, and add to the form."""
        numbers, op = self.numbers, node.op
        number = numbers[node] = len(self.nodes)
        self.nodes.append(node)
        sources = tuple([numbers[source] for source in node.src])
        self.sources.append(sources)
        arg: Any = node.arg
        if op in _ORDER:
            if sources[0] in self._views:
                self._views.add(number)
        elif op is Ops.CONST:
            if node.dtype.is_float:
                arg = _FLOAT_BITS.pack(arg)
        elif op is Ops.BUFFER:
            self._views.add(number)
            arg = (arg.device, arg.size)
        elif op is Ops.RAND:
            arg = (arg.device, arg.shape)
        elif op is Ops.SHRINK:
            if sources[0] in self._views and all(
                type(start) is int is type(end) for start, end in arg
            ):
                self.windows.append(number)
                arg = tuple([end - start for start, end in arg])
        elif op is Ops.ASSIGN:
            self.assigns.append(number)
        elif type(arg) not in _PLAIN:
            # A Python function may hold anything: it is known by its name, and by where it recurs.
            arg = (repr(arg), self._arguments.setdefault(arg, number))
        self._text += (op.serial, node.dtype, arg, len(sources), *sources)


def _held_parts(loop: UOp) -> list[UOp]:
    """What somebody holds of a loop, and may ask for later."""
    values = [(number, loop.arg.value(number)) for number in range(loop.arg.outputs)]
    found = [alive(Ops.PART, value.dtype, (loop,), number) for number, value in values]
    return [part for part in found if part is not None]
