"""More functions of complex numbers: those made of the ones in complex.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilegrad.torch.complex import Complex, as_complex, by_component
from tilegrad.torch.naming import called
from tilegrad.torch.tensor import Tensor, as_ours

__all__ = ["add_functions"]


def _nonzero(self: Complex) -> Tensor:
    found: Tensor = (self.real != 0) | (self.imag != 0)
    return found


def _reducing(name: str) -> Callable[..., Tensor]:
    def method(self: Complex, *args: Any, **options: Any) -> Tensor:
        found: Tensor = getattr(_nonzero(self), name)(*args, **options)
        return found

    method.__doc__ = getattr(Tensor, name).__doc__
    return called(method, name)


def _var(
    self: Complex,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Tensor:
    """The variance: the mean of squared distances from the mean, over one element less."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    less = correction if correction is not None else 1 if unbiased in (None, True) else 0
    squares = (self - self.mean(dim, True)).abs().square()
    axes = tuple(range(self.ndim)) if dim is None else dim
    total = squares.sum(axes, keepdim)
    named = axes if isinstance(axes, (tuple, list)) else (axes,)
    count = math.prod([self.shape[axis] for axis in named])
    return total / (count - less) if count > less else total * math.nan


def _std(self: Complex, *args: Any, **options: Any) -> Tensor:
    """The root of the variance."""
    return _var(self, *args, **options).sqrt()


def _isinf(self: Complex) -> Tensor:
    """Whether a part is infinite."""
    return self.real.isinf() | self.imag.isinf()


def _kron(self: Complex, other: Any) -> Complex:
    """The product of each element with each of another tensor's, in blocks."""
    right = as_complex(other)
    count = max(self.ndim, right.ndim)
    mine = (1,) * (count - self.ndim) + tuple(self.shape)
    others = (1,) * (count - right.ndim) + tuple(right.shape)
    # Each axis of this tensor before the same one of the other.
    left = self.reshape(*[size for each in mine for size in (each, 1)])
    blocks = left * right.reshape(*[size for each in others for size in (1, each)])
    return blocks.reshape(*[a * b for a, b in zip(mine, others, strict=True)])


def _log1p(self: Complex) -> Complex:
    """log(1 + z)."""
    x, y = self.real, self.imag
    is_small = (x.abs() < 0.5) & (y.abs() < 0.5)
    near, across = is_small.where(x, 0), is_small.where(y, 0)
    squares = (near * (2 + near) + across * across).log1p() / 2
    whole = (self + 1).log()
    return self._with(is_small.where(squares, whole.real), whole.imag)


def _expm1(self: Complex) -> Complex:
    """e to the power of z, less 1."""
    x, y = self.real, self.imag
    return self._with(x.expm1() * y.cos() - 2 * (y / 2).sin().square(), x.exp() * y.sin())


def _times_i(self: Complex) -> Complex:
    """i z."""
    return self._with(-self.imag, self.real)


def _over_i(self: Complex) -> Complex:
    """z / i."""
    return self._with(self.imag, -self.real)


# The inverses go through the roots of 1 - z and 1 + z, whose products lose no digits (Kahan, Branch
# Cuts for Complex Elementary Functions, 1987).


def _asin(self: Complex) -> Complex:
    """The inverse of `sin`."""
    a, b = (1 - self).sqrt(), (1 + self).sqrt()
    real = self.real.atan2(a.real * b.real - a.imag * b.imag)
    return self._with(real, (a.real * b.imag - a.imag * b.real).asinh())


def _acos(self: Complex) -> Complex:
    """The inverse of `cos`."""
    a, b = (1 - self).sqrt(), (1 + self).sqrt()
    real = a.real.atan2(b.real) * 2
    return self._with(real, (b.real * a.imag - b.imag * a.real).asinh())


def _acosh(self: Complex) -> Complex:
    """The inverse of `cosh`."""
    a, b = (self - 1).sqrt(), (self + 1).sqrt()
    imag = a.imag.atan2(b.real) * 2
    return self._with((a.real * b.real + a.imag * b.imag).asinh(), imag)


def _atanh(self: Complex) -> Complex:
    """The inverse of `tanh`."""
    x, y = self.real, self.imag
    is_left = x < 0
    size = is_left.where(-x, x)
    distance = (1 - size).hypot(y)
    # Not its square, which may leave the dtype.
    half = (4 * size / distance / distance).log1p() / 4
    return self._with(is_left.where(-half, half), (2 * y).atan2((1 - x) * (1 + x) - y * y) / 2)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "kron": _kron,
    "any": _reducing("any"),
    "all": _reducing("all"),
    "count_nonzero": _reducing("count_nonzero"),
    "nonzero": _reducing("nonzero"),
    "logical_not": lambda self: _nonzero(self).logical_not(),
    "logical_and": lambda self, other: _nonzero(self) & _nonzero(as_complex(other)),
    "logical_or": lambda self, other: _nonzero(self) | _nonzero(as_complex(other)),
    "var": _var,
    "std": _std,
    "isinf": _isinf,
    "isreal": lambda self: self.imag == 0,
    "log2": lambda self: self.log() / math.log(2),
    "log10": lambda self: self.log() / math.log(10),
    "log1p": _log1p,
    "expm1": _expm1,
    "exp2": lambda self: (self * math.log(2)).exp(),
    "rsqrt": lambda self: self.sqrt().reciprocal(),
    "sigmoid": lambda self: (1 + (-self).exp()).reciprocal(),
    "tan": lambda self: _over_i(_times_i(self).tanh()),
    "asin": _asin,
    "acos": _acos,
    "atan": lambda self: _over_i(_atanh(_times_i(self))),
    "asinh": lambda self: _over_i(_asin(_times_i(self))),
    "acosh": _acosh,
    "atanh": _atanh,
    "positive": lambda self: self,
    "conj_physical": lambda self: self.conj(),
    "resolve_conj": lambda self: self,
    "resolve_neg": lambda self: self,
    "is_conj": lambda self: False,
    "is_neg": lambda self: False,
    "mv": lambda self, vec: self @ vec,
    "addmm": lambda self, mat1, mat2, *, beta=1, alpha=1: (
        self * beta + (as_complex(mat1) @ mat2) * alpha
    ),
    "addcmul": lambda self, tensor1, tensor2, *, value=1: (
        self + as_complex(tensor1) * tensor2 * value
    ),
    "lerp": lambda self, end, weight: self + (as_complex(end) - self) * weight,
    "ravel": lambda self: self.flatten(),
    "where": lambda self, condition, other: Complex(
        as_ours(condition).unsqueeze(-1).where(self.pair, as_complex(other).pair)
    ),
    "masked_fill": lambda self, mask, value: Complex(
        as_ours(mask).unsqueeze(-1).where(self._beside(value).pair.to(self.pair.dtype), self.pair)
    ),
    "double": lambda self: self.cdouble(),
    "float": lambda self: self.real,
    "expand_as": lambda self, other: self.expand(*other.shape),
    "view_as": lambda self, other: self.reshape(*other.shape),
    "reshape_as": lambda self, other: self.reshape(*other.shape),
}

_LINEAR = (
    "combinations", "diag_embed", "diagflat", "diff", "dsplit", "fliplr", "flipud", "hsplit", "put",
    "rot90", "take_along_dim", "vsplit",
)  # fmt: skip


def add_functions() -> None:
    """Give complex tensors the methods of this file."""
    for name, function in _FUNCTIONS.items():
        setattr(Complex, name, called(function, name))
    for name in _LINEAR:
        setattr(Complex, name, by_component(name))
