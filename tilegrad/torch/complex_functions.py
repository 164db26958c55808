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
    found: Tensor = total / (count - less) if count > less else total * math.nan
    return found


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
    made: Complex = blocks.reshape(*[a * b for a, b in zip(mine, others, strict=True)])
    return made


def _log1p(self: Complex) -> Complex:
    """log(1 + z)."""
    return (self + 1).log()


def _asin(self: Complex) -> Complex:
    """The inverse of `sin`: -i log(iz + sqrt(1 - z*z))."""
    return (1j * self + (1 - self * self).sqrt()).log() * -1j


def _atanh(self: Complex) -> Complex:
    """The inverse of `tanh`."""
    return ((1 + self).log() - (1 - self).log()) * 0.5


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
    "expm1": lambda self: self.exp() - 1,
    "exp2": lambda self: (self * math.log(2)).exp(),
    "rsqrt": lambda self: self.sqrt().reciprocal(),
    "sigmoid": lambda self: (1 + (-self).exp()).reciprocal(),
    "tan": lambda self: self.sin() / self.cos(),
    "asin": _asin,
    "acos": lambda self: -_asin(self) + math.pi / 2,
    "atan": lambda self: _atanh(1j * self) * -1j,
    "asinh": lambda self: _asin(1j * self) * -1j,
    "acosh": lambda self: (self + (self + 1).sqrt() * (self - 1).sqrt()).log(),
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
