"""A builder of kernels that are sequences of loads and stores, as a program is.

A factorisation of a matrix is no reduction of independent elements: a step reads what the one
before it stored. `MatrixKernel` orders the steps. A load sees every store made before it; a loop
contains all that is made inside it. The result is a kernel graph like that of the scheduler.

A value is computed in the innermost loop that it needs. So a load at an invariant index is made
before the loop, and sees none of the loop's stores. A loop that writes to such an index is
`carried`: every load in it is made anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp

__all__ = ["MatrixKernel", "absolute", "chosen", "is_negative", "root"]

_NONE = UOp.const(dtypes.int32, 0)


class MatrixKernel:
    """The kernel that fills the memory at `made`, as it is built."""

    def __init__(self, made: UOp):
        self.memory = made
        self.dtype: DType = made.dtype.base  # type: ignore[attr-defined]
        self._last: UOp | None = None
        self._loops = 0

    def number(self, value: float) -> UOp:
        """A number in the dtype of the memory."""
        return UOp.const(self.dtype, value)

    def range(self, extent: Any, axis: Axis = Axis.REDUCE) -> UOp:
        """A loop variable from 0 to below `extent`, which may depend on loops around it."""
        stop = extent if isinstance(extent, UOp) else UOp.const(dtypes.index, extent)
        self._loops += 1
        return UOp(Ops.RANGE, dtypes.index, (stop,), (self._loops - 1, axis))

    @contextlib.contextmanager
    def loop(
        self, extent: Any, axis: Axis = Axis.REDUCE, *, carried: bool = False
    ) -> Iterator[UOp]:
        """A loop: the steps made inside run for each value of its variable."""
        step = self.range(extent, axis)
        before = self.memory
        if carried:
            self.memory = before.after(step)
        yield step
        assert self._last is not None
        self._last = self._last.end(step)
        self.memory = before.after(self._last)

    def each(self, count: int) -> contextlib.AbstractContextManager[UOp]:
        """As `loop`, of independent iterations."""
        return self.loop(count, Axis.LOOP)

    def load(self, index: UOp) -> UOp:
        return self.memory.load(index)

    def store(self, index: UOp, value: UOp, *first: UOp) -> None:
        """Write `value`, once the values `first` have been read."""
        self._last = self.memory.after(*first).store(index, value)
        self.memory = self.memory.after(self._last)

    def raise_to(self, index: UOp, value: UOp) -> None:
        """Write the larger of `value` and what is there."""
        self._last = self.memory.store(index, value, combine=Ops.MAX)
        self.memory = self.memory.after(self._last)

    def reduce(self, op: Ops, extent: Any, value: Callable[[UOp], UOp]) -> UOp:
        """The sum (or product, or maximum) of `value` over a loop."""
        step = self.range(extent)
        term = value(step)
        return UOp(Ops.REDUCE, term.dtype, (term, step), op)

    def sum(self, extent: Any, value: Callable[[UOp], UOp]) -> UOp:
        return self.reduce(Ops.ADD, extent, value)

    def largest(self, extent: Any, value: Callable[[UOp], UOp]) -> UOp:
        return self.reduce(Ops.MAX, extent, value)

    def first_largest(self, extent: Any, value: Callable[[UOp], UOp], limit: int) -> UOp:
        """The first iteration below `extent` (at most `limit`) with the largest `value`; 0 if all
        values are NaN.
        """
        best = self.largest(extent, value)

        def rank(step: UOp) -> UOp:
            return chosen(value(step).eq(best), (-step + limit).cast(dtypes.int32), _NONE)

        index = -self.largest(extent, rank).cast(dtypes.index) + limit
        inside = chosen(index < extent, index, UOp.const(dtypes.index, 0))
        return inside.maximum(0).minimum(limit - 1)

    def finished(self) -> UOp:
        assert self._last is not None
        return UOp.sink(self._last)


def chosen(condition: UOp, yes: UOp, no: UOp) -> UOp:
    return condition.where(yes, no)


def is_negative(x: UOp) -> UOp:
    return x < 0.0


def absolute(x: UOp) -> UOp:
    return chosen(is_negative(x), -x, x)


def root(x: UOp) -> UOp:
    return x.alu(Ops.SQRT)
