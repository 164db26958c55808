"""Sorting and selecting: `sort`, `argsort`, `topk`.

Values become unsigned integers in the same order: a float's bits, inverted below zero, with one
zero and with NaN last. These keys are sorted; the order found picks the values, so that sorting is
differentiable as picking is, and works alike for every dtype.

Rows that are short are ordered by counting, for each element, those that come before it: two
kernels. Longer ones by radix, eight bits at a time, the least significant first: a word holds 32
bits of key above its 32 bits of position, and a pass counts digits in each part of a row, sums the
counts to the place where each part's run of each digit starts, and moves the words there. The words
turn by eight bits as they move, so that all passes are the same two kernels. The work is
proportional to the number of elements, and parts run side by side.

`topk` looks at the largest of each block first: the k best elements lie in the k blocks whose best
is best.
"""

from __future__ import annotations

import math
from typing import Any, Self

from tilegrad.base.dtype import AddressSpace, dtypes
from tilegrad.base.errors import ShapeError
from tilegrad.base.origin import composed
from tilegrad.device.registry import Device
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.core import Core, describe
from tilegrad.tensor.handle.pairs import Ranked
from tilegrad.tensor.handle.size_arguments import as_axis, as_int
from tilegrad.tensor.results.custom import Custom
from tilegrad.tensor.results.kernel_families import KernelFamily

__all__ = ["Sorting"]

_UNSIGNED = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}
_DIGITS = 256
# Comparisons up to which all pairs of a row are compared.
_PAIRS = 1 << 22
_SHORT = 64
# Comparisons that take longer than the kernels of another round of a selection. Among more than can
# be compared, a round of blocks of fewer elements leaves too much.
_WORTH_A_ROUND = 1 << 20
_LEAST_BLOCK = 8
# Elements of a part of a row, at least: on targets with blocks a lane walks a part.
_CHUNK = 1 << 14
_CHUNK_OF_A_LANE = 1 << 9
_MOST_CHUNKS = 1 << 11


