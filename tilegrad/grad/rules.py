"""The derivative of every op, on one page.

A rule takes a node `y` and `g`, the gradient of some loss with respect to it, and gives the
gradient with respect to each source; None where none flows. Rules make graphs of the same ops, so a
derivative has derivatives too, and the scheduler fuses both ways alike. A movement op has the
opposite movement as its derivative: the backward pass of a convolution or a pooling, which are made
of movement, multiplication and sums, therefore needs no scatter.

Only floats have derivatives: `backward` asks no rule for the gradient of an integer or a bool, such
as the condition of a WHERE or the rows of a GATHER.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.base.dtype_promotion import sum_dtype
from tilegrad.grad.chosen_slices import chosen_slice, plus
from tilegrad.grad.prefixes import prefix_gradient
from tilegrad.grad.summed_gradients import sum_axes
from tilegrad.grad.ties import is_alone, shares, taken_from
from tilegrad.ir.movement import fill, shaped, stretched
from tilegrad.ir.op import Ops
from tilegrad.ir.placement import Group, Placement
from tilegrad.ir.queries import device_of
from tilegrad.ir.uop import UOp, prod

__all__ = ["DERIVATIVES", "NO_DERIVATIVE", "Derivative", "product_of_others"]

Derivative = Callable[[UOp, UOp], tuple[UOp | None, ...]]

LN2 = math.log(2.0)

# The largest group of factors that leaves out each in turn at the cost of its square.
_GROUP = 16


def _one_minus_square(y: UOp) -> UOp:
    """1 - y * y, rounded once where the target can: near 1 a product that was rounded would be off
    by as much as the result.
    """
    return UOp(Ops.MULACC, y.dtype, (-y, y, UOp.const(y.dtype, 1)))


def _maximum(y: UOp, g: UOp) -> tuple[UOp, UOp]:
    """The larger side takes all; equal ones take half each, and beside a NaN each takes all."""
    a, b = y.src
    rest = a.eq(b).where(g * 0.5, g)
    return (a < b).where(0.0, rest), (b < a).where(0.0, rest)


def _remainder(y: UOp, g: UOp) -> tuple[UOp, UOp]:
    """x % y = x - y * (x // y), where the quotient is constant but for its jumps."""
    a, b = y.src
    quotient = a.alu(Ops.FLOORDIV if y.op is Ops.FLOORMOD else Ops.IDIV, b)
    return g, -(g * quotient)


def _float_remainder(y: UOp, g: UOp) -> tuple[UOp, UOp]:
    """As `_remainder`; the quotient is whole but for its rounding."""
    a, b = y.src
    quotient = (a - y).alu(Ops.FDIV, b)
    whole = (quotient + (quotient < 0.0).where(UOp.const(y.dtype, -0.5), 0.5)).alu(Ops.TRUNC)
    return g, -(g * whole)


def _reduce(y: UOp, g: UOp) -> tuple[UOp]:
    """The derivative of a sum, a maximum or a product over axes."""
    (x,), (function, axes) = y.src, y.arg[:2]
    if function is Ops.ADD:
        return (stretched(g, x.shape),)
    if function is Ops.MUL:
        return (stretched(g, x.shape) * product_of_others(x, axes),)
    if is_alone(y):
        return (taken_from(y).where(stretched(g, x.shape), 0.0),)
    is_largest, count = shares(y)
    wide = sum_dtype(g.dtype)
    share = stretched((g.cast(wide) / count.cast(wide)).cast(g.dtype), x.shape)
    # Where a NaN is the largest, nothing is equal to it.
    rest = 0.0 if len(y.arg) == 3 else stretched(y.ne(y).where(math.nan, g * 0.0), x.shape)
    return (is_largest.where(share, rest),)


def _expanded(y: UOp, g: UOp) -> tuple[UOp]:
    """Copies have the sum of their gradients."""
    pairs = zip(y.src[0].shape, y.shape, strict=True)
    return (sum_axes(g, tuple(axis for axis, (was, size) in enumerate(pairs) if was != size)),)


def _permuted(y: UOp, g: UOp) -> tuple[UOp]:
    inverse = tuple(y.arg.index(axis) for axis in range(len(y.arg)))
    return (UOp(Ops.PERMUTE, g.dtype, (g,), inverse),)


def _padded(y: UOp, g: UOp) -> tuple[UOp]:
    pairs = zip(y.src[0].shape, y.arg, strict=True)
    window = tuple((before, plus(before, size)) for size, (before, _) in pairs)
    return (chosen_slice(g, window),)


def _shrunk(y: UOp, g: UOp) -> tuple[UOp]:
    pairs = zip(y.src[0].shape, y.arg, strict=True)
    around = tuple((start, _minus(size, end)) for size, (start, end) in pairs)
    return (UOp(Ops.PAD, g.dtype, (g,), around),)


def _flipped(y: UOp, g: UOp) -> tuple[UOp]:
    """The gradient reversed likewise. A FLIP of no axis asks for the gradient in memory here
    (`contiguous_backward`).
    """
    if not any(y.arg):
        return (UOp(Ops.CONTIGUOUS, g.dtype, (g,)),)
    return (UOp(Ops.FLIP, g.dtype, (g,), y.arg),)


def _gathered(y: UOp, g: UOp) -> tuple[UOp, None]:
    """Each row of `g` is added to the row it came from: the cost is that of `g`, not of the table.

    A row that was picked often is a long sum, so half and bfloat16 are summed in float32.
    """
    table, index = y.src
    wide = sum_dtype(g.dtype)
    zeros = fill(table.shape, 0.0, wide)
    device = device_of(table)
    if device is not None:
        # A constant is on no device; the memory that is added to must be on the table's.
        zeros = UOp(Ops.CONTIGUOUS, wide, (zeros,), device)
    total = UOp(Ops.SCATTER_ADD, wide, (zeros, index, g.cast(wide)))
    return total.cast(g.dtype), None


def _copied(y: UOp, g: UOp) -> tuple[UOp]:
    device = device_of(y.src[0])
    if device is None:
        return (g,)
    if isinstance(device, Group):
        same = y.op is Ops.SHARD and y.arg.devices == device
        return (g if same else UOp(Ops.SHARD, g.dtype, (g,), Placement(device)),)
    return (UOp(Ops.COPY, g.dtype, (g,), device),)


def _after(y: UOp, g: UOp) -> tuple[UOp, UOp]:
    """The gradient for the memory where it was not written, and for the written value."""
    memory, assign = y.src
    written = view = assign.src[0]
    is_written: Any = fill(view.shape, 1.0, g.dtype)
    while view is not memory:
        (is_written,) = DERIVATIVES[view.op](view, is_written)
        view = view.src[0]
    elsewhere: UOp = is_written.ne(0.0).where(0.0, g)
    return elsewhere, written.substitute({memory: g})


def _custom(y: UOp, g: UOp) -> tuple[UOp | None, ...]:
    """The gradient that a kernel's author gave; nothing flows through a step without one."""
    gradient = getattr(y.arg, "gradient", None)
    return (None,) * len(y.src) if gradient is None else tuple(gradient(g, y))


# y: the node, g: its gradient.
DERIVATIVES: dict[Ops, Derivative] = {
    # one number in
    Ops.CAST: lambda y, g: (g.cast(y.src[0].dtype),),
    Ops.NEG: lambda y, g: (-g,),
    Ops.EXP: lambda y, g: (g * y,),
    Ops.EXP2: lambda y, g: (g * y * LN2,),
    Ops.LOG2: lambda y, g: (g / (y.src[0] * LN2),),
    Ops.SIN: lambda y, g: (g * y.src[0].alu(Ops.COS),),
    Ops.COS: lambda y, g: (-(g * y.src[0].alu(Ops.SIN)),),
    Ops.TANH: lambda y, g: (g * _one_minus_square(y),),
    Ops.SIGMOID: lambda y, g: (g * y * UOp.const(y.dtype, 1).alu(Ops.SUB, y),),
    Ops.SQRT: lambda y, g: (g / (y * 2.0),),
    Ops.RECIP: lambda y, g: (-(g * y * y),),
    # two and three
    Ops.ADD: lambda y, g: (g, g),
    Ops.SUB: lambda y, g: (g, -g),
    Ops.MUL: lambda y, g: (g * y.src[1], g * y.src[0]),
    Ops.FDIV: lambda y, g: (g / y.src[1], -(g / y.src[1] * y)),
    Ops.MAX: _maximum,
    Ops.FMOD: _float_remainder,
    Ops.FLOORMOD: _remainder,
    Ops.MOD: _remainder,
    Ops.MULACC: lambda y, g: (g * y.src[1], g * y.src[0], g),
    Ops.WHERE: lambda y, g: (None, y.src[0].where(g, 0.0), y.src[0].where(0.0, g)),
    # movement
    Ops.RESHAPE: lambda y, g: (shaped(g, y.src[0].shape),),
    Ops.EXPAND: _expanded,
    Ops.PERMUTE: _permuted,
    Ops.PAD: _padded,
    Ops.SHRINK: _shrunk,
    Ops.FLIP: _flipped,
    # whole tensors
    Ops.REDUCE_AXIS: _reduce,
    Ops.PREFIX_AXIS: lambda y, g: (prefix_gradient(y, g, DERIVATIVES[y.combine]),),
    Ops.GATHER: _gathered,
    Ops.SCATTER_ADD: lambda y, g: (g, None, UOp(Ops.GATHER, g.dtype, (g, y.src[1]))),
    Ops.CONTIGUOUS: lambda y, g: (g,),
    Ops.COPY: _copied,
    Ops.SHARD: _copied,
    Ops.ASSIGN: lambda y, g: (None, g),
    Ops.AFTER: _after,
    Ops.CUSTOM: _custom,
}

# Leaves, what stops a gradient on purpose, bits, and steps, whose derivative is 0 or missing.
NO_DERIVATIVE = frozenset({
    Ops.CONST, Ops.BUFFER, Ops.RAND, Ops.DEFINE_VAR, Ops.BIND, Ops.DETACH,
    Ops.BITCAST, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR,
    Ops.TRUNC, Ops.FLOORDIV, Ops.IDIV, Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ,
})  # fmt: skip


def _minus(a: Any, b: Any) -> Any:
    return 0 if a is b else a - b


def product_of_others(x: UOp, axes: tuple[int, ...]) -> UOp:
    """For each element, the product of all others along `axes`."""
    outer = tuple(axis for axis in range(len(x.shape)) if axis not in axes)
    order = (*outer, *axes)
    inverse = tuple(order.index(axis) for axis in range(len(order)))
    last = UOp(Ops.PERMUTE, x.dtype, (x,), order)
    flat = (*last.shape[: len(outer)], prod(last.shape[len(outer) :]))
    others = shaped(_leave_one_out(shaped(last, flat)), last.shape)
    return UOp(Ops.PERMUTE, x.dtype, (others,), inverse)


def _leave_one_out(x: UOp) -> UOp:
    """For each element, the product of all others along the last axis.

    Dividing the whole product by the element fails at zero, and so do the second derivatives of a
    repair by cases. So the products are formed: within groups, at the cost of a group's square, and
    then likewise over the products of whole groups.
    """
    *lead, size = x.shape
    if isinstance(size, UOp) or size <= _GROUP:
        rows = stretched(shaped(x, (*lead, 1, size)), (*lead, size, size))
        itself = stretched(shaped(_diagonal(size), (*(1 for _ in lead), size, size)), rows.shape)
        others = itself.where(1.0, rows)
        product = UOp(Ops.REDUCE_AXIS, x.dtype, (others,), (Ops.MUL, (len(lead) + 1,)))
        return shaped(product, (*lead, size))
    groups = -(-size // _GROUP)
    around = (*((0, 0) for _ in lead), (0, groups * _GROUP - size))
    is_element = UOp(Ops.PAD, dtypes.bool, (fill(x.shape, True, dtypes.bool),), around)
    padded = is_element.where(UOp(Ops.PAD, x.dtype, (x,), around), 1.0)
    grouped = shaped(padded, (*lead, groups, _GROUP))
    whole = UOp(Ops.REDUCE_AXIS, x.dtype, (grouped,), (Ops.MUL, (len(lead) + 1,)))
    outside = shaped(_leave_one_out(shaped(whole, (*lead, groups))), (*lead, groups, 1))
    flat = shaped(_leave_one_out(grouped) * stretched(outside, grouped.shape), padded.shape)
    return UOp(Ops.SHRINK, x.dtype, (flat,), tuple((0, extent) for extent in x.shape))


def _diagonal(size: Any) -> UOp:
    """True on the diagonal of a square: rows of one True, `size` False, read as rows of `size`."""
    column = fill((size, 1), True, dtypes.bool)
    rows = UOp(Ops.PAD, dtypes.bool, (column,), ((0, 0), (0, size)))
    flat = shaped(rows, (size * (size + 1),))
    return shaped(UOp(Ops.SHRINK, dtypes.bool, (flat,), ((0, size * size),)), (size, size))
