"""What memory was computed from, where its graph was given back: so that a gradient that is asked
for too late is an error, and never None or a part of itself.

A value that requires no gradient loses its graph as it becomes memory. What remains is the *past*
of the memory: weak references to the nodes and the memory that tensors may still ask a gradient
for. A past links to those of older memory that still lives, and takes over what those of dead
memory hold: so a loop of many steps has a past of constant size, and one that keeps all of its
states has a link a step.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping

from tilegrad.base.trace import counters
from tilegrad.grad.rules import NO_DERIVATIVE
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import below_reshapes
from tilegrad.ir.uop import UOp

__all__ = ["lost", "note", "remember"]


class _Past:
    """Nodes that `memory` was computed from by differentiable operations, and older pasts."""

    __slots__ = ("links", "memory", "nodes")

    def __init__(self, memory: UOp, nodes: Collection[UOp], links: Iterable[_Past]):
        self.memory = weakref.ref(memory)
        self.nodes = dict(zip(map(id, nodes), map(weakref.ref, nodes), strict=True))
        self.links = [*links]
        # Memory alone has a past of its own: to ask for that of each node would be a call each.
        for node in nodes:
            if node.op is Ops.BUFFER and (past := _pasts.get(node)) is not None:
                if past not in self.links:
                    self.links.append(past)

    def shorten(self) -> None:
        """Take over what the pasts of dead memory hold, and forget what is dead."""
        alive: list[_Past] = []
        for link in self.links:
            if link.memory() is not None:
                alive.append(link)
        if len(alive) == len(self.links):
            return
        for link in self.links:
            if link.memory() is None:
                link.shorten()
                self.nodes |= link.nodes
                alive += [older for older in link.links if older not in alive]
        self.nodes = {key: ref for key, ref in self.nodes.items() if ref() is not None}
        self.links = alive


_NONE: frozenset[UOp] = frozenset()
# By memory, the BUFFER.
_pasts: weakref.WeakKeyDictionary[UOp, _Past] = weakref.WeakKeyDictionary()
# By value, of those that runs keep: the past that its memory will have.
_of_values: weakref.WeakKeyDictionary[UOp, _Past] = weakref.WeakKeyDictionary()


def note(computed: Mapping[UOp, UOp]) -> None:
    """Note what values were computed from: by value, the BUFFER that holds it from now on. What one
    of them was computed from by way of another is in the other's past.
    """
    todo: dict[UOp, UOp] = {}
    for root, base in computed.items():
        known = _of_values.get(root)
        if known is not None and known.memory() is base:
            _pasts.setdefault(base, known)
        elif root.dtype.is_float and base not in _pasts:
            todo[root] = base
    for root, past in _made(todo):
        _pasts[todo[root]] = past


def remember(kept: Mapping[UOp, UOp]) -> None:
    """Find the pasts of values that a run kept, though their graphs are still there: so that no
    later run has to walk down to what is older.
    """
    todo = {node: base for node, base in kept.items() if node.dtype.is_float}
    for node, past in _made(todo):
        _of_values[node] = past


def _made(todo: Mapping[UOp, UOp]) -> Iterator[tuple[UOp, _Past]]:
    """The pasts of values, sources first, each as its caller has taken the one before."""
    if not todo:
        return
    order, known = _order(todo)
    named: dict[UOp, dict[UOp, None]] = {root: {} for root in todo}
    links: dict[UOp, list[_Past]] = {root: [] for root in todo}
    needed_by: dict[UOp, frozenset[UOp]] = {}
    for node in reversed(order):
        roots = needed_by.pop(node, _NONE)
        base = todo.get(node)
        # Where a tensor may be the node, now or when it is memory.
        is_asked_for = node.holders is not None or node.stored is not None or node.op is Ops.BUFFER
        is_float = node.dtype.is_float
        if roots and is_float and (base is not None or is_asked_for):
            names = {node: None}
            if node.stored is not None:
                names[below_reshapes(node.stored)] = None
            if base is not None:
                names[base] = None
            for root in roots:
                named[root].update(names)
        if base is not None:
            roots = frozenset((node,))
        elif node in known:
            for root in roots:
                links[root].append(known[node])
            continue
        if not roots or node.op in NO_DERIVATIVE or not (is_float or node.op is Ops.LOOP):
            continue
        # Nothing remains of what an assignment overwrites.
        for source in node.src[1:] if node.op is Ops.ASSIGN else node.src:
            already = needed_by.get(source, roots)
            needed_by[source] = roots if already is roots else already | roots
    # Sources first, so that a past finds those that it links to.
    made: dict[UOp, _Past] = {}
    for root in order:
        if found := named.get(root):
            links[root] += [made[node] for node in found if node in made]
            past = made[root] = _Past(todo[root], found, links[root])
            for link in past.links:
                link.shorten()
            yield root, past


def lost(roots: Iterable[UOp], graphs: Mapping[UOp, UOp], names: Iterable[UOp]) -> UOp | None:
    """Memory below `roots` whose graph was given back, though one of the nodes `names` is in its
    past. `graphs` has those that were kept.
    """
    if not _pasts:
        return None
    wanted = {id(each) for name in names for each in (name, below_reshapes(name))}
    stack = [*roots]
    seen = set(stack)
    while stack:
        node = stack.pop()
        is_memory = node.op is Ops.BUFFER
        if is_memory and node in graphs:
            sources: tuple[UOp, ...] = (graphs[node],)
        else:
            past = _pasts.get(node) if is_memory else None
            if past is not None and _has(past, wanted):
                return node
            is_over = node.op in NO_DERIVATIVE or not (node.dtype.is_float or node.op is Ops.LOOP)
            sources = () if is_over else node.src
        for source in sources:
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return None


def _has(past: _Past, wanted: Collection[int]) -> bool:
    stack, seen = [past], {id(past)}
    while stack:
        past = stack.pop()
        past.shorten()
        # A dead node's identity may be another's by now.
        if any(key in wanted and ref() is not None for key, ref in past.nodes.items()):
            return True
        for link in past.links:
            if id(link) not in seen:
                seen.add(id(link))
                stack.append(link)
    return False


def _order(roots: Collection[UOp]) -> tuple[dict[UOp, None], dict[UOp, _Past]]:
    """The nodes that gradients of `roots` go through, sources first, and those where they end; and
    the pasts of values where the walk ends as these are known.
    """
    seen: dict[UOp, None] = {}
    known: dict[UOp, _Past] = {}
    # A node waits here for its sources, under None.
    stack: list[UOp | None] = [*roots]
    while stack:
        node = stack.pop()
        if node is None:
            seen[stack.pop()] = None  # type: ignore[index]
        elif node not in seen:
            is_over = node.op in NO_DERIVATIVE or not (node.dtype.is_float or node.op is Ops.LOOP)
            if is_over or not node.src:
                seen[node] = None
                continue
            if node.stored is not None and node not in roots:
                past = _of_values.get(node)
                if past is not None:
                    known[node] = past
                    seen[node] = None
                    continue
            stack += (node, None)
            for source in node.src:
                if source not in seen:
                    stack.append(source)
    counters.visits += len(seen)
    return seen, known
