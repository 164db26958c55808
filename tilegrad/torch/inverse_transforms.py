"""The inverse of a transform of distributions, which is a transform too."""

from __future__ import annotations

from typing import Any

from tilegrad.nn import distributions as ours
from tilegrad.nn.distributions.transforms import Alike
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.made_tensors import tensor
from tilegrad.torch.tensor import as_ours, with_ours

__all__ = ["Invertible", "argument_of"]


def argument_of(value: Any, dtype: Any = None) -> Any:
    """A number as a tensor, which decides the class of the draws."""
    if isinstance(value, OurTensor):
        return as_ours(value)
    return tensor(float(value), dtype=dtype) if isinstance(value, (int, float)) else value


class Invertible(Alike):
    """Transforms with an inverse that is a transform, too, beside tilegrad's methods."""

    bijective = True

    @property
    def inv(self) -> Any:
        """The inverse, a transform."""
        return Inverse(self)


class Inverse(Invertible):
    """The inverse of a transform."""

    def __init__(self, made_of: Any):
        self._made_of = made_of

    @property
    def inv(self) -> Any:
        """The transform that this one undoes."""
        return self._made_of

    @property
    def sign(self) -> Any:
        """1 where it rises, -1 where it falls."""
        return self._made_of.sign

    @property
    def bijective(self) -> Any:  # type: ignore[override]  # of the other transform
        """Whether each value is made of one."""
        return self._made_of.bijective

    @property
    def domain(self) -> Any:
        """The values that are taken."""
        return self._made_of.codomain

    @property
    def codomain(self) -> Any:
        """The values that are given."""
        return self._made_of.domain

    def __call__(self, y: Any) -> Any:
        found = ours.Transform.inv(self._made_of, argument_of(y))
        return with_ours(found)

    _call = __call__

    def _inverse(self, x: Any) -> Any:
        return self._made_of(x)

    def event_dims(self) -> tuple[int, int]:
        """The number of axes of an event, before and after the transform."""
        taken, given = self._made_of.event_dims()
        return given, taken

    def forward_shape(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """The shape of results for tensors of a shape."""
        return shape

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """log |dy/dx|."""
        return -self._made_of.log_abs_det_jacobian(y, x)

    def __repr__(self) -> str:
        return f"_InverseTransform({self._made_of!r})"
