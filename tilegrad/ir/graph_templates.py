"""Templates: graphs that are made again and again over other operands are recorded once, then made
by one loop.

A `Template` is a graph above some inputs, as steps: an op, a dtype, the slots of its sources, and
an argument. Making it over other inputs of the same shapes and dtypes costs a lookup in the table
of nodes for each step, and none of the checks and choices that led to the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from tilegrad.ir.args import KernelArg
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, interned, remade, toposort

__all__ = ["Step", "Template", "record"]

# More steps than a method has; a larger template is not worth its memory.
_MOST_STEPS = 1024
_MOST_ORIGINS = 4
# Ops whose nodes are unique, such as memory, a draw, a call or a write: a template cannot repeat
# them.
_SINGULAR = frozenset({
    Ops.BUFFER, Ops.RAND, Ops.CUSTOM, Ops.COPY, Ops.ASSIGN, Ops.AFTER, Ops.DEFINE_VAR, Ops.BIND,
})  # fmt: skip

# The op, the dtype, the argument, the getter of the sources, whether there is one source, the class
# of the argument, the shape, and the origin: the slot of an input, or one of these.
Step = tuple[Ops, Any, Any, Callable[[Any], Any], bool, Any, tuple[Any, ...], int]
_NOBODY, _CALLER = -2, -1


class Template:
    """A graph above `count` inputs; `results` are the slots of its results. The inputs come first,
    then `constants`, then the result of each step. It `is_view` if its last result moves an input
    only. `work` counts the steps that make elements. By slot, `evaluators` has a function that
    computes a result in another way, once somebody has one. If it joins its inputs, `join` is the
    axis, and whether that is a new one.
    """

    __slots__ = (
        "_flowing", "constants", "count", "evaluators", "is_view", "join", "results", "size",
        "steps", "work",
    )  # fmt: skip

    def __init__(
        self,
        constants: list[UOp],
        steps: list[Step],
        results: tuple[int, ...],
        count: int,
        *,
        is_view: bool,
    ):
        self.constants = constants
        self.steps = steps
        self.size = len(steps)
        self.work = sum(step[0] is Ops.PAD or not step[0].is_movement for step in steps)
        self.results = results
        self.count = count
        self.is_view = is_view
        self._flowing: dict[int, tuple[int, ...]] = {}
        self.evaluators: dict[int, Any] = {}
        self.join: tuple[int, bool] | None = None

    def moves(self, slot: int, most: int) -> tuple[list[tuple[Ops, Any]], int]:
        """At most `most` movement ops that end in `slot`, without those below the inputs, the last
        one first; and the slot below.
        """
        found: list[tuple[Ops, Any]] = []
        first = self.count + len(self.constants)
        # An op of several sources, which may be the last one here, gives as many slots.
        while len(found) < most and slot >= first:
            op, _, arg, pick, *_ = self.steps[slot - first]
            found.append((op, arg))
            slot = pick(range(slot))
        return found, slot

    def flowing(self, slot: int) -> tuple[int, ...]:
        """The inputs that a gradient of the node in a slot may reach: those that it depends on
        beside DETACH and nodes that are no floats. A LOOP has no dtype; its outputs have.
        """
        known = self._flowing.get(slot)
        if known is None:
            first = self.count + len(self.constants)
            stack, seen = [slot], {slot}
            while stack:
                at = stack.pop()
                if at < first:
                    continue
                op, dtype, _, pick, is_one, *_ = self.steps[at - first]
                if op is Ops.DETACH or not (dtype.is_float or op is Ops.LOOP):
                    continue
                picked = pick(range(at))
                for source in (picked,) if is_one else picked:
                    if source not in seen:
                        seen.add(source)
                        stack.append(source)
            known = self._flowing[slot] = tuple(sorted(at for at in seen if at < self.count))
        return known

    def is_view_at(self, slot: int) -> bool:
        """Whether the node of a slot moves an input only."""
        first = self.count + len(self.constants)
        while slot >= first:
            op, _, _, pick, *_ = self.steps[slot - first]
            if not (op.is_movement or op is Ops.DETACH):
                return False
            slot = pick(range(slot))
        return slot < self.count

    def is_equal(self, other: Template) -> bool:
        """Whether this makes the same as `other`."""
        slots = range(self.count + len(self.constants) + self.size)
        return (
            (self.count, self.constants, self.results, self.size)
            == (other.count, other.constants, other.results, other.size)
        ) and all(
            one[:3] == two[:3] and one[3](slots) == two[3](slots) and one[4:] == two[4:]
            for one, two in zip(self.steps, other.steps)
        )

    def numbered(self, numbers: dict[Any, int]) -> list[int]:
        """For each slot the number of its node among `numbers`, where equal nodes have one."""
        found = [numbers.setdefault(position, len(numbers)) for position in range(self.count)]
        found += [numbers.setdefault(constant, len(numbers)) for constant in self.constants]
        for op, dtype, arg, pick, is_one, kind, shape, _ in self.steps:
            src = (pick(found),) if is_one else tuple(pick(found))
            found.append(numbers.setdefault((op, dtype, arg, src, kind, shape), len(numbers)))
        return found

    def uses(self) -> Iterator[tuple[int, int, int]]:
        """The slot of each node that is made, with each position among its sources and the slot of
        the source there.
        """
        first = self.count + len(self.constants)
        for number, step in enumerate(self.steps, first):
            picked = step[3](range(number))
            for position, source in enumerate((picked,) if step[4] else picked):
                yield number, position, source

    def shape_of(self, slot: int) -> tuple[Any, ...] | None:
        """The shape of a result; None for an input."""
        step = slot - self.count - len(self.constants)
        return self.steps[step][6] if step >= 0 else None

    def dtype_of(self, slot: int) -> Any:
        """The dtype of a result that is no input."""
        return self.steps[slot - self.count - len(self.constants)][1]

    def make(self, inputs: Sequence[UOp], origin: tuple[Any, ...]) -> list[UOp]:
        """The graph over `inputs`: all of its nodes, by slot. Nodes of a user's call have the
        `origin`, one entry; nodes that a rule makes of an input have that of the input.
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


