"""State while a transformed function runs, on tensors that stand for others.

Values made from these stay a graph, whatever asks for them to be computed now: `realize()` leaves
them as they are, and who wants to see numbers is given those of another tensor of the same graph.
While `vmap` runs a function, a tensor stands for one example of many and has no numbers; while
`scan` does, it stands for what every step finds. Then who wants to see some is told why there are
none. A captured function is called, not replayed, as a replay builds no graph.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tilegrad.base.config import gradients
from tilegrad.base.errors import TransformError
from tilegrad.grad.regions import moved
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, toposort

__all__ = [
    "building", "closed", "front_ends", "is_open", "is_transforming", "needs_value", "transforming",
    "transforms", "waits", "watch",
]  # fmt: skip


class _Open(threading.local):
    """How many transformed functions this thread is in, what stands for others there, and the
    memory among it, which has no value; and what the innermost wants to look at later. `mode` is
    what methods depend on beside their operands, such as the dtype of `torch.autocast`. `state` is
    the mode outside of transformed functions, and no mode inside.
    """

    depth = 0
    mode: Any = None
    state: Any = None
    watched: list[Any] | None = None
    leaves: frozenset[UOp] = frozenset()
    empty: frozenset[UOp] = frozenset()
    name, stands_for = "", ""

    def set_mode(self, mode: Any) -> None:
        self.mode = mode
        self._note()

    def enter(self) -> None:
        """Begin a transformed function."""
        self.depth += 1
        self._note()

    def leave(self) -> None:
        """End the innermost transformed function."""
        self.depth -= 1
        self._note()

    def _note(self) -> None:
        self.state = _INSIDE if self.depth else self.mode


_INSIDE = object()

# Its `depth` is not 0 while this thread runs a function for the graph that it builds.
transforms = _open = _Open()


# Whether a function runs for the graph that it builds: in a transform, or to be captured.
building: contextvars.ContextVar[bool] = contextvars.ContextVar("tilegrad_building", default=False)

# Functions that front ends with modes of their own run when a transform begins; each gives one to
# run at its end: their modes have to agree with the one here.
front_ends: list[Callable[[], Callable[[], None]]] = []


@contextmanager
def transforming(
    leaves: Sequence[UOp] = (),
    name: str = "vmap",
    stands_for: str = "one example of many",
    watched: list[Any] | None = None,
) -> Iterator[None]:
    """For the call of a function that is transformed: the nodes `leaves` stand for others in it,
    and those that are memory have no value; `name` and `stands_for` say why to who asks for one.
    `watched` is given what is to be looked at once there are values.
    """
    before = _open.leaves, _open.empty, _open.name, _open.stands_for, _open.watched
    _open.watched = watched
    empty = frozenset(leaf for leaf in leaves if leaf.op is Ops.BUFFER)
    if empty:
        _open.name, _open.stands_for = name, stands_for
    _open.leaves |= frozenset(leaves)
    _open.empty |= empty
    _open.enter()
    # A derivative is one under `no_grad`, too.
    token, outer = gradients.set(True), building.set(True)
    ends = [begin() for begin in front_ends]
    try:
        yield
    finally:
        for end in ends:
            end()
        gradients.reset(token)
        building.reset(outer)
        _open.leaves, _open.empty, _open.name, _open.stands_for, _open.watched = before
        _open.leave()


def is_transforming() -> bool:
    """Whether this thread runs a function for the graph that it builds."""
    return _open.depth > 0


def watch(what: Any) -> None:
    """Leave `what` to be looked at by the transformation that this thread is in, if it does."""
    if _open.watched is not None:
        _open.watched.append(what)


def is_open(node: UOp) -> bool:
    """Whether `node` depends on what stands for others, so that its graph is to stay one."""
    leaves = _open.leaves
    return bool(leaves) and any(each in leaves for each in toposort([node]))


def closed(node: UOp) -> UOp:
    """A graph of the value of `node`, without what stands for others, that writes to no memory of
    the graph that is to stay one.
    """
    while is_open(node):
        values = {leaf: leaf.src[0] for leaf in _open.leaves if leaf.src}
        (node,) = moved([node], values)
    return node


def waits(node: UOp) -> bool:
    """Whether the value of `node` depends on what has none."""
    empty = _open.empty
    return bool(empty) and any(each in empty for each in toposort([node]))


def needs_value(what: str, node: UOp) -> None:
    """Raise TransformError if `node` has no value."""
    if waits(node):
        raise TransformError(
            f"{_open.name}: {what} needs the value of a tensor that stands for {_open.stands_for}",
            rule="what the function does must not depend on the numbers",
            remedy="choose with where() and masks, or give a size to what counts elements",
        )
