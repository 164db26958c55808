"""The queues of plans over several devices, and the plan's steps in the order of the queues."""

from __future__ import annotations

from collections.abc import Iterator

from tilegrad.base.errors import InternalError
from tilegrad.device.registry import Device
from tilegrad.engine.plans.plan import Plan, PlannedMemory, Step
from tilegrad.engine.run.queues import ByteRange, Command, Job, Kind, Queues

__all__ = ["in_order", "queues_of"]


def in_order(plan: Plan) -> Iterator[Step]:
    """The steps in the order in which they run. Between those of several devices the host waits
    where one device needs a result of another.
    """
    if not plan.order:
        plan.order.append(_order(plan))
    commands: list[Command] | None = plan.order[0]
    if commands is None:
        yield from plan.steps
        return
    for command in commands:
        if command.kind is Kind.WORK:
            yield plan.steps[command.number]
        elif command.kind is Kind.SYNC:
            Device[command.device].runtime.synchronize()


def queues_of(plan: Plan) -> Queues:
    """The queue of each device of a plan: its work, and the devices it waits for.

    Raises InternalError for a kernel that reads memory of another device.
    """
    return Queues.of([_job(plan, step) for step in plan.steps])


def _order(plan: Plan) -> list[Command] | None:
    """The commands of a plan in their order; None for one device, whose steps are in order."""
    devices = {step.device for step in plan.steps} - {"HOST"}
    return queues_of(plan).order() if len(devices) > 1 else None


def _job(plan: Plan, step: Step) -> Job:
    memory = [plan.buffers[number] for number in step.buffers]
    source = ""
    if step.kernel is None and step.loop is None and not step.is_custom:
        source = memory[1].device
    elif not step.is_custom and any(each.device != step.device for each in memory):
        # The memory of devices may be in one address space, where it would go unseen.
        raise InternalError(
            f"plan: a kernel on {step.device} with memory of another device",
            kernel=step.kernel.name if step.kernel else "a loop",
            memory=", ".join(dict.fromkeys(each.device for each in memory)),
        )
    regions = [_region(each, number) for each, number in zip(memory, step.buffers)]
    # A loop exchanges its carries with their seconds.
    count = len(regions) if step.loop is not None else step.written
    return Job(step.device, tuple(regions[:count]), tuple(regions[count:]), source)


def _region(memory: PlannedMemory, number: int) -> ByteRange:
    nbytes = memory.size * memory.dtype.itemsize
    if memory.source is not None:
        return ByteRange(("input", memory.source), 0, nbytes)
    if memory.offset is not None:
        return ByteRange(("block", memory.device), memory.offset, memory.offset + nbytes)
    if memory.slot is not None:
        return ByteRange(("slot", memory.slot), 0, 1)
    return ByteRange(("own", number), 0, nbytes)
