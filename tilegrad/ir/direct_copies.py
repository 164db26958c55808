"""Direct copies: a copy between devices that writes to its final memory.

`x.assign(Tensor(array))` copies from the host to the device, and then into the memory of x. Where
the copy has no other user, it writes there at once: loading a model needs no second model's memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from tilegrad.ir.op import Ops
from tilegrad.ir.queries import below_reshapes
from tilegrad.ir.sizes import tidy
from tilegrad.ir.uop import UOp, prod

__all__ = ["direct_copies"]


def direct_copies(nodes: Collection[UOp]) -> dict[UOp, UOp]:
    """The assignments whose value is a whole copy without other users, each with that copy. `nodes`
    are all nodes of a graph.
    """
    users = Counter(source for node in nodes for source in node.src)
    found: dict[UOp, UOp] = {}
    for node in nodes:
        if node.op is not Ops.ASSIGN:
            continue
        memory, value = node.src
        target = below_reshapes(memory)
        is_alone = users[value] == 1
        while value.op in (Ops.RESHAPE, Ops.DETACH):
            value = value.src[0]
            is_alone = is_alone and users[value] == 1
        is_whole = target.op is Ops.BUFFER and target.arg.size == tidy(prod(node.shape))
        if value.op is Ops.COPY and is_alone and is_whole and target.arg.device == value.arg:
            found[node] = value
    return found
