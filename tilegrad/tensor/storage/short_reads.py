"""The short way of a read to a graph that comes often: no other tensor has to do with it.

The long way (`running`, `engine.realize`) looks for all that a run concerns beside its root:
tensors that hold or need a value on the way, gradients that wait, parameters that are no memory
yet, assignments that take their value with the next run, views of overwritten memory. Nearly all of
these are absent in nearly all runs of a graph whose short way is known
(`engine.realize.known_graphs`). Here each is asked in the cheapest way that can say no; where one
says yes, the long way has it.
"""

from __future__ import annotations

import weakref
from itertools import compress
from operator import attrgetter
from typing import Any

from tilegrad.base.config import current_config
from tilegrad.base.errors import InternalError
from tilegrad.engine.realize import realize as engine
from tilegrad.engine.realize.known_graphs import Matched, matched
from tilegrad.engine.realize.request import Request
from tilegrad.ir.queries import base_of
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle import living
from tilegrad.tensor.handle.aliases import hold
from tilegrad.tensor.handle.core import device_of
from tilegrad.tensor.handle.living import (
    Owner,
    by_identity,
    holders_of,
    owners,
    promote,
    with_gradient,
    with_nodes_made,
    with_variables,
)
from tilegrad.tensor.handle.tracing import transforms
from tilegrad.tensor.handle.waiting import this_thread
from tilegrad.tensor.storage import running
from tilegrad.tensor.storage.past import Past, pasts
from tilegrad.tensor.storage.past_of_graphs import reached_from

__all__ = ["realize_shortly"]

_users = attrgetter("users")
_with_variables, _with_gradient = with_variables.references, with_gradient.references


def realize_shortly(tensor: Any) -> bool:
    """Compute `tensor`, whose nodes are made, if the short way of its graph is known and serves;
    whether it did: then it is memory. The caller is the only one who runs anything.
    """
    call = tensor._call
    root: UOp | None = tensor._node if call is None else call.node
    if root is None or tensor._requires_grad or tensor._symbols:
        return False
    if root.holders.__class__ is list and len(holders_of(root)) > 1:
        return False
    match = matched(root, engine.memory_of)
    if match is None:
        return False
    graph, nodes = match.graph, match.found[0]
    if _is_special() or device_of(tensor) != graph.device:
        return False
    memory = None
    if _is_alone(match):
        if current_config().TEMPLATES > 1:
            _compare(root, match)
        memory = graph.launch(root, nodes)
    if memory is None:
        graph.miss()
        return False
    base = base_of(memory)
    if root.dtype.is_float:
        if graph.reached is None:
            graph.reached = reached_from(nodes, graph.sources, graph.root)
        pasts[base.arg.slot] = Past.over(root, [nodes[each] for each in graph.reached], base)
    owners[base] = Owner(tensor)
    previous = tensor._previous and tensor._earlier_references()
    tensor._previous = (*previous, weakref.ref(root))
    if tensor._alias is None:
        # As below, without two frames.
        tensor._node, tensor._call = memory, None
        living.hold(tensor, memory)
    else:
        hold(tensor, memory, is_computed=True)
    return True


def _is_special() -> bool:
    """Whether something is to be taken care of that graphs do not tell. The launch asks whether
    somebody records.
    """
    if transforms.depth or this_thread.stand_ins or running.has_waiting():
        return True
    if _with_variables or (_with_gradient and running.gradients()):
        return True
    for reference in this_thread.pool.waiting:
        tensor = reference()
        if tensor is not None and (call := tensor._call) is not None and call.is_write:
            return True
    return False


def _is_alone(match: Matched) -> bool:
    """Whether no tensor alive, but for that of the root, is or needs a value of the graph. The
    graphs of young tensors go into the index of users, as before any run.
    """
    graph, (nodes, members), watched, aliases = match
    if aliases or (watched and any(map(holders_of, watched))):
        return False
    with_nodes_made()
    for reference in [*by_identity.values()]:
        tensor = reference()
        if tensor is None:
            continue
        node = tensor._node if tensor._call is None else tensor.uop
        if node not in members:
            engine.index(node)
            promote(tensor, node)
    return not any(map(_users, compress(nodes, graph.inside)))


def _compare(root: UOp, match: Matched) -> None:
    """Hold what was found to what the long way finds."""
    request = Request(engine.memory_of)
    request.want([root])
    if (
        request.nodes != [*match.found[0]]
        or request.signature() != match.graph.signature
        or request.lost()
        or [*running.retained_of(request)]
    ):
        raise InternalError(
            f"realize: the short way of a graph of {len(match.found[0])} nodes is not its long way",
            root=repr(root),
        )
