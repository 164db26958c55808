"""Functions that can be undone, and distributions of transformed draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilegrad.nn.distributions.distribution import (
    Distribution,
    Independent,
    NoFormulaError,
    over_last,
)
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "AffineTransform", "ComposeTransform", "ExpTransform", "PowerTransform", "SigmoidTransform",
    "SoftplusTransform", "StickBreakingTransform", "TanhTransform", "Transform",
    "TransformedDistribution",
]  # fmt: skip


class Alike:
    """An object that is equal to others of its class with equal fields."""

    def __eq__(self, other: object) -> bool:
        return self is other or (
            type(self) is type(other)
            and all(
                _is_same(value, vars(other).get(name))
                for name, value in vars(self).items()
                if name not in ("_last", "_cache_size")
            )
        )

    def __hash__(self) -> int:
        return id(self)


def _is_same(one: Any, other: Any) -> bool:
    tensor, rest = (one, other) if isinstance(one, Tensor) else (other, one)
    if isinstance(tensor, Tensor):
        return one is other or bool(tensor.eq(rest).all().item())
    return bool(one == other)


class Transform(Alike):
    """Function of each number that can be inverted: a subclass defines `_call`, `_inverse` and
    `log_abs_det_jacobian`.

    Args:
        cache_size: 1 remembers the last value, so that undoing it gives what it was computed from,
            bit by bit.

    Shape: any shape to the same shape; float.

    Raises NotImplementedError for what the subclass does not define.

    >>> t = nn.distributions.ExpTransform()
    >>> round(t.inv(t(Tensor(2.0))).item(), 4)
    2.0
    """

    # Whether the function is one of single numbers, and rises throughout.
    _is_rising = True

    def __init__(self, cache_size: int = 0):
        self._cache_size = cache_size
        self._last: tuple[Any, Any] = (None, None)

    @property
    def sign(self) -> Any:
        """1 where the function rises, -1 where it falls: a number, or a tensor of them.

        Raises NoFormulaError for a function that does both, or is none of single numbers.
        """
        if self._is_rising:
            return 1
        raise NoFormulaError(
            f"{type(self).__name__}.sign: the function does not rise or fall throughout"
        )

    def __call__(self, x: Tensor) -> Tensor:
        y = self._call(x)
        if self._cache_size:
            self._last = x, y
        return y

    def inv(self, y: Tensor) -> Tensor:
        """The x that `y` was made from."""
        x, known = self._last
        return x if known is y and known is not None else self._inverse(y)

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |dy/dx| at each number."""
        raise NotImplementedError

    def event_dims(self) -> tuple[int, int]:
        """The number of last axes that are one event, before and after the transform: those that
        `log_abs_det_jacobian` has no more.
        """
        count = getattr(self, "event_dim", None)
        if count is not None:
            return count, count
        sets: Any = getattr(self, "domain", None), getattr(self, "codomain", None)
        taken, given = (getattr(each, "event_dim", 0) for each in sets)
        return taken, given

    def forward_shape(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """The shape of results for tensors of a shape."""
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class AffineTransform(Transform):
    """Affine map: loc + scale * x.

    Args:
        loc: added.
        scale: the factor.
        event_dim: number of last axes that are one event.
        cache_size: 1 remembers the last value, so that undoing it gives what it was computed from,
            bit by bit.

    Shape: any shape that broadcasts with `loc` and `scale` to the broadcast shape.

    >>> nn.distributions.AffineTransform(1.0, 2.0)(Tensor(3.0)).item()
    7.0
    """

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0):
        super().__init__(cache_size)
        self.loc: Any = loc
        self.scale: Any = scale
        self.event_dim = event_dim

    @property
    def sign(self) -> Any:
        scale = self.scale
        return scale.sign() if isinstance(scale, Tensor) else (scale > 0) - (scale < 0)

    def _call(self, x: Tensor) -> Tensor:
        made: Tensor = x * self.scale + self.loc
        return made

    def _inverse(self, y: Tensor) -> Tensor:
        made: Tensor = (y - self.loc) / self.scale
        return made

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        scale = self.scale
        is_tensor = isinstance(scale, Tensor)
        slope = scale.abs().log() if is_tensor else x.full_like(math.log(abs(scale)))
        wide = slope.expand(*x.shape) if tuple(slope.shape) != tuple(x.shape) else slope
        return over_last(wide, self.event_dim)


