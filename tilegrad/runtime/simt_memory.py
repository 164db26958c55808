"""Memory of emulated programs for GPUs: every access is checked against its size, and memory that
several lanes share knows who touched each element since the last barrier.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.float8 import FORMATS
from tilegrad.ir.args import TileMap
from tilegrad.runtime.dtype_arithmetic import bfloat16_values, half_values, to_bfloat16, to_half

__all__ = [
    "CopyGroup",
    "Memory",
    "Outside",
    "Race",
    "TrackedMemory",
    "poison",
    "rows_of_box",
    "scratch",
]  # fmt: skip


# Stamps of elements that no lane has touched, and of those that lanes of several blocks have read.
_NOBODY, _BLOCKS = -1, -2


def rows_of_box(matrix: TileMap, begin: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where each row of a box begins, and how many of its elements lie in the matrix: the first
    ones, as no box begins before it.
    """
    first, *others = begin
    inside = min(matrix.sizes[0] - first, matrix.box[0])
    for steps in itertools.product(*(range(length) for length in matrix.box[:0:-1])):
        at = [start + step for start, step in zip(others, reversed(steps), strict=True)]
        is_in = all(one < size for one, size in zip(at, matrix.sizes[1:], strict=True))
        index = first + sum(x * y for x, y in zip(at, matrix.strides[1:], strict=True))
        yield index, max(inside, 0) if is_in else 0


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

    def read_box(self, matrix: TileMap, begin: Sequence[int]) -> Sequence[Any]:
        """A box of a matrix; elements outside of the matrix are 0."""
        found: list[Any] = []
        for index, count in rows_of_box(matrix, begin):
            found += self.read_vector(index, count) if count else ()
            found += [0] * (matrix.box[0] - count)
        return found

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


class CopyGroup:
    """Copies that land together: `nbytes` are expected, `lane` has begun them."""

    __slots__ = ("_first", "_lanes", "_writes", "copied", "lane", "nbytes")

    def __init__(self, lane: int, nbytes: int):
        self.lane, self.nbytes, self.copied = lane, nbytes, 0
        self._writes: list[tuple[TrackedMemory, int, Sequence[Any]]] = []
        # When a lane first waited for them, and which lanes have since, up to the next barrier.
        self._first: int | None = None
        self._lanes: set[int] = set()

    def add(self, memory: TrackedMemory, index: int, values: Sequence[Any]) -> None:
        self._writes.append((memory, index, values))

    def land(self, start: int, lane: int) -> None:
        """A lane has waited for all of them."""
        if self._first is None:
            self._first = start
            for memory, index, values in self._writes:
                Memory.write_vector(memory, index, values)
            self._writes.clear()
        self._lanes.add(lane)

    def is_seen_by(self, start: int, lane: int) -> bool:
        """Whether a lane, or one that it has met at a barrier since, has waited for them."""
        return self._first is not None and (self._first < start or lane in self._lanes)


