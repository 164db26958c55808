"""More functions of complex numbers: exponentials and their sums, statistics, products with
weights, and the methods of real tensors whose formula holds for complex numbers as it stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilegrad.base.errors import ShapeError, UnsupportedDTypeError
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.complex import Complex, as_complex
from tilegrad.torch.complex_families import bilinear, linear
from tilegrad.torch.naming import called
from tilegrad.torch.tensor import Tensor, as_ours

__all__ = ["add_formulas"]

# Formulas of real tensors in other methods, which complex numbers have as well.
_ALIKE = (
    "_trapezoids", "cumulative_trapezoid", "renorm", "trapezoid", "trapz",
)  # fmt: skip


def _largest(self: Complex, axes: Any) -> Tensor:
    """The largest real part, which keeps exponentials finite; 0 where that is infinite."""
    found = self.real.detach()
    most = found.amax(axes, True) if found.numel() else found.sum(axes, True)
    limited: Tensor = most.isfinite().where(most, 0)
    return limited


def _logsumexp(self: Complex, dim: Any, keepdim: bool = False) -> Complex:
    """The logarithm of the sum of exponentials over axes."""
    if not self.ndim:
        return _logsumexp(self.reshape(1), 0)
    axes = self._axes(dim)
    most = _largest(self, axes)
    found: Complex = (self - most).exp().sum(axes, True).log() + most
    if keepdim:
        return found
    return found.squeeze(axes)


def _logaddexp(self: Complex, other: Any) -> Complex:
    """The logarithm of the sum of two exponentials."""
    right = as_complex(other)
    is_less = self.real.detach() < right.real.detach()
    most, least = right.where(is_less, self), self.where(is_less, right)
    found: Complex = most + (least - most).exp().log1p()
    return found


def _logcumsumexp(self: Complex, dim: int) -> Complex:
    """The logarithms of running sums of exponentials, one after the other."""
    return _running(self, dim, _logaddexp)


def _cumprod(self: Complex, dim: int, *, dtype: Any = None) -> Complex:
    """The running products, one after the other."""
    given = self if dtype is None else self.to(dtype)
    return _running(given, dim, lambda total, factor: total * factor)


def _running(self: Complex, dim: int, step: Callable[[Any, Any], Any]) -> Complex:
    if not self.ndim or not self.numel():
        return self.clone()
    axis = self._axis(dim)
    total, found = None, []
    for each in self.unbind(axis):
        total = each if total is None else step(total, each)
        found.append(total.pair)
    return Complex(found[0].stack(*found[1:], dim=axis))


def _of_real_dtype(name: str) -> Callable[..., Any]:
    """A softmax, which PyTorch has of the real parts alone: those that a real dtype leaves."""

    def method(self: Complex, dim: int, dtype: Any = None) -> Any:
        if dtype is None or dtype.is_complex:
            raise UnsupportedDTypeError(
                f"{name}: not for complex numbers",
                remedy="z.abs() is real, and dtype=torch.float32 takes the real parts",
            )
        return getattr(self.to(dtype), name)(dim)

    return called(method, name)


def _sinc(self: Complex) -> Complex:
    """sin(pi z) / (pi z), and 1 at 0."""
    is_zero = (self.real == 0) & (self.imag == 0)
    angle = self.masked_fill(is_zero, 1) * math.pi
    found: Complex = (angle.sin() / angle).masked_fill(is_zero, 1)
    return found


def _normalize(self: Complex, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Complex:
    """Divided by the norm along an axis."""
    return self / self.norm(p, dim, True).maximum(eps)


def _cov(
    self: Complex, *, correction: int = 1, fweights: Any = None, aweights: Any = None
) -> Complex:
    """The covariances of the rows, each a variable; those with themselves are real."""
    if self.ndim > 2:
        raise ShapeError(f"cov: a matrix is needed, not {tuple(self.shape)}")
    rows = self if self.ndim == 2 else self.reshape(1, -1)
    often = rows.real.ones_like()[0] if fweights is None else fweights.to(self.pair.dtype)
    share = often if aweights is None else often * aweights.to(self.pair.dtype)
    total = share.sum()
    extra = total if aweights is None else (share * aweights.to(self.pair.dtype)).sum()
    free = total - correction * extra / total
    apart = rows - (rows * share).sum(-1, True) / total
    found: Complex = (apart @ (apart * share).mH) / free.maximum(0)
    return found.reshape(()) if len(rows) == 1 else found


def _corrcoef(self: Complex) -> Complex:
    """The correlation coefficients of the rows."""
    found = _cov(self)
    if not found.ndim:
        return found / found
    deviation = found.diagonal().real.sqrt()
    scaled = found / deviation.unsqueeze(0) / deviation.unsqueeze(1)
    return Complex(scaled.pair.clip(-1, 1))


def _vander(self: Complex, N: int | None = None, *, increasing: bool = False) -> Complex:
    """The powers of each element as a row."""
    count = self.shape[-1] if N is None else N
    column = self.unsqueeze(-1)
    one = Complex(column.pair.zeros_like()) + 1
    joined = [one.pair, *[column.pair] * (count - 1)]
    made = _cumprod(Complex(joined[0].cat(*joined[1:], dim=-2)), -1)
    if count < 1:
        return Complex(made.pair.narrow(-2, 0, 0))
    return made if increasing else made.flip(-1)


def _pad(self: Complex, padding: Any, mode: str = "constant", value: Any = 0.0) -> Complex:
    """With elements added around, as those of real tensors; `value` may be complex."""
    made: Complex = linear("pad", Tensor.pad, Complex)(self, padding, mode, value=complex(value))
    return made


def _dropout(self: Complex, *args: Any, **options: Any) -> Complex:
    """With some numbers set to 0, both parts of each."""
    return self * self.real.detach().ones_like().dropout(*args, **options)


def _as_strided(self: Complex, size: Any, stride: Any, storage_offset: Any = None) -> Complex:
    """The numbers of this tensor's memory at other strides."""
    start = None if storage_offset is None else 2 * storage_offset
    steps = [2 * each for each in stride]
    return Complex(self.pair.as_strided((*size, 2), (*steps, 1), start))