def record(
    results: Sequence[UOp], inputs: Sequence[UOp], most: int = _MOST_STEPS
) -> Template | None:
    """The template of `results` above `inputs`, of `most` steps or fewer; None if there are more,
    or unique nodes, or symbolic sizes.
    """
    slots = {node: slot for slot, node in reversed([*enumerate(inputs)])}
    below = toposort(results, stop=slots.__contains__)
    constants = [node for node in below if node not in slots and node.is_constant]
    made = [node for node in below if node not in slots and not node.is_constant]
    if len(made) > most or any(map(_is_singular, made)):
        return None
    # Constants that no step uses are left out.
    donors = {id(node.origin): slot for slot, node in enumerate(inputs) if node.origin}
    used = {source for node in made for source in node.src} | {*results}
    used_constants = [node for node in constants if node in used]
    for node in (*used_constants, *made):
        if not all(type(size) is int for size in node.shape) or _names_node(node.arg):
            return None
    slots |= {node: slot for slot, node in enumerate([*used_constants, *made], len(inputs))}
    steps: list[Step] = [
        (
            node.op,
            node.dtype,
            node.arg,
            itemgetter(*[slots[source] for source in node.src]),
            len(node.src) == 1,
            node.arg.__class__,
            node.shape,
            donors.get(id(node.origin), _CALLER) if node.origin else _NOBODY,
        )
        for node in made
    ]
    made_slots = tuple([slots[node] for node in results])
    template = Template(used_constants, steps, made_slots, len(inputs), is_view=False)
    template.is_view = bool(made_slots) and template.is_view_at(made_slots[-1])
    return template


def _is_singular(node: UOp) -> bool:
    """Whether a node is one of its kind: memory, or a node with an effect. A kernel written by hand
    is a value of its sources.
    """
    return node.op in _SINGULAR and not (node.op is Ops.CUSTOM and isinstance(node.arg, KernelArg))


def _names_node(arg: Any) -> bool:
    """Whether an argument, maybe pairs of bounds, holds a symbolic size."""
    if not isinstance(arg, tuple):
        return isinstance(arg, UOp)
    values = [value for each in arg for value in (each if isinstance(each, tuple) else (each,))]
    return any(isinstance(value, UOp) for value in values)
