"""Tensors in files, on a device `DISK:path`: reading and writing without a kernel.

A file computes nothing. So what is made of a tensor in a file is made where the result goes: on the
way to another device, the graph's leaves are copied and the rest is computed there. Only the slice
of a leaf that is needed is copied. A write goes to the file at once, after everything that still
needs the old bytes.
"""

from __future__ import annotations

import math
from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DeviceError, IndexBoundsError, ShapeError
from tilegrad.device.disk import FileBackend, is_file
from tilegrad.device.registry import Device
from tilegrad.engine.realize.realize import readers_of
from tilegrad.engine.run import leaf_memory as store
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.core import Core, describe, live
from tilegrad.tensor.storage import memory

__all__ = ["leaf_of", "moved", "reinterpreted", "retyped", "write"]


def leaf_of(path: str) -> UOp | None:
    """All bytes of the file, as a leaf that can be read; None if there are none."""
    backend = Device[f"DISK:{path}"]
    assert isinstance(backend, FileBackend)
    buffer = backend.whole(dtypes.uint8)
    return None if buffer is None else store.leaf(buffer)


def retyped(leaf: UOp, dtype: DType) -> UOp:
    """The bytes of a leaf as elements of another dtype; there must be a whole number of them."""
    buffer = store.buffer_of(leaf)
    return store.leaf(buffer.view(0, buffer.nbytes // dtype.itemsize, dtype))


def reinterpreted(node: UOp, dtype: DType) -> UOp | None:
    """A row of neighbours in a file as elements of a dtype of another size, with the last axis
    longer or shorter: a view, which can be written. None for what is no such row.
    """
    found_slice = _slice_of(node) if node.shape else None
    if found_slice is None:
        return None
    leaf, first, count = found_slice
    buffer = store.buffer_of(leaf)
    size = buffer.dtype.itemsize
    *rest, last = node.shape
    if last * size % dtype.itemsize or (buffer.offset + first * size) % dtype.itemsize:
        return None
    found = store.leaf(buffer.view(first * size, count * size // dtype.itemsize, dtype))
    shape = (*rest, last * size // dtype.itemsize)
    return found if found.shape == shape else UOp(Ops.RESHAPE, dtype, (found,), shape)


def moved(node: UOp, source: str, device: str) -> UOp:
    """`node`, which is on the device `source`, on `device`."""
    if not is_file(source):
        return memory.copied(node, device)
    replaced: dict[UOp, UOp] = {}
    stack, seen = [node], {node}
    while stack:
        each = stack.pop()
        found_slice = _slice_of(each)
        if found_slice is not None:
            replaced[each] = _copied(each, *found_slice, device)
            continue
        if each.op is Ops.COPY:
            # It is on its way to the file, and is read from there.
            replaced[each] = memory.copied(each, device)
            continue
        fresh = [source for source in each.src if source not in seen]
        seen.update(fresh)
        stack += fresh
    return node.substitute(replaced)


def _slice_of(node: UOp) -> tuple[UOp, int, int] | None:
    """(leaf, first element, elements) if `node` is a row of neighbours in a file, in any shape."""
    if node.op is Ops.BUFFER:
        return (node, 0, node.arg.size) if is_file(node.arg.device) else None
    if node.op not in (Ops.RESHAPE, Ops.SHRINK, Ops.DETACH):
        return None
    if any(not isinstance(size, int) for size in node.shape):
        return None
    below = _slice_of(node.src[0])
    if below is None or node.op is not Ops.SHRINK:
        return below
    leaf, first, _ = below
    begin, step, is_cut = 0, 1, False
    # From the last axis on: behind the first axis that is cut, all in front of it must be single.
    for (low, high), size in reversed(list(zip(node.arg, node.src[0].shape))):
        if is_cut and high - low != 1:
            return None
        is_cut = is_cut or high - low != size
        begin += low * step
        step *= size
    return leaf, first + begin, math.prod(node.shape)


def _copied(node: UOp, leaf: UOp, first: int, count: int, device: str) -> UOp:
    """`count` elements of the file's leaf on `device`, in the shape of `node`: the file itself,
    where it is only read and the device reaches it.
    """
    buffer = store.buffer_of(leaf)
    size, dtype = buffer.dtype.itemsize, buffer.dtype
    data = buffer.handle[first * size : (first + count) * size]
    if data.readonly and not is_file(device):
        return memory.over(device, dtype, data, node.shape)
    source = leaf if count == buffer.size else store.leaf(buffer.view(first * size, count))
    copied = memory.copied(source, device)
    if copied.shape != node.shape:
        copied = UOp(Ops.RESHAPE, dtype, (copied,), node.shape)
    return copied


def write(tensor: Any, key: Any, value: Any) -> None:
    """Write `value`, a tensor of the tensor's dtype and on any device, that stretches to the shape
    of `tensor[key]`, to that part of the file, after everything that still needs the old bytes.

    Raises DeviceError for a file that was opened to be read, ShapeError for what is no part of it,
    IndexBoundsError for an index outside.
    """
    import numpy

    node = memory.without_detach(tensor.uop)
    leaf = memory.base_of(node)
    if not memory.is_view(node) or memory.has_assignment(node):
        array = None
    else:
        # Nothing is written, and no file made, for an index or a value that do not fit.
        key = _plain(key)
        shape = _shape_of(node, key)
        raw = value.expand(shape)._bytes()
        array = _array(node)
    if array is None:
        raise ShapeError(
            "assign: this is computed from a file, and no part of it that can be written",
            tensor=describe(tensor.uop),
        )
    if not array.flags.writeable:
        name = leaf.arg.device
        raise DeviceError(
            "assign: this file was opened to be read",
            file=name.partition(":")[2],
            remedy=f"open it by Tensor.empty(shape, dtype=dtype, device={name!r})",
        )
    everyone: list[Any] = list(live())
    lookers = [other for other in everyone if memory.looks_at(other.uop, leaf)]
    for other in everyone:
        if not memory.is_stored(other.uop) and readers_of([leaf], [other.uop]):
            # It gets the old bytes; what was left in the file to be computed moves for that.
            source = other.to(None).realize() if is_file(other.device) else other.realize()
            other.uop, other.device = source.uop, source.device
    array[key] = numpy.frombuffer(raw, array.dtype).reshape(shape)
    fresh = store.overwrite(leaf)
    for other in lookers:
        other.uop = other.uop.substitute({leaf: fresh})
        other._previous = ()


def _shape_of(node: UOp, key: Any) -> tuple[int, ...]:
    """The shape of `tensor[key]` by NumPy's rules, without the memory of the tensor."""
    import numpy

    try:
        found = numpy.broadcast_to(numpy.zeros((), numpy.uint8), node.shape)[key]
    except IndexError as error:
        raise IndexBoundsError(f"setitem: {error}") from error
    return tuple(found.shape)


def _plain(key: Any) -> Any:
    """An index with arrays in the place of tensors."""
    if isinstance(key, tuple):
        return tuple([_plain(each) for each in key])
    if isinstance(key, Core):
        array: Any = key
        return array.numpy()
    return key


def _array(node: UOp) -> Any:
    """The view `node` of a file as an array of its bits; None if it is no view of NumPy's too."""
    import numpy

    chain = []
    while node.op is not Ops.BUFFER:
        chain.append(node)
        node = node.src[0]
    buffer = store.buffer_of(node)
    # Memory of a file that was opened to be read stays so.
    handle = buffer.handle if buffer.is_fixed else buffer.to_write()
    whole = numpy.frombuffer(handle, f"u{node.dtype.itemsize}")
    array = whole
    for step in reversed(chain):
        if step.op is Ops.RESHAPE:
            array = array.reshape(step.arg)
        elif step.op is Ops.PERMUTE:
            array = array.transpose(step.arg)
        elif step.op is Ops.SHRINK:
            array = array[tuple(slice(low, high) for low, high in step.arg)]
        elif step.op is Ops.FLIP:
            array = array[
                tuple(slice(None, None, -1 if is_flipped else 1) for is_flipped in step.arg)
            ]
    return array if numpy.shares_memory(array, whole) else None
