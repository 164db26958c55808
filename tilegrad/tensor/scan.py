"""Running folds along an axis: cumsum, cumprod, cummax, and what is made of them."""

from __future__ import annotations

from typing import Self

from tilegrad.base.dtype import as_const, sum_dtype
from tilegrad.base.origin import composed
from tilegrad.ir.op import Ops
from tilegrad.tensor.core import compute
from tilegrad.tensor.reduce import Reduce
from tilegrad.tensor.sizes import as_axis, is_zero

__all__ = ["Scan"]

# Longer axes are folded in blocks of this many elements, a vector or few: the work is then
# length * block, not its square.
_BLOCK = 16
_LONG = 64


class Scan(Reduce):
    """Running folds."""

    __slots__ = ()

    def cumsum(self, axis: int = 0) -> Self:
        """The sums of all prefixes along `axis`, in dtypes as `sum`.

        >>> Tensor([1, 2, 3]).cumsum().tolist()
        [1, 3, 6]
        """
        total = self.cast(sum_dtype(self.dtype))._scanned("cumsum", axis, Ops.ADD)
        return total.cast(self.dtype) if self.dtype.is_float else total

    def cumprod(self, axis: int = 0) -> Self:
        """The products of all prefixes along `axis`, in dtypes as `prod`."""
        total = self.cast(sum_dtype(self.dtype))._scanned("cumprod", axis, Ops.MUL)
        return total.cast(self.dtype) if self.dtype.is_float else total

    def cummax(self, axis: int = 0) -> Self:
        """The largest value of all prefixes along `axis`."""
        return self._scanned("cummax", axis, Ops.MAX)

    def cummin(self, axis: int = 0) -> Self:
        """The smallest value of all prefixes along `axis`."""
        return self._mirrored()._scanned("cummin", axis, Ops.MAX)._mirrored()

    @composed
    def _scanned(self, name: str, axis: int, op: Ops) -> Self:
        place = as_axis(name, axis, self.ndim) if self.ndim or axis not in (0, -1) else None
        if place is None:
            return self
        size = self._sizes[place]
        # A running fold of a constant has a closed form at any length.
        return (
            self._running(place, op)
            if size <= _LONG or self.uop.is_constant
            else self._in_blocks(place, op)
        )

    def _in_blocks(self, axis: int, op: Ops) -> Self:
        """The folds of whole blocks first, and of all blocks before each; the elements before one
        in its block are folded where both are joined, so that nothing as long as the axis is stored
        between.
        """
        assert op.definition.identity is not None
        identity = as_const(op.definition.identity(self.dtype), self.dtype)
        x = self.movedim(axis, -1)
        *lead, size = x._sizes
        blocks = -(-size // _BLOCK)
        padded = x.pad((0, blocks * _BLOCK - size), value=identity).reshape(*lead, blocks, _BLOCK)
        inside = padded._running(len(lead) + 1, op)
        totals = self._like(
            compute(Ops.REDUCE_AXIS, x.dtype, (padded.uop,), (op, (len(lead) + 1,)))
        ).reshape(*lead, blocks)
        before = (
            totals._scanned("cumulative", -1, op)
            ._window(len(lead), 0, blocks - 1)
            .pad((1, 0), value=identity)
        )
        joined = inside._binary("cumulative", op, before.unsqueeze(-1))
        return joined.reshape(*lead, blocks * _BLOCK)._window(len(lead), 0, size).movedim(-1, axis)

    @composed
    def logcumsumexp(self, axis: int = 0) -> Self:
        """log of the running sums of exp(self) along `axis`, without overflow."""

        def function(x: Self) -> Self:
            place = as_axis("logcumsumexp", axis, x.ndim)
            size = x._sizes[place]
            rows = (
                x.movedim(place, -1)
                .unsqueeze(-2)
                .expand(*[n for p, n in enumerate(x.shape) if p != place], size, size)
            )
            reached = x._places(size).reshape(size, 1) >= x._places(size)
            return reached.where(rows, float("-inf")).logsumexp(-1).movedim(-1, place)

        if any(is_zero(size) for size in self.shape):
            return self._scanned("logcumsumexp", axis, Ops.MAX)._floating()
        return self._in_float(function)
