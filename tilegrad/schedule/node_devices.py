"""The device of every node of a graph."""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.base.errors import DeviceError
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["devices_of"]


def devices_of(nodes: Sequence[UOp], default_device: str) -> dict[UOp, str]:
    """The device of every node: that of its memory, of its copy, of its sources, or, for a
    constant, of a user.
    """
    device: dict[UOp, str] = {}
    for node in nodes:
        if node.op in (Ops.BUFFER, Ops.RAND):
            device[node] = node.arg.device
        elif node.op is Ops.COPY or (node.op is Ops.CONTIGUOUS and isinstance(node.arg, str)):
            device[node] = node.arg
        else:
            found = [device[source] for source in node.src if device.get(source)]
            if len(set(found)) > 1 and node.op is not Ops.SINK:
                both = " and ".join(dict.fromkeys(found))
                raise DeviceError(
                    f"{node.op.name.lower()}: operands on two devices: {both}",
                    remedy="move one of them with .to(device)",
                )
            device[node] = found[0] if found else ""
    # Values made of constants alone are computed where they are used.
    for node in reversed(nodes):
        name = device[node]
        if name and node.op is not Ops.SINK:
            for source in node.src:
                device[source] = device[source] or name
    return {node: name or default_device for node, name in device.items()}
