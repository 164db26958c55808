"""Units that the lanes of a block share, in Python: matrix units, whose result each lane gets from
the elements that the lanes hold, and barriers of copies.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import InternalError
from tilegrad.base.float8 import FORMATS
from tilegrad.runtime.simt_memory import CopyGroup, Race, TrackedMemory
from tilegrad.target import MatrixUnit

__all__ = ["CopyBarriers", "Late", "fragments", "multiply"]

# Elements of a matrix that lanes hold, by (row, column).
Elements = dict[tuple[int, int], Any]


class Late:
    """The result of a matrix unit for a lane that has not waited for it: only another unit may add
    to it.
    """

    __slots__ = ("values",)

    def __init__(self, values: tuple[Any, ...]):
        self.values = values

    def __getitem__(self, lane: int) -> Any:
        raise Race(f"element {lane} of what a matrix unit gives is read without having waited")


def multiply(
    unit: MatrixUnit, operands: Sequence[Sequence[Any]], functions: dict[str, Any]
) -> list[tuple[Any, ...]]:
    """Results of a matrix unit for each lane with its (a, b, c): products in order of k, each added
    with one rounding.
    """
    left, right = ([lane[side] for lane in operands] for side in (0, 1))
    if unit.digits or unit.dtype_in.name in FORMATS:
        left, right = (
            [tuple([_read(unit, value) for value in lane]) for lane in side]
            for side in (left, right)
        )
    a = _gathered(unit, unit.a_layout, left, "a")
    b = _gathered(unit, unit.b_layout, right, "b")
    totals = [lane[2].values if isinstance(lane[2], Late) else lane[2] for lane in operands]
    c = _gathered(unit, unit.c_layout, totals, "c")
    total = _products(unit, a, b, c, functions)
    return [tuple([total[row][column] for row, column in own]) for own in unit.c_layout]


def _products(
    unit: MatrixUnit, a: Elements, b: Elements, c: Elements, functions: dict[str, Any]
) -> list[list[Any]]:
    """a @ b + c of the elements by position, as rows: for each k all elements at once."""
    import numpy as np

    out, kind = unit.dtype_out, np.float64 if unit.dtype_out.is_float else np.int64
    left, right, total = (
        np.array([[known[row, column] for column in range(width)] for row in range(height)], kind)
        for known, height, width in (
            (a, unit.m, unit.k), (b, unit.k, unit.n), (c, unit.m, unit.n),
        )
    )  # fmt: skip
    rounded = np.frompyfunc(functions[out.name], 1, 1)
    with np.errstate(all="ignore"):
        for k in range(unit.k):
            # The product of two such floats fits a double.
            product = left[:, k, None] * right[None, k]
            if not out.is_float:
                total = (total + product).astype(out.name).astype(kind)
            elif out in (dtypes.float32, dtypes.float16):
                total = _odd_sums(product, total).astype(out.name).astype(kind)
            else:
                total = rounded(_odd_sums(product, total)).astype(kind)
    rows: list[list[Any]] = total.tolist()
    return rows


def _odd_sums(x: Any, y: Any) -> Any:
    """x + y rounded to odd, so that rounding it again gives the same as rounding once."""
    import numpy as np

    total = x + y
    second = total - x
    lost = (x - (total - second)) + (y - second)
    is_cut = (lost != 0) & np.isfinite(total) & (total.view(np.uint64) & 1 == 0)
    return np.where(is_cut, np.nextafter(total, np.copysign(np.inf, lost)), total)


def _read(unit: MatrixUnit, value: Any) -> float:
    """An operand's element as a unit reads it: float32 with a shorter fraction, or 8 bits."""
    if not unit.digits:
        return float(FORMATS[unit.dtype_in.name].values()[value])
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    dropped = 23 - unit.digits
    if value - value == 0:
        # Digits below those of the normal numbers are cut.
        half = 1 << dropped - 1 if bits & 0x7F800000 else 0
        bits = bits + half >> dropped << dropped
    found: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return found


