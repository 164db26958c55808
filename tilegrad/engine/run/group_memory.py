"""The memory behind leaves of several devices: a leaf of each device's memory for each of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from tilegrad.base.dtype import DType
from tilegrad.engine.run import leaf_memory
from tilegrad.ir.op import Ops
from tilegrad.ir.placement import Group, GroupBufferArg, Placement, use
from tilegrad.ir.queries import base_of
from tilegrad.ir.uop import UOp, prod, remade
from tilegrad.runtime.group_buffer import GroupBuffer

__all__ = [
    "children_of", "empty", "empty_as", "group_leaf", "groups_of", "is_child", "like",
    "over_shards", "overwrite", "overwritten",
]  # fmt: skip

_children: dict[int, tuple[UOp | None, ...]] = leaf_memory.by_slot()
# Leaves that are one device's memory of a leaf of several.
_is_child: dict[int, bool] = leaf_memory.by_slot()


def group_leaf(
    devices: Group,
    bounds: Sequence[tuple[int, int]],
    children: Sequence[UOp | None],
    size: int,
    dtype: DType,
    buffer: Any = None,
) -> UOp:
    """A leaf of `size` elements on several devices, over the leaves of their memory; `buffer` is
    the memory itself, if there is such a leaf.
    """
    use.is_used = True
    arg = GroupBufferArg(leaf_memory.next_slot(), devices, size, tuple(bounds))
    key = Ops.BUFFER.serial, dtype, (), arg, GroupBufferArg
    node = remade(key, Ops.BUFFER, (size,))
    shards = [None if each is None else leaf_memory.buffer_of(each) for each in children]
    value: Any = buffer or GroupBuffer(shards, bounds, size, dtype)
    leaf_memory.stand_for(node, value)
    _children[arg.slot] = tuple(children)
    for each in children:
        if each is not None:
            _is_child[each.arg.slot] = True
    return node


def children_of(leaf: UOp) -> tuple[UOp | None, ...]:
    """The leaves of the devices' memory behind a leaf of several devices.

    Raises OverwrittenError if it holds another value by now.
    """
    leaf_memory.buffer_of(leaf)
    return _children[leaf.arg.slot]


def is_child(leaf: UOp) -> bool:
    """Whether a leaf is one device's memory of a leaf of several."""
    return leaf.arg.slot in _is_child


def empty(devices: Group, dtype: DType, size: int) -> UOp:
    """A leaf of `size` elements of undefined content on each device."""
    children = [leaf_memory.empty(name, dtype, size) for name in devices]
    return group_leaf(devices, (), children, size, dtype)


def empty_as(placement: Placement, shape: tuple[Any, ...], dtype: DType) -> UOp:
    """[Movement of] memory of undefined content for a value of `shape`."""
    children = [
        leaf_memory.empty(name, dtype, int(prod(placement.shape(shape, number))))
        if placement.has(number)
        else None
        for number, name in enumerate(placement.devices)
    ]
    return over_shards(placement, children, shape, dtype)


def over_shards(
    placement: Placement, stored: Sequence[UOp | None], shape: tuple[Any, ...], dtype: DType
) -> UOp:
    """[Movement of] a leaf for a value of `shape`, whose shards are in memory with the split axis
    first.
    """
    axis, size = placement.axis, int(prod(shape))
    children = [None if each is None else base_of(each) for each in stored]
    if axis is None:
        node = group_leaf(placement.devices, (), children, size, dtype)
        return node if node.shape == shape else UOp(Ops.RESHAPE, dtype, (node,), shape)
    unit = size // shape[axis]
    bounds = [(start * unit, end * unit) for start, end in placement.bounds]
    node = group_leaf(placement.devices, bounds, children, size, dtype)
    first = shape[axis], *shape[:axis], *shape[axis + 1 :]
    if node.shape != first:
        node = UOp(Ops.RESHAPE, dtype, (node,), first)
    if axis:
        order = (*range(1, axis + 1), 0, *range(axis + 1, len(shape)))
        node = UOp(Ops.PERMUTE, dtype, (node,), order)
    return node


def overwritten(leaf: UOp) -> UOp:
    """As `leaf_memory.overwrite`, of a leaf of one device or of several."""
    if not isinstance(leaf.arg, GroupBufferArg):
        return leaf_memory.overwrite(leaf)
    children = [None if each is None else leaf_memory.overwrite(each) for each in children_of(leaf)]
    return overwrite(leaf, children)


def like(leaf: UOp) -> UOp:
    """A leaf of new memory, of the devices and sizes of another one."""
    children = [
        None if each is None else leaf_memory.empty(each.arg.device, leaf.dtype, each.arg.size)
        for each in _children[leaf.arg.slot]
    ]
    return group_leaf(leaf.arg.device, leaf.arg.bounds, children, leaf.arg.size, leaf.dtype)


def groups_of(buffers: Collection[int]) -> list[GroupBuffer]:
    """The memory of several devices that has one of `buffers`, given by their ids."""
    if not use.is_used:
        return []
    found: dict[int, GroupBuffer] = {}
    everything: list[Any] = leaf_memory.buffers()
    for each in everything:
        if isinstance(each, GroupBuffer) and any(id(shard) in buffers for shard in each.shards):
            found[id(each)] = each
    return [*found.values()]


def overwrite(leaf: UOp, children: Sequence[UOp | None]) -> UOp:
    """The leaf of the same memory with the value just written, over the leaves of each device."""
    arg = leaf.arg
    same = leaf_memory.buffer_of(leaf)
    fresh = group_leaf(arg.device, arg.bounds, children, arg.size, leaf.dtype, same)
    leaf_memory.mark_overwritten(leaf)
    return fresh