class ExpTransform(Transform):
    """Exponential function: exp(x).

    Args:
        cache_size: 1 remembers the last value, so that undoing it gives what it was computed from,
            bit by bit.

    Shape: any shape to the same shape; float.

    >>> nn.distributions.ExpTransform()(Tensor(0.0)).item()
    1.0
    """

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class PowerTransform(Transform):
    """Power of positive numbers: x^exponent.

    Args:
        exponent: the exponent, a number or a tensor.
        cache_size: 1 remembers the last value, so that undoing it gives what it was computed from,
            bit by bit.

    Shape: any shape to the same shape; float.

    >>> nn.distributions.PowerTransform(2.0)(Tensor(3.0)).item()
    9.0
    """

    def __init__(self, exponent: Any, cache_size: int = 0):
        super().__init__(cache_size)
        self.exponent = exponent

    @property
    def sign(self) -> Any:
        power = self.exponent
        return power.sign() if isinstance(power, Tensor) else (power > 0) - (power < 0)

    def _call(self, x: Tensor) -> Tensor:
        made: Tensor = x**self.exponent
        return made

    def _inverse(self, y: Tensor) -> Tensor:
        made: Tensor = y ** (1 / self.exponent)
        return made

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        slope: Tensor = (self.exponent * y / x).abs().log()
        return slope


class SigmoidTransform(Transform):
    """Logistic function: 1 / (1 + exp(-x)).

    Args:
        cache_size: 1 remembers the last value, so that undoing it gives what it was computed from,
            bit by bit.

    Shape: any shape to the same shape; float.

    >>> nn.distributions.SigmoidTransform()(Tensor(0.0)).item()
    0.5
    """

    def _call(self, x: Tensor) -> Tensor:
        return x.sigmoid()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.logit(2**-24)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -(-x).softplus() - x.softplus()


class TanhTransform(Transform):
    """Hyperbolic tangent: tanh(x).

    Args:
        cache_size: 1 remembers the last value, so that undoing it gives what it was computed from,
            bit by bit.

    Shape: any shape to the same shape; float.

    >>> nn.distributions.TanhTransform()(Tensor(0.0)).item()
    0.0
    """

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        # log(1 - tanh(x)^2), which keeps its digits where tanh(x) is near 1.
        return 2 * (math.log(2) - x - (-2 * x).softplus())


class SoftplusTransform(Transform):
    """Smooth rectifier: log(1 + exp(x)).

    Args:
        cache_size: 1 remembers the last value, so that undoing it gives what it was computed from,
            bit by bit.

    Shape: any shape to the same shape; float.

    >>> t = nn.distributions.SoftplusTransform()
    >>> round(t(Tensor(0.0)).item(), 4)
    0.6931
    """

    def _call(self, x: Tensor) -> Tensor:
        return x.softplus()

    def _inverse(self, y: Tensor) -> Tensor:
        return y + (-(-y).expm1()).log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -(-x).softplus()


