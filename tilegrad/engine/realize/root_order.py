"""The order of the roots of a request: one graph is one signature, whichever of its values somebody
asks for, and whichever are only stored.

A walk numbers nodes, and begins at the value that a read asks for. Where several values stand
beside each other, as a network's state beside the flag that ends a loop, each of them may be the
one that is read. So the deepest one is walked first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilegrad.engine.realize.request import Request
from tilegrad.ir.uop import UOp

__all__ = ["in_order"]


def in_order(
    request: Request, wanted: list[UOp], stored: Callable[[UOp], UOp | None]
) -> tuple[Request, list[UOp]]:
    """The request for the same roots `wanted`, walked from the deepest one on: `request` itself if
    its walk has gone so; and the roots in the order of its graph, as its own are from now on.
    """
    walk = None if request.assigns or len(wanted) < 2 else _other_walk(request)
    if walk is not None:
        wanted = [wanted[position] for position in walk]
        request = Request(stored)
        request.want(wanted)
    roots = request.roots
    order = sorted(range(len(wanted)), key=roots.__getitem__)
    request.roots = [roots[position] for position in order]
    return request, [wanted[position] for position in order]


def _other_walk(request: Request) -> list[int] | None:
    """The positions of the roots from the deepest one on; None where the walk has gone so."""
    roots, depths = request.roots, _depths(request)
    used: set[int] = set()
    for sources in request.sources:
        used.update(sources)

    def rank(position: int) -> tuple[int, int, str, int]:
        number = roots[position]
        node = request.nodes[number]
        return -depths[number], node.op.serial, repr(node.dtype), position

    # The other roots are below these, and bring no nodes.
    ends = {number: at for at, number in reversed([*enumerate(roots)]) if number not in used}
    deepest = sorted(ends.values(), key=rank)
    if deepest == _bringing(roots):
        return None
    return [*deepest, *[at for at in range(len(roots)) if at not in deepest]]


def _bringing(roots: Sequence[int]) -> list[int]:
    """The positions of the roots that brought nodes when they were walked: a root is the last one
    of these.
    """
    found, last = [], -1
    for position, number in enumerate(roots):
        if number > last:
            found.append(position)
            last = number
    return found


def _depths(request: Request) -> Sequence[int]:
    """The number of nodes on the longest way from memory to each node."""
    depths: list[int] = []
    for sources in request.sources:
        depths.append(max([depths[source] for source in sources], default=-1) + 1)
    return depths
