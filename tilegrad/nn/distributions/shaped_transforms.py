"""Transforms of several numbers at once: triangular matrices, slices of an axis, other shapes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from tilegrad.base.errors import ShapeError
from tilegrad.nn.distributions.distribution import Distribution, over_last
from tilegrad.nn.distributions.transforms import Transform
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "AbsTransform", "CatTransform", "CorrCholeskyTransform", "CumulativeDistributionTransform",
    "IndependentTransform", "LowerCholeskyTransform", "PositiveDefiniteTransform",
    "ReshapeTransform", "SoftmaxTransform", "StackTransform",
]  # fmt: skip


class AbsTransform(Transform):
    """The absolute value, which has no single inverse: undoing it leaves a number as it is.

    Args:
        cache_size: 1 remembers the last value, so that undoing it gives what it was computed from,
            bit by bit.

    Shape: any shape to the same shape; float.

    >>> nn.distributions.AbsTransform()(Tensor([-2.0, 3.0])).tolist()
    [2.0, 3.0]
    """

    _is_rising = False

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class SoftmaxTransform(Transform):
    """The softmax along the last axis; the logarithm undoes it up to a constant.

    Args:
        cache_size: 1 remembers the last value, so that undoing it gives what it was computed from,
            bit by bit.

    Shape: (..., n) to the same shape; float.

    >>> nn.distributions.SoftmaxTransform()(Tensor([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """

    _is_rising = False

    event_dim = 1

    def _call(self, x: Tensor) -> Tensor:
        return x.softmax(-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()


class LowerCholeskyTransform(Transform):
    """A matrix as a lower triangular one with a positive diagonal, by its exponential.

    Args:
        cache_size: 1 remembers the last value, so that undoing it gives what it was computed from,
            bit by bit.

    Shape: (..., n, n) to the same shape; float.

    >>> nn.distributions.LowerCholeskyTransform()(Tensor.zeros(2, 2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    _is_rising = False

    event_dim = 2

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(0, -2, -1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(0, -2, -1).log().diag_embed()


class PositiveDefiniteTransform(Transform):
    """A matrix as a positive definite one, L @ L.T of its `LowerCholeskyTransform`.

    Args:
        cache_size: 1 remembers the last value, so that undoing it gives what it was computed from,
            bit by bit.

    Shape: (..., n, n) to the same shape; float.

    >>> nn.distributions.PositiveDefiniteTransform()(Tensor.zeros(2, 2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    _is_rising = False

    event_dim = 2

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.transpose(-2, -1)

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(y.cholesky())


class CorrCholeskyTransform(Transform):
    """Numbers, n * (n - 1) / 2 along the last axis, as the Cholesky factor of a correlation
    matrix: their hyperbolic tangents are partial correlations.

    Args:
        cache_size: 1 remembers the last value, so that undoing it gives what it was computed from,
            bit by bit.

    Shape: (..., n * (n - 1) / 2) to (..., n, n); float.

    Raises ShapeError for numbers that are no triangle.

    >>> nn.distributions.CorrCholeskyTransform()(Tensor([0.0])).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    _is_rising = False

    def _call(self, x: Tensor) -> Tensor:
        partial = _lower_of(x.tanh())
        rest = (1 - partial.square()).sqrt().cumprod(-1)
        shifted = Tensor.cat(rest[..., :1] * 0 + 1, rest[..., :-1], dim=-1)
        one = Tensor.eye(partial._sizes[-1], dtype=x.dtype, device=x.device)
        return (partial + one) * shifted

    def _inverse(self, y: Tensor) -> Tensor:
        rest = 1 - y.square().cumsum(-1)
        shifted = Tensor.cat(rest[..., :1] * 0 + 1, rest[..., :-1], dim=-1)
        return (_below(y, -1) / _below(shifted, -1).sqrt()).atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        rest = _below(1 - y.square().cumsum(-1), -2)
        slopes = (x + (x * -2).softplus() - math.log(2)) * -2
        return rest.log().sum(-1) / 2 + slopes.sum(-1)

    def event_dims(self) -> tuple[int, int]:
        return 1, 2

    def forward_shape(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        size = (1 + math.isqrt(1 + 8 * shape[-1])) // 2
        return (*shape[:-1], size, size)


def _lower_of(values: Tensor) -> Tensor:
    """A matrix with `values` below the diagonal, row after row, and zeros elsewhere."""
    count = values._sizes[-1]
    size = (1 + math.isqrt(1 + 8 * count)) // 2
    if size * (size - 1) // 2 != count:
        raise ShapeError(f"CorrCholeskyTransform: {count} numbers are no triangle")
    # A row with zero in front: the position of each element among them.
    table = [
        [1 + row * (row - 1) // 2 + column if column < row else 0 for column in range(size)]
        for row in range(size)
    ]
    padded = Tensor.cat(values[..., :1] * 0, values, dim=-1)
    index = Tensor(table, device=values.device)
    flat = padded.index_select(padded.ndim - 1, index.reshape(-1))
    return flat.reshape(*values.shape[:-1], size, size)


def _below(matrix: Tensor, diagonal: int) -> Tensor:
    """The elements on a diagonal and below it, row after row."""
    size = matrix._sizes[-1]
    positions = [row * size + column for row in range(size) for column in range(row + diagonal + 1)]
    flat = matrix.reshape(*matrix.shape[:-2], size * size)
    index = Tensor(positions, device=matrix.device, dtype="int32")
    return flat.index_select(flat.ndim - 1, index)


class CumulativeDistributionTransform(Transform):
    """The cumulative distribution of each number; its quantile undoes it.

    Args:
        distribution: one that has `cdf`, `icdf` and `log_prob`.
        cache_size: 1 remembers the last value, so that undoing it gives what it was computed from,
            bit by bit.

    Shape: any shape to the same shape; float.

    >>> d = nn.distributions.Normal(0.0, 1.0)
    >>> nn.distributions.CumulativeDistributionTransform(d)(Tensor(0.0)).item()
    0.5
    """

    def __init__(self, distribution: Distribution, cache_size: int = 0):
        super().__init__(cache_size)
        self.distribution: Any = distribution

    def _call(self, x: Tensor) -> Tensor:
        found: Tensor = self.distribution.cdf(x)
        return found

    def _inverse(self, y: Tensor) -> Tensor:
        found: Tensor = self.distribution.icdf(y)
        return found

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)  # type: ignore[no-any-return]


class IndependentTransform(Transform):
    """A transform that takes some of the last axes as one event.

    Args:
        base_transform: the transform of each number.
        reinterpreted_batch_ndims: how many axes.
        cache_size: 1 remembers the last value, so that undoing it gives what it was computed from,
            bit by bit.

    Shape: that of `base_transform`.

    >>> exp = nn.distributions.ExpTransform()
    >>> d = nn.distributions.IndependentTransform(exp, 1)
    >>> d.log_abs_det_jacobian(Tensor([1.0, 2.0]), d(Tensor([1.0, 2.0]))).item()
    3.0
    """

    def __init__(
        self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0
    ):
        super().__init__(cache_size)
        self.base_transform = base_transform
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"

    def _call(self, x: Tensor) -> Tensor:
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        slopes = self.base_transform.log_abs_det_jacobian(x, y)
        return over_last(slopes, self.reinterpreted_batch_ndims)

    def event_dims(self) -> tuple[int, int]:
        taken, given = self.base_transform.event_dims()
        return taken + self.reinterpreted_batch_ndims, given + self.reinterpreted_batch_ndims

    def forward_shape(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        return self.base_transform.forward_shape(shape)


class ReshapeTransform(Transform):
    """The last axes in another shape.

    Args:
        in_shape: their sizes.
        out_shape: the new ones.
        cache_size: 1 remembers the last value, so that undoing it gives what it was computed from,
            bit by bit.

    Shape: (..., *in_shape) to (..., *out_shape).

    Raises ShapeError for shapes of other numbers of elements.

    >>> nn.distributions.ReshapeTransform((4,), (2, 2))(Tensor([1, 2, 3, 4])).tolist()
    [[1, 2], [3, 4]]
    """

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0):
        super().__init__(cache_size)
        if math.prod(in_shape) != math.prod(out_shape):
            raise ShapeError(
                f"ReshapeTransform: {tuple(in_shape)} and {tuple(out_shape)} differ in number"
            )
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[: x.ndim - len(self.in_shape)], *self.out_shape)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(*y.shape[: y.ndim - len(self.out_shape)], *self.in_shape)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return Tensor.zeros(*x.shape[: x.ndim - len(self.in_shape)], dtype=x.dtype, device=x.device)

    def event_dims(self) -> tuple[int, int]:
        return len(self.in_shape), len(self.out_shape)

    def forward_shape(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*shape[: len(shape) - len(self.in_shape)], *self.out_shape)


class _SlicedTransform(Transform):
    """Transforms of slices of a tensor: a subclass cuts it, and joins what they give."""

    transforms: list[Transform]

    def _slices(self, x: Tensor) -> Iterable[Tensor]:
        raise NotImplementedError

    def _joined(self, slices: Sequence[Tensor]) -> Tensor:
        raise NotImplementedError

    def _call(self, x: Tensor) -> Tensor:
        pairs = zip(self.transforms, self._slices(x))
        return self._joined([transform(each) for transform, each in pairs])

    def _inverse(self, y: Tensor) -> Tensor:
        pairs = zip(self.transforms, self._slices(y))
        return self._joined([transform.inv(each) for transform, each in pairs])

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        triples = zip(self.transforms, self._slices(x), self._slices(y))
        return self._joined(
            [each.log_abs_det_jacobian(before, after) for each, before, after in triples]
        )

    def event_dims(self) -> tuple[int, int]:
        taken, given = zip(*(each.event_dims() for each in self.transforms))
        return max(taken), max(given)


class CatTransform(_SlicedTransform):
    """Transforms of slices of an axis, one after the other.

    Args:
        tseq: the transforms.
        dim: the axis.
        lengths: how many elements each takes, by default 1.
        cache_size: 1 remembers the last value, so that undoing it gives what it was computed from,
            bit by bit.

    Shape: any shape, with the sum of `lengths` along `dim`, to the same shape; float.

    >>> exp, double = nn.distributions.ExpTransform(), nn.distributions.AffineTransform(0.0, 2.0)
    >>> nn.distributions.CatTransform([exp, double])(Tensor([0.0, 3.0])).tolist()
    [1.0, 6.0]
    """

    def __init__(
        self,
        tseq: Sequence[Transform],
        dim: int = 0,
        lengths: Sequence[int] | None = None,
        cache_size: int = 0,
    ):
        super().__init__(cache_size)
        self.transforms, self.dim = list(tseq), dim
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)

    def _slices(self, x: Tensor) -> Iterable[Tensor]:
        return x.split(self.lengths, self.dim)

    def _joined(self, slices: Sequence[Tensor]) -> Tensor:
        return Tensor.cat(*slices, dim=self.dim)


class StackTransform(_SlicedTransform):
    """A transform for each position on an axis.

    Args:
        tseq: the transforms.
        dim: the axis.
        cache_size: 1 remembers the last value, so that undoing it gives what it was computed from,
            bit by bit.

    Shape: any shape, as long along `dim` as there are transforms, to the same shape; float.

    >>> exp, double = nn.distributions.ExpTransform(), nn.distributions.AffineTransform(0.0, 2.0)
    >>> nn.distributions.StackTransform([exp, double])(Tensor([0.0, 3.0])).tolist()
    [1.0, 6.0]
    """

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0):
        super().__init__(cache_size)
        self.transforms, self.dim = list(tseq), dim

    def _slices(self, x: Tensor) -> Iterable[Tensor]:
        return x.unbind(self.dim)

    def _joined(self, slices: Sequence[Tensor]) -> Tensor:
        first, *others = slices
        return first.stack(*others, dim=self.dim)