class ComposeTransform(Transform):
    """Several transforms, one after the other.

    Args:
        parts: the transforms, the first first.
        cache_size: 1 remembers the last value, so that undoing it gives what it was computed from,
            bit by bit.

    Shape: any shape to the same shape; float.

    >>> exp, double = nn.distributions.ExpTransform(), nn.distributions.AffineTransform(0.0, 2.0)
    >>> nn.distributions.ComposeTransform([exp, double])(Tensor(0.0)).item()
    2.0
    """

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0):
        super().__init__(cache_size)
        self.parts = list(parts)

    @property
    def sign(self) -> Any:
        sign: Any = 1
        for transform in self.parts:
            sign = sign * transform.sign
        return sign

    def __repr__(self) -> str:
        return f"{type(self).__name__}(\n    " + ",\n    ".join(map(repr, self.parts)) + "\n)"

    def _call(self, x: Tensor) -> Tensor:
        for transform in self.parts:
            x = transform(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for transform in reversed(self.parts):
            y = transform.inv(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        total: Any = x.zeros_like() if not self.parts else 0
        axes = self.event_dims()[0]
        for transform in self.parts:
            made = transform(x)
            taken, given = transform.event_dims()
            slopes = transform.log_abs_det_jacobian(x, made)
            total = total + over_last(slopes, axes - taken)
            axes += given - taken
            x = made
        found: Tensor = total
        return found

    def event_dims(self) -> tuple[int, int]:
        first = last = 0
        for transform in reversed(self.parts):
            taken, given = transform.event_dims()
            first = max(max(first, given) + taken - given, taken)
        last = first
        for transform in self.parts:
            taken, given = transform.event_dims()
            last += given - taken
        return first, last

    def forward_shape(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        for transform in self.parts:
            shape = transform.forward_shape(shape)
        return shape


class StickBreakingTransform(Transform):
    """Stick breaking: each number takes a fraction of the rest of a stick of length 1; zeros give
    equal shares.

    Args:
        cache_size: 1 remembers the last value, so that undoing it gives what it was computed from,
            bit by bit.

    Shape: (..., n) to (..., n + 1); float.

    >>> [round(x, 4) for x in nn.distributions.StickBreakingTransform()(Tensor([0.0])).tolist()]
    [0.5, 0.5]
    """

    _is_rising = False

    event_dim = 1

    def forward_shape(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*shape[:-1], shape[-1] + 1)

    def _call(self, x: Tensor) -> Tensor:
        broken = (x - _log_shares_left(x)).sigmoid()
        left = (1 - broken).cumprod(-1)
        return broken.cat(broken[..., :1] * 0 + 1, dim=-1) * (left[..., :1] * 0 + 1).cat(
            left, dim=-1
        )

    def _inverse(self, y: Tensor) -> Tensor:
        shares = y[..., :-1]
        # The rest behind each share, as a sum, not as a difference from 1.
        left = y[..., 1:].flip(-1).cumsum(-1).flip(-1)
        return shares.log() - left.log() + _log_shares_left(shares)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |det| of the first n shares by the numbers."""
        moved = x - _log_shares_left(x)
        return ((-moved).logsigmoid() + y[..., :-1].log()).sum(-1)


def _log_shares_left(x: Tensor) -> Tensor:
    """log(n), log(n - 1), ..., 0: where a number is 0, it breaks off an equal share."""
    size = x._sizes[-1]
    return Tensor.arange(size, 0, -1, device=x.device).cast(x.dtype).log()


class TransformedDistribution(Distribution):
    """Distribution of transformed draws of another.

    Args:
        base_distribution: the distribution that is drawn.
        transforms: a transform, or a list.

    Shape: batch and events as those of `base_distribution`, with the events of `transforms`.

    >>> base, exp = nn.distributions.Normal(0.0, 1.0), nn.distributions.ExpTransform()
    >>> d = nn.distributions.TransformedDistribution(base, [exp])
    >>> round(d.log_prob(Tensor(1.0)).item(), 4)
    -0.9189
    """

    def __init__(self, base_distribution: Any, transforms: Any):
        listed = isinstance(transforms, (list, tuple))
        self.transforms = list(transforms) if listed else [transforms]
        whole = ComposeTransform(self.transforms)
        taken, given = whole.event_dims()
        more = taken - len(base_distribution.event_shape)
        self.base_dist: Any = base_distribution
        if more > 0:
            self.base_dist = Independent(base_distribution, more)
        events = given + max(len(base_distribution.event_shape) - taken, 0)
        shape = whole.forward_shape(
            (*base_distribution.batch_shape, *base_distribution.event_shape)
        )
        super().__init__(shape[: len(shape) - events], shape[len(shape) - events :])

    def _moved(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._moved(self.base_dist.sample(sample_shape)).detach()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._moved(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        axes = len(self.event_shape)
        total: Any = 0
        y = value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            taken, given = transform.event_dims()
            axes += taken - given
            total = total - over_last(transform.log_abs_det_jacobian(x, y), axes - taken)
            y = x
        inner = over_last(self.base_dist.log_prob(y), axes - len(self.base_dist.event_shape))
        found: Tensor = inner + total
        return found

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        y = value
        for transform in reversed(self.transforms):
            y = transform.inv(y)
        return self._reflected(self.base_dist.cdf(y))

    def icdf(self, value: Tensor) -> Tensor:
        """The number that a draw does not exceed with probability `value`."""
        return self._moved(self.base_dist.icdf(self._reflected(value)))

    def _reflected(self, probability: Tensor) -> Tensor:
        """A probability, or where the transforms fall that of the opposite."""
        sign = ComposeTransform(self.transforms).sign
        if isinstance(sign, int) and sign == 1:
            return probability
        found: Tensor = (probability - 0.5) * sign + 0.5
        return found
