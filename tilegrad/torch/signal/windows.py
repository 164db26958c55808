"""`torch.signal.windows`: filter windows of `M` elements, symmetric, or with `sym=False` one period
of a periodic one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy
import numpy.typing

from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.configuration import get_default_dtype
from tilegrad.torch.made_tensors import tensor
from tilegrad.torch.tensor import Tensor

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine",
    "general_hamming", "hamming", "hann", "kaiser", "nuttall",
]  # fmt: skip

Array = numpy.typing.NDArray[numpy.float64]


def _made(values: Callable[..., Array]) -> Callable[..., Tensor]:
    """The function of the number of elements; `values` gives them for the positions 0, 1, ... and
    the distance of the ends.

    Raises ValueError for a negative number of elements.
    """

    @functools.wraps(values)
    def make(
        M: int,
        *,
        sym: bool = True,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        **options: Any,
    ) -> Tensor:
        if M < 0:
            raise ValueError(f"{values.__name__}: M must be at least 0, it is {M}")
        span = max(M - 1 if sym else M, 1)
        found = values(numpy.arange(M, dtype=numpy.float64), span, **options)
        kind = dtype or get_default_dtype()
        ones = numpy.ones(M) if M == 1 else found
        return tensor(ones, dtype=kind, device=device, requires_grad=requires_grad)

    return make


@_made
def general_cosine(at: Array, span: int, *, a: Iterable[float]) -> Array:
    """A sum of cosines with the coefficients `a`, whose signs alternate."""
    terms = enumerate(a)
    found = [(-1) ** k * c * numpy.cos(2 * math.pi * k * at / span) for k, c in terms]
    return numpy.sum(found, axis=0)  # type: ignore[no-any-return]


@_made
def general_hamming(at: Array, span: int, *, alpha: float = 0.54) -> Array:
    """alpha - (1 - alpha) cos(2 pi n / span)."""
    return alpha - (1 - alpha) * numpy.cos(2 * math.pi * at / span)


@_made
def hamming(at: Array, span: int) -> Array:
    """0.54 - 0.46 cos(2 pi n / span)."""
    return 0.54 - 0.46 * numpy.cos(2 * math.pi * at / span)


@_made
def hann(at: Array, span: int) -> Array:
    """sin(pi n / span)^2."""
    return 0.5 - 0.5 * numpy.cos(2 * math.pi * at / span)


@_made
def blackman(at: Array, span: int) -> Array:
    """0.42 - 0.5 cos(2 pi n / span) + 0.08 cos(4 pi n / span)."""
    x = 2 * math.pi * at / span
    return 0.42 - 0.5 * numpy.cos(x) + 0.08 * numpy.cos(2 * x)


@_made
def nuttall(at: Array, span: int) -> Array:
    """Four cosines whose sum has three derivatives of 0 at the ends (Nuttall 1981)."""
    x = 2 * math.pi * at / span
    third = 0.1365995 * numpy.cos(2 * x) - 0.0106411 * numpy.cos(3 * x)
    return 0.3635819 - 0.4891775 * numpy.cos(x) + third


@_made
def bartlett(at: Array, span: int) -> Array:
    """1 - |2 n / span - 1|, a triangle."""
    return 1 - abs(2 * at / span - 1)


@_made
def cosine(at: Array, span: int) -> Array:
    """sin(pi (n + 1/2) / (span + 1)), half a wave."""
    return numpy.sin(math.pi * (at + 0.5) / (span + 1))


@_made
def exponential(at: Array, span: int, *, center: float | None = None, tau: float = 1.0) -> Array:
    """exp(-|n - center| / tau); the center is by default the middle."""
    middle = span / 2 if center is None else center
    return numpy.exp(-abs(at - middle) / tau)


@_made
def gaussian(at: Array, span: int, *, std: float = 1.0) -> Array:
    """exp(-((n - middle) / std)^2 / 2)."""
    return numpy.exp(-0.5 * ((at - span / 2) / std) ** 2)


@_made
def kaiser(at: Array, span: int, *, beta: float = 12.0) -> Array:
    """I0(beta sqrt(1 - (2 n / span - 1)^2)) / I0(beta)."""
    inside = numpy.maximum(1 - (2 * at / span - 1) ** 2, 0)
    return numpy.i0(beta * numpy.sqrt(inside)) / numpy.i0(beta)


refuse_others(__name__)
