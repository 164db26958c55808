"""Distributions of angles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilegrad.nn.distributions.distribution import Distribution, together, uniform
from tilegrad.tensor.tensor import Tensor

__all__ = ["VonMises"]

# At most 0.35 of the proposals below are refused, so all of these are in one of 10^8 draws.
_PROPOSALS = 18


class VonMises(Distribution):
    """Von Mises distribution of angles: density exp(k cos(x - loc)) / (2 pi I0(k)) on -pi..pi.
    Draws have no gradient.

    Args:
        loc: the middle, an angle in radians.
        concentration: k, positive.

    Shape: parameters broadcast to the batch, events are numbers; float.

    >>> round(nn.distributions.VonMises(0.0, 1.0).log_prob(Tensor(0.0)).item(), 4)
    -1.0738
    """

    def __init__(self, loc: Any, concentration: Any):
        self.loc, self.concentration = together(loc, concentration)
        super().__init__(self.loc.shape)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self.loc

    @property
    def mode(self) -> Tensor:
        """The likeliest value."""
        return self.loc

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        """The circular variance: 1 less the mean of cos(x - loc)."""
        return 1 - self.concentration.i1e() / self.concentration.i0e()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws: for each one of some proposals that is accepted (Best and Fisher, "Efficient
        simulation of the von Mises distribution", 1979).
        """
        shape = self._shape(sample_shape)
        k = self.concentration.detach().expand(*shape)
        tau = 1 + (1 + 4 * k.square()).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * k)
        # Below, rho is a difference of nearly equal numbers.
        is_flat = k < 1e-2
        ratio = is_flat.where(1 / k + k, (1 + rho.square()) / (2 * rho))
        angles = uniform((_PROPOSALS, *shape), k).contiguous()
        chances = uniform((_PROPOSALS, *shape), k).clip(2**-25).contiguous()
        cosine = k * 0
        for share, chance in zip(angles.unbind(0), chances.unbind(0)):
            z = (share * math.pi).cos()
            proposed = (1 + ratio * z) / (ratio + z)
            c = k * (ratio - proposed)
            is_taken = (c * (2 - c) > chance) | ((c / chance).log() + 1 - c >= 0)
            cosine = is_taken.where(proposed, cosine)
        side = (uniform(shape, k) < 0.5).where(-1.0, 1.0)
        angle = side * cosine.clip(-1, 1).acos() + self.loc.detach()
        shifted = angle + math.pi
        return (angle - 2 * math.pi * (shifted / (2 * math.pi)).floor()).detach()

    def log_prob(self, value: Tensor) -> Tensor:
        k = self.concentration
        # cos(x) - 1 without the loss of digits near 0.
        apart = -2 * ((value - self.loc) / 2).sin().square()
        return k * apart - math.log(2 * math.pi) - k.i0e().log()
