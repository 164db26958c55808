"""Blocks, lanes, barriers and matrix units in Python: programs for GPUs run, and fail, without a
GPU.

A program is the source that render.python writes. Its lanes run one after the other, each until
it must meet the others of its block at a barrier, or those of its group at a matrix unit. Nothing
runs out of order, so a program that happens to be right in this order alone must be caught by
other means: memory that several lanes share knows who touched each element since the last
barrier, and refuses an access that races. Every access is checked against the size of its memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import CompileError, IndexBoundsError, InternalError, TilegradError
from tilegrad.base.float8 import FORMATS
from tilegrad.runtime.arithmetic import (
    CODES,
    arithmetic,
    bfloat16_values,
    half_values,
    to_bfloat16,
    to_half,
)
from tilegrad.runtime.protocol import Dims
from tilegrad.target import MatrixUnit

__all__ = ["Launch", "Memory", "SimtProgram", "TrackedMemory", "multiply"]


# Stamps of elements that nobody has touched, and of those that lanes of several blocks have read.
_NOBODY, _BLOCKS = -1, -2


class Outside(Exception):
    """An access outside a memory: the message says which."""


class Race(Exception):
    """Two lanes touch an element with nothing between them that orders them: the message says
    which.
    """


class Memory:
    """Elements of one dtype; nothing outside them is touched."""

    __slots__ = ("cells", "decode", "encode", "name", "size")

    def __init__(self, name: str, cells: Any, size: int, dtype: DType | None = None):
        self.name = name
        self.cells = cells
        self.size = size
        self.decode: Sequence[float] | None = None
        self.encode: Callable[[float], int] | None = None
        if dtype in dtypes.fp8s:
            kind = FORMATS[dtype.name]
            self.decode, self.encode = kind.values(), kind.to_bits
        elif dtype is dtypes.float16:
            self.decode, self.encode = half_values(), to_half
        elif dtype is dtypes.bfloat16:
            self.decode, self.encode = bfloat16_values(), to_bfloat16

    def outside(self, index: int, count: int) -> Outside:
        what = f"index {index}" if count == 1 else f"indices {index} to {index + count - 1}"
        verb = "is" if count == 1 else "are"
        return Outside(f"{what} {verb} outside {self.name}, which has {self.size} elements")

    def read(self, index: int) -> Any:
        if not 0 <= index < self.size:
            raise self.outside(index, 1)
        value = self.cells[index]
        return value if self.decode is None else self.decode[value]

    def read_vector(self, index: int, count: int) -> Sequence[Any]:
        if not 0 <= index <= self.size - count:
            raise self.outside(index, count)
        values: Sequence[Any] = self.cells[index : index + count]
        return values if self.decode is None else [self.decode[value] for value in values]

    def write(self, index: int, value: Any) -> None:
        if not 0 <= index < self.size:
            raise self.outside(index, 1)
        self.cells[index] = value if self.encode is None else self.encode(value)

    def write_vector(self, index: int, values: Sequence[Any]) -> None:
        if not 0 <= index <= self.size - len(values):
            raise self.outside(index, len(values))
        for position, value in enumerate(values, index):
            self.cells[position] = value if self.encode is None else self.encode(value)

    def combine(self, index: int, change: Callable[[Any], Any]) -> None:
        """Change one element as one step, as hardware does with atomics; such steps do not race."""
        Memory.write(self, index, change(Memory.read(self, index)))


class Late:
    """What a matrix unit gives to a lane that has not waited for it: only another unit may add to
    it.
    """

    __slots__ = ("values",)

    def __init__(self, values: tuple[Any, ...]):
        self.values = values

    def __getitem__(self, lane: int) -> Any:
        raise Race(f"element {lane} of what a matrix unit gives is read without having waited")


class TrackedMemory(Memory):
    """Memory that several lanes may touch, and what each element has seen.

    Every lane between two barriers has a stamp, and stamps only grow. An element that one lane
    writes may be touched by no other before they meet at a barrier, which is what raises `start`;
    lanes of another block, whose stamps lie below `block_start`, never meet this one's. Of a kernel
    whose parts overlap, chunks may store what is there already.
    """

    __slots__ = (
        "block_start", "copies", "flying", "kind", "lanes", "open_reads", "overlaps", "readers",
        "stamp", "start", "writers",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        cells: Any,
        size: int,
        dtype: DType | None,
        lanes: int,
        kind: str,
        *,
        overlaps: bool = False,
    ):
        super().__init__(name, cells, size, dtype)
        self.lanes = lanes
        self.kind = kind
        self.overlaps = overlaps
        self.block_start = 0
        self.start = 0
        self.stamp = 0
        # By lane, its copies that have not landed, and by element, the lane whose copy fills it.
        self.copies: dict[int, list[tuple[int, Sequence[Any]]]] = {}
        self.flying: dict[int, int] = {}
        # By lane, what a matrix unit may still read for it: positions, and who wrote them.
        self.open_reads: dict[int, list[tuple[int, list[int]]]] = {}
        self.writers = [_NOBODY] * size
        self.readers = [_NOBODY] * size

    def enter(self, start: int, lane: int) -> None:
        """From now on `lane` runs; what has a stamp from `start` up happened since the last
        barrier.
        """
        self.start = start
        self.stamp = start + lane

    def clashes(self, stamp: int) -> bool:
        if stamp == self.stamp or stamp == _NOBODY:
            return False
        return stamp >= self.start or stamp < self.block_start

    def race(self, index: int, verb: str, other: str, stamp: int) -> Race:
        lane = stamp - self.start
        what = f"lane {self.stamp - self.start} {verb} element {index} of {self.name}, which"
        if lane < 0:
            return Race(f"{what} another {self.kind} {other} in the same launch")
        who = f"lane {lane}" if lane < self.lanes else "another lane"
        return Race(f"{what} {who} {other} since the last barrier")

    def copy(self, index: int, values: Sequence[Any]) -> None:
        """Begin to write `values`; until the lane has waited, they are not there."""
        lane = self.stamp - self.start
        for position in range(index, index + len(values)):
            if not 0 <= position < self.size:
                raise self.outside(index, len(values))
            self.note_write(position)
            self.flying[position] = lane
        self.copies.setdefault(lane, []).append((index, values))

    def land(self) -> None:
        """The lane's copies have come."""
        for index, values in self.copies.pop(self.stamp - self.start, ()):
            for position in range(index, index + len(values)):
                self.flying.pop(position, None)
            self.write_vector(index, values)

    def read_for_unit(self, index: int, count: int) -> Sequence[Any]:
        """Elements that a matrix unit reads for the lane, until it has waited."""
        values = self.read_vector(index, count)
        writers = self.writers[index : index + count]
        self.open_reads.setdefault(self.stamp - self.start, []).append((index, writers))
        return values

    def end_reads(self) -> None:
        """The units have read all that they should for the lane."""
        lane = self.stamp - self.start
        for index, writers in self.open_reads.pop(lane, ()):
            for position, writer in enumerate(writers, index):
                if self.writers[position] != writer:
                    raise Race(
                        f"element {position} of {self.name} changes while a matrix unit reads it "
                        f"for lane {lane}, without having waited"
                    )
                self.note_read(position)

    def note_read(self, index: int) -> None:
        if index in self.flying:
            raise Race(
                f"lane {self.stamp - self.start} reads element {index} of {self.name}, which lane "
                f"{self.flying[index]} copies without having waited"
            )
        if self.clashes(self.writers[index]):
            raise self.race(index, "reads", "wrote", self.writers[index])
        reader = self.readers[index]
        if not self.clashes(reader):
            self.readers[index] = self.stamp
        elif reader >= self.start:
            self.readers[index] = self.start + self.lanes  # several lanes
        else:
            self.readers[index] = _BLOCKS

    def note_write(self, index: int) -> None:
        if self.clashes(self.writers[index]):
            raise self.race(index, "writes", "wrote", self.writers[index])
        if self.clashes(self.readers[index]):
            raise self.race(index, "writes", "read", self.readers[index])
        self.writers[index] = self.stamp

    def read(self, index: int) -> Any:
        value = super().read(index)
        self.note_read(index)
        return value

    def read_vector(self, index: int, count: int) -> Sequence[Any]:
        values = super().read_vector(index, count)
        for position in range(index, index + count):
            self.note_read(position)
        return values

    def write(self, index: int, value: Any) -> None:
        self.write_vector(index, (value,))

    def write_vector(self, index: int, values: Sequence[Any]) -> None:
        positions = range(index, index + len(values))
        cells = self.cells if self.overlaps else None
        before = [bytes(cells[at : at + 1]) for at in positions] if cells is not None else []
        super().write_vector(index, values)
        for number, position in enumerate(positions):
            is_there = self.overlaps and before[number] == bytes(
                self.cells[position : position + 1]
            )
            if not (is_there and self.writers[position] != _NOBODY):
                self.note_write(position)


