"""Small graphs that the host computes while they are new: the first calls of a method make nodes,
and a kernel for them takes a tenth of a second to make, for numbers that NumPy has in microseconds.
A graph that comes often is left to the engine, which knows it then.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tilegrad.base.config import config
from tilegrad.base.recent import Recent
from tilegrad.engine.realize import realize as engine
from tilegrad.engine.run import leaf_memory as store
from tilegrad.ir.graph_templates import Template, record
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.ir.walks import toposort
from tilegrad.tensor.handle.core import device_of
from tilegrad.tensor.handle.living import holders_of
from tilegrad.tensor.storage import host_runs
from tilegrad.tensor.storage.host_evaluators import NotOfHostError
from tilegrad.tensor.storage.memory import is_stored
from tilegrad.tensor.storage.new_memory import new_memory

__all__ = ["computed_by_host", "computed_elements", "elements_of_graph"]

# Nodes of a graph, and how often the host computes one.
_MOST_NODES, _OFTEN = 256, 16
# Nodes of one that a tensor's value is on the way of. The host stores what is asked for alone: each
# later graph would have that value's in it, where the engine stores it as well.
_MOST_BELOW_STATE = 24
# Steps or nodes of a value that the host makes because another graph is to find it in memory.
_MOST_BESIDE = 64
# By graph, without its memory: the template, and how often it came; no template where that has
# steps which are not for the host.
_known: Recent[tuple[Any, ...], tuple[Template | None, int]] = Recent(
    lambda: min(config.KEEP_KERNELS, 1024)
)


def computed_by_host(tensors: Sequence[Any], roots: Sequence[UOp]) -> list[UOp] | None:
    """The memory that holds the value of the only one of `roots`, for the tensor that asks for it;
    None where the engine is to compute it.
    """
    if len(tensors) != 1:
        return None
    (tensor,), (root,) = tensors, roots
    if not tensor._at_once or tensor._requires_grad or device_of(tensor) != "CPU":
        return None
    if tensor._symbols or root.is_constant or not host_runs.may_compute():
        return None
    nodes = toposort([root], stop=is_stored)
    if len(nodes) > _MOST_NODES:
        return None
    inner = [node for node in nodes if node is not root]
    if len(nodes) > _MOST_BELOW_STATE and any(map(_is_state, inner)):
        return None
    numbers = {node: number for number, node in enumerate(nodes)}
    leaves = [node for node in nodes if is_stored(node)]
    key = tuple([_entry(node, numbers) for node in nodes])
    template, count = _known.get(key) or (record([root], leaves), 0)
    if template is None or count >= _OFTEN:
        _known.put(key, (template, count))
        return None
    size = prod(root.shape)
    try:
        buffer = new_memory(host_runs.made_of(template, leaves), root.dtype, size)
    except (NotOfHostError, store.OverwrittenError):
        _known.put(key, (None, 0))
        return None
    if buffer is None:
        return None
    _known.put(key, (template, count + 1))
    memory = store.leaf(buffer)
    if memory.shape != root.shape:
        memory = UOp(Ops.RESHAPE, root.dtype, (memory,), root.shape)
    engine.remember(root, memory)
    return [memory]


def computed_elements(tensor: Any) -> Any | None:
    """The few elements of a tensor that is not computed yet, where the host makes them in few
    steps; None else. Nothing is stored.
    """
    if tensor._call is None:
        return elements_of_graph(tensor._node)
    array = host_runs.evaluated(tensor, _MOST_BESIDE, is_beside=True)
    return None if array is None else _whole(array, tensor.shape)


def elements_of_graph(root: UOp) -> Any | None:
    """As `computed_elements`, of a graph."""
    if not host_runs.may_compute():
        return None
    nodes = _few_below(root)
    if nodes is None:
        return None
    leaves = [node for node in nodes if _is_there(node)]
    template = record([root], leaves)
    try:
        array = None if template is None else host_runs.made_of(template, leaves)
    except (NotOfHostError, store.OverwrittenError):
        return None
    return None if array is None else _whole(array, root.shape)


def _whole(array: Any, shape: tuple[int, ...]) -> Any:
    """An array in the shape to which its elements are broadcast."""
    import numpy

    whole: Any = numpy.broadcast_to(array, shape)
    return numpy.ascontiguousarray(whole) if shape else whole


def _few_below(root: UOp) -> list[UOp] | None:
    """The nodes that lead to `root` from memory, sources first; None if these are many."""
    seen = {root}
    below = [root]
    # The list grows while it is walked.
    for node in below:
        if not _is_there(node):
            fresh = [each for each in node.src if each not in seen]
            seen.update(fresh)
            below += dict.fromkeys(fresh)
            if len(below) > _MOST_BESIDE:
                return None
    return [*toposort([root], stop=_is_there)]


def _is_there(node: UOp) -> bool:
    """Whether the value is in memory, also if the graph that gave it is still known."""
    return is_stored(node) or (node.stored is not None and engine.realized(node) is not None)


def _is_state(node: UOp) -> bool:
    """Whether a tensor alive has a value that is in no memory yet."""
    return not is_stored(node) and not node.is_constant and bool(holders_of(node))


def _entry(node: UOp, numbers: dict[UOp, int]) -> tuple[Any, ...]:
    """The entry of a node in the key of its graph, whose nodes have `numbers`."""
    if is_stored(node):
        return node.op, node.dtype, node.shape
    if not node.src:
        # By identity, as 0.0 is equal to -0.0.
        return (node,)
    return node.op, node.dtype, node.shape, node.arg, *[numbers[each] for each in node.src]
