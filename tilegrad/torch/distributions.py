"""`torch.distributions`: tilegrad's distributions, whose draws are tensors of `torch`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from tilegrad.nn import distributions as ours
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.absent import absent
from tilegrad.torch.creation import tensor
from tilegrad.torch.sizes import Size
from tilegrad.torch.tensor import Tensor, as_ours, with_ours

if TYPE_CHECKING:
    from tilegrad.nn.distributions import Bernoulli as Bernoulli
    from tilegrad.nn.distributions import Categorical as Categorical
    from tilegrad.nn.distributions import Distribution as Distribution
    from tilegrad.nn.distributions import Exponential as Exponential
    from tilegrad.nn.distributions import Independent as Independent
    from tilegrad.nn.distributions import Laplace as Laplace
    from tilegrad.nn.distributions import LogNormal as LogNormal
    from tilegrad.nn.distributions import MultivariateNormal as MultivariateNormal
    from tilegrad.nn.distributions import Normal as Normal
    from tilegrad.nn.distributions import Uniform as Uniform
else:
    Distribution = ours.Distribution

__all__ = [
    "Bernoulli", "Categorical", "Distribution", "Exponential", "Independent", "Laplace",
    "LogNormal", "MultivariateNormal", "Normal", "Uniform", "kl_divergence",
]  # fmt: skip

_METHODS = ("sample", "rsample", "log_prob", "entropy", "cdf", "icdf")
_VALUES = ("mean", "variance", "stddev", "mode", "covariance_matrix")


def _argument(value: Any) -> Any:
    """A number as a tensor, which decides the class of what is drawn."""
    if isinstance(value, OurTensor):
        return as_ours(value)
    return tensor(float(value)) if isinstance(value, (int, float)) else value


def _made(kind: type) -> type:
    """A distribution of tilegrad's with tensors of `torch`."""
    make: Any = vars(kind).get("__init__", kind.__init__)  # type: ignore[misc]

    def __init__(self: Any, *args: Any, validate_args: Any = None, **options: Any) -> None:
        named = {name: _argument(value) for name, value in options.items()}
        if kind is ours.Independent:
            make(self, *args, **options)
        else:
            make(self, *map(_argument, args), **named)
        self.batch_shape, self.event_shape = Size(self.batch_shape), Size(self.event_shape)

    space: dict[str, Any] = {
        "__init__": __init__, "__doc__": kind.__doc__, "__module__": __name__,
    }  # fmt: skip
    for name in _METHODS:
        if hasattr(kind, name):
            space[name] = _given(getattr(kind, name))
    for name in _VALUES:
        found = getattr(kind, name, None)
        if isinstance(found, property):
            space[name] = property(_given(found.fget))
    made = type(kind.__name__, (kind,), space)
    if kind in ours._DIVERGENCES:
        ours._DIVERGENCES[made] = ours._DIVERGENCES[kind]
    return made


def _given(function: Any) -> Any:
    @functools.wraps(function)
    def give(self: Any, *args: Any, **options: Any) -> Any:
        named = {name: _argument(value) for name, value in options.items()}
        return with_ours(function(self, *map(_argument, args), **named))

    return give


def kl_divergence(p: Any, q: Any) -> Tensor:
    """The mean of log p - log q over draws of p."""
    found: Tensor = as_ours(ours.kl_divergence(p, q))
    return found


if not TYPE_CHECKING:
    globals().update(
        {
            name: _made(getattr(ours, name))
            for name in ours.__all__
            if name not in ("Distribution", "kl_divergence")
        }
    )
    kl = type("kl", (), {"kl_divergence": staticmethod(kl_divergence)})

    def __getattr__(name: str) -> Any:
        raise AttributeError(absent("torch.distributions", name, __all__), name=name)
