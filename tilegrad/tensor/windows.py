"""Sliding windows, as movement alone: the base of convolution, pooling and running sums.

The axis is repeated until each of k rows, one step of the window's inside longer than the axis,
holds one element of all windows; then every s-th column is kept. The rows start at 0, d, 2d, ... of
the axis, which is what a dilation of d asks for. No element is copied: a kernel sees `position *
stride + place * dilation`.

before   [0 1 2 3], k=2, s=1, d=1
repeated [0 1 2 3 0 | 1 2 3 0 1]
windows  [[0 1], [1 2], [2 3]]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from tilegrad.base.dtype import as_const
from tilegrad.base.errors import ShapeError
from tilegrad.ir.op import Ops
from tilegrad.tensor.core import compute, describe
from tilegrad.tensor.joining import Joining
from tilegrad.tensor.sizes import as_axis, here

__all__ = ["Windows"]


class Windows(Joining):
    """Windows over the last axes, and folds of all prefixes of an axis."""

    __slots__ = ()

    def _windows(
        self, name: str, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
    ) -> Self:
        """The last axes (..., *sizes) as (..., *positions, *kernel).

        Raises ShapeError if a window is longer than its axis.
        """
        count = len(kernel)
        first = self.ndim - count
        sizes = [self._length(axis) for axis in range(first, self.ndim)]
        for axis, (size, k, s, d) in enumerate(zip(sizes, kernel, stride, dilation)):
            if k <= 0 or s <= 0 or d <= 0:
                raise ShapeError(
                    f"{name}: kernel {k}, stride {s} and dilation {d} must be positive", line=here()
                )
            if d * (k - 1) + 1 > size:
                raise ShapeError(
                    f"{name}: a window of {d * (k - 1) + 1} is longer than its axis of {size}",
                    tensor=describe(self.uop),
                    axis=first + axis,
                    line=here(),
                )
        x = self
        for place in range(count):
            # The axis in hand stands at `first`; its result, (k, positions), goes to the end.
            x = x._one_window(first, kernel[place], stride[place], dilation[place])
        # Now (..., k0, o0, k1, o1, ...).
        positions = [first + 2 * place + 1 for place in range(count)]
        inside = [first + 2 * place for place in range(count)]
        return x.permute(*range(first), *positions, *inside)

    def _one_window(self, axis: int, k: int, s: int, d: int) -> Self:
        """Axis `axis` of size n as two at the end: (k, positions)."""
        x = self.movedim(axis, -1)
        lead, n = x.shape[:-1], x._length(-1)
        last = len(lead)
        positions = (n - d * (k - 1) - 1) // s + 1
        if d == 1 and k <= s and positions * s <= n:
            # Windows that do not overlap are rows.
            rows = x._window(last, 0, positions * s).reshape(*lead, positions, s)
            return rows._window(last + 1, 0, k).transpose(last, last + 1)
        times = max(1, -(-(positions * s - d) // n))
        length = n * times + d
        repeats = -(-k * length // n)
        wide = x.reshape(*lead, 1, n).expand(*lead, repeats, n).reshape(*lead, repeats * n)
        rows = wide._window(last, 0, k * length).reshape(*lead, k, length)
        columns = rows._window(last + 1, 0, positions * s).reshape(*lead, k, positions, s)
        return columns._window(last + 2, 0, 1).reshape(*lead, k, positions)

    def unfold(self, dim: int, size: int, step: int) -> Self:
        """Windows of `size` elements, `step` apart, along axis `dim`; the elements of a window are
        a new last axis.

        >>> Tensor([1, 2, 3]).unfold(0, 2, 1).tolist()
        [[1, 2], [2, 3]]
        """
        axis = as_axis("unfold", dim, self.ndim)
        windows = self.movedim(axis, -1)._windows("unfold", (size,), (step,), (1,))
        return self._as_view(windows.movedim(-2, axis))

    def _running(self, axis: int, op: Ops) -> Self:
        """Every prefix along `axis` folded: identities in front, the window that ends at each
        element, a fold of windows.
        """
        x = self.movedim(axis, -1)
        size = x._sizes[-1]
        if not size:
            return self._copy_of(self)
        assert op.definition.identity is not None
        identity = as_const(op.definition.identity(x.dtype), x.dtype)
        windows = x.pad((size - 1, 0), value=identity)._windows("cumulative", (size,), (1,), (1,))
        if size > 1:
            last = windows.ndim - 1
            windows = windows._like(
                compute(Ops.REDUCE_AXIS, x.dtype, (windows.uop,), (op, (last,)))
            )
        return windows.reshape(x.shape).movedim(-1, axis)
