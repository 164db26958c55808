"""The pasts of values that a run of nodes computed (`tensor.storage.past`), found while their
graphs are there.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence

from tilegrad.base.trace import counters
from tilegrad.grad.rules import NO_DERIVATIVE
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import base_of, below_reshapes
from tilegrad.ir.uop import UOp
from tilegrad.tensor.storage import memory
from tilegrad.tensor.storage.past import Past, pasts

__all__ = ["note_past", "reached_from", "remember"]

_NONE: frozenset[UOp] = frozenset()
# By value, of those that runs keep: the past that its memory will have.
_of_values: weakref.WeakKeyDictionary[UOp, Past] = weakref.WeakKeyDictionary()


def note_past(computed: Mapping[UOp, UOp]) -> None:
    """Note what values were computed from, before their graphs are given back: by value, [movement
    of] the memory that holds it from now on. Origins of one of them by way of another are in the
    other's past.
    """
    todo: dict[UOp, UOp] = {}
    for root, stored in computed.items():
        base, known = memory.base_of(stored), _of_values.get(root)
        if known is not None and known.memory() is base:
            pasts.setdefault(base.arg.slot, known)
        elif root.dtype.is_float and base.arg.slot not in pasts:
            todo[root] = base
    for root, past in _made(todo):
        pasts[todo[root].arg.slot] = past


def reached_from(
    nodes: Sequence[UOp], all_sources: Sequence[Sequence[int]], number: int
) -> list[int]:
    """The numbers of the memory, and of views of it, that gradients of node `number` meet."""
    found: list[int] = []
    stack, seen = [number], {number}
    while stack:
        number = stack.pop()
        node = nodes[number]
        is_memory = node.op is Ops.BUFFER or base_of(node).op is Ops.BUFFER
        # The memory below all of a value in its order is known.
        if is_memory and node.op is not Ops.RESHAPE and node.dtype.is_float:
            found.append(number)
        if node.op in NO_DERIVATIVE or not (node.dtype.is_float or node.op is Ops.LOOP):
            continue
        # Nothing remains of a value that an assignment overwrites.
        for source in all_sources[number][1 if node.op is Ops.ASSIGN else 0 :]:
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return found


def remember(materialised: Mapping[UOp, UOp]) -> None:
    """Find the pasts of values that a run kept, though their graphs are still there: so that no
    later run has to walk down to what is older.
    """
    todo = {node: base for node, base in materialised.items() if node.dtype.is_float}
    for node, past in _made(todo):
        # A run of calls begins at the memory (`tensor.storage.segments`).
        _of_values[node] = pasts[todo[node].arg.slot] = past


def _made(todo: Mapping[UOp, UOp]) -> Iterator[tuple[UOp, Past]]:
    """The pasts of values, sources first, each as its caller has taken the one before."""
    if len(todo) < 2:
        for one in todo.items():
            yield one[0], _made_of(*one)
        return
    order, known = _order(todo)
    named: dict[UOp, dict[UOp, None]] = {root: {} for root in todo}
    links: dict[UOp, list[Past]] = {root: [] for root in todo}
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
        # Nothing remains of a value that an assignment overwrites.
        for source in node.src[1:] if node.op is Ops.ASSIGN else node.src:
            already = needed_by.get(source, roots)
            needed_by[source] = roots if already is roots else already | roots
    # Sources first, so that a past finds those that it links to.
    made: dict[UOp, Past] = {}
    for root in order:
        if found := named.get(root):
            links[root] += [made[node] for node in found if node in made]
            past = made[root] = Past(weakref.ref(todo[root]))
            past.add(found, links[root])
            for link in past.links:
                link.shorten()
            yield root, past


def _made_of(root: UOp, base: UOp) -> Past:
    """The past of one value. As a rule a run has one: no node has to know which ones need it."""
    found: dict[UOp, None] = {}
    links: list[Past] = []
    stack, seen = [root], {root}
    while stack:
        node = stack.pop()
        op, stored, is_float = node.op, node.stored, node.dtype.is_float
        is_asked_for = node.holders is not None or stored is not None or op is Ops.BUFFER
        if is_float and (node is root or is_asked_for):
            found[node] = None
            if stored is not None:
                found[below_reshapes(stored)] = None
        if stored is not None and node is not root:
            past = _of_values.get(node)
            if past is not None:
                links.append(past)
                continue
        if op in NO_DERIVATIVE or not (is_float or op is Ops.LOOP):
            continue
        # Nothing remains of a value that an assignment overwrites.
        for source in node.src[1:] if op is Ops.ASSIGN else node.src:
            if source not in seen:
                seen.add(source)
                stack.append(source)
    counters.visits += len(seen)
    found[base] = None
    made = Past(weakref.ref(base))
    made.add(found, links)
    for link in made.links:
        link.shorten()
    return made


def _order(roots: Collection[UOp]) -> tuple[dict[UOp, None], dict[UOp, Past]]:
    """The nodes that gradients of `roots` go through, sources first, and those where they end; and
    the pasts of values where the walk ends as these are known.
    """
    seen: dict[UOp, None] = {}
    known: dict[UOp, Past] = {}
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