class Sorting(Custom):
    """Sorting methods. All are stable: equal elements keep their order, and NaN counts as larger
    than any number.
    """

    __slots__ = ()

    @templated
    @composed
    def sort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> Ranked[Self]:
        """Sort along an axis, the smallest first. Equal elements keep their order.

        Args:
            dim: the axis; a negative one counts from the last.
            descending: the largest first.
            stable: accepted for other libraries' sake; sorting is always stable.

        Returns a pair (values, indices) of this shape, in this dtype and int32.

        Raises IndexBoundsError for an axis that is out of range, ShapeError for a symbolic size.

        >>> values, positions = Tensor([3.0, 1.0, 2.0]).sort()
        >>> values.tolist(), positions.tolist()
        ([1.0, 2.0, 3.0], [1, 2, 0])
        """
        order = self.argsort(dim, descending)
        if not self.ndim or not self._has_elements():
            return Ranked(self._copy_of(self), order)
        return Ranked(self.gather(dim, order), order)

    @templated
    @composed
    def argsort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> Self:
        """Order that sorts along an axis: first the position of the smallest element. Equal
        elements keep their order.

        Args:
            dim: the axis; a negative one counts from the last.
            descending: first the position of the largest.
            stable: accepted for other libraries' sake; sorting is always stable.

        Returns an int32 tensor of this shape.

        Raises IndexBoundsError for an axis that is out of range, ShapeError for a symbolic size.

        >>> Tensor([3.0, 1.0, 2.0]).argsort().tolist()
        [1, 2, 0]
        """
        if not self.ndim and dim in (0, -1):
            return self.zeros_like(dtype=dtypes.int32)
        axis = as_axis("argsort", dim, self.ndim)
        sizes = self._sizes
        if 0 in sizes or sizes[axis] == 1:
            return self.zeros_like(dtype=dtypes.int32)
        _check_length("argsort", self, sizes[axis])
        rows = self.detach().movedim(axis, -1)
        keys = rows._order_keys(descending=descending).contiguous().reshape(-1, sizes[axis])
        return keys._order_of_rows().reshape(rows.shape).movedim(-1, axis)

    @templated
    @composed
    def topk(
        self,
        k: int,
        dim: int = -1,
        largest: bool = True,
        sorted_: bool = True,
        *,
        sorted: bool = True,
    ) -> Ranked[Self]:
        """The `k` largest elements along an axis, the largest first; of equal ones the first count.

        Args:
            k: how many.
            dim: the axis; a negative one counts from the last.
            largest: False gives the smallest elements, the smallest first.
            sorted_: name of `sorted` in tinygrad.
            sorted: accepted for other libraries' sake; the result is always sorted.

        Returns a pair (values, indices) with size `k` along the axis, in this dtype and int32.

        Raises ShapeError if there are fewer than `k`, IndexBoundsError for an axis that is out of
        range.

        >>> values, positions = Tensor([3.0, 9.0, 5.0]).topk(2)
        >>> values.tolist(), positions.tolist()
        ([9.0, 5.0], [1, 2])
        """
        x = self if self.ndim else self.reshape(1)
        axis = as_axis("topk", dim, x.ndim)
        sizes, count = x._sizes, as_int("topk", "k", k)
        if not 0 <= count <= sizes[axis]:
            raise ShapeError(
                f"topk: k is {count}, axis {axis} has {sizes[axis]} elements",
                tensor=describe(self.uop),
                rule="0 <= k <= the size of the axis",
            )
        rows = x.detach().movedim(axis, -1)
        if not count or 0 in sizes:
            order = rows._slice(rows.ndim - 1, 0, count).zeros_like(dtype=dtypes.int32)
        else:
            _check_length("topk", self, sizes[axis])
            keys = rows._order_keys(descending=largest).reshape(-1, sizes[axis])
            order = keys._first_of_rows(count).reshape(*rows.shape[:-1], count)
        order = order.movedim(-1, axis)
        values = x.gather(axis, order) if count and 0 not in sizes else x._slice(axis, 0, count)
        if not self.ndim:
            # At most one element of a number is asked for, and that is a number again.
            shape = () if count else (0,)
            return Ranked(values.reshape(shape), order.reshape(shape))
        return Ranked(values, order)

    # keys

    def _order_keys(self, *, descending: bool) -> Self:
        """Unsigned integers that sort as this tensor does, in at least 16 bits if it is no byte."""
        x = self
        if x.dtype is dtypes.bool:
            x = x.cast(dtypes.uint8)
        if x.dtype.is_float and x.dtype.itemsize == 1:
            x = x.half()
        dtype = _UNSIGNED[x.dtype.itemsize]
        sign = 1 << (dtype.bits - 1)
        if x.dtype.is_float:
            bits = x.eq(0).where(0, x).bitcast(dtype)
            is_negative = (bits & sign).ne(0)
            keys = is_negative.where(~bits, bits | sign)
            keys = x.ne(x).where(dtype.max, keys)
        else:
            keys = x.bitcast(dtype) ^ sign if x.dtype.kind == "int" else x
        return ~keys if descending else keys

    # orders of rows of keys

    def _order_of_rows(self) -> Self:
        """The order of each row of keys (rows, size)."""
        rows, size = self._sizes
        if size <= _SHORT or rows * size * size <= _PAIRS:
            return self._by_counting(size)
        return self._by_radix()

    def _by_counting(self, count: int) -> Self:
        """The positions of the first `count` of each row: an element's position in the order is the
        number of those before it.
        """
        rows, size = self._sizes
        mine, other = self.reshape(rows, size, 1), self.reshape(rows, 1, size)
        positions = self._iota(size)
        is_earlier = positions.reshape(1, size) < positions.reshape(size, 1)
        comes_before = (other < mine) | (other.eq(mine) & is_earlier)
        rank = comes_before.sum(2, dtype=dtypes.int32).contiguous()
        is_there = rank.reshape(rows, 1, size).eq(self._iota(count).reshape(1, count, 1))
        return is_there.where(positions, 0).sum(2, dtype=dtypes.int32)

    def _by_radix(self) -> Self:
        """The order of each row, by passes over the bits of its keys; of 64 bits the lower half
        goes first.
        """
        _, size = self._sizes
        if self.dtype.itemsize < 8:
            return self._sorted_positions(self._iota(size), self.dtype.itemsize)
        order = (self & 0xFFFFFFFF).cast(dtypes.uint32)._sorted_positions(self._iota(size), 4)
        high = (self >> 32).cast(dtypes.uint32).gather(1, order)
        return high._sorted_positions(order, 4)

    def _sorted_positions(self, positions: Self, passes: int) -> Self:
        """`positions`, which go with these keys of `passes` bytes, in the order of the keys."""
        rows, size = self._sizes
        chunks, length = _chunks(rows, size, self.device)
        words = (self.cast(dtypes.uint64) << 32) | positions.cast(dtypes.uint64)
        # The fill comes after all others, and equal keys keep their order.
        words = words.pad(((0, 0), (0, chunks * length - size)), value=_FILL)
        for _ in range(passes):
            words = words._radix_pass(chunks, length)
        words = words.shrink(((0, rows), (0, size)))
        rotation = 8 * passes
        if rotation == 32:
            words = words >> 32
        else:
            words = (words << rotation) | (words >> (64 - rotation))
        return (words & 0xFFFFFFFF).cast(dtypes.int32)

    def _radix_pass(self, chunks: int, length: int) -> Self:
        """Words (rows, parts * length) in the order of bits 32 to 39, turned right by 8."""
        rows = self._sizes[0]
        sizes = rows, chunks, length
        counts = self._by_family(_COUNT_DIGITS, sizes, [self])
        # Runs stand in the order of digits, and for each digit in the order of parts.
        runs = counts.transpose(1, 2).reshape(rows, _DIGITS * chunks)
        starts = (
            (runs.cumsum(1, dtype=dtypes.int32) - runs)
            .reshape(rows, _DIGITS, chunks)
            .transpose(1, 2)
        )
        return self._by_family(_MOVE_TO_RUNS, sizes, [self, starts.contiguous()])

    def _first_of_rows(self, count: int) -> Self:
        """The positions of the `count` smallest keys of each row, in order."""
        rows, size = self._sizes
        block = 1 << int(math.log2(math.sqrt(size / count)))
        blocks = -(-size // block)
        pairs = rows * size * size
        if pairs <= 4 * _PAIRS:
            # Another round leaves those of the blocks, and those that the best of them hold.
            left = rows * (blocks**2 + (count * block) ** 2)
            if pairs - left <= _WORTH_A_ROUND:
                return self.contiguous()._by_counting(count)
        elif block < _LEAST_BLOCK or 4 * count * block > size:
            return self.contiguous()._order_of_rows().shrink(((0, rows), (0, count)))
        # No fill is among the first: equal keys count in their order, and it stands at the end.
        around = ((0, 0), (0, blocks * block - size))
        table = self.pad(around, value=self.dtype.max).reshape(rows, blocks, block)
        best = table.amin(2).contiguous()._first_of_rows(count)
        # In the order of the row, so that equal candidates are.
        best = best.cast(dtypes.uint32).contiguous()._in_order()
        positions = self._iota(rows).reshape(rows, 1) * blocks + best.cast(dtypes.int32)
        found = table.reshape(rows * blocks, block)[positions].reshape(rows, count * block)
        chosen = found.contiguous()._first_of_rows(count)
        return best.cast(dtypes.int32).gather(1, chosen // block) * block + chosen % block

    def _in_order(self) -> Self:
        """Each row of keys in order."""
        return self.gather(1, self._order_of_rows())


# All bits of a word, so that a fill comes after every other.
_FILL = (1 << 64) - 1


def _check_length(name: str, x: Core, size: int) -> None:
    """Raise ShapeError for more elements than the kernels count, in 32 bits."""
    if size > dtypes.int32.max:
        raise ShapeError(
            f"{name}: {size} elements along the axis",
            tensor=describe(x.uop),
            rule=f"at most {dtypes.int32.max} are ordered together",
            remedy="order parts of it, and merge them",
        )


def _chunks(rows: int, size: int, device: str) -> tuple[int, int]:
    """How many parts of a row run side by side, and their length."""
    target = Device.target(device)
    least = _CHUNK_OF_A_LANE if target.has_locals else _CHUNK
    most = max(1, (_MOST_CHUNKS if target.has_locals else 16) // rows)
    chunks = max(1, min(most, size // least))
    return chunks, -(-size // chunks)


def _digit(word: UOp) -> UOp:
    return ((word >> 32) & (_DIGITS - 1)).cast(dtypes.index)


def _count_digits(made: UOp, words: UOp, rows: Any, chunks: Any, length: Any) -> UOp:
    """How often each digit occurs in each part.

    for part:  for d: made[part][d] = 0
               for i: made[part][digit(words[part][i])] += 1
    """
    chunk = UOp.range(rows * chunks, 0)
    digit = UOp.range(_DIGITS, 1)
    zero = made.store(chunk * _DIGITS + digit, UOp.const(dtypes.int32, 0)).end(digit)
    position = UOp.range(length, 2, Axis.REDUCE)
    found = chunk * _DIGITS + _digit(words.load(chunk * length + position))
    one = UOp.const(dtypes.int32, 1)
    return UOp.sink(made.after(zero).store(found, one, combine=Ops.ADD).end(position))


def _move_to_runs(made: UOp, words: UOp, starts: UOp, rows: Any, chunks: Any, length: Any) -> UOp:
    """Each word, turned right by 8 bits, at the next free place of its digit's run.

    for part:  next = starts[part]
               for i: made[next[digit]] = turned(words[part][i]);  next[digit] += 1
    """
    row, number = UOp.range(rows, 0), UOp.range(chunks, 1)
    chunk = row * chunks + number
    free = UOp(Ops.DEFINE_LOCAL, dtypes.int32.ptr(_DIGITS, AddressSpace.SCRATCH), (row, number), 0)
    digit = UOp.range(_DIGITS, 2)
    filled = free.after(free.store(digit, starts.load(chunk * _DIGITS + digit)).end(digit))
    position = UOp.range(length, 3, Axis.REDUCE)
    word = words.load(chunk * length + position)
    target = filled.load(_digit(word))
    size = chunks * length
    within = target.cast(dtypes.index)
    inside = (within < 0).logical_not() & (within < size)
    moved = made.store(row * size + within, (word >> 8) | (word << 56), inside)
    return UOp.sink(filled.after(moved).store(_digit(word), target + 1).end(position))


_COUNT_DIGITS = KernelFamily(
    "count_digits",
    _count_digits,
    lambda rows, chunks, length: ((rows, chunks, _DIGITS), (rows, chunks * length)),
    (dtypes.int32, dtypes.uint64),
)
_MOVE_TO_RUNS = KernelFamily(
    "move_to_runs",
    _move_to_runs,
    lambda rows, chunks, length: (
        (rows, chunks * length),
        (rows, chunks * length),
        (rows, chunks, _DIGITS),
    ),
    (dtypes.uint64, dtypes.uint64, dtypes.int32),
)
