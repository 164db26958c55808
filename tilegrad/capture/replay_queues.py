"""The order of a capture's steps on several devices, by the queues of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tilegrad.capture.step import ReplayStep
from tilegrad.engine.run.queues import ByteRange, Job, Kind, Queues
from tilegrad.runtime.buffer import Buffer

__all__ = ["Sync", "in_queues"]


class Sync(NamedTuple):
    """The host waits for all work of a device: another one needs the results."""

    device: str


def in_queues(
    steps: Sequence[ReplayStep], buffers: Mapping[int, Buffer]
) -> Sequence[ReplayStep | Sync]:
    """The steps as they run, `buffers` being the memory by slot: of one device as they are, of
    several in the order of their queues.
    """
    if len({step.device for step in steps} - {"HOST"}) < 2:
        return steps
    queues = Queues.of([_job(step, buffers) for step in steps])
    found: list[ReplayStep | Sync] = []
    for command in queues.order():
        if command.kind is Kind.WORK:
            found.append(steps[command.number])
        elif command.kind is Kind.SYNC:
            found.append(Sync(command.device))
    return found


def _job(step: ReplayStep, buffers: Mapping[int, Buffer]) -> Job:
    regions = [_region(slot, buffers[slot]) for slot in step.slots]
    source = buffers[step.slots[1]].device if step.kernel is None else ""
    return Job(step.device, tuple(regions[: step.written]), tuple(regions[step.written :]), source)


def _region(slot: int, buffer: Buffer) -> ByteRange:
    if buffer.base is None:
        return ByteRange(slot, 0, buffer.nbytes)
    # Slices of a block stay where they are from replay to replay.
    return ByteRange(("block", id(buffer.base)), buffer.offset, buffer.offset + buffer.nbytes)
