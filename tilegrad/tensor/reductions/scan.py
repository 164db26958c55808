"""Scans along an axis: cumsum, cumprod, cummax, and what is made of them."""

from __future__ import annotations

from typing import Any, Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.dtype_promotion import total_dtype
from tilegrad.base.origin import composed
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.aliases import valued
from tilegrad.tensor.handle.core import as_dtype, compute
from tilegrad.tensor.handle.pairs import Ranked
from tilegrad.tensor.handle.size_arguments import as_axis, is_of_number, is_zero
from tilegrad.tensor.reductions.normalised import Normalised
from tilegrad.tensor.reductions.spelling import takes_dim

__all__ = ["Scan"]

# logcumsumexp goes in blocks of this many elements: the work is then length * block and not the
# square of the length.
_BLOCK = 16


class Scan(Normalised):
    """Scans: every prefix of a reduction."""

    __slots__ = ()

    @templated
    @valued
    @takes_dim
    def cumsum(self, axis: int = 0, dtype: Any = None, *, dim: int | None = None) -> Self:
        """Sum of each prefix along an axis.

        Args:
            axis: the axis; `dim` is another name for it.
            dim: the same as `axis`, by PyTorch's name.
            dtype: dtype in which to add, and of the result.

        Returns a tensor of this shape: floats keep their dtype, integers and bool give int64.

        Raises IndexBoundsError for an axis that is out of range.

        >>> Tensor([1, 2, 3]).cumsum().tolist()
        [1, 3, 6]
        """
        if dtype is not None:
            wanted = as_dtype(dtype)
            x = self.cast(wanted).cast(wanted if wanted.is_int else total_dtype(wanted))
            return x._scanned("cumsum", axis, Ops.ADD).cast(wanted)
        total = self.cast(total_dtype(self.dtype))._scanned("cumsum", axis, Ops.ADD)
        return total.cast(self.dtype) if self.dtype.is_float else total

    @templated
    @takes_dim
    def cumprod(self, axis: int = 0, dtype: Any = None, *, dim: int | None = None) -> Self:
        """Product of each prefix along an axis.

        Args:
            axis: the axis; `dim` is another name for it.
            dim: the same as `axis`, by PyTorch's name.
            dtype: dtype in which to multiply, and of the result.

        Returns a tensor of this shape: floats keep their dtype, integers and bool give int64.

        Raises IndexBoundsError for an axis that is out of range.

        >>> Tensor([1, 2, 3]).cumprod(0).tolist()
        [1, 2, 6]
        """
        if dtype is not None:
            wanted = as_dtype(dtype)
            x = self.cast(wanted)
            x = x if wanted.is_int else x.cast(x._product_dtype())
            return x._scanned("cumprod", axis, Ops.MUL).cast(wanted)
        total = self.cast(self._product_dtype())._scanned("cumprod", axis, Ops.MUL)
        return total.cast(self.dtype) if self.dtype.is_float else total

    @templated
    @takes_dim
    def cummax(self, axis: int = 0, *, dim: int | None = None) -> Ranked[Self]:
        """Largest value of each prefix along an axis, NaN from the first one on, and its last
        position.

        Args:
            axis: the axis; `dim` is another name for it.
            dim: the same as `axis`, by PyTorch's name.

        Returns a pair (values, indices) of this shape, in this dtype and int32.

        Raises IndexBoundsError for an axis that is out of range.

        >>> values, indices = Tensor([1, 3, 2]).cummax(0)
        >>> values.tolist(), indices.tolist()
        ([1, 3, 3], [0, 1, 1])
        """
        values = self._scanned("cummax", axis, Ops.MAX)
        return Ranked(values, self._last_positions_of(values, axis))

    @templated
    @takes_dim
    def cummin(self, axis: int = 0, *, dim: int | None = None) -> Ranked[Self]:
        """Smallest value of each prefix along an axis, NaN from the first one on, and its last
        position.

        Args:
            axis: the axis; `dim` is another name for it.
            dim: the same as `axis`, by PyTorch's name.

        Returns a pair (values, indices) of this shape, in this dtype and int32.

        Raises IndexBoundsError for an axis that is out of range.

        >>> values, indices = Tensor([2, 1, 3]).cummin(0)
        >>> values.tolist(), indices.tolist()
        ([2, 1, 1], [0, 1, 1])
        """
        values = self._mirrored()._scanned("cummin", axis, Ops.MAX)._mirrored()
        return Ranked(values, self._last_positions_of(values, axis))

    @composed
    def _last_positions_of(self, values: Self, axis: int) -> Self:
        """For each running extreme of this tensor where along `axis` it stood last."""
        if is_of_number(axis, self.ndim):
            return self._copy_of(self._like(UOp.const(dtypes.int32, 0)))
        dim = as_axis("cummax", axis, self.ndim)
        size = self.shape[dim]
        at = self._iota(size).reshape([size if n == dim else 1 for n in range(self.ndim)])
        is_there = self.detach().eq(values.detach())
        if self.dtype.is_float:
            is_there = is_there | self.isnan()
        return is_there.where(at, 0)._scanned("cummax", dim, Ops.MAX)

    @composed
    def _scanned(self, name: str, axis: int, op: Ops) -> Self:
        if is_of_number(axis, self.ndim):
            return self._copy_of(self)
        dim = as_axis(name, axis, self.ndim)
        if any(is_zero(size) for size in self.shape):
            return self._running(dim, op)
        if op is not Ops.MUL and _is_one_value(self.uop):
            # A sum of equal values is a product at any length.
            return self._running(dim, op) if op is Ops.ADD else self._copy_of(self)
        return self._like(compute(Ops.PREFIX_AXIS, self.dtype, (self.uop,), (op, dim)))

    @templated
    @valued
    @takes_dim
    @composed
    def logcumsumexp(self, axis: int = 0, *, dim: int | None = None) -> Self:
        """Logarithm of the sum of exp(self) over each prefix along an axis, without overflow.

        Args:
            axis: the axis; `dim` is another name for it.
            dim: the same as `axis`, by PyTorch's name.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        Raises IndexBoundsError for an axis that is out of range.

        >>> Tensor([0.0, 1000.0]).logcumsumexp(0).tolist()
        [0.0, 1000.0]
        """

        if is_of_number(axis, self.ndim):
            return self._copy_of(self._floating())

        def function(x: Self) -> Self:
            at_axis = as_axis("logcumsumexp", axis, x.ndim)
            return x.movedim(at_axis, -1)._log_prefix_sums().movedim(-1, at_axis)

        if any(is_zero(size) for size in self.shape):
            return self._scanned("logcumsumexp", axis, Ops.MAX)._floating()
        return self._in_float(function)

    def _log_prefix_sums(self) -> Self:
        """log of the running sums of exp(self) along the last axis: of blocks first, then of all
        blocks before each.
        """
        *lead, size = self._sizes
        if size > _BLOCK:
            blocks = -(-size // _BLOCK)
            around = [*[(0, 0)] * len(lead), (0, blocks * _BLOCK - size)]
            padded = self.pad(around, value=float("-inf")).reshape(*lead, blocks, _BLOCK)
            inside = padded._log_prefix_sums()
            totals = inside._slice(len(lead) + 1, _BLOCK - 1, _BLOCK).reshape(*lead, blocks)
            before = (
                totals._log_prefix_sums()
                ._slice(len(lead), 0, blocks - 1)
                .pad([*[(0, 0)] * len(lead), (1, 0)], value=float("-inf"))
            )
            before = before.unsqueeze(-1)
            limit = inside.maximum(before)._finite_limit()
            total = (inside - limit).exp() + (before - limit).exp()
            whole = total._log_or_nothing() + limit
            return whole.reshape(*lead, blocks * _BLOCK)._slice(len(lead), 0, size)
        rows = self.unsqueeze(-2).expand(*lead, size, size)
        reached = self._iota(size).reshape(size, 1) >= self._iota(size)
        rows = reached.where(rows, float("-inf"))
        limit = rows.amax(-1, keepdim=True)._finite_limit()
        return (rows - limit).exp().sum(-1)._log_or_nothing() + limit.reshape(*lead, size)

    def _finite_limit(self) -> Self:
        """This tensor, 0 where it is not finite: what is taken from exponents before exp."""
        return self.isfinite().where(self, 0).detach()

    def _log_or_nothing(self) -> Self:
        """The logarithm; of 0, which has no derivative, minus infinity with derivative 0."""
        is_zero = self.eq(0)
        return is_zero.where(float("-inf"), is_zero.where(1, self).log())


def _is_one_value(node: UOp) -> bool:
    """Whether all elements are one number."""
    while node.op in (Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE, Ops.CAST, Ops.DETACH):
        node = node.src[0]
    return node.op is Ops.CONST
