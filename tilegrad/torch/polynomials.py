"""Orthogonal polynomials, by their recurrences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import ConfigError
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.expecting import no_tensor
from tilegrad.torch.made_tensors import tensor
from tilegrad.torch.naming import called
from tilegrad.torch.tensor import Tensor, as_ours

__all__ = [
    "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v",
    "chebyshev_polynomial_w", "hermite_polynomial_h", "hermite_polynomial_he",
    "laguerre_polynomial_l", "legendre_polynomial_p", "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
]  # fmt: skip

# The largest degree: each takes a step of the recurrence, and so nodes of the graph.
_LARGEST = 10_000


def _polynomial(
    name: str,
    first: Callable[[Any], Any],
    following: Callable[[Any, int, Any, Any], Any],
    of: Callable[[Any], Any] = lambda x: x,
) -> Any:
    """A function of x and degrees: from polynomials of degree 0, which is 1, and 1, each further
    one is `following(x, k, of degree k, of degree k - 1)`.
    """

    def polynomial(input: Any, n: Any) -> Tensor:
        if not isinstance(input, (OurTensor, int, float)):
            raise no_tensor(name, input)
        given = as_ours(input) if isinstance(input, OurTensor) else tensor(float(input))
        degrees = as_ours(n) if isinstance(n, OurTensor) else tensor(n)
        # Numbers that are not whole are rounded towards zero, as in PyTorch.
        degrees = degrees.cast(dtypes.int64) if degrees.dtype.is_float else degrees
        x = of(given if given.dtype.is_float else given.float())
        most = int(degrees.max().item()) if degrees.numel() else 0
        if most > _LARGEST:
            raise ConfigError(
                f"{name}: a degree of {most}", rule=f"at most {_LARGEST}: step by step"
            )
        shape = OurTensor.broadcast_shapes(x.shape, degrees.shape)
        before, now = x.ones_like(), first(x)
        total = x.zeros_like().expand(shape)
        for degree in range(most + 1):
            found = before if degree == 0 else now
            total = degrees.eq(degree).where(found, total)
            if degree:
                before, now = now, following(x, degree, now, before)
        made: Tensor = as_ours(total)
        return made

    polynomial.__doc__ = "The polynomial of each degree in `n` at `input`; 0 of a degree below 0."
    return called(polynomial, name)


def _twice(x: Any, k: int, now: Any, before: Any) -> Any:
    return 2 * x * now - before


_CHEBYSHEV: dict[str, Callable[[Any], Any]] = {
    "t": lambda x: x,
    "u": lambda x: 2 * x,
    "v": lambda x: 2 * x - 1,
    "w": lambda x: 2 * x + 1,
}
(chebyshev_polynomial_t, chebyshev_polynomial_u, chebyshev_polynomial_v, chebyshev_polynomial_w) = (
    _polynomial(f"chebyshev_polynomial_{kind}", first, _twice) for kind, first in _CHEBYSHEV.items()
)
(
    shifted_chebyshev_polynomial_t,
    shifted_chebyshev_polynomial_u,
    shifted_chebyshev_polynomial_v,
    shifted_chebyshev_polynomial_w,
) = (
    _polynomial(f"shifted_chebyshev_polynomial_{kind}", first, _twice, lambda x: 2 * x - 1)
    for kind, first in _CHEBYSHEV.items()
)
hermite_polynomial_h = _polynomial(
    "hermite_polynomial_h",
    lambda x: 2 * x,
    lambda x, k, now, before: 2 * x * now - 2 * k * before,
)
hermite_polynomial_he = _polynomial(
    "hermite_polynomial_he", lambda x: x, lambda x, k, now, before: x * now - k * before
)
laguerre_polynomial_l = _polynomial(
    "laguerre_polynomial_l",
    lambda x: 1 - x,
    lambda x, k, now, before: ((2 * k + 1 - x) * now - k * before) / (k + 1),
)
legendre_polynomial_p = _polynomial(
    "legendre_polynomial_p",
    lambda x: x,
    lambda x, k, now, before: ((2 * k + 1) * x * now - k * before) / (k + 1),
)