def _cat(self: Complex, *others: Any, dim: int = 0) -> Complex:
    """With other tensors after this one along an axis."""
    first, *rest = [as_complex(each) for each in (self, *others)]
    return Complex(first.pair.cat(*[each.pair for each in rest], dim=first._axis(dim)))


def _stack(self: Complex, *others: Any, dim: int = 0) -> Complex:
    """With other tensors of this shape along a new axis."""
    return _cat(*[as_complex(each).unsqueeze(dim) for each in (self, *others)], dim=dim)


def _converted(name: str) -> Callable[..., Any]:
    """The real parts in another dtype, as in PyTorch."""

    def method(self: Complex, memory_format: Any = None) -> Any:
        return getattr(self.real, name)()

    method.__doc__ = f"The real parts, in the dtype of `{name}`."
    return called(method, name)


def _inner(self: Complex, other: Any) -> Complex:
    """The sums of products along the last axes of both."""
    right = as_complex(other)
    if not self.ndim or not right.ndim:
        return self * right
    return self.tensordot(right, ([-1], [-1]))  # type: ignore[no-any-return]


def _default_cross(self: Complex, other: Any, dim: int | None = None) -> Complex:
    """The cross product, along the first axis of size 3 unless another is named."""
    if dim is None:
        dim = next((axis for axis, size in enumerate(self.shape) if size == 3), -1)
    made: Complex = bilinear("cross", OurTensor.cross, Complex)(self, other, dim)
    return made


def _nonzero_static(self: Complex, *, size: int, fill_value: int = -1) -> Tensor:
    """The indices of the elements other than 0, `size` of them."""
    is_there = (self.real != 0) | (self.imag != 0)
    found: Tensor = is_there.nonzero_static(size=size, fill_value=fill_value)
    return found


_FORMULAS: dict[str, Callable[..., Any]] = {
    "logsumexp": _logsumexp,
    "logaddexp": _logaddexp,
    "logcumsumexp": _logcumsumexp,
    "cumprod": _cumprod,
    "softmax": _of_real_dtype("softmax"),
    "log_softmax": _of_real_dtype("log_softmax"),
    "silu": lambda self: self * self.sigmoid(),
    "softsign": lambda self: self / (self.abs() + 1),
    "sinc": _sinc,
    "ldexp": lambda self, other: self * 2.0 ** as_ours(other),
    "normalize": _normalize,
    "cov": _cov,
    "corrcoef": _corrcoef,
    "vander": _vander,
    "pad": _pad,
    "dropout": _dropout,
    "as_strided": _as_strided,
    "cat": _cat,
    "stack": _stack,
    "inner": _inner,
    "cross": _default_cross,
    "vecdot": lambda self, other, dim=-1: (self.conj() * other).sum(dim),
    "nonzero_static": _nonzero_static,
    "cast": lambda self, dtype: self.to(dtype),
    "l1_loss": lambda self, target, reduction="mean": (
        (self - target).abs().l1_loss(0.0, reduction=reduction)
    ),
    "_copy_of": lambda self, made: made.clone() if made is self else made,
    "_floating": lambda self: self,
    "_has_elements": lambda self: self.numel() != 0,
    "_slice": lambda self, axis, start, stop: self.narrow(axis, start, stop - start),
    "const_like": lambda self, value: Complex(self.pair.zeros_like()) + value,
    "zeros_like": lambda self, **options: Complex(self.pair.zeros_like()),
    "ones_like": lambda self, **options: Complex(self.pair.zeros_like()) + 1,
}


def add_formulas() -> None:
    """Give complex tensors the methods of this file."""
    for name in _ALIKE:
        setattr(Complex, name, getattr(OurTensor, name))
    for name in ("conv2d", "conv_transpose2d", "linear", "tensordot"):
        setattr(Complex, name, bilinear(name, getattr(OurTensor, name), Complex))
    for name in ("byte", "char", "short", "int", "long", "half", "bfloat16"):
        setattr(Complex, name, _converted(name))
    for name, function in _FORMULAS.items():
        setattr(Complex, name, called(function, name))
