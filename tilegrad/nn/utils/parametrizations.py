"""Parametrizations that are ready: weight and spectral normalisation, and orthogonal matrices."""

from __future__ import annotations

from typing import Any

from tilegrad.base.errors import ShapeError
from tilegrad.nn.module import Module
from tilegrad.nn.utils.orthogonal import Orthogonal, orthogonal
from tilegrad.nn.utils.parametrize import register_parametrization
from tilegrad.tensor.handle.size_arguments import show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "Orthogonal", "SpectralNorm", "WeightNorm", "length", "orthogonal", "spectral_norm",
    "weight_norm",
]  # fmt: skip


def length(v: Tensor, dim: int | None) -> Tensor:
    """The norm of each slice along axis `dim`, with 1 for the others; of all without an axis."""
    if dim is None or dim == -1:
        return v.square().sum().sqrt()
    others = tuple(axis for axis in range(v.ndim) if axis != dim % v.ndim)
    return v.square().sum(others, keepdim=True).sqrt()


class WeightNorm(Module):
    """g * v / |v|."""

    def __init__(self, dim: int | None):
        self.dim = dim

    def __call__(self, g: Tensor, v: Tensor) -> Tensor:
        return v * (g / length(v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The length and the direction of a weight."""
        return length(weight, self.dim), weight


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Train the length g and the direction v of a weight apart: g * v / |v|, a length for each
    slice along `dim`, or one with None (Salimans and Kingma, "Weight Normalization", 2016). Gives
    the module.

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))
    >>> [(name, p.shape) for name, p in layer.named_parameters()][1:]
    [('parametrizations.weight.original0', (3, 1)), ('parametrizations.weight.original1', (3, 2))]
    """
    return register_parametrization(module, name, WeightNorm(dim))


class SpectralNorm(Module):
    """A weight over an estimate of its largest singular value, by power iteration: one more step,
    or several, each time that it is used in training.
    """

    buffer_names = ("_u", "_v")

    def __init__(self, weight: Tensor, n_power_iterations: int, eps: float, dim: int):
        self.n_power_iterations, self.eps, self.dim = n_power_iterations, eps, dim
        if weight.ndim < 2:
            raise ShapeError(
                f"spectral_norm: a weight of shape {show_shape(weight.shape)} is no matrix"
            )
        matrix = self._matrix(weight.detach())
        self._u, self._v = (
            Tensor.randn(size, device=weight.device, dtype=weight.dtype).normalize(dim=0)
            for size in matrix._sizes
        )
        self._iterate(matrix, 15)
        for state in (self._u, self._v):
            state.requires_grad = False
        Tensor.realize(self._u, self._v)

    def _matrix(self, weight: Tensor) -> Tensor:
        return weight.movedim(self.dim, 0).reshape(weight.shape[self.dim], -1)

    def _iterate(self, matrix: Tensor, times: int) -> None:
        u, v = self._u, self._v
        for _ in range(times):
            u = (matrix @ v).normalize(dim=0, eps=self.eps)
            v = (matrix.T @ u).normalize(dim=0, eps=self.eps)
        self._u, self._v = self._u.assign(u), self._v.assign(v)

    def __call__(self, weight: Tensor) -> Tensor:
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        sigma = (self._u.detach() * (matrix @ self._v.detach())).sum()
        return weight / sigma


def spectral_norm(
    module: Any,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Any:
    """Divide a weight by its largest singular value, as a matrix whose rows are along `dim` (Miyato
    et al., "Spectral Normalization", 2018). Gives the module.

    Raises ShapeError for a weight of fewer than two axes.

    >>> layer = nn.utils.parametrizations.spectral_norm(nn.Linear(2, 3))
    >>> layer.weight.shape
    (3, 2)
    """
    axis = dim if dim is not None else int("Transpose" in type(module).__name__)
    norm = SpectralNorm(getattr(module, name), n_power_iterations, eps, axis)
    return register_parametrization(module, name, norm)
