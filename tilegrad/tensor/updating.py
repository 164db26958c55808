"""Methods that end in an underscore: the tensor takes the result, by `assign`.

They follow the order that assignment follows: a tensor computed before sees the old value, one made
after the new one. The tensor keeps its shape and its dtype.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Self

from tilegrad.tensor.assignment import Assignment

__all__ = ["Updating"]


def _takes(method: Callable[..., Any]) -> Callable[..., Any]:
    """`method`, whose result its own tensor takes."""
    name = method.__name__ + "_"

    @functools.wraps(method)
    def take(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.assign(method(self, *args, **kwargs))

    renamed: Any = take
    renamed.__name__, renamed.__qualname__ = name, f"Updating.{name}"
    renamed.__code__ = renamed.__code__.replace(co_name=name, co_qualname=renamed.__qualname__)
    renamed.__doc__ = f"As `{method.__name__}`; the result is this tensor's value from now on."
    return take


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

    def fill_(self, value: Any) -> Self:
        """Be `value` everywhere.

        >>> Tensor([1, 2]).fill_(7).tolist()
        [7, 7]
        """
        return self.assign(self.full_like(value))

    def zero_(self) -> Self:
        """Be 0 everywhere.

        >>> Tensor([1, 2]).zero_().tolist()
        [0, 0]
        """
        return self.fill_(0)

    def copy_(self, source: Any) -> Self:
        """Take the values of `source`, broadcast to this shape and cast to this dtype.

        Raises ShapeError if it does not broadcast.

        >>> Tensor([1.0, 2.0]).copy_(Tensor([3])).tolist()
        [3.0, 3.0]
        """
        kind: Any = type(self)
        other: Self = source if isinstance(source, kind) else kind(source, device=self.device)
        moved = other.to(self.device).cast(self.dtype)
        return self.assign(moved.expand(self.shape))

    def fill_diagonal_(self, value: Any) -> Self:
        """Be `value` on the diagonal of a matrix.

        >>> Tensor([[1, 2], [3, 4]]).fill_diagonal_(0).tolist()
        [[0, 2], [3, 0]]
        """
        rows, columns = self._sizes
        places = type(self).eye(rows, columns, dtype="bool", device=self.device)
        return self.assign(places.where(value, self))

    def uniform_(self, low: float = 0.0, high: float = 1.0) -> Self:
        """Random numbers, uniform in low..high.

        >>> Tensor.empty(2).uniform_().shape
        (2,)
        """
        made = type(self).uniform(*self._sizes, low=low, high=high, device=self.device)
        return self.assign(made.cast(self.dtype))

    def normal_(self, mean: float = 0.0, std: float = 1.0) -> Self:
        """Normally distributed random numbers.

        >>> Tensor.empty(2).normal_().shape
        (2,)
        """
        made = type(self).normal(*self._sizes, mean=mean, std=std, device=self.device)
        return self.assign(made.cast(self.dtype))

    def exponential_(self, lambd: float = 1.0) -> Self:
        """Exponentially distributed random numbers of the rate `lambd`.

        >>> Tensor.empty(2).exponential_().shape
        (2,)
        """
        made = type(self).exponential(*self._sizes, device=self.device)
        return self.assign((made * (1 / lambd)).cast(self.dtype))

    def bernoulli_(self, p: float = 0.5) -> Self:
        """1 with probability `p`, else 0.

        >>> Tensor([0.5, 0.5]).bernoulli_(1.0).tolist()
        [1.0, 1.0]
        """
        made = type(self).rand(*self._sizes, device=self.device) < p
        return self.assign(made.cast(self.dtype))
