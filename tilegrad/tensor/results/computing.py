"""Computing several tensors in one run, and what each of them holds afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.base.errors import DeviceError
from tilegrad.device.disk import is_file
from tilegrad.device.registry import Device
from tilegrad.engine.realize.realize import exclusive
from tilegrad.engine.run.leaf_memory import OverwrittenByThreadError, OverwrittenError, is_of_value
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, toposort
from tilegrad.tensor.handle.core import describe
from tilegrad.tensor.handle.size_arguments import NO_VARIABLES, Variables, here, merge
from tilegrad.tensor.handle.tracing import is_open, is_transforming
from tilegrad.tensor.handle.waiting import StandInError, this_thread
from tilegrad.tensor.results.host_arrays import copied_from_host
from tilegrad.tensor.storage import memory, overwritten, running, writes
from tilegrad.tensor.storage.grown_constants import grown_constants
from tilegrad.tensor.storage.host_graphs import computed_by_host
from tilegrad.tensor.storage.memory import is_stored
from tilegrad.tensor.storage.short_reads import realize_shortly

__all__ = ["realize_all"]

_exclusive = exclusive()


def realize_all(tensors: Sequence[Any]) -> None:
    """Compute `tensors` in one schedule; each then is memory, but for what has no elements."""
    # No other thread writes to them meanwhile, nor to what was computed before it is known whose
    # it is.
    with _exclusive:
        if len(tensors) == 1 and realize_shortly(tensors[0]):
            return
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
                line=here(),
                remedy=f"move it first: .to({Device.DEFAULT!r})",
            )
    if this_thread.stand_ins and not this_thread.stand_ins.isdisjoint(toposort(roots)):
        raise StandInError("realize: a stand-in of an operand has no value")
    near: dict[UOp, Sequence[UOp]] = {}
    done = (
        copied_from_host(pending, roots)
        or computed_by_host(pending, roots)
        or running.run(roots, variables, pending, near)
    )
    overwritten.note_past(
        {
            root: stored
            for tensor, root, stored in zip(pending, roots, done)
            if not tensor._requires_grad and not memory.is_written(tensor.uop)
        },
        near,
    )
    for tensor, root, stored in zip(pending, roots, done):
        if memory.is_written(tensor.uop):
            overwritten.follow(tensor)
        else:
            running.become_memory(tensor, root, stored)
