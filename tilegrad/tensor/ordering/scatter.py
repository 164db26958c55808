"""Writing by index: `scatter`, `scatter_reduce`.

One kernel reduces values into rows at the positions that an index names, in order, after it has
copied what was there: the work is that of the values and one copy, and where several values meet,
each counts, the later after the earlier. Sums have an op of their own, SCATTER_ADD.

Their results are made of sums, picked elements and choices around that kernel, each with a
derivative; the kernel itself only finds the last value, the largest, or a product without zeros.
"""

from __future__ import annotations

from typing import Any, Self, cast

from tilegrad.base.config import config
from tilegrad.base.dtype import as_const, dtypes
from tilegrad.base.dtype_promotion import sum_dtype
from tilegrad.base.errors import DTypeError, ShapeError, check_choice
from tilegrad.base.origin import composed
from tilegrad.device.registry import Device
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.core import Core, check_devices, describe
from tilegrad.tensor.handle.size_arguments import is_of_number, show_shape
from tilegrad.tensor.ordering.sort import Sorting
from tilegrad.tensor.results.kernel_families import KernelFamily
from tilegrad.tensor.storage.checked import checked

__all__ = ["Scatter"]

_REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


class Scatter(Sorting):
    """Scattering methods. An index that is negative counts from the end of the axis; a value whose
    index lies outside is dropped.
    """

    __slots__ = ()

    @composed
    def scatter(self, dim: int, index: Self, src: Any, reduce: str | None = None) -> Self:
        """Write each element of `src` at the position that `index` names along an axis; of several
        for one position the last counts.

        Args:
            dim: the axis; a negative one counts from the last.
            index: integers with as many axes as this tensor, no longer beside `dim`.
            src: a number, or a tensor that is at least as large as `index` along each axis.
            reduce: "add" or "multiply" combine with what is there; None writes.

        Returns a tensor of this shape and dtype.

        Raises ShapeError for an `index` of another number of axes or a larger one, or a smaller
        `src`; DTypeError unless `index` is integer, or for another `reduce`; IndexBoundsError for
        an axis that is out of range.

        >>> Tensor([1, 2, 3]).scatter(0, Tensor([2, 0]), Tensor([7, 8])).tolist()
        [8, 2, 7]
        """
        if reduce is not None:
            known = {"add": "sum", "multiply": "prod"}
            check_choice("scatter", "reduce", reduce, (None, *known), DTypeError)
            return self.scatter_reduce(dim, index, src, known[reduce])
        if is_of_number(dim, self.ndim):
            source = cast("Self", src).reshape(1) if isinstance(src, Core) else src
            return self._as_row(lambda row: row.scatter(0, index.reshape(1), source))
        axis, values = self._to_scatter("scatter", dim, index, src)
        if not values._has_elements() or not self._has_elements():
            return self._copy_of(self)._beside_empty(values)
        if not config.CHECK:
            checked("scatter", index, self._sizes[axis], axis)
        return self._written_on(axis, index, values)

    @templated
    def _written_on(self, axis: int, index: Self, values: Self) -> Self:
        """This tensor with `values` where `index`, which fits, names them along an axis."""
        positions = self._positions("scatter", axis, index).flatten()
        order = self._iota(positions._sizes[0])
        nobody = self.zeros_like(dtype=order.dtype).flatten() - 1
        last = nobody._reduced_into(positions, order, None)
        written = (last >= 0).where(values.flatten()._rows(last), self.flatten())
        return written.reshape(self.shape)

    @composed
    def scatter_reduce(
        self, dim: int, index: Self, src: Any, reduce: str, include_self: bool = True
    ) -> Self:
        """Reduce all elements of `src` that `index` sends to one position along an axis. Positions
        that `index` does not name stay as they are.

        A mean of integers is rounded down. The gradient of an extreme is shared by all that are
        equal to it.

        Args:
            dim: the axis; a negative one counts from the last.
            index: integers with as many axes as this tensor.
            src: a tensor that is at least as large as `index` along each axis.
            reduce: "sum", "prod", "mean", "amax" or "amin".
            include_self: whether the values of this tensor count.

        Returns a tensor of this shape and dtype.

        Raises ShapeError for an `index` of another number of axes or a larger one, or a smaller
        `src`; DTypeError unless `index` is integer, or for another `reduce`; IndexBoundsError for
        an axis that is out of range.

        >>> x = Tensor([1.0, 2.0])
        >>> x.scatter_reduce(0, Tensor([0, 0]), Tensor([5.0, 3.0]), "amax").tolist()
        [5.0, 2.0]
        """
        check_choice("scatter_reduce", "reduce", reduce, _REDUCTIONS, DTypeError)
        if is_of_number(dim, self.ndim):
            source = cast("Self", src).reshape(1) if isinstance(src, Core) else src
            vectors = index.reshape(1), source
            return self._as_row(lambda row: row.scatter_reduce(0, *vectors, reduce, include_self))
        axis, values = self._to_scatter("scatter_reduce", dim, index, src)
        if not values._has_elements() or not self._has_elements():
            return self._copy_of(self)._beside_empty(values)
        if self.dtype is dtypes.bool:
            # Truth values as numbers: any is the largest, all the smallest.
            wide, numbers = self.cast(dtypes.int32), values.cast(dtypes.int32)
            known = {"sum": "amax", "prod": "amin", "mean": "amin"}.get(reduce, reduce)
            return wide.scatter_reduce(dim, index, numbers, known, include_self).cast(dtypes.bool)
        if reduce == "sum" and include_self:
            return self.scatter_add(axis, index, values)
        if not config.CHECK:
            checked("scatter_reduce", index, self._sizes[axis], axis)
        return self._reduced_on(axis, index, values, reduce, include_self)

    @templated
    def _reduced_on(
        self, axis: int, index: Self, values: Self, reduce: str, include_self: bool
    ) -> Self:
        """As `scatter_reduce`, of numbers, where `index` fits."""
        positions = self._positions("scatter_reduce", axis, index).flatten()
        base, values = self.flatten(), values.flatten()
        count = base._count_at(positions) if reduce == "mean" or not include_self else None
        replaced = None if include_self or count is None else count > 0
        if reduce in ("sum", "mean"):
            start = base if replaced is None else _chosen(replaced, 0, base)
            # A half counts to 2048 and sums to 65504: its mean is that of float32, rounded once.
            in_wide = sum_dtype(self.dtype) if self.dtype.is_float else self.dtype
            total = start.cast(in_wide)._added_at(positions, values.cast(in_wide))
            if reduce == "mean":
                assert count is not None
                divisor = (count + 1 if include_self else count.maximum(1)).cast(in_wide)
                total = total / divisor if in_wide.is_float else total // divisor
            result = total.cast(self.dtype)
        elif reduce == "prod":
            start = base if replaced is None else _chosen(replaced, 1, base)
            result = start._product_at(positions, values)
        elif reduce == "amax":
            result = base._extreme_at(positions, values, replaced)
        else:
            result = base._mirrored()._extreme_at(positions, values._mirrored(), replaced)
            result = result._mirrored()
        return result.reshape(self.shape)

    def _to_scatter(self, name: str, dim: int, index: Self, src: Any) -> tuple[int, Self]:
        """The axis, and the values in the shape of `index`."""
        axis = self._aligned(name, dim, index)
        if not isinstance(src, Core):
            src = self._operand(name, src).expand(index.shape)
        values: Any = src
        if src.__class__ is not self.__class__:
            values = self._of(src.uop, src.device, src._variables, src._requires_grad)
        check_devices(name, [self, index, values])
        if values.ndim != index.ndim or any(
            ours < theirs for ours, theirs in zip(values._sizes, index._sizes)
        ):
            raise ShapeError(
                f"{name}: source {show_shape(values.shape)} is smaller than index "
                f"{show_shape(index.shape)}",
                source=describe(values.uop),
                index=describe(index.uop),
            )
        fitting: Self = values.shrink([(0, size) for size in index.shape]).cast(self.dtype)
        return axis, fitting

    def _count_at(self, positions: Self) -> Self:
        """How often `positions` name each element of this vector."""
        zeros = self.zeros_like(dtype=dtypes.int32)
        return zeros._added_at(positions, positions.zeros_like(dtype=dtypes.int32) + 1)

    def _product_at(self, positions: Self, values: Self) -> Self:
        """The product of this vector's elements with the `values` sent to each.

        A product with one zero has a derivative with respect to that zero, so zeros are taken out:
        they are counted, and a lone one comes back as a factor.
        """
        wide = sum_dtype(self.dtype) if self.dtype.is_float else self.dtype
        if wide.is_float and Device.target(values.device).supports(dtypes.float64):
            # Each factor rounds once, so products of many factors are taken in float64.
            wide = dtypes.float64
        base, values = self.cast(wide), values.cast(wide)
        if not wide.is_float:
            return base._reduced_into(positions, values, Ops.MUL).cast(self.dtype)
        own, other = base.eq(0), values.eq(0)
        count = own.cast(dtypes.int32)._added_at(positions, other.cast(dtypes.int32))
        lone = own.where(base, 0)._added_at(positions, other.where(values, 0))
        product = _chosen(own, 1, base)._reduced_into(positions, _chosen(other, 1, values), Ops.MUL)
        with_zero = count.eq(1).where(product * lone, 0)
        return count.eq(0).where(product, with_zero).cast(self.dtype)

    def _extreme_at(self, positions: Self, values: Self, replaced: Self | None) -> Self:
        """The largest of this vector's elements and the `values` sent to each; without its own
        where `replaced`.
        """
        base = self.detach()
        if replaced is not None:
            base = _chosen(replaced, base._lowest(), base)
        largest = base._reduced_into(positions, values.detach(), Ops.MAX)
        if not self.dtype.is_float:
            return largest
        # The same value as a mean of all that are equal to it, which has a derivative.
        own = self.eq(largest) | (self.isnan() & largest.isnan())
        if replaced is not None:
            own = own & replaced.logical_not()
        there = largest._rows(positions)
        theirs = values.eq(there) | (values.isnan() & there.isnan())
        count = own.cast(dtypes.int32)._added_at(positions, theirs.cast(dtypes.int32))
        wide = sum_dtype(self.dtype)
        share = count.cast(wide).reciprocal()
        shared = own.where(self._zero_with_gradient(), 0).cast(wide) * share
        sent = theirs.where(values._zero_with_gradient(), 0).cast(wide) * share._rows(positions)
        return largest + shared._added_at(positions, sent).cast(self.dtype)

    def _zero_with_gradient(self) -> Self:
        """0 everywhere, with the derivative of this tensor."""
        finite = self.isfinite().where(self, 0)
        zero = finite - finite.detach()
        # An infinite value is not near any other one: its derivative is that of the choice.
        return self.isfinite().where(zero, 0)

    def _lowest(self) -> Any:
        identity = Ops.MAX.definition.identity
        assert identity is not None
        return as_const(identity(self.dtype), self.dtype)

    def _reduced_into(self, positions: Self, values: Self, combine: Ops | None) -> Self:
        """This vector with `values` reduced into it at `positions`, in order; None writes them.

        A product's derivative is right where no factor is zero.
        """

        # The kernel outlives this tensor, where a template holds it.
        tensor_of, device, variables = type(self)._of, self.device, self._variables

        def gradient(g: UOp, node: UOp) -> list[UOp | None]:
            if combine not in (None, Ops.MUL):
                return [None, None, None]
            flow, product, base, at, factors = [
                tensor_of(each, device, variables) for each in (g, node, *node.src)
            ]
            if combine is None:
                # The value that was written there last has the gradient of its position.
                order = base._iota(at._sizes[0])
                nobody = base.zeros_like(dtype=order.dtype) - 1
                last = nobody._reduced_into(at, order, None)
                won = last._rows(at).eq(order)
                return [(last < 0).where(flow, 0).uop, None, won.where(flow._rows(at), 0).uop]
            each = flow * product
            return [(each / base).uop, None, (each._rows(at) / factors).uop]

        family = KernelFamily(
            "scatter" if combine is None else f"scatter_{combine.name.lower()}",
            _reduce_in_order,
            _shapes_in_order,
            (self.dtype, self.dtype, positions.dtype, values.dtype),
            (("combine", combine),),
        )
        sizes = self._sizes[0], values._sizes[0]
        return self._by_family(family, sizes, [self, positions, values], gradient)


def _chosen(condition: Any, value: Any, other: Any) -> Any:
    return condition.where(value, other)


def _shapes_in_order(size: Any, count: Any) -> tuple[tuple[Any, ...], ...]:
    return (size,), (size,), (count,), (count,)


def _reduce_in_order(
    made: UOp,
    base: UOp,
    positions: UOp,
    values: UOp,
    size: Any,
    count: Any,
    *,
    combine: Ops | None,
) -> UOp:
    """for i: made[i] = base[i];  for i: made[at[i]] = combine(made[at[i]], values[i])"""
    row = UOp.range(size, 0)
    copied = made.store(row, base.load(row)).end(row)
    number = UOp.range(count, 1, Axis.REDUCE)
    target = positions.load(number).cast(dtypes.index)
    inside = (target < 0).logical_not() & (target < size)
    store = made.after(copied).store(target, values.load(number), inside, combine=combine)
    return UOp.sink(store.end(number))
