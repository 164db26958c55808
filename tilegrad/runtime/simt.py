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
from tilegrad.base.failed import write_failed
from tilegrad.ir.args import TileMap
from tilegrad.runtime.dtype_arithmetic import CODES, arithmetic
from tilegrad.runtime.protocol import Dims
from tilegrad.runtime.simt_memory import Memory, Outside, Race, TrackedMemory, poison, scratch
from tilegrad.runtime.simt_units import CopyBarriers, Late, fragments, multiply
from tilegrad.target import MatrixUnit

__all__ = ["SimtLaunch", "SimtProgram"]


_DONE = object()
_BARRIER_BYTES = 8

Watch = Callable[["SimtLaunch", Memory], Any]
"""Makes the object that a program sees instead of a memory, for a launch and that memory."""


class SimtProgram:
    """A loaded program. It may be launched from several threads at once."""

    def __init__(self, name: str, source: str):
        self.name = name
        self.lines = source.splitlines()
        self.file = f"<emulated {name}>"
        try:
            self.code = compile(source, self.file, "exec")
        except (SyntaxError, RecursionError, MemoryError) as error:
            raise CompileError(
                "emulator: the text is no Python program",
                kernel=name,
                message=error,
                source=write_failed("failed.py", source),
            ) from None
        facts = self._namespace()
        self.buffers: tuple[tuple[int, DType, int, bool, bool], ...] = facts["BUFFERS"]
        self.shared: tuple[tuple[int, DType, int], ...] = facts["SHARED"]
        self.barriers: tuple[tuple[int, int], ...] = facts["BARRIERS"]
        self.variables: tuple[tuple[str, int, int], ...] = facts["VARIABLES"]
        self.positions: tuple[str, ...] = facts["POSITIONS"]
        self.meets: bool = facts["MEETS"]
        self.group: int = facts["GROUP"]
        self.together: int = facts["BLOCKS"]
        self.overlaps: bool = facts["OVERLAPS"]
        self.units: tuple[MatrixUnit, ...] = facts["UNITS"]

    @property
    def shared_bytes(self) -> int:
        arrays = sum(dtype.itemsize * size for _, dtype, size in self.shared)
        return arrays + sum(_BARRIER_BYTES * size for _, size in self.barriers)

    def _namespace(self) -> dict[str, Any]:
        functions = arithmetic()

        def products(unit: MatrixUnit, operands: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
            return multiply(unit, operands, functions)

        names: dict[str, Any] = {
            **functions,
            "dtypes": dtypes,
            "MatrixUnit": MatrixUnit,
            "TileMap": TileMap,
            "multiply": products,
            "scratch": scratch,
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
        SimtLaunch(self, memories, values, global_size, local_size, watch).run()


class SimtLaunch:
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
        together = program.together
        if self.global_size[0] % together:
            raise InternalError(
                f"{program.name}: clusters have {together} blocks", blocks=self.global_size
            )
        # The blocks that run, those of a cluster; the one of the lane that runs, and the lane's
        # number among those of all of them.
        self.blocks: list[Dims] = [(0, 0, 0)]
        self.block: Dims = (0, 0, 0)
        self.lane = 0
        self.start = 0
        self.lanes_together = self.lane_count * together
        self.shared = [self._shared_of_block() for _ in range(together)]
        self.barriers = [
            [CopyBarriers(f"shared{number}", size) for number, size in program.barriers]
            for _ in range(together)
        ]
        for same in zip(*self.shared, strict=True):
            for memory in same:
                memory.peers = same
        for peers in zip(*self.barriers, strict=True):
            for barriers in peers:
                barriers.peers = peers
        self.tracked = [memory for arrays in self.shared for memory in arrays]
        opened = [self._open(memories, *row) for row in program.buffers]
        numbers = self._values(values)
        # The body of a lane, by the rank of its block in the cluster.
        self.bodies = []
        for arrays, own in zip(self.shared, self.barriers, strict=True):
            bound: list[Any] = [*opened, *arrays]
            if watch is not None:
                bound = [watch(self, memory) for memory in bound]
            self.bodies.append(self.names["bind"](*bound, *own, *numbers))

    def _shared_of_block(self) -> list[TrackedMemory]:
        return [
            TrackedMemory(f"shared{number}", [], size, None, self.lanes_together, "block")
            for number, _, size in self.program.shared
        ]

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
        lanes = self.lanes_together
        memory = TrackedMemory(name, cells, count, dtype, lanes, kind, overlaps=overlaps)
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
            every = _positions(self.global_size)
            while blocks := list(itertools.islice(every, self.program.together)):
                self.blocks = blocks
                self._meet()
                for output in self.tracked:
                    output.block_start = self.start
                self._clear()
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

    def _clear(self) -> None:
        """Blocks begin: nothing is in their shared memory."""
        for arrays in self.shared:
            for memory, (_, dtype, size) in zip(arrays, self.program.shared, strict=True):
                memory.cells = [poison(dtype)] * size
                memory.block_start = 0
                memory.copies.clear()
                memory.flying.clear()
                memory.open_reads.clear()
        for own in self.barriers:
            for barriers in own:
                barriers.clear()

    def _run_lanes(self) -> None:
        """Lanes that never meet: each runs to its end."""
        for lane, (body, arguments) in enumerate(self._lanes()):
            self._enter(lane)
            body(*arguments)

    def _run_in_step(self) -> None:
        """All lanes up to where they meet, again and again."""
        lanes = [body(*arguments) for body, arguments in self._lanes()]
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
            if waiting[0] >= 0:
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

    def _lanes(self) -> Iterator[tuple[Callable[..., Any], list[int]]]:
        """The function of each lane of the blocks, and the lane's position as that takes it."""
        wanted = [
            (name[0] == "l", 0 if name == "chunk" else int(name[-1]))
            for name in self.program.positions
        ]
        for body, block in zip(self.bodies, self.blocks, strict=True):
            for position in _positions(self.local_size):
                at = [position[axis] if is_lane else block[axis] for is_lane, axis in wanted]
                yield body, at

    def _enter(self, lane: int) -> None:
        self.lane = lane
        self.block = self.blocks[lane // self.lane_count]
        for memory in self.tracked:
            memory.enter(self.start, lane)
        for own in self.barriers:
            for barriers in own:
                barriers.enter(self.start, lane)

    def _meet(self) -> None:
        """All writes of the lanes so far are now behind a barrier."""
        self.start += self.lanes_together + 1

    def _apart(self, waiting: Sequence[Any], first: int) -> InternalError:
        lanes_at: dict[str, list[int]] = {}
        for lane, position in enumerate(waiting, first):
            at = "the end" if position is _DONE else f"v{max(position, ~position)}"
            lanes_at.setdefault(at, []).append(lane)
        return InternalError(
            f"{self.program.name}: the lanes of a block do not meet at the same barrier",
            lanes="; ".join(f"{_spans(lanes)} at {at}" for at, lanes in lanes_at.items()),
            block=self.blocks[0],
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
        position = list(_positions(self.local_size))[self.lane % self.lane_count]
        return kind(
            f"{self.program.name}: {headline}",
            instruction=self.program.lines[line - 1].strip() if line else "none",
            block=self.block,
            lane=position,
        )


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
