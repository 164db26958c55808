"""Graphs that are made again and again over other operands: recorded once, then made by one loop.

A `Template` is a graph above some inputs, as steps: an op, a dtype, the places of its sources, and
an argument. To make it over other inputs of the same shapes and dtypes takes a look at the table of
nodes for each step, and none of the checks and choices that led to the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, interned, remade, toposort

__all__ = ["Template", "record"]

# More steps than a method has; what is larger is not worth keeping.
_MOST_STEPS = 1024
_MOST_ORIGINS = 4
# Each of them is one thing, not one of a kind: memory, a draw, a call, a loop, a write.
_SINGULAR = frozenset({
    Ops.BUFFER, Ops.RAND, Ops.CUSTOM, Ops.LOOP, Ops.PART, Ops.COPY, Ops.ASSIGN, Ops.AFTER,
    Ops.DEFINE_VAR, Ops.BIND,
})  # fmt: skip

# The op, the dtype, the argument, what picks the sources, whether it is one, the class of the
# argument, the shape, and whose origin the node bears: the place of an input, or one of these.
_Step = tuple[Ops, Any, Any, Callable[[Any], Any], bool, Any, tuple[Any, ...], int]
_NOBODY, _CALLER = -2, -1


class Template:
    """A graph above inputs; `results` are the places of what is wanted of it. The inputs come
    first, then `constants`, then what each step makes.
    """

    __slots__ = ("constants", "results", "steps")

    def __init__(self, constants: list[UOp], steps: list[_Step], results: tuple[int, ...]):
        self.constants = constants
        self.steps = steps
        self.results = results

    def make(self, inputs: Sequence[UOp], origin: tuple[Any, ...]) -> list[UOp]:
        """The graph over `inputs`: all of its nodes, by place. What a user's call makes bears the
        `origin`, one entry; what a rule makes of an input bears that of the input.
        """
        nodes = [*inputs, *self.constants]
        add = nodes.append
        for op, dtype, arg, pick, is_one, kind, shape, bears in self.steps:
            src = (pick(nodes),) if is_one else pick(nodes)
            key = op.serial, dtype, src, arg, kind
            known = interned(key)
            if known is None or (node := known()) is None:
                node = remade(key, op, shape)
            if bears == _CALLER:
                before = node.origin
                if not before:
                    node.origin = origin
                elif origin and before is not origin and origin[0] not in before:
                    if len(before) < _MOST_ORIGINS:
                        node.origin = before + origin
            elif bears >= 0 and not node.origin:
                node.origin = nodes[bears].origin
            add(node)
        return nodes


def record(results: Sequence[UOp], inputs: Sequence[UOp]) -> Template | None:
    """The graphs of `results` above `inputs`; None if they hold what only is once, or sizes that
    are no numbers.
    """
    places = {node: place for place, node in reversed([*enumerate(inputs)])}
    below = toposort(results, stop=places.__contains__)
    constants = [node for node in below if node not in places and node.is_constant]
    made = [node for node in below if node not in places and not node.is_constant]
    if len(made) > _MOST_STEPS or any(node.op in _SINGULAR for node in made):
        return None
    # Of constants only those that a step takes.
    donors = {id(node.origin): place for place, node in enumerate(inputs) if node.origin}
    used = {source for node in made for source in node.src} | {*results}
    kept = [node for node in constants if node in used]
    for node in (*kept, *made):
        if not all(type(size) is int for size in node.shape) or _names_node(node.arg):
            return None
    places |= {node: place for place, node in enumerate([*kept, *made], len(inputs))}
    steps: list[_Step] = [
        (
            node.op,
            node.dtype,
            node.arg,
            itemgetter(*[places[source] for source in node.src]),
            len(node.src) == 1,
            node.arg.__class__,
            node.shape,
            donors.get(id(node.origin), _CALLER) if node.origin else _NOBODY,
        )
        for node in made
    ]
    return Template(kept, steps, tuple([places[node] for node in results]))


def _names_node(arg: Any) -> bool:
    """Whether an argument, maybe pairs of bounds, holds a symbolic size."""
    if not isinstance(arg, tuple):
        return isinstance(arg, UOp)
    parts = [part for each in arg for part in (each if isinstance(each, tuple) else (each,))]
    return any(isinstance(part, UOp) for part in parts)
