"""Tensors whose memory was written to: what they look at from then on, and where gradients go."""

from __future__ import annotations

import weakref
from typing import Any

from tilegrad.engine.realize import realize as engine
from tilegrad.engine.run import leaf_memory as store
from tilegrad.grad.regions import unrecorded
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, toposort
from tilegrad.tensor.handle.aliases import hold, is_alone
from tilegrad.tensor.handle.living import Owner, live, owners
from tilegrad.tensor.storage.graphs import graphs
from tilegrad.tensor.storage.memory import (
    WRITTEN,
    base_of,
    is_in_order,
    is_row_major,
    is_stored,
    is_whole,
    sizes_in,
    supersede,
    version_of,
)
from tilegrad.tensor.storage.past_of_graphs import note_past

__all__ = ["follow", "leave_out_overwritten", "old_value"]


def leave_out_overwritten() -> None:
    """Undo assignments that wait and need overwritten memory: they can never run, nor can those on
    top of them. Their tensors have the values from before.
    """
    for tensor in live():
        node = tensor.uop
        version = version_of(node)
        while version.op in WRITTEN and engine.realized(version) is None:
            if not any(store.is_overwritten(leaf) for leaf in engine.leaves_below(version)):
                break
            node = node.substitute({version: version.src[0]})
            version = version_of(node)
        if node is not tensor.uop:
            supersede(version, is_so=False)
            hold(tensor, node, is_computed=False)
            follow(tensor)


def old_value(tensor: Any, node: UOp, memory: UOp) -> UOp:
    """The value that a tensor had at `node` before it was written to, copied to `memory`. Its
    gradient flows as before; a detached tensor has none.
    """
    if tensor._requires_grad and not tensor._is_leaf:
        return unrecorded(memory, lambda gradient: gradient, node)
    if any(each.op is Ops.DETACH for each in node.toposort()):
        return UOp(Ops.DETACH, memory.dtype, (memory,))
    return memory


def follow(tensor: Any) -> None:
    """Let a tensor whose memory was written to look at it as it is now, where that is known."""
    node = tensor.uop
    version = version_of(node)
    if version.op not in WRITTEN:
        return
    stored = engine.realized(node)
    if stored is None:
        found = engine.realized(version)
        if found is None:
            return
        stored = node.substitute({version: found})
    old, fresh = base_of(node), base_of(stored)
    is_copy = False
    if old in owners and store.is_same(old, fresh):
        owners.setdefault(fresh, owners[old])
    elif node is version or not store.is_same(old, fresh) or is_alone(tensor):
        is_copy = old not in owners and version.op is Ops.ASSIGN and is_stored(version.src[0])
        owners.setdefault(fresh, Owner(tensor))
    tensor._previous = (*tensor._earlier_references(), weakref.ref(node))
    if node is not version and not store.is_same(old, fresh):
        # A view of the memory's value before another write.
        hold(tensor, old_value(tensor, node, stored), is_computed=False)
        return
    hold(tensor, stored, is_computed=False)
    if is_copy and not tensor._requires_grad:
        note_past({version: stored})
    owner = owners.get(fresh)
    if _has_a_graph(tensor, None if owner is None else owner()):
        if version.op is Ops.AFTER:
            graphs[fresh] = version
        else:
            value = version.src[1]
            if not is_copy and old in toposort([value]):
                value = _without_reading(value, old)
            graphs[fresh] = UOp(Ops.CONTIGUOUS, value.dtype, (value,))
    if is_row_major(stored):
        tensor._variables = sizes_in(tensor.shape, tensor._variables)


def _without_reading(written: UOp, memory: UOp) -> UOp:
    """`written` without what `memory` held before, as far as it is known: an earlier write of all
    of it stands for what it wrote, and what had been there for its graph. A gradient that needs an
    unknown value is refused when it is computed.
    """
    made: dict[UOp, UOp] = {}
    for node in toposort([written]):
        if node is memory:
            made[node] = graphs.get(memory, memory)
            continue
        if node.op in WRITTEN and base_of(node) is memory:
            target, value = node.src[:2]
            is_all = node.op is Ops.ASSIGN and is_whole(target) and is_in_order(target)
            made[node] = made[value] if is_all else node
            continue
        made[node] = node.over(tuple([made[source] for source in node.src]))
    return made[written]


def _has_a_graph(tensor: Any, owner: Any) -> bool:
    """Whether a gradient of the value in the memory of `owner`, at which `tensor` looks, goes on to
    the graph that computed it. A view is followed like the tensor it looks at, which may be a leaf.
    """
    if not tensor._requires_grad or tensor._is_leaf:
        return False
    if owner is None:
        return not any(each._requires_grad and each._is_leaf for each in tensor._aliases())
    return owner is tensor
