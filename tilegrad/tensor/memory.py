"""Where tensors meet the engine: memory for new ones, running what is pending, reading values.

A tensor with a symbolic size has memory for the Variable's maximum, and is a window of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from tilegrad.base.dtype import DType
from tilegrad.device.registry import Device
from tilegrad.engine import memory as store
from tilegrad.engine import realize as engine
from tilegrad.ir.op import Ops
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp, sint
from tilegrad.runtime.buffer import address_of
from tilegrad.tensor.core import compute, live
from tilegrad.tensor.sizes import Variables, simple

__all__ = [
    "base_of", "bound", "empty", "fixed", "from_host", "has_assignment", "is_row_major",
    "is_shared", "is_stored", "is_view", "is_whole", "lend",
    "looks_at", "over", "owned", "place_of", "read", "run", "share", "stored_below",
]  # fmt: skip


def _largest(shape: Sequence[sint]) -> tuple[int, ...]:
    # Simplified, as the bounds of (n + 1) - n are not those of 1.
    sizes = [simple(size) for size in shape]
    return tuple(size if isinstance(size, int) else int(size.vmax) for size in sizes)


def _shaped(node: UOp, shape: tuple[sint, ...]) -> UOp:
    """The flat `node` in `shape`; a window of it where a size is symbolic."""
    whole = _largest(shape)
    if node.shape != whole:
        node = UOp(Ops.RESHAPE, node.dtype, (node,), whole)
    if whole != shape:
        node = UOp(Ops.SHRINK, node.dtype, (node,), tuple((0, size) for size in shape))
    return node


def _elements(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def empty(device: str, dtype: DType, shape: tuple[sint, ...]) -> UOp:
    """New memory of `shape` on `device`, holding whatever it holds."""
    return _shaped(store.empty(device, dtype, _elements(_largest(shape))), shape)


def from_host(device: str, dtype: DType, data: bytes | memoryview, shape: tuple[int, ...]) -> UOp:
    """`data`, bytes of `shape`, on the host and on their way to `device`."""
    node = store.buffer_from_host("HOST", dtype, data, _elements(shape))
    if device != "HOST":
        node = compute(Ops.COPY, dtype, (node,), device)
    return _shaped(node, shape)


def over(device: str, dtype: DType, data: memoryview, shape: tuple[int, ...]) -> UOp:
    """`data`, bytes of `shape` in memory of somebody else, which is read in place and never written
    to: by `device` itself where it reaches the host's memory, else on their way to it.
    """
    is_aligned = not address_of(data) % dtype.itemsize
    if is_aligned and device != "HOST" and Device[device].runtime.wrap(data) is not None:
        node = store.buffer_from_host(device, dtype, data, _elements(shape), is_fixed=True)
        return _shaped(node, shape)
    return from_host(device, dtype, data, shape)


def owned(node: UOp, device: str) -> UOp:
    """`node` written to memory of its own, so that it is one tensor's own."""
    return compute(Ops.ASSIGN, node.dtype, (empty(device, node.dtype, node.shape), node))


def base_of(node: UOp) -> UOp:
    """What a chain of movement ops, and of assignments that wait to run, is a view of."""
    while node.op.is_movement or node.op in (Ops.DETACH, Ops.ASSIGN):
        node = node.src[0]
    return node


def place_of(view: UOp) -> UOp:
    """The view of memory `view`, of which only the place counts, without DETACH."""
    chain: list[UOp] = []
    node = view
    while node.op.is_movement or node.op is Ops.DETACH:
        chain.append(node)
        node = node.src[0]
    for step in reversed(chain):
        node = node if step.op is Ops.DETACH else UOp(step.op, step.dtype, (node,), step.arg)
    return node


def is_view(node: UOp) -> bool:
    """Whether each element of `node` is one element of memory, so that it can be written to."""
    while node.op is not Ops.BUFFER:
        if node.op not in _ONE_TO_ONE:
            return False
        node = node.src[0]
    return True


def is_whole(node: UOp) -> bool:
    """Whether the view `node` has all elements of its memory; a symbolic size counts as its
    maximum.
    """
    size: int = base_of(node).arg.size
    return _elements(_largest(node.shape)) == size


_ONE_TO_ONE = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.FLIP, Ops.SHRINK, Ops.DETACH, Ops.ASSIGN})


