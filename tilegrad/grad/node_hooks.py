"""Functions that see, and may change, the gradient of a node as it flows down.

They are kept beside the graph, by node, as long as the node lives: equal graphs are one node, and
have one set of them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Set

from tilegrad.ir.uop import UOp

__all__ = ["Watcher", "has_watchers", "is_watched", "seen", "watch"]

Watcher = Callable[[UOp, Set[UOp]], UOp | None]
"""Takes the gradient of the node, and the nodes that gradients flow through on their way to what is
asked for; gives what goes on instead, or None.
"""

_watchers: weakref.WeakKeyDictionary[UOp, dict[int, Watcher]] = weakref.WeakKeyDictionary()
_count = 0


def watch(node: UOp, watcher: Watcher) -> tuple[dict[int, Watcher], int]:
    """Let `watcher` see the gradients of `node`; what holds it, and its number there."""
    global _count
    _count += 1
    watchers = _watchers.setdefault(node, {})
    watchers[_count] = watcher
    return watchers, _count


def is_watched(node: UOp) -> bool:
    """Whether somebody watches the gradient of `node`."""
    return bool(_watchers) and bool(_watchers.get(node))


def has_watchers() -> bool:
    """Whether any node is watched."""
    return bool(_watchers)


def seen(node: UOp, gradient: UOp, through: Set[UOp]) -> UOp:
    """The gradient of `node` after those who watch it, in the order in which they came."""
    for watcher in list(_watchers.get(node, {}).values()):
        new = watcher(gradient, through)
        gradient = gradient if new is None else new
    return gradient
