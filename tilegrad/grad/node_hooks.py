"""Functions that see, and may change, the gradient of a node as it flows down.

They are kept beside the graph, by node, as long as the node lives. Equal graphs are one node, with
one set of functions. A graph that is made after its equal got functions is another node.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Set

from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["Watcher", "carry_over", "has_watchers", "is_watched", "seen", "watch"]

Watcher = Callable[[UOp, Set[UOp]], UOp | None]
"""Takes the gradient of the node, and the nodes that gradients flow through on their way to what is
asked for; gives what goes on instead, or None.
"""

# Nodes that are found again by their kind: memory and its versions, loops and their results.
_FOUND_AGAIN = frozenset({Ops.ASSIGN, Ops.AFTER, Ops.LOOP, Ops.LOOP_OUTPUT})
_watchers: weakref.WeakKeyDictionary[UOp, dict[int, Watcher]] = weakref.WeakKeyDictionary()
_count = 0


def watch(node: UOp, watcher: Watcher) -> tuple[dict[int, Watcher], int]:
    """Let `watcher` see the gradients of `node`; gives its holder, and its number there."""
    global _count
    if node.src and node.op not in _FOUND_AGAIN:
        node.set_apart()
    _count += 1
    watchers = _watchers.setdefault(node, {})
    watchers[_count] = watcher
    return watchers, _count


def carry_over(done: Mapping[UOp, UOp], among: Collection[UOp]) -> None:
    """Let what became of each of `among` by `done` be watched as the node is, as long as that is;
    who watches is told of the nodes that it knows.
    """
    if not _watchers:
        return
    known = [node for node in among if is_watched(node) and done[node] is not node]
    made_of = weakref.WeakKeyDictionary({node: weakref.ref(done[node]) for node in known})
    for node in known:
        own = _watchers[node]
        # By the same numbers: a hook that is carried over twice is called once.
        _watchers.setdefault(done[node], {}).update(
            {number: _carried(own, number, made_of) for number in list(own)}
        )


_MadeOf = weakref.WeakKeyDictionary[UOp, "weakref.ref[UOp]"]


def _carried(own: dict[int, Watcher], number: int, made_of: _MadeOf) -> Watcher:
    def see(gradient: UOp, through: Set[UOp]) -> UOp | None:
        watcher = own.get(number)
        return None if watcher is None else watcher(gradient, _Before(through, made_of))

    return see


class _Before(Set[UOp]):
    """The nodes that became those of `through`, and these."""

    def __init__(self, through: Set[UOp], made_of: _MadeOf):
        self._through, self._made_of = through, made_of

    def __contains__(self, node: object) -> bool:
        if node in self._through:
            return True
        made = self._made_of.get(node) if isinstance(node, UOp) else None
        return made is not None and made() in self._through

    def __iter__(self) -> Iterator[UOp]:
        return iter(self._through)

    def __len__(self) -> int:
        return len(self._through)


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
