"""The queues of a plan over several devices: which device does what, and who waits for whom.

Each device has one queue of *commands*, which it does in their order:

    WORK    a kernel, or a copy to the device, step `number` of the plan
    SYNC    all work of the queue so far is done; the number counts the SYNCs of the queue
    WAIT    for SYNC `number` of the queue of another device, `source`

A copy from another device waits for the work that made its source, and a step that overwrites
memory which another device copies waits for that copy. No queue waits twice for the same: one that
has waited for a SYNC has waited for all before it.

    a = x.to(D), b = y.to(D) from S, (a * b).sum().to(HOST)
        S      SYNC
        D      WAIT S, WORK, WORK, WORK, SYNC
        HOST   WAIT D, WORK

`order` is the one order in which the commands run: work that can run comes first, and a SYNC, for
which the host may have to wait, when no queue has anything else to do.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tilegrad.base.errors import InternalError
from tilegrad.base.members import Members
from tilegrad.device.registry import Device
from tilegrad.engine.plans.plan import Plan, PlannedMemory, Step

__all__ = ["ByteRange", "Command", "Job", "Kind", "Queues", "in_order", "queues_of"]


class Kind(Members):
    """Kind of a command."""

    WORK = "work"
    SYNC = "sync"
    WAIT = "wait"


class ByteRange(NamedTuple):
    """Bytes `start` to `end` of some memory."""

    memory: object
    start: int
    end: int

    def meets(self, other: ByteRange) -> bool:
        """Whether both have a byte in common, of one memory."""
        return self.start < other.end and other.start < self.end

    def covers(self, other: ByteRange) -> bool:
        """Whether the other has no byte, of the same memory, that this one has not."""
        return self.start <= other.start and other.end <= self.end


class Job(NamedTuple):
    """A step as a queue sees it: its device, its writes and reads, and for a copy from another
    device, which one.
    """

    device: str
    writes: tuple[ByteRange, ...]
    reads: tuple[ByteRange, ...]
    source: str = ""


class Command(NamedTuple):
    """A command of the queue of `device`, made as number `position` of all."""

    kind: Kind
    device: str
    number: int
    position: int
    source: str = ""


class _MemoryUse(NamedTuple):
    """A region that command `position` of the queue of `device` reads or writes."""

    region: ByteRange
    device: str
    position: int
    is_write: bool


@dataclass
class Queues:
    """The commands of each device, in order."""

    commands: dict[str, list[Command]] = field(default_factory=dict)
    _accesses: dict[object, list[_MemoryUse]] = field(default_factory=dict)
    _waited: dict[tuple[str, str], int] = field(default_factory=dict)
    # By queue, the positions of its SYNCs.
    _syncs: dict[str, list[int]] = field(default_factory=dict)
    _count: int = 0

    @classmethod
    def of(cls, jobs: Iterable[Job], host: str = "HOST") -> Queues:
        """The queues for jobs that are right in their order. Memory that another device was copied
        from may be given away after them, so that such a copy is done at their end; not where one
        of them is the `host`, whose copies are done when they return.
        """
        found = cls()
        far: dict[str, int] = {}
        for number, job in enumerate(jobs):
            found._add(number, job)
            if job.source and host not in (job.source, job.device):
                far[job.device] = len(found.commands[job.device]) - 1
        for device, position in far.items():
            found._sync_behind(device, position)
        return found

    def __getitem__(self, device: str) -> list[Command]:
        return self.commands[device]

    def _add(self, number: int, job: Job) -> None:
        own = self.commands.setdefault(job.device, [])
        needed: dict[str, int] = {}
        if job.source and job.source != job.device:
            # Work done there before the plan began.
            needed[job.source] = -1
        for region, is_write in self._regions(job):
            for access in self._accesses.get(region.memory, ()):
                if access.device == job.device or not (is_write or access.is_write):
                    continue
                if access.region.meets(region):
                    before = needed.get(access.device, -1)
                    needed[access.device] = max(before, access.position)
        for device, position in needed.items():
            sync = self._sync_behind(device, position)
            if self._waited.get((job.device, device), -1) < sync:
                self._waited[job.device, device] = sync
                self._append(Kind.WAIT, job.device, sync, device)
        self._append(Kind.WORK, job.device, number, job.source)
        position = len(own) - 1
        for region, is_write in self._regions(job):
            accesses = self._accesses.setdefault(region.memory, [])
            if is_write:
                # A step that waits for this write waits for all that the write waits for.
                accesses[:] = [each for each in accesses if not region.covers(each.region)]
            accesses.append(_MemoryUse(region, job.device, position, is_write))

    @staticmethod
    def _regions(job: Job) -> list[tuple[ByteRange, bool]]:
        return [*[(each, False) for each in job.reads], *[(each, True) for each in job.writes]]

    def _sync_behind(self, device: str, position: int) -> int:
        """The number of the first SYNC of a queue behind a position, which is added if there is
        none.
        """
        queue = self.commands.setdefault(device, [])
        syncs = self._syncs.setdefault(device, [])
        number = bisect_right(syncs, position)
        if number == len(syncs):
            syncs.append(len(queue))
            self._append(Kind.SYNC, device, number)
        return number

    def _append(self, kind: Kind, device: str, number: int, source: str = "") -> None:
        self.commands[device].append(Command(kind, device, number, self._count, source))
        self._count += 1

    def order(self) -> list[Command]:
        """The commands as they run, whichever queue is looked at first: of those that can run, the
        one that was made first, but a SYNC only where nothing else can.

        Each WAIT was made after the SYNC that it waits for, and a queue's commands in their order,
        so that of the commands left the one made first can always run.
        """
        heads = dict.fromkeys(self.commands, 0)
        synced = dict.fromkeys(self.commands, 0)
        found: list[Command] = []
        while True:
            waiting = [
                self.commands[device][position]
                for device, position in heads.items()
                if position < len(self.commands[device])
            ]
            if not waiting:
                return found
            ready = [
                each
                for each in waiting
                if each.kind is not Kind.WAIT or synced[each.source] > each.number
            ]
            if not ready:
                raise InternalError("queues: each waits for another", heads=repr(waiting)[:500])
            chosen = min(ready, key=lambda each: (each.kind is Kind.SYNC, each.position))
            heads[chosen.device] += 1
            synced[chosen.device] += chosen.kind is Kind.SYNC
            found.append(chosen)

    def text(self) -> str:
        """A line for each queue."""
        rows: Sequence[str] = [
            f"{device:8s} {', '.join(map(_shown, queue))}"
            for device, queue in self.commands.items()
        ]
        return "\n".join(rows)


def _shown(command: Command) -> str:
    if command.kind is Kind.WORK:
        return f"copy {command.number}" if command.source else f"kernel {command.number}"
    if command.kind is Kind.WAIT:
        return f"wait {command.source}"
    return "sync"


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
