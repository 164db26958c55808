"""Functions of `torch` that take complex numbers too."""

from __future__ import annotations

from typing import Any

from tilegrad.torch import functions
from tilegrad.torch.complex import Complex, make
from tilegrad.torch.complex import einsum as complex_einsum
from tilegrad.torch.tensor import as_ours

__all__ = [
    "abs", "absolute", "angle", "complex", "conj", "einsum", "exp", "imag", "is_complex", "mean",
    "real", "sum",
]  # fmt: skip


def _own(input: Any) -> Any:
    return input if isinstance(input, Complex) else as_ours(input)


def abs(input: Any) -> Any:
    """The magnitude of each."""
    return _own(input).abs()


absolute = abs


def exp(input: Any) -> Any:
    """e to the power of each."""
    return _own(input).exp()


def sum(input: Any, *args: Any, **options: Any) -> Any:
    """The sum over axes."""
    return _own(input).sum(*args, **options)


def mean(input: Any, *args: Any, **options: Any) -> Any:
    """The mean over axes."""
    return _own(input).mean(*args, **options)


def is_complex(input: Any) -> bool:
    """Whether the numbers are complex."""
    return isinstance(input, Complex)


def complex(real: Any, imag: Any) -> Complex:
    """The complex numbers of real and imaginary parts."""
    return make(real, imag)


def real(input: Any) -> Any:
    """The real parts."""
    return input.real if isinstance(input, Complex) else input


def imag(input: Complex) -> Any:
    """The imaginary parts."""
    return input.imag


def conj(input: Any) -> Any:
    """With the sign of the imaginary parts changed."""
    return input.conj() if isinstance(input, Complex) else input


def angle(input: Any) -> Any:
    """The angle to the real axis: of real numbers 0 or pi."""
    if isinstance(input, Complex):
        return input.angle()
    return as_ours(input).zeros_like().atan2(as_ours(input))


def einsum(equation: str, *operands: Any) -> Any:
    """The sum of products that Einstein's notation names."""
    given = operands[0] if len(operands) == 1 and isinstance(operands[0], list) else operands
    if any(isinstance(each, Complex) for each in given):
        return complex_einsum(equation, *given)
    return functions.einsum(equation, *given)
