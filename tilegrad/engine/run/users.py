"""The users of a value: the graph upwards, for runs that overwrite memory.

A node knows its sources. A run that overwrites memory needs the users of a value, and a walk over
the graphs of all tensors would make in-place work slower with every tensor that lives. So the nodes
that such a run meets are *indexed*, each once: its sources, and the memory of
its value, get a weak reference to it (`UOp.users`). All of it happens under the engine's lock.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable

from tilegrad.base.trace import counters
from tilegrad.ir.queries import base_of
from tilegrad.ir.uop import UOp

__all__ = ["above", "index", "stands_on"]

# Shorter lists of references are not searched for dead ones.
_FEW = 16


def index(root: UOp) -> None:
    """Let all that `root` needs know its users."""
    if root.users is not None:
        return
    root.users = []
    # It grows as its sources are met.
    found = [root]
    try:
        for node in found:
            reference = weakref.ref(node)
            for source in node.src:
                users = source.users
                if users is None:
                    source.users = [reference]
                    found.append(source)
                elif not users or users[-1] is not reference:
                    users.append(reference)
                    # At powers of two, so that the dead never outnumber the living by much.
                    if len(users) >= _FEW and not len(users) & (len(users) - 1):
                        users[:] = _living(users)
            if node.stored is not None:
                stands_on(node, node.stored)
    except BaseException:
        # Interrupted: indexed nodes have all that they need indexed, so none of these is.
        for node in found:
            node.users = None
        raise
    counters.visits += len(found)


def stands_on(node: UOp, memory: UOp) -> None:
    """Note that the indexed `node` has its value in `memory`, [movement of] a BUFFER."""
    memory = base_of(memory)
    users = memory.users
    if users is None:
        users = memory.users = []
    users.append(weakref.ref(node))
    if len(users) >= _FEW and not len(users) & (len(users) - 1):
        users[:] = _living(users)


def above(nodes: Iterable[UOp], stop: Callable[[UOp], bool] | None = None) -> list[UOp]:
    """`nodes` and all indexed nodes that need them; users of a `stop` node are not followed up."""
    found = dict.fromkeys(nodes)
    stack = list(found)
    while stack:
        for reference in stack.pop().users or ():
            user = reference()
            if user is not None and user not in found:
                found[user] = None
                if stop is None or not stop(user):
                    stack.append(user)
    counters.visits += len(found)
    return list(found)


def _living(users: Iterable[weakref.ref[UOp]]) -> list[weakref.ref[UOp]]:
    return [each for each in users if each() is not None]
