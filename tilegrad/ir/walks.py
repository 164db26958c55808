"""Walks: the nodes that a graph needs, sources before users.

None recurses in Python: a graph of 100,000 nodes is ordinary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from tilegrad.base.trace import counters

__all__ = ["toposort", "toposort_over", "unvisited"]


# An `ir.uop.UOp`; a walk asks only for its sources, `src`.
Node = TypeVar("Node", bound=Any)


def toposort(roots: Iterable[Node], stop: Callable[[Node], Any] | None = None) -> dict[Node, None]:
    """All nodes that `roots` need, sources before users, in the order of first use; the sources of
    a `stop` node are left out.
    """
    seen: dict[Node, None] = {}
    # A node waits here for its sources, below a None.
    stack: list[Node | None] = [*roots]
    stack.reverse()
    while stack:
        node = stack.pop()
        if node is None:
            seen[stack.pop()] = None  # type: ignore[index]
        elif node not in seen:
            if stop is not None and stop(node):
                seen[node] = None
                continue
            known = 0
            for source in node.src:
                if source not in seen:
                    if source.src:
                        break
                    seen[source] = None
                known += 1
            else:
                # Most nodes find all their sources here, and never wait.
                seen[node] = None
                continue
            stack += (node, None)
            for source in node.src[: known - 1 if known else None : -1]:
                if source not in seen:
                    stack.append(source)
    counters.visits += len(seen)
    return seen


def toposort_over(
    roots: Sequence[Node], sources: Callable[[Node], Sequence[Node]]
) -> dict[Node, None]:
    """As `toposort`, with `sources` giving the sources of a node."""
    seen: dict[Node, None] = {}
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, is_ready = stack.pop()
        if node in seen:
            continue
        if is_ready:
            seen[node] = None
            continue
        stack.append((node, True))
        stack.extend([(each, False) for each in reversed(sources(node)) if each not in seen])
    return seen


def unvisited(root: Node, done: Mapping[Node, Any]) -> Iterator[Node]:
    """The nodes below `root` that are not in `done`, sources first; the caller adds each to `done`
    as it comes.
    """
    stack = [root]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        waits = False
        for source in node.src:
            if source not in done:
                stack.append(source)
                waits = True
        if not waits:
            stack.pop()
            yield node
