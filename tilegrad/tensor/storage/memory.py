"""Memory for new tensors, how a node looks at its memory, and reading values.

A tensor with a symbolic size has memory for the Variable's maximum, and is a window of it.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Sequence
from typing import Any

from tilegrad.base.dtype import DType
from tilegrad.base.references import ONE_ATTRIBUTE_AND_LOCAL
from tilegrad.device.registry import Device
from tilegrad.engine.realize import realize as engine
from tilegrad.engine.run import group_memory
from tilegrad.engine.run import leaf_memory as store
from tilegrad.engine.run.run import record_of_thread
from tilegrad.ir.op import Ops
from tilegrad.ir.placement import Group, Placement
from tilegrad.ir.queries import below_views
from tilegrad.ir.sizes import number_at
from tilegrad.ir.uop import UOp, sint
from tilegrad.runtime.buffer import address_of
from tilegrad.tensor.handle.core import compute
from tilegrad.tensor.handle.device import canonical
from tilegrad.tensor.handle.size_arguments import Variables, are_plain, simple
from tilegrad.tensor.handle.tracing import transforms
from tilegrad.tensor.storage.host_memory import pack, unpack

__all__ = [
    "WRITTEN", "base_of", "bound", "copied", "elements", "empty", "expose", "filled", "fixed",
    "from_host", "has_assignment", "is_in_order", "is_row_major", "is_shared", "is_sole",
    "is_stored", "is_superseded", "is_view", "is_whole", "is_written", "largest", "looks_at",
    "moves_of", "needs_no_run", "number_in", "over", "owned", "sizes_in", "stored_below",
    "supersede", "unwritten", "version_of", "without_detach", "writes_before",
]  # fmt: skip
# Versions of memory that an assignment, run or not, goes on from.
_superseded: weakref.WeakSet[UOp] = weakref.WeakSet()
# An ASSIGN is its target once that was written; AFTER is memory once a part of it was.
WRITTEN = (Ops.ASSIGN, Ops.AFTER)
_exclusive = engine.exclusive()
# Elements that the host writes at a time.
_FILLED = 1 << 16


def largest(shape: Sequence[sint]) -> tuple[int, ...]:
    if are_plain(shape):
        return tuple(shape)  # type: ignore[arg-type]
    # Simplified, as the bounds of (n + 1) - n are not those of 1.
    sizes = [simple(size) for size in shape]
    return tuple(size if isinstance(size, int) else int(size.vmax) for size in sizes)


def _shaped(node: UOp, shape: tuple[sint, ...]) -> UOp:
    """The flat `node` in `shape`; a window of it where a size is symbolic."""
    whole = largest(shape)
    if node.shape != whole:
        node = UOp(Ops.RESHAPE, node.dtype, (node,), whole)
    if whole != shape:
        node = UOp(Ops.SHRINK, node.dtype, (node,), tuple((0, size) for size in shape))
    return node


# The number of elements of a shape without variables.
elements = math.prod


def empty(device: str, dtype: DType, shape: tuple[sint, ...]) -> UOp:
    """New memory of `shape` on `device`, holding whatever it holds."""
    if isinstance(device, Group):
        return _shaped(group_memory.empty(device, dtype, elements(largest(shape))), shape)
    return _shaped(store.empty(device, dtype, elements(largest(shape))), shape)


def from_host(device: str, dtype: DType, data: bytes | memoryview, shape: tuple[int, ...]) -> UOp:
    """`data`, bytes of `shape`, on the host and on their way to `device`."""
    node = store.buffer_from_host("HOST", dtype, data, elements(shape))
    if device != "HOST":
        node = copied(node, device)
    return _shaped(node, shape)


def copied(node: UOp, device: Any) -> UOp:
    """The value of `node` on `device`; of several, the whole of it on each."""
    if isinstance(device, Group):
        return compute(Ops.SHARD, node.dtype, (node,), Placement(device))
    return compute(Ops.COPY, node.dtype, (node,), device)


def over(device: str, dtype: DType, data: memoryview, shape: tuple[int, ...]) -> UOp:
    """`data`, bytes of `shape` in memory of somebody else, which is read in place and never written
    to: by `device` itself where it reaches the host's memory, else on their way to it.
    """
    is_aligned = not address_of(data) % dtype.itemsize
    if (
        is_aligned
        and device != "HOST"
        and not isinstance(device, Group)
        and Device[device].runtime.wrap(data) is not None
    ):
        node = store.buffer_from_host(device, dtype, data, elements(shape), is_fixed=True)
        return _shaped(node, shape)
    return from_host(device, dtype, data, shape)


def owned(node: UOp, device: str) -> UOp:
    """`node` written to memory of its own, so that it is one tensor's own."""
    if isinstance(device, Group):
        placement = engine.placement_of(node) or Placement(device)
        target = group_memory.empty_as(placement, node.shape, node.dtype)
        if target.op is not Ops.PERMUTE:
            return compute(Ops.ASSIGN, node.dtype, (target, node))
        # A value that is written whole is written in the order of its memory.
        (below,), order = target.src, target.arg
        inverse = tuple([order.index(axis) for axis in range(len(order))])
        value = UOp(Ops.PERMUTE, node.dtype, (node,), inverse)
        written = compute(Ops.ASSIGN, node.dtype, (below, value))
        return UOp(Ops.PERMUTE, node.dtype, (written,), order)
    return compute(Ops.ASSIGN, node.dtype, (empty(device, node.dtype, node.shape), node))


