"""Computing several tensors in one run, and what each of them holds afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tilegrad.base.errors import DeviceError
from tilegrad.device.disk import is_file
from tilegrad.device.registry import Device
from tilegrad.engine.realize import realize as engine
from tilegrad.engine.realize.realize import exclusive
from tilegrad.engine.run import leaf_memory as store
from tilegrad.engine.run.leaf_memory import OverwrittenByThreadError, OverwrittenError, is_of_value
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, toposort
from tilegrad.tensor.calls.uploads import can_upload, new_memory
from tilegrad.tensor.handle.core import describe, device_of
from tilegrad.tensor.handle.living import holders_of
from tilegrad.tensor.handle.size_arguments import NO_VARIABLES, Variables, merge
from tilegrad.tensor.handle.tracing import is_open, is_transforming
from tilegrad.tensor.handle.waiting import StandInError, this_thread
from tilegrad.tensor.storage import host_runs, memory, overwritten, running, writes
from tilegrad.tensor.storage.host_graphs import computed_by_host
from tilegrad.tensor.storage.known_indices import settle_indices
from tilegrad.tensor.storage.memory import is_stored
from tilegrad.tensor.storage.past_of_graphs import note_past
from tilegrad.tensor.storage.short_reads import realize_shortly

__all__ = ["copied_from_host", "grown_constants", "realize_all", "realize_first"]

_exclusive = exclusive()


def realize_all(tensors: Sequence[Any]) -> None:
    """Compute `tensors` in one schedule; each then is memory, but for what has no elements."""
    # No other thread writes to them meanwhile, nor to what was computed before it is known whose
    # it is.
    with _exclusive:
        if len(tensors) == 1 and realize_shortly(tensors[0]):
            return
        if this_thread.pool.indices:
            settle_indices(this_thread.pool)
        pending = _pending(tensors)
        if not pending:
            return
        # Assigned values are memory afterwards: then the next segment has leaves that are known.
        others = writes.run_with(pending)
        if running.keeps():
            others = [*others, *grown_constants(pending)]
        everyone = _pending([*tensors, *others]) if others else pending
        try:
            try:
                _compute(everyone)
            except Exception as error:
                # The error of another tensor's value is one for its own reader.
                is_by_thread = isinstance(error, OverwrittenByThreadError)
                if len(everyone) == len(pending) or is_by_thread or not is_of_value(error):
                    raise
                _compute(_pending(tensors))
        except OverwrittenError:
            # Else every later run would try again.
            overwritten.leave_out_overwritten()
            raise


def realize_first(tensors: Sequence[Any]) -> None:
    """As `realize_all`, of state before its first use: all else that waits is left as it is, so
    that it runs as it does when the state is there.
    """
    with _exclusive:
        pending = _pending(tensors)
        if pending:
            _compute(pending)


def _pending(tensors: Sequence[Any]) -> list[Any]:
    """Those of `tensors`, each once, that have elements and are no memory yet."""
    unique = {id(tensor): tensor for tensor in tensors}.values()
    found = [each for each in unique if each._has_elements() and not is_stored(each.uop)]
    if is_transforming():
        found = [tensor for tensor in found if not is_open(tensor.uop)]
    return found


def _compute(pending: Sequence[Any]) -> None:
    """As `realize_all`, of tensors that are no memory yet."""
    variables: Variables = NO_VARIABLES
    for tensor in pending:
        variables = merge(variables, tensor._variables)
    roots = [memory.stored_below(tensor.uop, tensor.device) for tensor in pending]
    for tensor, root in zip(pending, roots):
        if is_file(tensor.device) and root.op is not Ops.COPY:
            raise DeviceError(
                "realize: a file computes nothing",
                tensor=describe(tensor.uop),
                device=tensor.device,
                remedy=f"move it first: .to({Device.DEFAULT!r})",
            )
    if this_thread.stand_ins and not this_thread.stand_ins.isdisjoint(toposort(roots)):
        raise StandInError("realize: a stand-in of an operand has no value")
    done = (
        copied_from_host(pending, roots)
        or computed_by_host(pending, roots)
        or running.run(roots, variables, pending)
    )
    note_past(
        {
            root: stored
            for tensor, root, stored in zip(pending, roots, done)
            if not tensor._requires_grad and not memory.is_written(tensor.uop)
        }
    )
    for tensor, root, stored in zip(pending, roots, done):
        if memory.is_written(tensor.uop):
            overwritten.follow(tensor)
        else:
            running.become_memory(tensor, root, stored)


# Operations one after the other in a constant that is no state, such as an identity matrix.
_FEW = 8


def grown_constants(asked: Sequence[Any]) -> list[Any]:
    """The tensors alive, beside those that are `asked` for, whose constants these are computed from
    by now, where that takes more than a few operations one after the other.

    Such a constant is state that goes on from step to step:

        x = Tensor.zeros(3)
        for _ in range(1000):
            x = x * 0.5 + 1
            x.sum().item()

    A constant is no memory, so each step's graph would have all earlier ones in it. Past some
    operations it is computed like any value that a tensor holds.
    """
    roots = [each.uop for each in asked if each._call is None and each.uop.is_constant]
    depth: dict[UOp, int] = {}
    for node in toposort(roots) if roots else ():
        is_operation = node.op.is_alu or node.op is Ops.REDUCE_AXIS
        depth[node] = max([depth[source] for source in node.src], default=0) + is_operation
    known = {id(each) for each in asked}
    return [
        tensor
        for node, operations in depth.items()
        if operations > _FEW
        for tensor in holders_of(node)
        if tensor._call is None and not tensor._variables and id(tensor) not in known
    ]


def copied_from_host(tensors: Sequence[Any], roots: Sequence[UOp]) -> list[UOp] | None:
    """The memory that holds the only one of `roots`, a copy of an array of the host, for its
    tensor; None where that is for the engine.

    A run of a copy alone concerns no other tensor.

    Before a run every tensor has its node, as values on the way may be what it needs. A copy from
    the host has none on its way. A loop that takes slices of new data at each step (`batch[:, t]`)
    made all nodes of the gradients of the step before, in vain.
    """
    if len(tensors) != 1:
        return None
    (tensor,), (root,) = tensors, roots
    if root.op is not Ops.COPY or tensor._requires_grad or tensor._symbols:
        return None
    source, device = root.src[0], device_of(tensor)
    if source.op is not Ops.BUFFER or source.arg.device != "HOST" or root.arg != device:
        return None
    if any(each is not tensor for each in holders_of(root)):
        return None
    if not host_runs.may_compute() or not can_upload(device):
        return None
    data = store.buffer_of(source).host_view()
    buffer = None if data is None else new_memory(data, root.dtype, prod(root.shape), device)
    if buffer is None:
        return None
    memory = store.leaf(buffer)
    if memory.shape != root.shape:
        memory = UOp(Ops.RESHAPE, root.dtype, (memory,), root.shape)
    engine.remember(root, memory)
    return [memory]
