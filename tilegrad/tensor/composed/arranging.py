"""Tensors arranged side by side, chosen in groups, raised to powers, summed as they go, and the
windows of signals.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DTypeError, ShapeError, check_choice
from tilegrad.base.origin import composed
from tilegrad.base.recent import Bounded
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.composed.picking import Picking
from tilegrad.tensor.handle.core import describe
from tilegrad.tensor.handle.pairs import Ranked
from tilegrad.tensor.handle.size_arguments import as_axis, is_of_number, show_shape

__all__ = ["Arranging"]

# Windows of signals, which loops make anew: constants, by length, kind and dtype.
_tapers: Bounded[tuple[Any, ...], UOp] = Bounded(64)

# Weight of the higher of two elements, by a position and its fraction.
_BETWEEN: dict[str, Callable[[Any, Any], Any]] = {
    "linear": lambda position, fraction: fraction,
    "lower": lambda position, fraction: fraction * 0,
    "higher": lambda position, fraction: (fraction > 0).cast(fraction.dtype),
    "midpoint": lambda position, fraction: (fraction > 0).cast(fraction.dtype) * 0.5,
    "nearest": lambda position, fraction: position.round() - position.floor(),
}


class Arranging(Picking):
    """Joining, choosing and summing under PyTorch's names."""

    __slots__ = ()

    # joined

    concat = Picking.cat
    concatenate = Picking.cat
    row_stack = Picking.vstack
    trapz = Picking.trapezoid

    @classmethod
    def _with_axes(cls, tensors: Any, shape: Any) -> Any:
        """Each reshaped by `shape`; one tensor alone as it is given."""
        several = len(tensors) > 1 or type(tensors[0]) in (list, tuple)
        made = tuple(each.reshape(shape(each._sizes)) for each in cls._each(tensors))
        return made if several else made[0]

    @classmethod
    def atleast_1d(cls, *tensors: Any) -> Any:
        """Give each tensor at least one axis: a number becomes a vector of one element.

        Args:
            tensors: any number of tensors of any shapes.

        Returns the tensor for one argument, a tuple for several, in their dtypes.

        >>> Tensor.atleast_1d(Tensor(3)).shape
        (1,)
        """
        return cls._with_axes(tensors, lambda sizes: sizes or (1,))

    @classmethod
    def atleast_2d(cls, *tensors: Any) -> Any:
        """Give each tensor at least two axes: numbers and vectors become matrices of one row.

        Args:
            tensors: any number of tensors of any shapes.

        Returns the tensor for one argument, a tuple for several, in their dtypes.

        >>> Tensor.atleast_2d(Tensor([3, 4])).shape
        (1, 2)
        """
        return cls._with_axes(tensors, lambda sizes: (1,) * (2 - len(sizes)) + sizes)

    @classmethod
    def atleast_3d(cls, *tensors: Any) -> Any:
        """Give each tensor at least three axes: shape () becomes (1, 1, 1), (n,) becomes (1, n, 1),
        (m, n) becomes (m, n, 1).

        Args:
            tensors: any number of tensors of any shapes.

        Returns the tensor for one argument, a tuple for several, in their dtypes.

        >>> Tensor.atleast_3d(Tensor([3, 4])).shape
        (1, 2, 1)
        """
        return cls._with_axes(
            tensors,
            lambda sizes: {0: (1, 1, 1), 1: (1, *sizes, 1), 2: (*sizes, 1)}.get(len(sizes), sizes),
        )

    @classmethod
    def column_stack(cls, *tensors: Any) -> Self:
        """Put tensors side by side along axis 1; a vector (n,) counts as a column (n, 1).

        Args:
            tensors: given one by one or as a list, of equal sizes but for axis 1.

        Returns one tensor, in the dtype to which all promote.

        Raises ShapeError if the other sizes differ.

        >>> Tensor.column_stack([Tensor([1, 2]), Tensor([3, 4])]).tolist()
        [[1, 3], [2, 4]]
        """
        arrays = [p if p.ndim > 1 else p.reshape(-1, 1) for p in cls._each(tensors)]
        joined: Self = arrays[0].cat(*arrays[1:], dim=1)
        return joined

    @classmethod
    def dstack(cls, *tensors: Any) -> Self:
        """Put tensors one behind the other along axis 2; (n,) counts as (1, n, 1), (m, n) as (m, n,
        1).

        Args:
            tensors: given one by one or as a list, of equal sizes but for axis 2.

        Returns one tensor, in the dtype to which all promote.

        Raises ShapeError if the other sizes differ.

        >>> Tensor.dstack([Tensor([1, 2]), Tensor([3, 4])]).tolist()
        [[[1, 3], [2, 4]]]
        """
        arrays = [cls.atleast_3d(each) for each in cls._each(tensors)]
        joined: Self = arrays[0].cat(*arrays[1:], dim=2)
        return joined

    @staticmethod
    def broadcast_shapes(*shapes: int | Sequence[int]) -> tuple[int, ...]:
        """The shape to which `shapes` broadcast by the rules of NumPy.

        Args:
            shapes: tuples of ints; an int stands for a shape of one axis.

        Returns a tuple of ints.

        Raises ShapeError if there is none.

        >>> Tensor.broadcast_shapes((2, 1), (3,))
        (2, 3)
        """
        given = [(shape,) if isinstance(shape, int) else tuple(shape) for shape in shapes]
        made: list[int] = [1] * max(map(len, given), default=0)
        for shape in given:
            for axis, size in enumerate(shape, len(made) - len(shape)):
                if size != 1 and made[axis] not in (1, size):
                    raise ShapeError(
                        f"broadcast_shapes: sizes {made[axis]} and {size} of axis {axis} differ",
                        shapes=", ".join(map(show_shape, given)),
                    )
                made[axis] = size if size != 1 else made[axis]
        return tuple(made)

    # chosen

    @templated
    @composed
    def combinations(self, r: int = 2, with_replacement: bool = False) -> Self:
        """All ways to choose `r` elements of this vector (n,), each way once, a row for each.

        Args:
            r: number of elements in a choice.
            with_replacement: whether an element can be chosen more than once.

        Returns a tensor of this dtype and shape (ways, r).

        Raises ShapeError unless this is a vector.

        >>> Tensor([1, 2, 3]).combinations().tolist()
        [[1, 2], [1, 3], [2, 3]]
        """
        if self.ndim != 1 or r < 0:
            raise ShapeError(
                f"combinations: {r} of a tensor {show_shape(self.shape)}",
                tensor=describe(self.uop),
                rule="0 or more of a vector",
            )
        choose = itertools.combinations_with_replacement if with_replacement else (
            itertools.combinations
        )  # fmt: skip
        rows = list(choose(range(self._length(0)), r))
        if not rows or not r:
            return self._slice(0, 0, 0).reshape(0, r) if r else self._slice(0, 0, 0)
        kind: Any = type(self)
        return self[kind(rows, dtype=dtypes.int32, device=self.device)]

    @templated
    @composed
    def vander(self, N: int | None = None, *, increasing: bool = False) -> Self:
        """Powers of each element of this vector, along a new last axis: the highest first, unless
        `increasing`.

        Args:
            N: number of powers, 0 to N - 1; by default as many as there are elements.
            increasing: the lowest power first.

        Returns a tensor of shape (n, N); floats keep their dtype, others give int64.

        >>> Tensor([2, 3]).vander(3).tolist()
        [[4, 2, 1], [9, 3, 1]]
        """
        count = self._length(-1) if N is None else N
        column = self.unsqueeze(-1)
        if count < 1:
            return column._slice(self.ndim, 0, 0)
        ones = column.const_like(1)
        powers = ones.cat(column.expand(*self.shape, count - 1), dim=-1).cumprod(-1)
        return powers if increasing else powers.flip(-1)

    # summed

    @templated
    @composed
    def cumulative_trapezoid(
        self, x: Self | None = None, *, dx: float = 1.0, dim: int = -1
    ) -> Self:
        """Integrate along an axis by the trapezoid rule, up to each position but the first.

        Args:
            x: coordinates of the values, one for each position along `dim` or of this shape; by
                default steps of `dx`.
            dx: distance of neighbours without `x`.
            dim: the axis; a negative one counts from the last.

        Returns a float tensor that is one shorter along `dim`.

        Raises ShapeError if the sizes of `x` do not fit, IndexBoundsError for an axis that is out
        of range.

        >>> Tensor([1.0, 2.0, 3.0]).cumulative_trapezoid().tolist()
        [1.5, 4.0]
        """
        axis = as_axis("cumulative_trapezoid", dim, self.ndim)
        return self._trapezoids(x, axis).cumsum(axis) * (dx / 2 if x is None else 0.5)

    @templated
    @composed
    def nanmedian(self, dim: int | None = None, keepdim: bool = False) -> Any:
        """Median of the elements that are not NaN; NaN where there are no others. For an even
        number of elements it is the lower middle one.

        Args:
            dim: the axis, or None for all elements.
            keepdim: keep the reduced axis, with size 1.

        Returns a number in this dtype without `dim`; with it a pair (values, indices), indices
        int32, without the axis.

        Raises IndexBoundsError for an axis that is out of range.

        >>> Tensor([1.0, float("nan"), 3.0]).nanmedian().item()
        1.0
        """
        if dim is None:
            if not self._has_elements():
                return self.median()
            return self._shared_by_equals(self.flatten().nanmedian(0).values)
        if is_of_number(dim, self.ndim):
            return self._as_row(lambda row: row.nanmedian(0))
        axis = as_axis("nanmedian", dim, self.ndim)
        values, positions = self.sort(axis)
        count = self.isnan().logical_not().sum(axis, keepdim=True)
        middle = ((count - 1) // 2).clip(0)
        picked = [each.gather(axis, middle) for each in (values, positions)]
        return Ranked(*(each if keepdim else each.squeeze(axis) for each in picked))

    @templated
    @composed
    def nanquantile(
        self, q: Any, dim: int | None = None, keepdim: bool = False, interpolation: str = "linear"
    ) -> Self:
        """Quantile of the elements that are not NaN; NaN where there are no others.

        Args:
            q: share in 0..1, a number or a vector.
            dim: the axis, or None for all elements.
            keepdim: keep the reduced axis, with size 1.
            interpolation: between two elements "linear", "lower", "higher", "midpoint" or
                "nearest".

        Returns a float tensor without `dim`, with the axis of a vector `q` in front.

        Raises ShapeError if a share is not in 0..1, DTypeError for another interpolation,
        IndexBoundsError for an axis that is out of range.

        >>> Tensor([1.0, float("nan"), 3.0]).nanquantile(0.5).item()
        2.0
        """
        if dim is None:
            flat = self.flatten().nanquantile(q, 0, False, interpolation)
            return flat.reshape(*flat.shape, *[1] * self.ndim) if keepdim else flat
        if is_of_number(dim, self.ndim):
            return self.flatten().nanquantile(q, 0, False, interpolation)
        axis = as_axis("nanquantile", dim, self.ndim)
        q = q.tolist() if hasattr(q, "tolist") else q
        given = list(q) if isinstance(q, (list, tuple)) else [q]
        shares = [float(share.item() if hasattr(share, "item") else share) for share in given]
        if not all(0 <= share <= 1 for share in shares):
            raise ShapeError(f"nanquantile: shares {shares}", rule="0 to 1")
        check_choice("nanquantile", "interpolation", interpolation, _BETWEEN, DTypeError)
        values = self.sort(axis)[0]
        count = self.isnan().logical_not().sum(axis, keepdim=True)
        found = []
        for share in shares:
            position = (count - 1).clip(0).cast(self.dtype) * share
            low = position.floor()
            below = values.gather(axis, low.cast(dtypes.int32))
            above = values.gather(axis, position.ceil().cast(dtypes.int32))
            made = below.lerp(above, _BETWEEN[interpolation](position, position - low))
            found.append(made if keepdim else made.squeeze(axis))
        return found[0].stack(*found[1:]) if isinstance(q, (list, tuple)) else found[0]

    @templated
    @composed
    def pdist(self, p: float = 2.0) -> Self:
        """Distances of all pairs of rows of a matrix (n, d), in the order (0, 1), (0, 2), ..., (1,
        2), ...

        Args:
            p: order of the norm (sum |x - y|^p)^(1/p).

        Returns a float vector of n (n - 1) / 2 distances.

        Raises ShapeError unless this is a matrix.

        >>> Tensor([[0.0, 0.0], [3.0, 4.0]]).pdist().tolist()
        [5.0]
        """
        if self.ndim != 2:
            raise ShapeError(
                f"pdist: a matrix is needed, not {show_shape(self.shape)}",
                tensor=describe(self.uop),
            )
        rows, columns = (
            type(self).triu_indices(self._length(0), self._length(0), 1).to(self.device).unbind()
        )
        return (self[rows] - self[columns]).norm(p, -1)

    # windows of signals

    @classmethod
    def _cosines(cls, length: int, periodic: bool, weights: Sequence[float], options: Any) -> Self:
        """weights[0] - weights[1] cos(t) + weights[2] cos(2 t), t once around."""
        if length < 2:
            return cls.ones(length, **options)
        device, dtype = options.pop("device", None), options.pop("dtype", None)
        key = length, periodic, (*weights,), dtype or dtypes.default_float
        node = _tapers.get(key)
        if node is None:
            around = 2 * math.pi / (length if periodic else length - 1)
            angle: Self = cls.arange(length, device=device).double() * around
            terms = [(angle * n).cos() * (weight * (-1) ** n) for n, weight in enumerate(weights)]
            total: Any = sum(terms[1:], terms[0])
            node = _tapers.put(key, total.cast(key[-1]).uop)
        return cls._of(node, device)._wanting(options.pop("requires_grad", None))

    @classmethod
    def hann_window(cls, window_length: int, periodic: bool = True, **options: Any) -> Self:
        """Hann window: (1 - cos(t)) / 2 over one period of t.

        Args:
            window_length: number of samples.
            periodic: leave out the end of the period, for Fourier transforms; else both ends are
                in, for filters.
            options: `device`, `dtype` and `requires_grad`, as of `Tensor.full`.

        Returns a float32 vector of shape (window_length,).

        >>> Tensor.hann_window(4).tolist()
        [0.0, 0.5, 1.0, 0.5]
        """
        return cls._cosines(window_length, periodic, (0.5, 0.5), options)

    @classmethod
    def hamming_window(
        cls, window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46,
        **options: Any,
    ) -> Self:  # fmt: skip
        """Hamming window: alpha - beta cos(t) over one period of t.

        Args:
            window_length: number of samples.
            periodic: leave out the end of the period; else both ends are in.
            alpha: the constant.
            beta: the amplitude.
            options: `device`, `dtype` and `requires_grad`, as of `Tensor.full`.

        Returns a float32 vector of shape (window_length,).

        >>> Tensor.hamming_window(4)[2].item()
        1.0
        """
        return cls._cosines(window_length, periodic, (alpha, beta), options)

    @classmethod
    def blackman_window(cls, window_length: int, periodic: bool = True, **options: Any) -> Self:
        """Blackman window: 0.42 - 0.5 cos(t) + 0.08 cos(2 t) over one period of t.

        Args:
            window_length: number of samples.
            periodic: leave out the end of the period; else both ends are in.
            options: `device`, `dtype` and `requires_grad`, as of `Tensor.full`.

        Returns a float32 vector of shape (window_length,).

        >>> Tensor.blackman_window(4)[1].round(decimals=2).item()
        0.3400000035762787
        """
        return cls._cosines(window_length, periodic, (0.42, 0.5, 0.08), options)

    @classmethod
    def kaiser_window(
        cls, window_length: int, periodic: bool = True, beta: float = 12.0, **options: Any
    ) -> Self:
        """Kaiser window: i0(beta sqrt(1 - t^2)) / i0(beta) for t from -1 to 1.

        Args:
            window_length: number of samples.
            periodic: leave out the end of the period; else both ends are in.
            beta: the larger, the narrower the window.
            options: `device`, `dtype` and `requires_grad`, as of `Tensor.full`.

        Returns a float32 vector of shape (window_length,).

        >>> round(Tensor.kaiser_window(4)[2].item(), 4)
        1.0
        """
        if window_length < 2:
            return cls.ones(window_length, **options)
        last = window_length if periodic else window_length - 1
        position = cls.arange(window_length, device=options.pop("device", None)).double()
        root = (1 - (position * (2 / last) - 1).square()).clip(0).sqrt() * beta
        # Scaled both, so that nothing overflows.
        made: Self = root.i0e() * (root - beta).exp() / root.const_like(beta).i0e()
        kind = options.pop("dtype", None) or dtypes.default_float
        return made.cast(kind)._wanting(options.pop("requires_grad", None))

    @classmethod
    def bartlett_window(cls, window_length: int, periodic: bool = True, **options: Any) -> Self:
        """Triangular window: from 0 to 1 and back.

        Args:
            window_length: number of samples.
            periodic: leave out the end of the period; else both ends are in.
            options: `device`, `dtype` and `requires_grad`, as of `Tensor.full`.

        Returns a float32 vector of shape (window_length,).

        >>> Tensor.bartlett_window(4).tolist()
        [0.0, 0.5, 1.0, 0.5]
        """
        if window_length < 2:
            return cls.ones(window_length, **options)
        middle = (window_length if periodic else window_length - 1) / 2
        position = cls.arange(window_length, device=options.pop("device", None)).double()
        made: Self = 1 - (position * (1 / middle) - 1).abs()
        kind = options.pop("dtype", None) or dtypes.default_float
        return made.cast(kind)._wanting(options.pop("requires_grad", None))