def filled(node: UOp, device: str) -> UOp:
    """The constant `node` in memory of its own: written here where the host reaches that memory, as
    a kernel would have to be made for each size; else as `owned`.
    """
    found = None if isinstance(device, Group) else _value_everywhere(node)
    if found is None:
        return owned(node, device)
    buffer = Device[device].buffer(elements(node.shape), node.dtype)
    view = buffer.host_view()
    if view is None:
        return owned(node, device)
    some = pack([found], node.dtype) * min(buffer.size, _FILLED)
    for start in range(0, len(view), len(some)):
        rest = view[start : start + len(some)]
        rest[:] = some[: len(rest)]
    return _shaped(store.leaf(buffer), node.shape)


def _value_everywhere(node: UOp) -> Any:
    """The number that all elements of `node` are, if that and its shape are seen at once."""
    if not are_plain(node.shape):
        return None
    while node.op in (Ops.RESHAPE, Ops.EXPAND):
        node = node.src[0]
    return node.arg if node.op is Ops.CONST else None


def base_of(node: UOp) -> UOp:
    """The node below a chain of movement ops and of assignments that wait to run."""
    written: UOp | None = None
    while True:
        if node.op.is_movement or node.op is Ops.DETACH:
            node = node.src[0]
        elif node.op in WRITTEN:
            reference = _bases.get(node)
            known = None if reference is None else reference()
            if known is not None:
                node = known
                break
            written = written or node
            node = node.src[0]
        else:
            break
    if written is not None:
        _bases[written] = weakref.ref(node)
    return node


# By assignments, what they write to: a chain of them may be long. Weak, as `is_sole` counts who
# holds that.
_bases: weakref.WeakKeyDictionary[UOp, weakref.ref[UOp]] = weakref.WeakKeyDictionary()
# Those whose elements are one element of memory each.
_views: weakref.WeakSet[UOp] = weakref.WeakSet()


# The node that a view of memory looks at: a BUFFER, or a node that is one once it was written to.
version_of = below_views


def supersede(version: UOp, *, is_so: bool = True) -> None:
    """Say that an assignment goes on from `version`: who still looks at it will be given a copy,
    and is not seen by others any more.
    """
    if is_so:
        _superseded.add(version)
    else:
        _superseded.discard(version)


def is_superseded(view: UOp) -> bool:
    """Whether `view` looks at a version of memory that an assignment goes on from."""
    return version_of(view) in _superseded


def writes_before(version: UOp) -> int:
    """How many assignments to parts of the memory have yet to run for `version`."""
    count = 0
    while version.op is Ops.AFTER and engine.realized(version) is None:
        version, count = version_of(version.src[0]), count + 1
    return count


def without_detach(view: UOp) -> UOp:
    """The view of memory `view` without DETACH, for uses that only need its elements' addresses."""
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
    written: UOp | None = None
    while node.op is not Ops.BUFFER:
        if node.op not in _ONE_TO_ONE:
            return False
        if node.op in WRITTEN:
            if node in _views:
                break
            written = written or node
        node = node.src[0]
    if written is not None:
        _views.add(written)
    return True


def unwritten(view: UOp) -> UOp:
    """`view`, but for its last assignment if that wrote all of the memory and has not run."""
    version = version_of(view)
    if version.op is not Ops.ASSIGN or engine.realized(version) is not None:
        return view
    return view.substitute({version: version.src[0]})


def is_whole(node: UOp) -> bool:
    """Whether the view `node` has all elements of its memory; a symbolic size counts as its
    maximum.
    """
    size: int = base_of(node).arg.size
    return elements(largest(node.shape)) == size


_ONE_TO_ONE = frozenset({
    Ops.RESHAPE, Ops.PERMUTE, Ops.FLIP, Ops.SHRINK, Ops.DETACH, Ops.ASSIGN, Ops.AFTER
})  # fmt: skip


def is_written(node: UOp) -> bool:
    """Whether `node` looks at memory as an assignment that may not have run leaves it."""
    return version_of(node).op in WRITTEN


def sizes_in(shape: Sequence[sint], variables: Variables) -> Variables:
    """The values of the variables in `shape`: of a tensor in memory, all that it needs."""
    if not variables:
        return variables
    known = {node for size in shape if isinstance(size, UOp) for node in size.toposort()}
    return {key: value for key, value in variables.items() if key in known}


