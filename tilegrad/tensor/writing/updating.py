"""Methods that end in an underscore, and operators in place: the tensor takes the result, as by
`assign`.

They follow the order that assignment follows: a tensor computed before sees the old value, one made
after the new one. The tensor keeps its shape and its dtype; those that turn it or give it another
shape (`t_`, `unsqueeze_`) write nothing.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any, Self, TypeVar

from tilegrad.engine.realize.realize import exclusive
from tilegrad.tensor.handle.core import Core
from tilegrad.tensor.writing.assignment import Assignment
from tilegrad.tensor.writing.host_writes import update_on_host

__all__ = ["Updating"]

T = TypeVar("T", bound=Core)


def _takes(method: Callable[..., Any]) -> Callable[..., Any]:
    """`method`, whose result its own tensor takes."""

    @functools.wraps(method)
    def take(self: Any, *args: Any, **kwargs: Any) -> Any:
        # No other thread writes to it between.
        with exclusive():
            made = method(self, *args, **kwargs)
            given = (self, *args, *kwargs.values())
            return self._update(made, is_new=all(made is not each for each in given))

    return _renamed(take, method)


def _takes_truth(method: Callable[..., Any]) -> Callable[..., Any]:
    """`method`, whose truth values its own tensor takes, as 0 and 1 of its dtype."""

    @functools.wraps(method)
    def take(self: Any, *args: Any, **kwargs: Any) -> Any:
        with exclusive():
            return self._update(method(self, *args, **kwargs).cast(self.dtype))

    return _renamed(take, method)


def _becomes(method: Callable[..., Any]) -> Callable[..., Any]:
    """`method`, whose result its own tensor is from now on, in another shape."""

    @functools.wraps(method)
    def become(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.replace(method(self, *args, **kwargs))

    return _renamed(become, method)


def _operator(operation: Callable[[Any, Any], Any]) -> Callable[[T, Any], T]:
    """The in-place operator whose result is that of `operation`."""

    def update(self: Any, other: Any) -> Any:
        with exclusive():
            if update_on_host(self, operation, other):
                return self
            return self._update(operation(self, other), is_new=True)

    return update


def _renamed(function: Any, method: Callable[..., Any]) -> Callable[..., Any]:
    """`function` under the name of `method` and an underscore."""
    name = method.__name__ + "_"
    function.__name__, function.__qualname__ = name, f"Updating.{name}"
    function.__code__ = function.__code__.replace(co_name=name, co_qualname=function.__qualname__)
    function.__doc__ = (
        f"As `{method.__name__}`, in place: write the result into this tensor.\n\n"
        "Returns this tensor.\n"
    )
    made: Callable[..., Any] = function
    return made


class Updating(Assignment):
    """In-place forms of functions of each element, of sums and products, and of filling."""

    __slots__ = ()

    add_ = _takes(Assignment.add)
    sub_ = _takes(Assignment.sub)
    mul_ = _takes(Assignment.mul)
    div_ = _takes(Assignment.div)
    pow_ = _takes(Assignment.pow)
    fmod_ = _takes(Assignment.fmod)
    remainder_ = _takes(Assignment.mod)
    floor_divide_ = _takes(Assignment.floor_divide)
    neg_ = _takes(Assignment.neg)
    abs_ = _takes(Assignment.abs)
    exp_ = _takes(Assignment.exp)
    log_ = _takes(Assignment.log)
    sqrt_ = _takes(Assignment.sqrt)
    rsqrt_ = _takes(Assignment.rsqrt)
    square_ = _takes(Assignment.square)
    reciprocal_ = _takes(Assignment.reciprocal)
    sin_ = _takes(Assignment.sin)
    cos_ = _takes(Assignment.cos)
    tanh_ = _takes(Assignment.tanh)
    sigmoid_ = _takes(Assignment.sigmoid)
    relu_ = _takes(Assignment.relu)
    sign_ = _takes(Assignment.sign)
    floor_ = _takes(Assignment.floor)
    ceil_ = _takes(Assignment.ceil)
    round_ = _takes(Assignment.round)
    trunc_ = _takes(Assignment.trunc)
    clamp_ = _takes(Assignment.clamp)
    clip_ = _takes(Assignment.clip)
    clamp_min_ = _takes(Assignment.clamp_min)
    clamp_max_ = _takes(Assignment.clamp_max)
    lerp_ = _takes(Assignment.lerp)
    addcmul_ = _takes(Assignment.addcmul)
    addcdiv_ = _takes(Assignment.addcdiv)
    addmm_ = _takes(Assignment.addmm)
    masked_fill_ = _takes(Assignment.masked_fill)
    scatter_ = _takes(Assignment.scatter)
    scatter_add_ = _takes(Assignment.scatter_add)
    scatter_reduce_ = _takes(Assignment.scatter_reduce)
    index_add_ = _takes(Assignment.index_add)
    index_copy_ = _takes(Assignment.index_copy)
    index_fill_ = _takes(Assignment.index_fill)
    nan_to_num_ = _takes(Assignment.nan_to_num)
    tril_ = _takes(Assignment.tril)
    triu_ = _takes(Assignment.triu)
    erfinv_ = _takes(Assignment.erfinv)
    acos_ = _takes(Assignment.acos)
    acosh_ = _takes(Assignment.acosh)
    asin_ = _takes(Assignment.asin)
    asinh_ = _takes(Assignment.asinh)
    atan_ = _takes(Assignment.atan)
    atanh_ = _takes(Assignment.atanh)
    atan2_ = _takes(Assignment.atan2)
    sinh_ = _takes(Assignment.sinh)
    cosh_ = _takes(Assignment.cosh)
    tan_ = _takes(Assignment.tan)
    hypot_ = _takes(Assignment.hypot)
    sinc_ = _takes(Assignment.sinc)
    deg2rad_ = _takes(Assignment.deg2rad)
    rad2deg_ = _takes(Assignment.rad2deg)
    exp2_ = _takes(Assignment.exp2)
    expm1_ = _takes(Assignment.expm1)
    log2_ = _takes(Assignment.log2)
    log10_ = _takes(Assignment.log10)
    log1p_ = _takes(Assignment.log1p)
    logit_ = _takes(Assignment.logit)
    lgamma_ = _takes(Assignment.lgamma)
    digamma_ = _takes(Assignment.digamma)
    erf_ = _takes(Assignment.erf)
    erfc_ = _takes(Assignment.erfc)
    xlogy_ = _takes(Assignment.xlogy)
    frac_ = _takes(Assignment.frac)
    copysign_ = _takes(Assignment.copysign)
    nextafter_ = _takes(Assignment.nextafter)
    ldexp_ = _takes(Assignment.ldexp)
    float_power_ = _takes(Assignment.float_power)
    gcd_ = _takes(Assignment.gcd)
    lcm_ = _takes(Assignment.lcm)
    heaviside_ = _takes(Assignment.heaviside)
    sgn_ = _takes(Assignment.sgn)
    renorm_ = _takes(Assignment.renorm)
    cumsum_ = _takes(Assignment.cumsum)
    cumprod_ = _takes(Assignment.cumprod)
    addmv_ = _takes(Assignment.addmv)
    addr_ = _takes(Assignment.addr)
    addbmm_ = _takes(Assignment.addbmm)
    baddbmm_ = _takes(Assignment.baddbmm)
    bitwise_not_ = _takes(Assignment.bitwise_not)
    bitwise_and_ = _takes(Assignment.bitwise_and)
    bitwise_or_ = _takes(Assignment.bitwise_or)
    bitwise_xor_ = _takes(Assignment.bitwise_xor)
    masked_scatter_ = _takes(Assignment.masked_scatter)
    index_put_ = _takes(Assignment.index_put)
    index_reduce_ = _takes(Assignment.index_reduce)
    put_ = _takes(Assignment.put)
    bitwise_left_shift_ = _takes(Assignment.lshift)
    bitwise_right_shift_ = _takes(Assignment.rshift)
    eq_ = _takes_truth(Assignment.eq)
    ne_ = _takes_truth(Assignment.ne)
    lt_ = _takes_truth(Assignment.lt)
    le_ = _takes_truth(Assignment.le)
    gt_ = _takes_truth(Assignment.gt)
    ge_ = _takes_truth(Assignment.ge)
    logical_and_ = _takes_truth(Assignment.logical_and)
    logical_or_ = _takes_truth(Assignment.logical_or)
    logical_xor_ = _takes_truth(Assignment.logical_xor)
    logical_not_ = _takes_truth(Assignment.logical_not)
    squeeze_ = _becomes(Assignment.squeeze)
    unsqueeze_ = _becomes(Assignment.unsqueeze)
    transpose_ = _becomes(Assignment.transpose)
    t_ = _becomes(Assignment.t)
    i0_ = _takes(Assignment.i0)
    igamma_ = _takes(Assignment.igamma)
    igammac_ = _takes(Assignment.igammac)
    polygamma_ = _takes(Assignment.polygamma)
    mvlgamma_ = _takes(Assignment.mvlgamma)
    absolute_ = abs_
    negative_ = neg_
    subtract_ = sub_
    multiply_ = mul_
    divide_ = div_
    true_divide_ = div_
    fix_ = trunc_
    arcsin_ = asin_
    arccos_ = acos_
    arctan_ = atan_
    arcsinh_ = asinh_
    arccosh_ = acosh_
    arctanh_ = atanh_
    arctan2_ = atan2_
    greater_ = gt_
    greater_equal_ = ge_
    less_ = lt_
    less_equal_ = le_
    not_equal_ = ne_
    swapaxes_ = transpose_
    swapdims_ = transpose_

    def detach_(self) -> Self:
        """Cut this tensor off from what it was computed from: no gradient flows on.

        Returns this tensor, of the same shape and dtype.

        >>> Tensor([1.0]).detach_().requires_grad
        False
        """
        self.replace(self.detach())
        self._requires_grad, self._is_leaf = False, True
        return self

    def fill_(self, value: Any) -> Self:
        """Write `value` into every element.

        Args:
            value: a number, or a tensor without axes.

        Returns this tensor, of the same shape and dtype.

        >>> Tensor([1, 2]).fill_(7).tolist()
        [7, 7]
        """
        if isinstance(value, Core) and not value.ndim:
            return self.copy_(value)
        return self._update(self.full_like(value), is_new=True)

    def zero_(self) -> Self:
        """Write 0 into every element.

        Returns this tensor, of the same shape and dtype.

        >>> Tensor([1, 2]).zero_().tolist()
        [0, 0]
        """
        return self.fill_(0)

    def copy_(self, source: Any) -> Self:
        """Write the values of `source`, broadcast to this shape and cast to this dtype.

        Args:
            source: a tensor, or what makes one.

        Returns this tensor.

        Raises ShapeError if it does not broadcast.

        >>> Tensor([1.0, 2.0]).copy_(Tensor([3])).tolist()
        [3.0, 3.0]
        """
        kind: Any = type(self)
        other: Self = source if isinstance(source, kind) else kind(source, device=self.device)
        moved = other.to(self.device).cast(self.dtype)
        return self._update(moved.expand(self.shape))

    def fill_diagonal_(self, value: Any) -> Self:
        """Write `value` on the diagonal of this matrix.

        Args:
            value: a number.

        Returns this tensor, of shape (n, m).

        Raises ShapeError for less than two axes.

        >>> Tensor([[1, 2], [3, 4]]).fill_diagonal_(0).tolist()
        [[0, 2], [3, 0]]
        """
        rows, columns = self._sizes
        on_diagonal = type(self).eye(rows, columns, dtype="bool", device=self.device)
        return self._update(on_diagonal.where(value, self))

    def uniform_(self, low: float = 0.0, high: float = 1.0) -> Self:
        """Write uniform random numbers, low <= x < high.

        Args:
            low: least value.
            high: end, not included.

        Returns this tensor.

        >>> Tensor.empty(2).uniform_().shape
        (2,)
        """
        made = type(self).uniform(*self._sizes, low=low, high=high, device=self.device)
        return self._update(made.cast(self.dtype))

    def normal_(self, mean: float = 0.0, std: float = 1.0) -> Self:
        """Write normal random numbers.

        Args:
            mean: the mean.
            std: the standard deviation.

        Returns this tensor.

        >>> Tensor.empty(2).normal_().shape
        (2,)
        """
        made = type(self).normal(*self._sizes, mean=mean, std=std, device=self.device)
        return self._update(made.cast(self.dtype))

    def exponential_(self, lambd: float = 1.0) -> Self:
        """Write exponential random numbers.

        Args:
            lambd: the rate, 1 / mean.

        Returns this tensor.

        >>> Tensor.empty(2).exponential_().shape
        (2,)
        """
        made = type(self).exponential(*self._sizes, device=self.device)
        return self._update((made * (1 / lambd)).cast(self.dtype))

    def bernoulli_(self, p: float = 0.5) -> Self:
        """Write 1 with probability `p`, else 0.

        Args:
            p: the probability.

        Returns this tensor, of the same shape and dtype.

        >>> Tensor([0.5, 0.5]).bernoulli_(1.0).tolist()
        [1.0, 1.0]
        """
        made = type(self).rand(*self._sizes, device=self.device) < p
        return self._update(made.cast(self.dtype))

    def log_normal_(self, mean: float = 1.0, std: float = 2.0) -> Self:
        """Write random numbers whose logarithm is normally distributed.

        Args:
            mean: mean of the logarithm.
            std: standard deviation of the logarithm.

        Returns this tensor, of the same shape and dtype.

        >>> Tensor.empty(2).log_normal_().shape
        (2,)
        """
        made = type(self).normal(*self._sizes, mean=mean, std=std, device=self.device)
        return self._update(made.exp().cast(self.dtype))

    def cauchy_(self, median: float = 0.0, sigma: float = 1.0) -> Self:
        """Write random numbers of Cauchy's distribution.

        Args:
            median: the middle.
            sigma: half the width at half the height.

        Returns this tensor.

        >>> Tensor.empty(2).cauchy_().shape
        (2,)
        """
        angle = (type(self).rand(*self._sizes, device=self.device) - 0.5) * math.pi
        return self._update((angle.tan() * sigma + median).cast(self.dtype))

    def geometric_(self, p: float) -> Self:
        """Write geometric random numbers: how many trials of probability `p` the first success
        takes, 1 or more.

        Args:
            p: the probability.

        Returns this tensor.

        >>> Tensor.empty(2).geometric_(0.5).shape
        (2,)
        """
        uniform = type(self).rand(*self._sizes, device=self.device)
        tries = (1 - uniform).log() * (1 / math.log1p(-p)) if p < 1 else uniform * 0
        return self._update(tries.ceil().clip(1).cast(self.dtype))

    def random_(self, low: int = 0, high: int | None = None) -> Self:
        """Write uniform random integers, low <= x < high.

        Args:
            low: least value; the only number is `high`, and the least value 0.
            high: end, not included; by default the largest value of the dtype, or for floats the
                largest up to which all whole numbers have a float.

        Returns this tensor.

        >>> Tensor([7, 7]).random_(1).tolist()
        [0, 0]
        """
        if high is None:
            whole = {"float16": 1 << 11, "bfloat16": 1 << 8, "float32": 1 << 24}
            limit = 1 << 31 if self.dtype.bits > 31 else 1 << (self.dtype.bits - 1)
            low, high = 0, low or whole.get(self.dtype.name, limit - 1)
        made = type(self).randint(*self._sizes, low=low, high=high, device=self.device)
        return self._update(made.cast(self.dtype))

    # Python's operators

    __iadd__ = _operator(operator.add)
    __isub__ = _operator(operator.sub)
    __imul__ = _operator(operator.mul)
    __itruediv__ = _operator(operator.truediv)
    __ifloordiv__ = _operator(operator.floordiv)
    __imod__ = _operator(operator.mod)
    __ipow__ = _operator(operator.pow)
    __imatmul__ = _operator(operator.matmul)
    __iand__ = _operator(operator.and_)
    __ior__ = _operator(operator.or_)
    __ixor__ = _operator(operator.xor)
    __ilshift__ = _operator(operator.lshift)
    __irshift__ = _operator(operator.rshift)