_DONE = object()

Watch = Callable[["Launch", Memory], Any]
"""What a program sees instead of a memory, of a launch and that memory."""


class SimtProgram:
    """A loaded program. It may be launched from several threads at once."""

    def __init__(self, name: str, source: str):
        self.name = name
        self.lines = source.splitlines()
        self.file = f"<emulated {name}>"
        try:
            self.code = compile(source, self.file, "exec")
        except (SyntaxError, RecursionError, MemoryError) as error:
            raise CompileError(f"emulator: {name} is no Python program", message=error) from None
        facts = self._namespace()
        self.buffers: tuple[tuple[int, DType, int, bool, bool], ...] = facts["BUFFERS"]
        self.shared: tuple[tuple[int, DType, int], ...] = facts["SHARED"]
        self.variables: tuple[tuple[str, int, int], ...] = facts["VARIABLES"]
        self.positions: tuple[str, ...] = facts["POSITIONS"]
        self.meets: bool = facts["MEETS"]
        self.group: int = facts["GROUP"]
        self.overlaps: bool = facts["OVERLAPS"]
        self.units: tuple[MatrixUnit, ...] = facts["UNITS"]

    @property
    def shared_bytes(self) -> int:
        return sum(dtype.itemsize * size for _, dtype, size in self.shared)

    def _namespace(self) -> dict[str, Any]:
        functions = arithmetic()

        def products(unit: MatrixUnit, operands: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
            return multiply(unit, operands, functions)

        names: dict[str, Any] = {
            **functions,
            "dtypes": dtypes,
            "MatrixUnit": MatrixUnit,
            "multiply": products,
            "scratch": _scratch,
        }
        exec(self.code, names)
        return names

    def run(
        self,
        memories: Sequence[memoryview],
        values: Sequence[int],
        global_size: Dims,
        local_size: Dims,
        watch: Watch | None = None,
    ) -> None:
        """Run every lane of every block. `watch` may put something of its own before each memory,
        which sees the accesses.

        Raises IndexBoundsError for an access outside a memory, InternalError for a race, for
        lanes that wait at different barriers, and for anything else that a program may not do.
        """
        Launch(self, memories, values, global_size, local_size, watch).run()


class Launch:
    """One launch: the memories, the block that runs, and how far each of its lanes is."""

    def __init__(
        self,
        program: SimtProgram,
        memories: Sequence[memoryview],
        values: Sequence[int],
        global_size: Dims,
        local_size: Dims,
        watch: Watch | None = None,
    ):
        self.program = program
        self.global_size, self.local_size = _three(global_size), _three(local_size)
        self.lane_count = math.prod(self.local_size)
        self.names = program._namespace()
        self.block: Dims = (0, 0, 0)
        self.lane = 0
        self.start = 0
        self.shared = [
            TrackedMemory(f"shared{number}", [], size, None, self.lane_count, "block")
            for number, _, size in program.shared
        ]
        self.tracked = list(self.shared)
        opened = [self._open(memories, *row) for row in program.buffers]
        bound: list[Any] = [*opened, *self.shared]
        if watch is not None:
            bound = [watch(self, memory) for memory in bound]
        self.body = self.names["bind"](*bound, *self._values(values))

    def _open(
        self,
        memories: Sequence[memoryview],
        slot: int,
        dtype: DType,
        size: int,
        stored: bool,
        loaded: bool,
    ) -> Memory:
        name, program = f"data{slot}", self.program
        if slot >= len(memories):
            raise InternalError(
                f"{program.name}: no buffer is given for {name}", given=len(memories)
            )
        view = memories[slot].cast("B")
        count = view.nbytes // dtype.itemsize
        if size >= 0:
            # Declared for the largest lengths of a plan, whether the kernel takes them or not; the
            # memory is as long as those of the launch say, and each access is looked at.
            count = min(count, size)
        if stored and view.readonly:
            raise InternalError(f"{program.name}: {name} is written, its buffer is read-only")
        code: Any = CODES[dtype.name]
        cells = view[: count * dtype.itemsize].cast(code)
        if not stored or self.lane_count * math.prod(self.global_size) == 1:
            return Memory(name, cells, count, dtype)
        kind = "chunk" if "chunk" in program.positions else "block"
        overlaps = kind == "chunk" and program.overlaps
        memory = TrackedMemory(name, cells, count, dtype, self.lane_count, kind, overlaps=overlaps)
        self.tracked.append(memory)
        return memory

    def _values(self, values: Sequence[int]) -> Sequence[int]:
        known = self.program.variables
        if len(values) != len(known):
            names = ", ".join(name for name, _, _ in known) or "none"
            raise InternalError(
                f"{self.program.name}: {len(values)} values for variables", variables=names
            )
        for value, (name, low, high) in zip(values, known, strict=True):
            if not low <= value <= high:
                raise InternalError(
                    f"{self.program.name}: {name} is {value}", range=f"{low} to {high}"
                )
        return values

    def run(self) -> None:
        try:
            for block in _positions(self.global_size):
                self.block = block
                self._meet()
                for output in self.tracked:
                    output.block_start = self.start
                for memory, (_, dtype, size) in zip(self.shared, self.program.shared, strict=True):
                    memory.cells = [_poison(dtype)] * size
                    memory.block_start = 0
                    memory.copies.clear()
                    memory.flying.clear()
                    memory.open_reads.clear()
                if self.program.meets:
                    self._run_in_step()
                else:
                    self._run_lanes()
        except (Outside, Race) as error:
            raise self._explained(error, str(error)) from None
        except TilegradError:
            raise
        except Exception as error:
            raise self._explained(error, f"{type(error).__name__}: {error}") from error

    def _run_lanes(self) -> None:
        """Lanes that never meet: each runs to its end."""
        for lane, arguments in enumerate(self._arguments()):
            self._enter(lane)
            self.body(*arguments)

    def _run_in_step(self) -> None:
        """All lanes up to where they meet, again and again."""
        lanes = [self.body(*arguments) for arguments in self._arguments()]
        group = self.program.group
        if len(lanes) % group:
            headline = f"{self.program.name}: {group} lanes exchange values, or use a matrix unit"
            raise InternalError(headline, block=f"{len(lanes)} lanes")
        while True:
            waiting: list[Any] = []
            for first in range(0, len(lanes), group):
                waiting += self._run_group(lanes[first : first + group], first)
            if any(position != waiting[0] for position in waiting):
                raise self._apart(waiting, 0)
            if waiting[0] is _DONE:
                return
            self._meet()

    def _run_group(self, lanes: Sequence[Any], first: int) -> list[Any]:
        """Run the lanes of one matrix unit to the next barrier or their end: where each stands."""
        replies: Sequence[Any] = [None] * len(lanes)
        while True:
            found: list[Any] = []
            for number, lane in enumerate(lanes):
                self._enter(first + number)
                try:
                    found.append(lane.send(replies[number]))
                except StopIteration:
                    found.append(_DONE)
            if not any(isinstance(position, tuple) for position in found):
                return found
            at = [position[0] if isinstance(position, tuple) else position for position in found]
            if any(position != at[0] for position in at):
                raise self._apart(at, first)
            kind = found[0][1]
            if kind is None:
                replies = [found[number ^ position[2]][3] for number, position in enumerate(found)]
            elif isinstance(kind, tuple):
                count, is_transposed = kind
                replies = fragments(count, is_transposed, [position[2] for position in found])
            else:
                unit = self.names["UNITS"][kind]
                replies = self.names["multiply"](unit, [position[2:] for position in found])
                if not unit.synchronous:
                    replies = [Late(values) for values in replies]

    def _arguments(self) -> Iterator[list[int]]:
        """The position of each lane of the block, as the program's function takes it."""
        wanted = [
            (name[0] == "l", 0 if name == "chunk" else int(name[-1]))
            for name in self.program.positions
        ]
        for position in _positions(self.local_size):
            yield [position[axis] if is_lane else self.block[axis] for is_lane, axis in wanted]

    def _enter(self, lane: int) -> None:
        self.lane = lane
        for memory in self.tracked:
            memory.enter(self.start, lane)

    def _meet(self) -> None:
        """What the lanes did so far is now behind all of them."""
        self.start += self.lane_count + 1

    def _apart(self, waiting: Sequence[Any], first: int) -> InternalError:
        lanes_at: dict[str, list[int]] = {}
        for lane, position in enumerate(waiting, first):
            at = "the end" if position is _DONE else f"v{position}"
            lanes_at.setdefault(at, []).append(lane)
        return InternalError(
            f"{self.program.name}: the lanes of a block do not meet at the same barrier",
            lanes="; ".join(f"{_spans(lanes)} at {at}" for at, lanes in lanes_at.items()),
            block=self.block,
        )

    def _explained(self, error: Exception, headline: str) -> TilegradError:
        """The error with the instruction, block and lane where it happened."""
        line = 0
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self.program.file:
                line = trace.tb_lineno
            trace = trace.tb_next
        kind = IndexBoundsError if isinstance(error, Outside) else InternalError
        position = list(_positions(self.local_size))[self.lane]
        return kind(
            f"{self.program.name}: {headline}",
            instruction=self.program.lines[line - 1].strip() if line else "none",
            block=self.block,
            lane=position,
        )


def multiply(
    unit: MatrixUnit, operands: Sequence[Sequence[Any]], functions: dict[str, Any]
) -> list[tuple[Any, ...]]:
    """What a matrix unit gives to each lane for its (a, b, c): products in order of k, each added
    with one rounding.
    """
    a = _gathered(unit, unit.a_layout, [lane[0] for lane in operands], "a")
    b = _gathered(unit, unit.b_layout, [lane[1] for lane in operands], "b")
    totals = [lane[2].values if isinstance(lane[2], Late) else lane[2] for lane in operands]
    c = _gathered(unit, unit.c_layout, totals, "c")
    out = unit.dtype_out
    fma: Callable[[Any, Any, Any], Any]
    if out.is_float:
        fma = functions[f"fma_{out.name}"]
    else:
        wrap = functions[out.name]

        def fma(x: int, y: int, z: int) -> int:
            result: int = wrap(x * y + z)
            return result

    for row, column in c:
        total = c[row, column]
        for k in range(unit.k):
            total = fma(a[row, k], b[k, column], total)
        c[row, column] = total
    return [tuple([c[position] for position in positions]) for positions in unit.c_layout]


def fragments(
    count: int, is_transposed: bool, rows: Sequence[Sequence[Any]]
) -> list[tuple[Any, ...]]:
    """What each lane holds of `count` matrices of 8x8 whose rows the lanes give."""
    found = []
    for lane in range(len(rows)):
        line, first = lane // 4, 2 * (lane % 4)
        cells = [(line, first), (line, first + 1)]
        found.append(
            tuple(
                rows[8 * matrix + (column if is_transposed else row)][
                    row if is_transposed else column
                ]
                for matrix in range(count)
                for row, column in cells
            )
        )
    return found


def _gathered(
    unit: MatrixUnit,
    layout: Sequence[Sequence[tuple[int, int]]],
    lanes: Sequence[Any],
    operand: str,
) -> dict[tuple[int, int], Any]:
    """The matrix that the lanes hold together. Where several hold one element, they must agree."""
    found: dict[tuple[int, int], Any] = {}
    for positions, values in zip(layout, lanes, strict=True):
        for position, value in zip(positions, values, strict=True):
            known = found.setdefault(position, value)
            if known != value and (known == known or value == value):
                raise InternalError(
                    f"{unit.name}: lanes disagree on element {position} of {operand}",
                    values=f"{known}, {value}",
                )
    return found


def _scratch(name: str, dtype: DType, size: int) -> Memory:
    return Memory(name, [_poison(dtype)] * size, size)


def _poison(dtype: DType) -> Any:
    """What memory holds that nobody wrote: a value that shows in results, or leaves every bound
    as an index.
    """
    return math.nan if dtype.is_float else dtype.max


def _three(size: Dims) -> Dims:
    return (*size, 1, 1, 1)[:3]


def _positions(size: Dims) -> Iterator[Dims]:
    """Every position, the first axis fastest: the order in which hardware numbers lanes and
    blocks.
    """
    x, y, z = size
    return ((i, j, k) for k, j, i in itertools.product(range(z), range(y), range(x)))


def _spans(lanes: Sequence[int]) -> str:
    """0, 1, 2, 5 as "lanes 0-2, 5"."""
    spans: list[list[int]] = []
    for lane in lanes:
        if spans and spans[-1][1] == lane - 1:
            spans[-1][1] = lane
        else:
            spans.append([lane, lane])
    text = ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in spans)
    return f"lane{'s' if len(lanes) > 1 else ''} {text}"
