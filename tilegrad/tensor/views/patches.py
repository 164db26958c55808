"""Patches (sliding windows) by movement alone: the base of convolution, pooling and prefix sums.

The axis is repeated into k rows, each longer than the axis by the dilation d. So the rows start at
0, d, 2d, ... of the axis, and row j holds element j of all patches. Then every s-th column is
taken. No element is copied: a kernel reads at `position * stride + j * dilation`.

before   [0 1 2 3], k=2, s=1, d=1
repeated [0 1 2 3 0 | 1 2 3 0 1]
patches  [[0 1], [1 2], [2 3]]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from tilegrad.base.dtype import as_const
from tilegrad.base.errors import ShapeError
from tilegrad.ir.op import Ops
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.core import compute, describe
from tilegrad.tensor.handle.size_arguments import as_axis, is_of_number
from tilegrad.tensor.views.diagonals import Diagonals

__all__ = ["Patches"]


class Patches(Diagonals):
    """Patches over the last axes, and reductions of all prefixes of an axis."""

    __slots__ = ()

    @templated
    def _patches(
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
                    f"{name}: kernel {k}, stride {s} and dilation {d} must be positive"
                )
            if d * (k - 1) + 1 > size:
                raise ShapeError(
                    f"{name}: a window of {d * (k - 1) + 1} is longer than its axis of {size}",
                    tensor=describe(self.uop),
                    axis=first + axis,
                )
        x = self
        for number in range(count):
            # The axis in hand stands at `first`; its result, (k, positions), goes to the end.
            x = x._patches_of_axis(first, kernel[number], stride[number], dilation[number])
        # Now (..., k0, o0, k1, o1, ...).
        positions = [first + 2 * number + 1 for number in range(count)]
        inside = [first + 2 * number for number in range(count)]
        return x.permute(*range(first), *positions, *inside)

    def _patches_of_axis(self, axis: int, k: int, s: int, d: int) -> Self:
        """Axis `axis` of size n as two at the end: (k, positions)."""
        x = self.movedim(axis, -1)
        lead, n = x.shape[:-1], x._length(-1)
        last = len(lead)
        positions = (n - d * (k - 1) - 1) // s + 1
        if d == 1 and k <= s and positions * s <= n:
            # Patches that do not overlap are rows.
            rows = x._slice(last, 0, positions * s).reshape(*lead, positions, s)
            return rows._slice(last + 1, 0, k).transpose(last, last + 1)
        times = max(1, -(-(positions * s - d) // n))
        length = n * times + d
        repeats = -(-k * length // n)
        wide = x.reshape(*lead, 1, n).expand(*lead, repeats, n).reshape(*lead, repeats * n)
        rows = wide._slice(last, 0, k * length).reshape(*lead, k, length)
        columns = rows._slice(last + 1, 0, positions * s).reshape(*lead, k, positions, s)
        return columns._slice(last + 2, 0, 1).reshape(*lead, k, positions)

    @templated
    def unfold(self, dim: int, size: int, step: int) -> Self:
        """Slices of `size` elements, `step` apart, along an axis, as a new last axis.

        Args:
            dim: the axis; a negative one counts from the last.
            size: length of a slice.
            step: distance of two slices.

        Returns a view in this dtype with (n - size) // step + 1 slices along `dim`, and an axis of
        `size` at the end.

        Raises IndexBoundsError for an axis that is out of range, ShapeError for a slice that is
        longer than the axis or a step below 1.

        >>> Tensor([1, 2, 3]).unfold(0, 2, 1).tolist()
        [[1, 2], [2, 3]]
        """
        if is_of_number(dim, self.ndim):
            # The one slice, in place of a row of them.
            return self._as_view(self.reshape(1).unfold(0, size, step).reshape(size))
        axis = as_axis("unfold", dim, self.ndim)
        patches = self.movedim(axis, -1)._patches("unfold", (size,), (step,), (1,))
        return self._as_view(patches.movedim(-2, axis))

    def _running(self, axis: int, op: Ops) -> Self:
        """Every prefix along `axis` reduced: identities in front, the slice that ends at each
        element, a reduction of slices.
        """
        x = self.movedim(axis, -1)
        size = x._sizes[-1]
        if not size:
            return self._copy_of(self)
        assert op.definition.identity is not None
        identity = as_const(op.definition.identity(x.dtype), x.dtype)
        patches = x.pad((size - 1, 0), value=identity)._patches("cumulative", (size,), (1,), (1,))
        if size > 1:
            last = patches.ndim - 1
            patches = patches._like(
                compute(Ops.REDUCE_AXIS, x.dtype, (patches.uop,), (op, (last,)))
            )
        return patches.reshape(x.shape).movedim(-1, axis)
