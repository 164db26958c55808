"""Steps of a capture, and numbers for the memory that they touch, with the kind of each."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from tilegrad.base.origin import Entry
from tilegrad.device.cpu import CpuRuntime
from tilegrad.device.registry import Device
from tilegrad.engine.build.pipeline import CompiledKernel
from tilegrad.engine.run.run import Launch
from tilegrad.runtime.buffer import Buffer
from tilegrad.runtime.group_buffer import GroupBuffer

__all__ = ["Draws", "ReplayStep", "Slots", "Value", "is_native"]

Value = int | Hashable
"""A kernel's integer: a number, or the name under which a replay gives it."""


@dataclass(frozen=True)
class ReplayStep:
    """A launch over numbered memory; a copy of the second into the first where `kernel` is None."""

    device: str
    kernel: CompiledKernel | None
    slots: tuple[int, ...]
    values: tuple[Value, ...]
    origin: tuple[Entry, ...]
    # How many of the slots, the first, it writes.
    written: int = 1

    @property
    def name(self) -> str:
        return "copy" if self.kernel is None else self.kernel.name


def is_native(step: ReplayStep) -> bool:
    """Whether the step is a kernel that the native graph runner calls."""
    return step.kernel is not None and isinstance(Device[step.device].runtime, CpuRuntime)


_DRAW = re.compile(r"(seed|offset)(\d+)(?:_(low|high))?")


@dataclass
class Draws:
    """The random words of a capture: those of the stream `seed` from `start` to `end`.

    Attributes:
        offsets: where, from the start, the draws begin.
    """

    seed: int
    start: int
    end: int
    offsets: list[int] = field(default_factory=list)

    @property
    def words(self) -> int:
        return self.end - self.start

    def values(self, launch: Launch) -> dict[str, Value]:
        """The integers of a launch that name a draw of this capture, by the names under which a
        replay gives them. A draw made before the capture keeps its numbers.
        """
        given = dict(zip(launch.variables, launch.values, strict=True))
        found: dict[str, Value] = {}
        for name, value in given.items():
            match = _DRAW.fullmatch(name)
            if match is None:
                continue
            kind, number, half = match.groups()
            low, high = given.get(f"seed{number}_low", 0), given.get(f"seed{number}_high", 0)
            offset = given.get(f"offset{number}", -1)
            if (high << 32 | low) != self.seed or not self.start <= offset < self.end:
                continue
            if kind == "seed":
                found[name] = ("seed", half)
            else:
                found[name] = ("offset", value - self.start)
                if value - self.start not in self.offsets:
                    self.offsets.append(value - self.start)
        return found


class Slots:
    """The memory of the steps by number: first that of the inputs, as given.

    Attributes:
        members: of slots of memory of several devices, the slots of their shards.
        fixed: slots whose memory never changes: older memory without assignments, host memory
            that the run made, and parts of the block that temporaries share.
        temporary: slots of other memory that the steps made, and that is no result.
        held_bytes: bytes of blocks and temporaries.
    """

    def __init__(
        self,
        inputs: Mapping[int, int],
        touched: Mapping[int, Buffer],
        older: Collection[int],
        outputs: Collection[int],
        groups: Sequence[GroupBuffer] = (),
    ):
        self.number = dict(inputs)
        self.fixed: dict[int, Buffer] = {}
        self.temporary: list[tuple[int, Buffer]] = []
        self.members: dict[int, tuple[int, ...]] = {}
        for group in groups:
            self._number_shards(group, outputs)
        blocks = self._blocks(touched, older)
        for key, buffer in touched.items():
            if key in self.number or isinstance(buffer, GroupBuffer):
                continue
            slot = self.number[key] = len(self.number)
            if key in outputs:
                continue
            if buffer.base is not None and buffer.device in blocks and id(buffer.base) not in older:
                block = blocks[buffer.device]
                self.fixed[slot] = block.view(buffer.offset, buffer.size, buffer.dtype)
            elif key in older or buffer.device == "HOST":
                self.fixed[slot] = buffer
            else:
                self.temporary.append((slot, buffer))

        self.block_bytes = sum(block.nbytes for block in blocks.values())
        self.block_bytes += sum(buffer.nbytes for _, buffer in self.temporary)

    def _number_shards(self, group: GroupBuffer, outputs: Collection[int]) -> None:
        """The numbers of a group's shards, where it is an input or an output: with its memory they
        are others at each replay.
        """
        if id(group) not in self.number and id(group) not in outputs:
            return
        slot = self.number.setdefault(id(group), len(self.number))
        self.members[slot] = tuple(
            [
                -1 if shard is None else self.number.setdefault(id(shard), len(self.number))
                for shard in group.shards
            ]
        )

    @staticmethod
    def _blocks(touched: Mapping[int, Buffer], older: Collection[int]) -> dict[str, Buffer]:
        """For each device one block, the largest plan's: plans run one after another, and values
        that a plan keeps in its block end with it.
        """
        found: dict[str, Buffer] = {}
        for buffer in touched.values():
            base = buffer.base
            if base is not None and id(base) not in older:
                known = found.get(buffer.device)
                if known is None or base.nbytes > known.nbytes:
                    found[buffer.device] = base
        return found

    def step(self, launch: Launch, draws: Draws, symbols: Collection[str]) -> ReplayStep:
        """A launch over numbers; the values that change from replay to replay by name."""
        drawn = draws.values(launch)
        values: list[Value] = []
        for name, value in zip(launch.variables, launch.values, strict=True):
            if name in drawn:
                values.append(drawn[name])
            else:
                values.append(("variable", name) if name in symbols else value)
        slots = tuple([self.number[id(buffer)] for buffer in launch.buffers])
        return ReplayStep(
            launch.device, launch.kernel, slots, tuple(values), launch.origin, launch.written
        )
