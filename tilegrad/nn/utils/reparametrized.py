"""Weight and spectral normalisation under the names that older models have in their files:
`weight_g` and `weight_v`; `weight_orig`, `weight_u` and `weight_v`.
"""

from __future__ import annotations

from typing import Any

from tilegrad.base.errors import ConfigError
from tilegrad.nn.utils.parametrizations import SpectralNorm, length
from tilegrad.nn.utils.parametrize import _tensor, computed, stored

__all__ = ["remove_spectral_norm", "remove_weight_norm", "spectral_norm", "weight_norm"]


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Train length and direction of a weight apart (Salimans and Kingma 2016, arXiv:1602.07868): as
    `parametrizations.weight_norm`, with the length as `weight_g` and the direction as `weight_v`.

    Args:
        module: the layer.
        name: name of the weight.
        dim: the axis along which each slice has a length; None for one length.

    Returns `module`; `weight_v` has the shape and dtype of the weight, `weight_g` the dtype, and
    size 1 beside `dim`.

    Raises ConfigError for a name that the module has not.

    >>> layer = nn.utils.weight_norm(nn.Linear(2, 3))
    >>> list(layer.state_dict()), layer.weight.shape
    (['bias', 'weight_g', 'weight_v'], (3, 2))
    """
    weight = _tensor("weight_norm", module, name)
    setattr(module, f"{name}_g", length(weight, dim).detach().clone().requires_grad_())
    setattr(module, f"{name}_v", weight.detach().clone().requires_grad_())

    def made(self: Any) -> Any:
        v = getattr(self, f"{name}_v")
        return v * (getattr(self, f"{name}_g") / length(v, dim))

    computed(module, name, made)
    return module


def remove_weight_norm(module: Any, name: str = "weight") -> Any:
    """Store the weight itself again.

    Args:
        module: the layer.
        name: name of the weight.

    Returns `module`.

    Raises ConfigError where it is not normed.

    >>> layer = nn.utils.remove_weight_norm(nn.utils.weight_norm(nn.Linear(2, 3)))
    >>> list(layer.state_dict())
    ['bias', 'weight']
    """
    return _removed("remove_weight_norm", module, name, ("_g", "_v"))


def spectral_norm(
    module: Any,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Any:
    """Divide a weight by its largest singular value (Miyato et al. 2018, arXiv:1802.05957): as
    `parametrizations.spectral_norm`, with the trained weight as `weight_orig`, the vectors of the
    power iteration as `weight_u` and `weight_v`.

    Args:
        module: the layer.
        name: name of the weight.
        n_power_iterations: iterations in a training step.
        eps: least norm of the vectors.
        dim: the axis of the rows.

    Returns `module`; `weight_orig` has the shape and dtype of the weight.

    Raises ConfigError for a name that the module has not.

    >>> layer = nn.utils.spectral_norm(nn.Linear(2, 3))
    >>> list(layer.state_dict())
    ['bias', 'weight_orig', 'weight_u', 'weight_v']
    """
    weight = _tensor("spectral_norm", module, name)
    axis = dim if dim is not None else int("Transpose" in type(module).__name__)
    norm = SpectralNorm(weight, n_power_iterations, eps, axis)
    setattr(module, f"{name}_orig", weight.detach().clone().requires_grad_())
    module.register_buffer(f"{name}_u", norm._u)
    module.register_buffer(f"{name}_v", norm._v)

    def made(self: Any) -> Any:
        step = SpectralNorm.__new__(SpectralNorm)
        step.n_power_iterations, step.eps, step.dim = n_power_iterations, eps, axis
        step._u, step._v = getattr(self, f"{name}_u"), getattr(self, f"{name}_v")
        step._mode = self._mode
        return step(getattr(self, f"{name}_orig"))

    computed(module, name, made)
    return module


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """Store the weight itself again.

    Args:
        module: the layer.
        name: name of the weight.

    Returns `module`.

    Raises ConfigError where it is not normed.

    >>> layer = nn.utils.remove_spectral_norm(nn.utils.spectral_norm(nn.Linear(2, 3)))
    >>> list(layer.state_dict())
    ['bias', 'weight']
    """
    return _removed("remove_spectral_norm", module, name, ("_orig", "_u", "_v"))


def _removed(caller: str, module: Any, name: str, suffixes: tuple[str, ...]) -> Any:
    names = [f"{name}{each}" for each in suffixes]
    if any(each not in module.__dict__ for each in names):
        raise ConfigError(f"{caller}: {type(module).__name__}.{name} is not normalised")
    value = getattr(module, name)
    stored(module, name, value)
    for each in names:
        delattr(module, each)
    return module
