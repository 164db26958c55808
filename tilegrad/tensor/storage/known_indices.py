"""Few integers that follow from integers known to the host, as positions and counters do: memory
from the first step of a loop on.

    position = position[-1:] + 1

The first calls of a method make nodes, and what is made of a constant (`torch.arange(n)`) is one.
Where it goes on to the next step it is a longer graph at each, until it is memory; and each such
graph is planned with all of the network that it is given to. So a read lets the host compute these
results if somebody holds them, by nodes and by calls that wait: the graphs of all steps begin at
memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any
from weakref import ref

from tilegrad.engine.realize import realize as engine
from tilegrad.engine.run import leaf_memory as store
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.core import Core, device_of
from tilegrad.tensor.handle.waiting import Call, Pool, this_thread
from tilegrad.tensor.storage import running
from tilegrad.tensor.storage.host_constants import constant_elements, is_filled
from tilegrad.tensor.storage.host_graphs import elements_of_graph
from tilegrad.tensor.storage.host_runs import calls_below, may_compute, store_one
from tilegrad.tensor.storage.memory import is_stored
from tilegrad.tensor.storage.new_memory import new_memory

__all__ = ["note_index", "settle_indices", "without_indices"]

# Elements of a result; more are masks and tables, which are better told by a graph.
_MOST_ELEMENTS = 1 << 10
# Steps that lead to one from memory.
_MOST_STEPS = 32
# Results that are noted until the next read; earlier ones stay graphs.
_MOST_NOTED = 256


def note_index(pool: Pool, made: Any, first: Any, args: Sequence[Any]) -> None:
    """Note the result of a method of the tensor `first`, which has made nodes, for the next read,
    if it may be one of few integers known to the host.
    """
    if not isinstance(made, Core) or made.dtype.is_float or made._call is not None:
        return
    if made._alias is None and not is_stored(made._node) and _may_be_index(first, args):
        if len(pool.indices) >= _MOST_NOTED:
            del pool.indices[0]
        pool.indices.append(ref(made))


def _may_be_index(first: Any, args: Sequence[Any]) -> bool:
    """Whether a tensor and the operands beside it are integers or truth values; constants alone are
    single elements.
    """
    if not getattr(first, "_at_once", False) or this_thread.stand_ins:
        return False
    constants: list[Any] = []
    is_memory = False
    given: list[Any] = [first, *args]
    # The list grows while it is walked.
    for each in given:
        if isinstance(each, Core):
            if each.dtype.is_float or each._symbols or each._requires_grad:
                return False
            if each._call is None and each._node.is_constant:
                constants.append(each)
            else:
                is_memory = True
        elif isinstance(each, (list, tuple)):
            given += each
        elif each.__class__ is float:
            return False
    if is_memory:
        return True
    # Numbers that fill a tensor shape better code.
    are_single = all(each.numel() == 1 for each in constants)
    return are_single and not all(is_filled(each._node) for each in constants)


def settle_indices(pool: Pool) -> None:
    """Let the host compute the results that were noted since the last read and that are alive."""
    noted, pool.indices = pool.indices, []
    if not may_compute():
        return
    for reference in noted:
        tensor = reference()
        if tensor is not None:
            _settle(tensor)


def _settle(tensor: Any) -> None:
    """Let a tensor be memory, if it has few elements and the host can tell them."""
    if tensor._call is not None or tensor._symbols or device_of(tensor) != "CPU":
        return
    root = tensor._node
    memory = None if is_stored(root) else _memory_of(root)
    if memory is not None:
        running.become_memory(tensor, root, memory)


def without_indices(alive: list[Call], asked: Call) -> list[Call]:
    """The calls `alive`, all that wait for a run of `asked`, without the integers and truth values
    that follow from memory by few steps: these are memory now.
    """
    indices = [
        call for call in alive if not call.dtype.is_float and call is not asked and _is_of_few(call)
    ]
    if not indices or not may_compute():
        return alive
    for call in indices:
        calls = calls_below([call], _MOST_STEPS)
        if calls is not None:
            for leaf in [leaf for each in calls for leaf in each.inputs or ()]:
                if leaf.__class__ is UOp and not leaf.dtype.is_float:
                    _settle_node(leaf)
            store_one(asked, call, calls)
    return [call for call in alive if call.value is None]


def _is_of_few(call: Call) -> bool:
    """Whether a call is to have memory of its own, and is of few elements and steps."""
    return (
        call.template.work <= _MOST_STEPS
        and not (call.is_write or call.is_loss or call.template.is_view)
        and prod(call.shape) <= _MOST_ELEMENTS
    )


def _settle_node(node: UOp) -> None:
    """Let the host compute the integers of a node that is no memory, if they are few."""
    if node.stored is None and not node.is_constant and not is_stored(node):
        _memory_of(node)


def _memory_of(root: UOp) -> UOp | None:
    """Memory with the integers of a graph; None if they are many, or the host cannot tell them."""
    size = prod(root.shape)
    if root.dtype.is_float or not 0 < size <= _MOST_ELEMENTS:
        return None
    elements = constant_elements(root) if root.is_constant else elements_of_graph(root)
    buffer = None if elements is None else new_memory(elements, root.dtype, size)
    if buffer is None:
        return None
    memory = store.leaf(buffer)
    if memory.shape != root.shape:
        memory = UOp(Ops.RESHAPE, root.dtype, (memory,), root.shape)
    if not root.is_constant:
        engine.remember(root, memory)
    return memory
