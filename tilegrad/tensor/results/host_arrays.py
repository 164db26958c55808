"""Arrays of the host that become memory: a run of a copy alone concerns no other tensor.

Before a run every tensor has its node, as values on the way may be what it needs. A copy from the
host has none on its way. A loop that takes slices of new data at each step (`batch[:, t]`) made all
nodes of the gradients of the step before, in vain.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tilegrad.engine.realize import realize as engine
from tilegrad.engine.run import leaf_memory as store
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.uploads import can_upload, new_memory
from tilegrad.tensor.handle.core import device_of
from tilegrad.tensor.handle.living import holders_of
from tilegrad.tensor.storage import host_runs

__all__ = ["copied_from_host"]


def copied_from_host(tensors: Sequence[Any], roots: Sequence[UOp]) -> list[UOp] | None:
    """The memory that holds the only one of `roots`, a copy of an array of the host, for its
    tensor; None where that is for the engine.
    """
    if len(tensors) != 1:
        return None
    (tensor,), (root,) = tensors, roots
    if root.op is not Ops.COPY or tensor._requires_grad or tensor._symbols:
        return None
    source, device = root.src[0], device_of(tensor)
    if source.op is not Ops.BUFFER or source.arg.device != "HOST" or root.arg != device:
        return None
    if any(each is not tensor for each in holders_of(root)):
        return None
    if not host_runs.may_compute() or not can_upload(device):
        return None
    data = store.buffer_of(source).host_view()
    buffer = None if data is None else new_memory(data, root.dtype, prod(root.shape), device)
    if buffer is None:
        return None
    memory = store.leaf(buffer)
    if memory.shape != root.shape:
        memory = UOp(Ops.RESHAPE, root.dtype, (memory,), root.shape)
    engine.remember(root, memory)
    return [memory]