def has_assignment(node: UOp) -> bool:
    """Whether an assignment in the chain down to memory, or to a draw, has yet to run."""
    while node.src:
        if node.op in WRITTEN:
            return True
        node = node.src[0]
    return False


def is_sole(tensor: Any) -> bool:
    """Whether nothing but `tensor` stands on its memory: no view, and no graph that waits. The
    caller must hold no node of it.
    """
    node = tensor.uop
    while sys.getrefcount(node) <= ONE_ATTRIBUTE_AND_LOCAL:
        if not node.src:
            return True
        node = node.src[0]
    return False


def is_stored(node: UOp) -> bool:
    """Whether the value is in memory, under whatever index."""
    while node.op.is_movement or node.op is Ops.DETACH:
        node = node.src[0]
    return node.op is Ops.BUFFER


def needs_no_run(node: UOp) -> bool:
    """Whether the value is in memory, here or at the host, under whatever index."""
    while node.op.is_movement or node.op is Ops.DETACH:
        node = node.src[0]
    return node.op is Ops.BUFFER or node.op is Ops.COPY or node.stored is not None


def looks_at(node: UOp, buffer: UOp) -> bool:
    """Whether `node` is `buffer` under some index."""
    while node.op.is_movement or node.op is Ops.DETACH:
        node = node.src[0]
    return node is buffer


def is_in_order(node: UOp) -> bool:
    """Whether the view `node` has the elements of the memory below in their order."""
    while node.op.is_movement or node.op is Ops.DETACH:
        if node.op in (Ops.PERMUTE, Ops.FLIP):
            return False
        node = node.src[0]
    return True


def is_row_major(node: UOp) -> bool:
    """Whether `node` is all of its memory in its order."""
    while node.op is Ops.RESHAPE:
        node = node.src[0]
    return node.op is Ops.BUFFER


def moves_of(node: UOp) -> tuple[list[tuple[Ops, Any]], UOp]:
    """The movement ops of a view of memory, in order, and the memory."""
    moves: list[tuple[Ops, Any]] = []
    while node.op is not Ops.BUFFER:
        if node.op is not Ops.DETACH:
            moves.append((node.op, node.arg))
        node = node.src[0]
    return moves[::-1], node


def fixed(node: UOp, variables: Variables) -> UOp:
    """A stored `node` with numbers for the sizes of its movement ops, and nothing else above its
    memory.
    """
    if not variables and is_row_major(node):
        return node
    chain: list[UOp] = []
    while node.op is not Ops.BUFFER:
        chain.append(node)
        node = node.src[0]

    def number(entry: Any) -> Any:
        return (
            tuple(number(inner) for inner in entry)
            if isinstance(entry, tuple)
            else bound(entry, variables)
        )

    for step in reversed(chain):
        if step.op is Ops.DETACH:
            continue
        arg = number(step.arg)
        if step.op is not Ops.SHRINK or arg != tuple((0, size) for size in node.shape):
            node = UOp(step.op, step.dtype, (node,), arg)
    return node


def stored_below(node: UOp, device: str) -> UOp:
    """The node to compute so that `node` is memory: itself, or the stored value it views."""
    if node.is_constant:
        # No memory below a constant graph says on which device to compute it.
        return (
            node
            if device == Device.DEFAULT
            else UOp(Ops.CONTIGUOUS, node.dtype, (node,), canonical(device))
        )
    base = below_views(node)
    if base in _superseded and base is not node:
        # No more than the view is materialised where the memory is about to be overwritten.
        return node
    return base if base.op in (Ops.COPY, Ops.CONTIGUOUS, *WRITTEN) else node


def number_in(node: UOp) -> Any:
    """The value of `node` if it is all of memory of one element; None if that is not known here."""
    while node.op is Ops.RESHAPE:
        node = node.src[0]
    if node.op is not Ops.BUFFER or node.arg.size != 1 or transforms.depth:
        return None
    with _exclusive:
        if record_of_thread() is None:
            number = engine.read_number(store.buffer_of(node))
            if number is not None:
                return number
        return unpack(engine.read(engine.looked_at(node)), node.dtype, 1)[0]


def expose(node: UOp) -> None:
    """Say that the memory of the realized `node` goes to others who could write it unseen."""
    engine.expose(base_of(node))


def is_shared(node: UOp, data: memoryview) -> bool:
    """Whether `data` is the memory of the realized `node` itself."""
    view = engine.view_of(base_of(node)) if is_row_major(node) else None
    return view is not None and address_of(view) == address_of(data)


def bound(size: Any, variables: Variables) -> int:
    """A size as a number that Python code sees: a capture watches these calls, and not those of
    `number_at`.
    """
    return number_at(size, variables)
