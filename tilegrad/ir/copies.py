"""Copies that land where they are wanted: a value on its way to memory of its own.

`x.assign(Tensor(array))` copies from the host to the device, and then into the memory of x. Where
nothing else asks for the copy, it goes there at once: a model is loaded without a second model
beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from tilegrad.ir.op import Ops
from tilegrad.ir.sizes import tidy
from tilegrad.ir.uop import UOp, prod

__all__ = ["direct_copies"]


def direct_copies(nodes: Collection[UOp]) -> dict[UOp, UOp]:
    """The assignments whose value is all of a copy that only they use, each with that copy. `nodes`
    are all of a graph.
    """
    users = Counter(source for node in nodes for source in node.src)
    found: dict[UOp, UOp] = {}
    for node in nodes:
        if node.op is not Ops.ASSIGN:
            continue
        place, value = node.src
        while place.op is Ops.RESHAPE:
            place = place.src[0]
        is_alone = users[value] == 1
        while value.op in (Ops.RESHAPE, Ops.DETACH):
            value = value.src[0]
            is_alone = is_alone and users[value] == 1
        is_whole = place.op is Ops.BUFFER and place.arg.size == tidy(prod(node.shape))
        if value.op is Ops.COPY and is_alone and is_whole and place.arg.device == value.arg:
            found[node] = value
    return found