class TrackedMemory(Memory):
    """Memory that several lanes may touch, and the accesses that each element has seen.

    Every lane between two barriers has a stamp, and stamps only grow. An element that one lane
    writes may be touched by no other before they meet at a barrier, which is what raises `start`;
    lanes of another block, whose stamps lie below `block_start`, never meet this one's. Where
    chunks of a kernel overlap, they may store values that are there already.
    """

    __slots__ = (
        "block_start", "copies", "flying", "kind", "lanes", "open_reads", "overlaps", "peers",
        "readers", "stamp", "start", "writers",
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
        # The same array of each block of the cluster.
        self.peers: Sequence[TrackedMemory] = (self,)
        self.block_start = 0
        self.start = 0
        self.stamp = 0
        # By lane, its copies that have not landed, in groups, and by element, the lane whose copy
        # fills it, or the group of copies that did.
        self.copies: dict[int, list[list[tuple[int, Sequence[Any]]]]] = {}
        self.flying: dict[int, int | CopyGroup] = {}
        # By lane, the memory that a matrix unit may still read for it, in groups: where, and who
        # wrote it.
        self.open_reads: dict[int, list[list[tuple[int, list[int]]]]] = {}
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
        self.copies.setdefault(lane, [[]])[-1].append((index, values))

    def copy_in(self, group: CopyGroup, index: int, values: Sequence[Any]) -> None:
        """Begin to write `values`, which are there for lanes that have waited for the group."""
        if not 0 <= index <= self.size - len(values):
            raise self.outside(index, len(values))
        for position in range(index, index + len(values)):
            self.note_write(position)
            self.flying[position] = group
        group.add(self, index, values)

    def land(self, but: int = 0) -> None:
        """The lane's copies have come: a group, which ends here, and those before it, but for the
        latest `but` ones.
        """
        groups = self.copies.setdefault(self.stamp - self.start, [[]])
        while len(groups) > but:
            for index, values in groups.pop(0):
                for position in range(index, index + len(values)):
                    self.flying.pop(position, None)
                self.write_vector(index, values)
        groups.append([])

    def read_for_unit(self, index: int, count: int) -> Sequence[Any]:
        """Elements that a matrix unit reads for the lane, until it has waited."""
        values = self.read_vector(index, count)
        writers = self.writers[index : index + count]
        self.open_reads.setdefault(self.stamp - self.start, [[]])[-1].append((index, writers))
        return values

    def end_reads(self, but: int = 0) -> None:
        """The units have read all that they should for the lane: a group, which ends here, and
        those before it, but for the latest `but` ones.
        """
        lane = self.stamp - self.start
        groups = self.open_reads.setdefault(lane, [[]])
        while len(groups) > but:
            for index, writers in groups.pop(0):
                for position, writer in enumerate(writers, index):
                    if self.writers[position] != writer:
                        raise Race(
                            f"element {position} of {self.name} changes while a matrix unit reads "
                            f"it for lane {lane}, without having waited"
                        )
                    self.note_reads(position, 1)
        groups.append([])

    def check_copies(self, index: int) -> bool:
        """Whether a copy that the lane has waited for wrote the element."""
        copier = self.flying.get(index)
        lane = self.stamp - self.start
        if copier is None:
            return False
        if isinstance(copier, CopyGroup) and copier.is_seen_by(self.start, lane):
            return True
        who = copier.lane if isinstance(copier, CopyGroup) else copier
        raise Race(
            f"lane {lane} reads element {index} of {self.name}, which lane {who} copies "
            "without having waited"
        )

    def note_reads(self, index: int, count: int) -> None:
        """The lane reads `count` elements. Nothing is called for most: emulated kernels spend a
        third of their time here.
        """
        stamp, start, block_start = self.stamp, self.start, self.block_start
        writers, readers, flying = self.writers, self.readers, self.flying
        for position in range(index, index + count):
            is_copied = position in flying and self.check_copies(position)
            writer, reader = writers[position], readers[position]
            if not block_start <= writer < start and not is_copied and self.clashes(writer):
                raise self.race(position, "reads", "wrote", writer)
            if reader >= start:
                several = start + self.lanes
                readers[position] = stamp if reader == stamp else several
            elif reader >= block_start or reader == _NOBODY:
                readers[position] = stamp
            else:
                readers[position] = _BLOCKS

    def note_write(self, index: int) -> None:
        if self.clashes(self.writers[index]):
            raise self.race(index, "writes", "wrote", self.writers[index])
        if self.clashes(self.readers[index]):
            raise self.race(index, "writes", "read", self.readers[index])
        self.writers[index] = self.stamp

    def read(self, index: int) -> Any:
        value = super().read(index)
        self.note_reads(index, 1)
        return value

    def read_vector(self, index: int, count: int) -> Sequence[Any]:
        values = super().read_vector(index, count)
        self.note_reads(index, count)
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


def scratch(name: str, dtype: DType, size: int) -> Memory:
    return Memory(name, [poison(dtype)] * size, size)


def poison(dtype: DType) -> Any:
    """The content of memory before the first write: a value that shows in results, and as an index
    is out of bounds.
    """
    return math.nan if dtype.is_float else dtype.max