def run(roots: list[UOp], variables: Variables, but: Collection[Any] = ()) -> list[UOp]:
    """Compute `roots` now; each result is [a view of] a buffer that holds its value.

    Live tensors that still need what is overwritten get its old value, except the tensors `but`.
    """
    excluded = {id(tensor) for tensor in but}
    lookers: list[tuple[Any, UOp]] = []

    def others() -> Iterable[UOp]:
        """Called if a buffer is about to be overwritten: what the tensors alive may still need."""
        for tensor in live():
            if id(tensor) in excluded:
                continue
            node = tensor.uop
            if is_stored(node):
                node = UOp(Ops.CONTIGUOUS, node.dtype, (node,)) if node.op is Ops.BUFFER else node
                lookers.append((tensor, node))
            yield node

    results = engine.realize(roots, dict(variables), others)
    for tensor, node in lookers:
        # Who looked at memory that was overwritten looks at the copy of what it held.
        kept = engine.realized(node)
        if kept is not None and kept is not node:
            is_detached = any(part.op is Ops.DETACH for part in node.toposort())
            tensor.uop = UOp(Ops.DETACH, kept.dtype, (kept,)) if is_detached else kept
            tensor._is_shared = False
    return results


def has_assignment(node: UOp) -> bool:
    """Whether an assignment in the chain down to memory has yet to run."""
    while node.op is not Ops.BUFFER:
        if node.op is Ops.ASSIGN:
            return True
        node = node.src[0]
    return False


def is_stored(node: UOp) -> bool:
    """Whether the value is in memory, under whatever index."""
    while node.op.is_movement or node.op is Ops.DETACH:
        node = node.src[0]
    return node.op is Ops.BUFFER


def looks_at(node: UOp, buffer: UOp) -> bool:
    """Whether `node` is `buffer` under some index."""
    while node.op.is_movement or node.op is Ops.DETACH:
        node = node.src[0]
    return node is buffer


def is_row_major(node: UOp) -> bool:
    """Whether `node` is all of its memory in its order."""
    while node.op is Ops.RESHAPE:
        node = node.src[0]
    return node.op is Ops.BUFFER


def fixed(node: UOp, variables: Variables) -> UOp:
    """A stored `node` with numbers for the sizes of its movement ops, and nothing else above its
    memory.
    """
    chain: list[UOp] = []
    while node.op is not Ops.BUFFER:
        chain.append(node)
        node = node.src[0]

    def number(part: Any) -> Any:
        return (
            tuple(number(inner) for inner in part)
            if isinstance(part, tuple)
            else bound(part, variables)
        )

    for step in reversed(chain):
        if step.op is Ops.DETACH:
            continue
        arg = number(step.arg)
        if step.op is not Ops.SHRINK or arg != tuple((0, size) for size in node.shape):
            node = UOp(step.op, step.dtype, (node,), arg)
    return node


def stored_below(node: UOp, device: str) -> UOp:
    """What to compute so that `node` is memory: itself, or the stored value it views."""
    if node.is_constant:
        # No memory below a constant graph says on which device to compute it.
        return (
            node if device == Device.DEFAULT else UOp(Ops.CONTIGUOUS, node.dtype, (node,), device)
        )
    base = node
    while base.op.is_movement or base.op is Ops.DETACH:
        base = base.src[0]
    return base if base.op in (Ops.COPY, Ops.CONTIGUOUS, Ops.ASSIGN) else node


def read(node: UOp) -> memoryview:
    """The bytes of a realized node."""
    return engine.read(node)


def lend(node: UOp) -> memoryview:
    """The bytes of a realized node, read-only, to keep: its memory itself where that can be."""
    return engine.lend(node)


def share(node: UOp) -> memoryview:
    """As `lend`, of small memory too."""
    return engine.lend(node, is_small_too=True)


def is_shared(node: UOp, data: memoryview) -> bool:
    """Whether `data` is the memory of the realized `node` itself."""
    view = engine.view_of(base_of(node)) if is_row_major(node) else None
    return view is not None and address_of(view) == address_of(data)


def bound(size: Any, variables: Variables) -> int:
    """A size as a number, under the values of its variables."""
    if isinstance(size, int):
        return size
    values = {variable: UOp.const(variable.dtype, value) for variable, value in variables.items()}
    return int(simplify(size.substitute(values)).arg)
