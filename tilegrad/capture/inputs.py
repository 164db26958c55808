"""The tensors a replay begins with: arguments, and state that the function reads.

A replay takes an input's memory as it is, if it is all of a buffer in its order (or, for state,
looks at it as it did at the capture). An argument that is a slice of another tensor is copied, and
so is one that waits on the host, or is a number: straight to memory of the capture's own, with no
schedule.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tilegrad.base.config import config
from tilegrad.capture.results import TensorSignature
from tilegrad.device.registry import Device
from tilegrad.engine.run import report
from tilegrad.engine.run.leaf_memory import buffer_of, leaf
from tilegrad.ir.op import Ops
from tilegrad.ir.placement import Group, GroupBufferArg
from tilegrad.ir.queries import below_reshapes
from tilegrad.ir.uop import UOp
from tilegrad.runtime.buffer import Buffer
from tilegrad.tensor.handle.aliases import is_contiguous, look
from tilegrad.tensor.handle.core import live
from tilegrad.tensor.handle.size_arguments import multiply, show_shape
from tilegrad.tensor.storage import host_memory, memory
from tilegrad.tensor.tensor import Tensor

__all__ = ["Input", "Staging", "is_readable", "is_waiting", "layout", "living", "settle"]

Layout = tuple[tuple[Ops, Any], ...]
ROWS: Layout = ((Ops.RESHAPE, "rows"),)


def living() -> list[Tensor]:
    """Every tensor that someone holds."""
    return [tensor for tensor in live() if isinstance(tensor, Tensor)]


def layout(node: UOp) -> Layout:
    """How a stored node looks at its memory."""
    steps: list[tuple[Ops, Any]] = []
    while node.op is not Ops.BUFFER:
        if node.op is not Ops.DETACH:
            steps.append((node.op, node.arg))
        node = node.src[0]
    if isinstance(node.arg, GroupBufferArg):
        return (*steps, (Ops.SHARD, node.arg.bounds))
    if all(op is Ops.RESHAPE for op, _ in steps):
        return ROWS
    return tuple(steps)


def is_readable(node: UOp) -> bool:
    """Whether a stored argument is taken as it is: all of its memory, or as much of it as a
    variable says.
    """
    found = layout(node)
    if found is ROWS:
        return True
    if found[-1][0] is Ops.SHARD:
        return all(op in (Ops.RESHAPE, Ops.PERMUTE) for op, _ in found[:-1])
    cut, *rest = found
    if cut[0] is not Ops.SHRINK or any(op is not Ops.RESHAPE for op, _ in rest):
        return False
    inner = node.src[0].shape
    return all(
        start == 0 and (end == size or isinstance(end, UOp))
        for (start, end), size in zip(cut[1], inner, strict=True)
    )


def is_waiting(tensor: Tensor) -> bool:
    """Whether the tensor is still to be computed from memory or random words."""
    node = tensor.uop
    return not memory.is_stored(node) and not node.is_constant


def settle(tensors: Sequence[Tensor]) -> None:
    """Compute the waiting ones among `tensors`, in one schedule."""
    waiting = [tensor for tensor in tensors if not memory.is_stored(tensor.uop)]
    if waiting:
        Tensor.realize(*waiting)


def _upload(node: UOp) -> UOp | None:
    """The leaf on the host that `node` is a copy of, if it is nothing else."""
    node = below_reshapes(node)
    if node.op is not Ops.COPY:
        return None
    node = below_reshapes(node.src[0])
    return node if node.op is Ops.BUFFER and node.arg.device == "HOST" else None


class Staging:
    """Memory of a capture's own, for an argument that has none of the right kind.

    Attributes:
        node: the argument's value there; None while the argument's own memory is taken.
        source: a weak reference to the memory that the argument is a slice of, if it is one.
    """

    def __init__(self) -> None:
        self._buffer: Buffer | None = None
        self.node: UOp | None = None
        self.source: weakref.ref[Buffer] | None = None

    def fill(self, tensor: Tensor, *, is_fresh: bool) -> Buffer | None:
        """The memory, with the value of `tensor` in it; None if the tensor must be realized, or can
        be taken as it is.

        With `is_fresh` the memory is new, as somebody may look at that of the last call.
        """
        node = tensor.uop
        self.node = self.source = None
        if memory.is_stored(node):
            if is_readable(node):
                return None
            self.source = weakref.ref(buffer_of(memory.base_of(node)))
            return self._copy(tensor)
        if isinstance(tensor.device, Group):
            return None
        if node.op is Ops.CONST:
            target = self._take(tensor, 1, is_fresh)
            target.copy_in(host_memory.pack([node.arg], tensor.dtype))
            return target
        source = _upload(node)
        if source is None:
            return None
        given = buffer_of(source)
        target = self._take(tensor, given.size, is_fresh)
        view = given.host_view()
        target.copy_in(view if view is not None else given.copy_out())
        if config.DEBUG >= 2:
            report.show_copy(target.device, "HOST", target.nbytes, 0.0, replay=True)
        return target

    def _copy(self, tensor: Tensor) -> Buffer:
        copied = tensor._like(UOp(Ops.CONTIGUOUS, tensor.dtype, (tensor.uop,)))
        settle([copied])
        self.node, self._buffer = copied.uop, None
        return buffer_of(memory.base_of(copied.uop))

    def _take(self, tensor: Tensor, size: int, is_fresh: bool) -> Buffer:
        found = self._buffer
        if found is None or is_fresh or (found.size, found.device) != (size, tensor.device):
            found = self._buffer = Device[tensor.device].buffer(size, tensor.dtype)
            self._flat = leaf(found)
        node = self._flat
        shape = tensor.uop.shape
        self.node = node if node.shape == shape else UOp(Ops.RESHAPE, node.dtype, (node,), shape)
        return found


@dataclass(eq=False)
class Input:
    """Facts about one input of a capture.

    Attributes:
        kind: "memory", which a replay binds anew; "shape", whose values the function did not use;
            "graph", which is a constant of the capture.
        slot: its memory's number in the program.
        node: the constant, of a "graph".
        is_written: whether a replay writes it.
        is_slice: whether the capture looked at a slice of its memory: a copy would not do.
        is_viewed: whether a result looks at its memory.
        look: how it has to look at its storage, where a result has moves that are one with its own.
        is_contiguous: whether its elements are side by side in its storage, if that counts: a
            reshape of others is a copy.
    """

    label: str
    signature: TensorSignature
    shape: tuple[Any, ...]
    layout: Layout = ROWS
    kind: str = "shape"
    slot: int = -1
    node: UOp | None = None
    is_argument: bool = False
    is_written: bool = False
    is_slice: bool = False
    is_viewed: bool = False
    look: tuple[Any, ...] | None = None
    is_contiguous: bool | None = None
    staging: Staging = field(default_factory=Staging)

    @property
    def is_usual(self) -> bool:
        """Whether all that counts of its memory is that it is all of a buffer, in order."""
        if self.kind != "memory" or self.is_written or self.is_slice:
            return False
        return self.layout is ROWS and self.look is None and self.is_contiguous is None

    def differs(self, tensor: Tensor) -> str | None:
        """The difference from the captured input, memory aside: a line for a message, or None."""
        signature = self.signature
        if self.look is not None and self.look != look(tensor)[1:]:
            return "it looks at its storage in another way"
        if self.is_contiguous is not None and self.is_contiguous is not is_contiguous(tensor):
            return "a reshape of it is a copy, or no longer"
        if (
            tensor.uop.shape == self.shape
            and tensor.uop.dtype is signature.dtype
            and tensor.device == signature.device
            and tensor._requires_grad is signature.requires_grad
        ):
            return None
        for name, expected, got in (
            ("shape", show_shape(self.shape), show_shape(tensor.shape)),
            ("dtype", signature.dtype.name, tensor.dtype.name),
            ("device", signature.device, tensor.device),
            ("requires_grad", signature.requires_grad, tensor._requires_grad),
        ):
            if expected != got:
                return f"{name} was {expected}, is {got}"
        return "variables of its shape differ"

    @property
    def nbytes(self) -> int:
        """Bytes of the largest value."""
        sizes = [size if isinstance(size, int) else size.vmax for size in self.shape]
        return int(multiply([*sizes, self.signature.dtype.itemsize]))
