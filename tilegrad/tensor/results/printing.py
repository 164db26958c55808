"""A tensor as text: its values where it has some, else what is pending. Nothing runs for it.

A value is there if it was computed, if it is a constant, or if it waits on the host to be copied to
its device. Movement ops above it are done by NumPy, on views of the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilegrad.base.errors import DTypeError
from tilegrad.device.disk import is_file
from tilegrad.engine.realize import realize as engine
from tilegrad.engine.run.leaf_memory import buffer_of
from tilegrad.engine.run.run import current_recording
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.core import Core, describe
from tilegrad.tensor.handle.tracing import is_transforming
from tilegrad.tensor.storage import host_memory

__all__ = ["formatted", "text_of", "values_of"]


def values_of(tensor: Core) -> Any | None:
    """The values of `tensor` as a read-only NumPy array, or None where it has none yet.

    A captured function sees none: text made of values would be that of the captured call.
    """
    if is_transforming() or current_recording() is not None or is_file(tensor.device):
        return None
    node = tensor.uop
    if node.op is Ops.CONST:
        return host_memory.array_from(
            memoryview(host_memory.pack([node.arg], node.dtype)), node.dtype, ()
        )
    if any(isinstance(size, UOp) for size in node.shape):
        return None
    chain: list[UOp] = []
    stored = node
    while stored.op is not Ops.BUFFER:
        found = engine.realized(stored) or _on_the_host(stored)
        if found is not None:
            stored = found
        elif not (stored.op.is_movement or stored.op is Ops.DETACH):
            return None
        while stored.op.is_movement or stored.op is Ops.DETACH:
            chain.append(stored)
            stored = stored.src[0]
    if not buffer_of(stored).is_allocated:
        return None
    array = host_memory.array_from(
        engine.lend(engine.looked_at(stored)), stored.dtype, (stored.arg.size,)
    )
    for step in reversed(chain):
        array = host_memory.moved(array, step.op, step.arg)
    return array


def _on_the_host(node: UOp) -> UOp | None:
    """The host's memory, if `node` is a pending copy of it to the device."""
    if node.op is not Ops.COPY:
        return None
    source = node.src[0]
    return source if source.op is Ops.BUFFER and source.arg.device == "HOST" else None


def text_of(tensor: Core, array: Any) -> str:
    """The values as NumPy prints them, long ones shortened; then dtype and device."""
    import numpy

    head = "Tensor("
    values = numpy.array2string(array, separator=", ", prefix=head)
    grad = ", requires_grad=True" if tensor._requires_grad else ""
    return f"{head}{values}, dtype={tensor.dtype.name}, device={tensor.device}{grad})"


def formatted(tensor: Core, spec: str, number: Callable[[], Any]) -> str:
    """`tensor` under the format `spec`: that of its number, which `number()` computes.

    Raises DTypeError for a tensor with axes.
    """
    if not spec:
        return str(tensor)
    if tensor.shape:
        raise DTypeError(
            f"format: {spec!r} formats one number, not a tensor of shape {tensor.shape}",
            tensor=describe(tensor.uop),
            remedy="format the numbers of tolist(), or one that item() gives",
        )
    return format(number(), spec)
