"""The captured steps, ready to run again: batches of kernels that are one native call each.

Consecutive kernels of one CPU device are a batch: a table of (kernel, arguments, chunks) and one
block of argument words, whose addresses and values are patched in place before the call. A batch
ends at a copy, and where the next kernel is for another device, a second CPU included; a kernel
alone is called by itself. Kernels of another device are a batch too, if its runtime takes several
launches in one call. All other steps, and all under JIT=2, are launched through the engine, one by
one.

Steps on several devices run in the order of the queues of these.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, MutableSequence, Sequence
from time import perf_counter
from typing import Any, NamedTuple

from tilegrad.base.config import Config, config
from tilegrad.base.errors import OutOfMemoryError, located
from tilegrad.base.origin import method_names
from tilegrad.capture.packs import Pack
from tilegrad.capture.slots import ReplayStep, Value, is_native
from tilegrad.device.cpu import CpuRuntime
from tilegrad.device.registry import Device
from tilegrad.engine.realize.realize import exclusive
from tilegrad.engine.run import report
from tilegrad.engine.run.queues import ByteRange, Job, Kind, Queues
from tilegrad.engine.run.run import Launch, load_program, run_step
from tilegrad.runtime.buffer import Buffer

__all__ = ["Replay"]

# Copies of operands that are made anew so often, as a share of the replays, are not worth it, once
# there were some replays.
_OFTEN = 1 / 2
_SOME = 16
# Operations and bytes of a batch that takes less than some 20 microseconds.
_SHORT = 1 << 16


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


class _LaunchBatch:
    """Consecutive kernels of one device, and words for their arguments: those of a slot, or of a
    named value, may change.
    """

    def __init__(
        self, steps: Sequence[ReplayStep], addresses: Mapping[int, int], values: Mapping[Value, int]
    ):
        self.steps = steps
        self.device = steps[0].device
        self.words: MutableSequence[int] = []
        self.slot_words: dict[int, list[int]] = {}
        self.value_words: dict[Value, list[int]] = {}
        # Where the words of each step begin.
        self._starts: list[int] = []
        for step in steps:
            self._starts.append(len(self.words))
            for slot in step.slots:
                self.slot_words.setdefault(slot, []).append(len(self.words))
                self.words.append(addresses[slot])
            for value in step.values:
                self.value_words.setdefault(value, []).append(len(self.words))
                self.words.append(value if isinstance(value, int) else values[value])
        self._count = len(steps)
        kernels = [step.kernel for step in steps if step.kernel is not None]
        self._ops, self._mem = sum(k.ops for k in kernels), sum(k.mem for k in kernels)
        self._announce()

    def _announce(self) -> None:
        if config.DEBUG < 1:
            return
        if self._count > 1:
            print(f"JIT GRAPHing batch with {self._count} kernels on device {self.device}")
        else:
            print(
                f"JIT GRAPHing failed batch with 1 kernels on device {self.device}: "
                "only one kernel doesn't graph"
            )

    def run(self, inputs: int, is_shown: bool) -> None:
        start = perf_counter()
        self._call(is_shown)
        seconds = perf_counter() - start
        report.count(self._ops, self._mem, seconds, self._count)
        if is_shown:
            self._show(inputs, seconds)

    def _call(self, waits: bool) -> None:
        raise NotImplementedError

    def _show(self, inputs: int, seconds: float) -> None:
        first = self.steps[0]
        assert first.kernel is not None
        name, calls = f"<batched {self._count}>", tuple[str, ...]()
        if self._count == 1:
            name, inputs = first.kernel.display, len(first.slots) + len(first.values)
            calls = tuple(method_names(first.origin))
        report.row(
            self.device, name, inputs, self._ops, self._mem, seconds, calls,
            key=name, kernels=self._count, replay=True,
        )  # fmt: skip


class _Table(_LaunchBatch):
    """Kernels of a CPU device as a table of (kernel, arguments, chunks) for its native threads."""

    def __init__(
        self, steps: Sequence[ReplayStep], addresses: Mapping[int, int], values: Mapping[Value, int]
    ):
        super().__init__(steps, addresses, values)
        runtime = Device[self.device].runtime
        assert isinstance(runtime, CpuRuntime)
        pool = runtime.pool
        words = self.words = array("q", self.words)
        self._table = array("q")
        # The code in memory must outlive the table.
        self._programs = []
        for step, start in zip(steps, self._starts, strict=True):
            assert step.kernel is not None
            program = load_program(self.device, step.kernel)
            self._programs.append(program)
            address = words.buffer_info()[0] + 8 * start
            self._table.extend((program.address, address, step.kernel.global_size[0]))
        self.address = self._table.buffer_info()[0]
        is_alone = self._count == 1
        self.call: Callable[..., None] = pool.run_node if is_alone else pool.run_graph
        if self._ops + self._mem < _SHORT:
            self.call = pool.run_short_node if is_alone else pool.run_short_graph

    def _call(self, waits: bool) -> None:
        if self._count == 1:
            self.call(self.address)
        else:
            self.call(self.address, self._count)


class _LaunchCalls(_LaunchBatch):
    """Kernels of another device, whose runtime makes their launches in `call`."""

    def __init__(
        self,
        steps: Sequence[ReplayStep],
        addresses: Mapping[int, int],
        values: Mapping[Value, int],
        call: Callable[[Sequence[int]], None],
    ):
        super().__init__(steps, addresses, values)
        self._sequence = call

    def _call(self, waits: bool) -> None:
        self._sequence(self.words)
        if waits:
            with report.timing():
                Device[self.device].runtime.synchronize()


def _sequence_of(steps: Sequence[ReplayStep]) -> Callable[[Sequence[int]], None] | None:
    """The launches of kernels of one device as one call, if it has that."""
    if any(
        step.kernel is None or step.kernel.costs is not None or step.kernel.blocks is not None
        for step in steps
    ):
        return None
    launches = [
        (
            load_program(step.device, step.kernel),
            len(step.slots) + len(step.values),
            step.kernel.global_size,
        )
        for step in steps
        if step.kernel is not None
    ]
    return Device[steps[0].device].runtime.sequence(launches, False)


class Replay:
    """Steps in order over slots; a slot is memory that may be another at each run.

    Where operands are packed beforehand, `steps` are those that read the copies, and `plain` those
    that pack at each replay: they take over where there is no memory for the copies, or where the
    copied memory is written again and again.

    Attributes:
        inputs: how many inputs the captured function has, for rows.
        call: where all steps are kernels of one batch, and known, the native function that runs
            those at `address`: of that address and, of several, their number.
        moves: those of buffers that the addresses written down know of.
    """

    def __init__(
        self,
        steps: Sequence[ReplayStep],
        inputs: int,
        packs: Sequence[Pack] = (),
        plain: Sequence[ReplayStep] = (),
        members: Mapping[int, Sequence[int]] | None = None,
    ):
        # For slots of memory on several devices: the slots of their shards.
        self._members = members or {}
        self.steps = list(steps)
        self.inputs = inputs
        self.packs = list(packs)
        self._plain = list(plain)
        self._sources = frozenset(pack.source for pack in packs)
        self._is_rebound = bool(packs)
        self._writes = -1
        self._runs = self._repacked = 0
        self._buffers: dict[int, Buffer] = {}
        self._values: dict[Value, int] = {}
        self._sequence: list[_LaunchBatch | ReplayStep | Sync] | None = None
        self._batches: list[_LaunchBatch] = []
        self.call: Callable[..., None] | None = None
        self.address = 0
        self.moves = Buffer.moves

    def set_buffer(self, slot: int, buffer: Buffer) -> None:
        """Let `slot` be `buffer` from now on.

        Raises OutOfMemoryError, and changes nothing, if there is no memory for it.
        """
        address = buffer._handle
        if address is None:
            if slot in self._members:
                self._set_shards(slot, buffer)
                return
            address = self._address(slot, buffer)
        self._buffers[slot] = buffer
        if slot in self._sources:
            self._is_rebound = True
        for batch in self._batches:
            for position in batch.slot_words.get(slot, ()):
                batch.words[position] = address

    def _set_shards(self, slot: int, group: Any) -> None:
        """Let `slot` be memory of several devices."""
        for member, shard in zip(self._members[slot], group.shards, strict=True):
            if shard is not None:
                self.set_buffer(member, shard)

    def _address(self, slot: int, buffer: Buffer) -> Any:
        """The buffer's handle; the first use takes its memory, and may fail."""
        try:
            return buffer.handle
        except OutOfMemoryError as error:
            failure = error
        user = next((step for step in self.steps if slot in step.slots), None)
        try:
            raise located(failure, user.origin if user is not None else ())
        finally:
            # Its traceback keeps this frame, and with it the user's tensors.
            del failure

    def set_value(self, name: Value, value: int) -> None:
        """Let the named integer be `value` from now on."""
        if self._values.get(name) == value:
            return
        self._values[name] = value
        for batch in self._batches:
            for position in batch.value_words.get(name, ()):
                batch.words[position] = value

    def run(self, switches: Config) -> None:
        """Run all steps."""
        if self.packs:
            self._runs += 1
            if self._is_rebound or self._writes != Buffer.writes:
                self._pack()
        if switches.JIT == 2:
            for step in in_queues(self.steps, self._buffers):
                self._run_alone(step)
            return
        sequence = self._sequence
        if sequence is None:
            sequence = self._graph()
        if self.moves != Buffer.moves:
            # Some buffer went on in other memory, so the addresses written down may be old.
            self.moves = Buffer.moves
            for slot, buffer in self._buffers.items():
                self.set_buffer(slot, buffer)
        is_shown = switches.DEBUG >= 2
        for each in sequence:
            if isinstance(each, _LaunchBatch):
                each.run(self.inputs, is_shown)
            else:
                self._run_alone(each)

    @property
    def packed_bytes(self) -> int:
        """Bytes of the copies of operands; captures may share them."""
        return sum(pack.operand.nbytes for pack in self.packs)

    def _pack(self) -> None:
        """Make the copies anew whose memory is another, or was written."""
        # Lest it be read while it is written.
        with exclusive():
            writes = Buffer.writes
            count = 0
            try:
                for pack in self.packs:
                    source = self._buffers[pack.source]
                    memory = pack.bind(source)
                    if memory is not self._buffers.get(pack.slot):
                        self.set_buffer(pack.slot, memory)
                    count += pack.refresh(source)
            except OutOfMemoryError:
                self._unpack()
                return
            is_private = all(self._buffers[pack.source].is_private for pack in self.packs)
            self._writes, self._is_rebound = writes if is_private else -1, False
        self._repacked += bool(count)
        if self._runs >= _SOME and self._repacked > _OFTEN * self._runs:
            self._unpack()

    def _unpack(self) -> None:
        """From now on kernels pack by themselves."""
        for pack in self.packs:
            self._buffers.pop(pack.slot, None)
        self.steps, self.packs, self._sources = self._plain, [], frozenset()
        self._sequence, self._batches = None, []

    def _graph(self) -> list[_LaunchBatch | ReplayStep | Sync]:
        sequence: list[_LaunchBatch | ReplayStep | Sync] = []
        group: list[ReplayStep] = []
        for step in [*in_queues(self.steps, self._buffers), None]:
            is_next = isinstance(step, ReplayStep) and step.kernel is not None
            if group and not (is_next and step is not None and step.device == group[0].device):
                sequence += self._batched(group)
                group = []
            if isinstance(step, ReplayStep) and is_next:
                group.append(step)
            elif step is not None:
                sequence.append(step)
        self._sequence = sequence
        self._batches = [batch for batch in sequence if isinstance(batch, _LaunchBatch)]
        if len(sequence) == 1 and isinstance(sequence[0], _Table):
            self.call, self.address = sequence[0].call, sequence[0].address
        return sequence

    def _batched(self, group: Sequence[ReplayStep]) -> list[_LaunchBatch | ReplayStep]:
        """Consecutive kernels of one device as a batch, or as they are where it makes none."""
        is_ours = is_native(group[0])
        call = None if is_ours else _sequence_of(group)
        if not is_ours and call is None:
            return [*group]
        addresses = {
            slot: self._address(slot, self._buffers[slot]) for step in group for slot in step.slots
        }
        if call is None:
            return [_Table(group, addresses, self._values)]
        return [_LaunchCalls(group, addresses, self._values, call)]

    def _run_alone(self, step: ReplayStep | Sync) -> None:
        if isinstance(step, ReplayStep):
            self._launch(step)
        else:
            Device[step.device].runtime.synchronize()

    def _launch(self, step: ReplayStep) -> None:
        buffers = tuple([self._buffers[slot] for slot in step.slots])
        names = step.kernel.variables if step.kernel is not None else ()
        values = {
            name: self._values.get(value, value)
            for name, value in zip(names, step.values, strict=True)
        }
        launch = Launch(step.device, step.kernel, buffers, names, step.origin)
        run_step(launch, values, replay=True)  # type: ignore[arg-type]
