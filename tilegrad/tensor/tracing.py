"""What holds while a transformed function runs, on tensors that stand for others.

While `vmap` runs one, a tensor stands for one example of many and has no value; while `scan` does,
it stands for what every step finds. What is made of it
stays a graph, whatever asks for it to be computed now: `realize()` leaves it as it is, and who
wants to see numbers is told why there are none. A captured function is called, not replayed, as a
replay builds no graph.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tilegrad.base.errors import TransformError
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, toposort
from tilegrad.tensor.sizes import here

__all__ = ["has_stand_ins", "is_transforming", "needs_value", "transforming", "waits"]


class _Open(threading.local):
    """How many transformed functions this thread is in, and the memory that has no value there."""

    depth = 0
    leaves: frozenset[UOp] = frozenset()
    name, stands_for = "", ""


_open = _Open()


@contextmanager
def transforming(
    leaves: Sequence[UOp] = (), name: str = "vmap", stands_for: str = "one example of many"
) -> Iterator[None]:
    """For the call of a function that is transformed; the BUFFERs `leaves` have no value in it, and
    `name` and `stands_for` say why to who asks for one.
    """
    before = _open.leaves
    names = _open.name, _open.stands_for
    if leaves:
        _open.name, _open.stands_for = name, stands_for
    _open.leaves = before | frozenset(leaves)
    _open.depth += 1
    try:
        yield
    finally:
        _open.leaves = before
        _open.name, _open.stands_for = names
        _open.depth -= 1


def is_transforming() -> bool:
    """Whether this thread runs a function for the graph that it builds."""
    return _open.depth > 0


def has_stand_ins() -> bool:
    """Whether there are tensors without a value."""
    return bool(_open.leaves)


def waits(node: UOp) -> bool:
    """Whether the value of `node` depends on what has none."""
    leaves = _open.leaves
    return bool(leaves) and any(
        part.op is Ops.BUFFER and part in leaves for part in toposort([node])
    )


def needs_value(what: str, node: UOp) -> None:
    """Raise TransformError if `node` has no value."""
    if waits(node):
        raise TransformError(
            f"{_open.name}: {what} needs the value of a tensor that stands for {_open.stands_for}",
            line=here(),
            rule="what the function does must not depend on the numbers",
            remedy="choose with where() and masks, or give a size to what counts elements",
        )
