"""Derivatives of scans.

The derivative of a running sum is a running sum from the other end. A scan by another op is
differentiated as a scan by doubling:

    y0 = x,    y1[i] = op(y0[i-1], y0[i]),    y2[i] = op(y1[i-2], y1[i]),    ...

The two operands of each op cover disjoint elements, so the derivative of the op is all that is
needed, also where a factor is zero or elements are equal. The steps are as many as the size has
binary digits. Each is stored: computed where it is read, it would be twice for every step that
follows.
"""

from __future__ import annotations

from collections.abc import Callable

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["prefix_derivative", "prefix_gradient"]

Pair = Callable[[UOp, UOp], tuple[UOp | None, ...]]


def prefix_gradient(y: UOp, g: UOp, derivative: Pair) -> UOp:
    """The gradient with respect to the operand of the scan `y`; `derivative` is that of its op."""
    (x,), (function, axis) = y.src, y.arg
    if function is Ops.ADD:
        flipped = tuple(each == axis for each in range(len(y.shape)))
        back = UOp(Ops.FLIP, g.dtype, (g,), flipped)
        total = UOp(Ops.PREFIX_AXIS, g.dtype, (back,), y.arg)
        return UOp(Ops.FLIP, g.dtype, (total,), flipped)
    for step, joined in reversed(_doubled(x, function, axis)):
        earlier, later = derivative(joined, g)
        assert earlier is not None and later is not None
        g = _stored(later + _moved_back(earlier, step, axis))
    return g


def prefix_derivative(y: UOp, tangent: UOp, derivative: Pair) -> UOp:
    """The tangent of the scan `y`, by that of its operand."""
    (x,), (function, axis) = y.src, y.arg
    if function is Ops.ADD:
        return UOp(Ops.PREFIX_AXIS, tangent.dtype, (tangent,), y.arg)
    for step, joined in _doubled(x, function, axis):
        earlier = derivative(joined, _moved_on(tangent, step, axis))[0]
        later = derivative(joined, tangent)[1]
        assert earlier is not None and later is not None
        tangent = earlier + later
    return tangent


def _doubled(x: UOp, function: Ops, axis: int) -> list[tuple[int, UOp]]:
    """Each step of the doubling: the distance of the joined elements, and op(earlier, later)."""
    size = x.shape[axis]
    most = int(size.vmax) if isinstance(size, UOp) else size
    assert function.definition.identity is not None
    identity = UOp.const(x.dtype, function.definition.identity(x.dtype))
    steps: list[tuple[int, UOp]] = []
    step = 1
    while step < most:
        earlier = _reached(x, step, axis).where(_moved_on(x, step, axis), identity)
        joined = earlier.alu(function, x)
        steps.append((step, joined))
        x = _stored(joined)
        step *= 2
    return steps


def _stored(x: UOp) -> UOp:
    return UOp(Ops.CONTIGUOUS, x.dtype, (x,))


def _moved_on(x: UOp, step: int, axis: int) -> UOp:
    """Each element `step` positions later, zeros in front."""
    return _shifted(x, (step, 0), 0, axis)


def _moved_back(x: UOp, step: int, axis: int) -> UOp:
    return _shifted(x, (0, step), step, axis)


def _shifted(x: UOp, around: tuple[int, int], start: int, axis: int) -> UOp:
    axes = range(len(x.shape))
    zeros = tuple(around if each == axis else (0, 0) for each in axes)
    padded = UOp(Ops.PAD, x.dtype, (x,), zeros)
    bounds = tuple(
        (start, size + start) if each == axis else (0, size) for each, size in enumerate(x.shape)
    )
    return UOp(Ops.SHRINK, x.dtype, (padded,), bounds)


def _reached(x: UOp, step: int, axis: int) -> UOp:
    """Where there is an element `step` positions earlier."""
    one = UOp(Ops.RESHAPE, dtypes.bool, (UOp.const(dtypes.bool, True),), (1,) * len(x.shape))
    return _moved_on(UOp(Ops.EXPAND, dtypes.bool, (one,), x.shape), step, axis)