def fragments(
    count: int, is_transposed: bool, rows: Sequence[Sequence[Any]]
) -> list[tuple[Any, ...]]:
    """The shares of each lane in `count` matrices of 8 rows, which the lanes give."""
    found = []
    own = len(rows[0]) // 4
    for lane in range(len(rows)):
        line, first = lane // 4, own * (lane % 4)
        cells = [(line, first + more) for more in range(own)]
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
) -> Elements:
    """The matrix that the lanes hold together. Where several hold one element, they must agree."""
    found: Elements = {}
    for positions, values in zip(layout, lanes, strict=True):
        for position, value in zip(positions, values, strict=True):
            known = found.setdefault(position, value)
            if known != value and (known == known or value == value):
                raise InternalError(
                    f"{unit.name}: lanes disagree on element {position} of {operand}",
                    values=f"{known}, {value}",
                )
    return found


class CopyBarriers:
    """An array of barriers; one lane arrives at each of them in a phase.

    Copies land as the first lane waits for them. A lane that waits for a phase which has not ended
    would wait forever: lanes run in order, and the one that copies is of the first warp. In a
    cluster, another block's copies may come before the lane arrives; the barriers of its blocks are
    each other's `peers`.

    They know who has arrived, which bytes have come, and which lanes have waited for them.
    """

    def __init__(self, name: str, size: int):
        self.name, self.size = name, size
        self.start = self.lane = 0
        self.peers: Sequence[CopyBarriers] = (self,)
        self.clear()

    def clear(self) -> None:
        """A block begins."""
        self.ended = [0] * self.size
        self.open: list[CopyGroup | None] = [None] * self.size
        self.last: list[CopyGroup | None] = [None] * self.size

    def enter(self, start: int, lane: int) -> None:
        self.start, self.lane = start, lane

    def arrive(self, number: int, nbytes: int) -> None:
        """A phase begins, which copies of `nbytes` belong to."""
        group = self.open[number]
        if group is None:
            group = self.open[number] = CopyGroup(self.lane, nbytes)
        elif group.nbytes:
            raise Race(f"lane {self.lane} arrives twice in a phase of {self._text(number)}")
        group.nbytes = nbytes
        self._end(number, group)

    def copy(
        self, number: int, memory: TrackedMemory, index: int, values: Sequence[Any], nbytes: int
    ) -> None:
        """Begin to write `values`, which are `nbytes`, to `memory`."""
        group = self.open[number]
        if group is None:
            raise Race(
                f"lane {self.lane} copies in a phase of {self._text(number)} without arrival"
            )
        self._add(number, group, memory, index, values, nbytes)

    def share(
        self, number: int, memory: TrackedMemory, index: int, values: Sequence[Any], nbytes: int
    ) -> None:
        """Begin to write `values` to `memory` of each block of the cluster."""
        for barriers, peer in zip(self.peers, memory.peers, strict=True):
            group = barriers.open[number]
            if group is None:
                group = barriers.open[number] = CopyGroup(self.lane, 0)
            barriers._add(number, group, peer, index, values, nbytes)

    def _add(
        self,
        number: int,
        group: CopyGroup,
        memory: TrackedMemory,
        index: int,
        values: Sequence[Any],
        nbytes: int,
    ) -> None:
        memory.copy_in(group, index, values)
        group.copied += nbytes
        self._end(number, group)

    def _end(self, number: int, group: CopyGroup) -> None:
        """End the phase if a lane has arrived in it, and all bytes have come."""
        if group.nbytes and group.copied > group.nbytes:
            raise Race(
                f"copies in a phase of {self._text(number)} have {group.copied} bytes, where "
                f"{group.nbytes} are expected"
            )
        if group.copied == group.nbytes:
            self.ended[number] += 1
            self.last[number], self.open[number] = group, None

    def wait(self, number: int, parity: int) -> None:
        """Wait for the end of a phase of this parity."""
        if self.ended[number] % 2 == parity:
            group = self.open[number]
            what = "nobody has arrived in it"
            if group is not None:
                what = f"{group.copied} bytes are copied, {group.nbytes} are expected"
            raise Race(
                f"lane {self.lane} waits forever for a phase of {self._text(number)}: {what}"
            )
        if (last := self.last[number]) is not None:
            last.land(self.start, self.lane)

    def _text(self, number: int) -> str:
        return f"barrier {number} of {self.name}"
