"""The fill of a tile in shared memory by all lanes of a block: which vectors a lane copies.

A vector holds neighbours in global memory. In shared memory they are neighbours too, or, where the
tile is transposed, in neighbouring rows. Lanes with neighbouring numbers take neighbouring
vectors, unless their stores would meet in a bank: then a few rows come first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import loads_of, trips_of
from tilegrad.ir.ranges import gate_loads
from tilegrad.ir.rules import simplify, terms_of
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

__all__ = ["LaneCopy", "lane_of"]

# Banks of shared memory, and the bytes of each (CUDA C++ Programming Guide, shared memory).
_BANKS, _WORD = 32, 4


class _Digits(NamedTuple):
    """A vector's number as digits, the fastest first: rows that come first, vectors of a row, and
    the other rows.
    """

    rows_first: int
    vectors: int

    def row_and_vector(self, number: UOp) -> tuple[UOp, UOp]:
        first = number % self.rows_first
        rest = number // self.rows_first
        return rest // self.vectors * self.rows_first + first, rest % self.vectors


class LaneCopy:
    """The fill of one tile."""

    def __init__(self, fill: UOp, lanes: Sequence[UOp], target: Target):
        self.store, *self.nest = fill.src
        self.lanes, self.target = lanes, target
        self.itemsize = self.store.value.dtype.itemsize
        self.fast = self._contiguous()
        self.rows = [loop for loop in self.nest if loop is not self.fast]
        self.width = self._width()
        self.unrolled: list[UOp] = []

    @property
    def is_moved(self) -> bool:
        """Whether the tile has the values of memory as they are."""
        return self.store.value.op is Ops.LOAD

    @property
    def nbytes(self) -> int:
        """Bytes that are copied at a time."""
        return self.width * self.itemsize

    def shared(self, number: int) -> UOp:
        """The store of one lane, over the ranges `unrolled`, with numbers from `number` on."""
        extent = self.fast.extent.arg
        vectors = extent // self.width
        count = trips_of(self.rows) * vectors
        lane, lanes = lane_of(self.lanes)
        steps = -(-count // lanes)
        step = UOp.range(steps, number, Axis.UPCAST)
        vector = UOp.range(self.width, number + 1, Axis.UPCAST)
        self.unrolled = [step] * (steps > 1) + [vector] * (self.width > 1)
        at = step * lanes + lane if steps > 1 else lane
        digits = _Digits(self._rows_first(count // vectors, vectors), vectors)
        row, vector_index = digits.row_and_vector(at)
        values = {self.fast: vector_index * self.width + vector if self.width > 1 else vector_index}
        for loop in reversed(self.rows):
            values[loop] = row % loop.extent.arg
            row = row // loop.extent.arg
        pointer, index, value = self.store.src
        values = {loop: simplify(each) for loop, each in values.items()}
        index, value = simplify(index.substitute(values)), simplify(value.substitute(values))
        if count % lanes == 0:
            return pointer.store(index, value)
        inside = simplify(at < count)
        return pointer.store(index, simplify(gate_loads(value, inside)), inside)

    def _contiguous(self) -> UOp:
        """The range in which most loads are contiguous; else the last."""
        loads = loads_of(self.store.value)

        def moved_by_one(loop: UOp) -> int:
            terms = (terms_of(load.index) for load in loads)
            return sum(found is not None and found[0].get(loop) == 1 for found in terms)

        return max(self.nest, key=lambda loop: (moved_by_one(loop), self.nest.index(loop)))

    def _width(self) -> int:
        return math.gcd(self.fast.extent.arg, self.target.access_lanes(self.store.value.dtype))

    def _rows_first(self, rows: int, vectors: int) -> int:
        """How many rows come before the next vector of a row: the fewest with which the stores of
        a warp share no bank; whole sectors are read all the same.
        """
        found = terms_of(self.store.index)
        if found is None or len(self.rows) != 1 or any(loop not in found[0] for loop in self.nest):
            return 1
        down, across = found[0][self.rows[0]], found[0][self.fast]
        warp = max(self.target.warp_lanes, 1)
        most = (
            max(warp * self.width * self.itemsize // self.target.sector_bytes, 1)
            if vectors > 1
            else 1
        )
        choices = [count for count in (1, 2, 4, 8, 16, 32) if rows % count == 0 and count <= most]

        def conflicts(rows_first: int) -> int:
            starts = []
            for lane in range(warp):
                rest = lane // rows_first
                row = rest // vectors * rows_first + lane % rows_first
                starts.append(row * down + rest % vectors * self.width * across)
            nbytes = self.itemsize * (self.width if across == 1 else 1)
            return _conflicts([start * self.itemsize for start in starts], nbytes)

        return min(choices, key=lambda count: (conflicts(count), count))


def lane_of(ranges: Sequence[UOp]) -> tuple[UOp, int]:
    """The number of a lane in its block, as hardware counts, and how many there are."""
    total, lanes = UOp.const(dtypes.index, 0), 1
    for loop in reversed(ranges):
        total = loop * lanes + total
        lanes *= loop.extent.arg
    return simplify(total), lanes


def _conflicts(starts: Sequence[int], nbytes: int) -> int:
    """The bank conflicts of a warp that accesses `nbytes` at each of `starts`: wide accesses are
    served by halves or quarters of it.
    """
    together = max(len(starts) // max(nbytes // _WORD, 1), 1)
    waits = 0
    for first in range(0, len(starts), together):
        words: dict[int, set[int]] = {}
        for start in starts[first : first + together]:
            for word in range(start // _WORD, (start + nbytes - 1) // _WORD + 1):
                words.setdefault(word % _BANKS, set()).add(word)
        waits += max(map(len, words.values())) - 1
    return waits
