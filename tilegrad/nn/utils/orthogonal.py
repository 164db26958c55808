"""Weights that stay orthogonal while they are trained."""

from __future__ import annotations

from typing import Any

import numpy

from tilegrad.base.errors import ConfigError, ShapeError
from tilegrad.nn.module import Module
from tilegrad.nn.utils.parametrize import register_parametrization
from tilegrad.tensor.handle.size_arguments import show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = ["MAPS", "Orthogonal", "orthogonal"]

MAPS = ("matrix_exp", "cayley", "householder")


class Orthogonal(Module):
    """A matrix with orthonormal columns, or rows if it has fewer rows than columns, of a matrix
    that may have any values.

    For the skew part A of the trained matrix, `matrix_exp` takes exp(A) and `cayley` takes (I -
    A/2)^-1 (I + A/2); both are orthogonal. `householder` takes the product of the reflections whose
    vectors are below the diagonal, in LAPACK's storage, and of the signs on the diagonal. With
    `use_trivialization` these stand behind `base`, the weight as it was assigned, and what is
    trained begins at -I, whose map is I (Lezcano-Casado, "Trivializations for gradient-based
    optimization on manifolds", 2019).
    """

    buffer_names = ("base",)

    def __init__(self, weight: Tensor, orthogonal_map: str, use_trivialization: bool):
        self.orthogonal_map = orthogonal_map
        self.base: Tensor | None = None
        self._has_base = use_trivialization

    def __call__(self, x: Tensor) -> Tensor:
        is_wide = x._sizes[-2] < x._sizes[-1]
        tall = x.mT if is_wide else x
        if self.orthogonal_map == "householder":
            made = _reflected(tall)
        else:
            made = self._rotated(tall)
        if self.base is not None:
            made = self.base.detach() @ made
        return made.mT if is_wide else made

    def _rotated(self, x: Tensor) -> Tensor:
        rows, columns = x._sizes[-2:]
        lower = x.tril(-1)
        if rows != columns:
            lower = lower.pad((0, rows - columns))
        skew = lower - lower.mT
        if self.orthogonal_map == "matrix_exp":
            made = skew.matrix_exp()
        else:
            one = Tensor.eye(rows, dtype=x.dtype, device=x.device)
            # Never singular: the eigenvalues of a skew matrix are imaginary.
            made = Tensor.solve(one - skew / 2, one + skew / 2)
        return made[..., :columns]

    def right_inverse(self, weight: Tensor) -> Tensor:
        """The trained matrix that gives `weight`, or the matrix with orthonormal columns that its
        QR factors have.

        Raises ConfigError where the maps of skew matrices have no base.
        """
        if self.orthogonal_map != "householder" and not self._has_base:
            raise ConfigError(
                f"orthogonal: cannot assign to {self.orthogonal_map} without a base",
                remedy="use_trivialization=True",
            )
        array = weight.detach().numpy()
        is_wide = array.shape[-2] < array.shape[-1]
        tall = array.swapaxes(-1, -2) if is_wide else array
        if self._has_base:
            self._take_base(weight, _completed(tall))
            found = numpy.broadcast_to(-numpy.eye(*tall.shape[-2:], dtype=tall.dtype), tall.shape)
        else:
            found = _reflections(tall)
        found = found.swapaxes(-1, -2) if is_wide else found
        return _of(weight, found)

    def _take_base(self, weight: Tensor, array: Any) -> None:
        base = _of(weight, array)
        base.requires_grad = False
        self.base = base if self.base is None else self.base.assign(base)


def _of(weight: Tensor, array: Any) -> Tensor:
    """An array as a tensor of the class, dtype and device of `weight`."""
    values = numpy.ascontiguousarray(array)
    return type(weight)(values, device=weight.device, dtype=weight.dtype)


def _reflected(x: Tensor) -> Tensor:
    below = x.tril(-1)
    made = below.householder_product(2 / (1 + below.square().sum(-2)))
    return made * x.diagonal(0, -2, -1).sign().detach().unsqueeze(-2)


def _reflections(matrix: Any) -> Any:
    """A matrix as `_reflected` takes it: vectors below the diagonal, signs on it."""
    stored, tau = numpy.linalg.qr(matrix, mode="raw")
    stored = stored.swapaxes(-1, -2).copy()
    # LAPACK leaves a vector out where nothing is to reflect; here it turns the sign.
    signs = numpy.sign(numpy.diagonal(stored, 0, -2, -1)) * numpy.where(tau == 0, -1, 1)
    diagonal = numpy.arange(stored.shape[-1])
    stored[..., diagonal, diagonal] = signs
    return stored


def _completed(matrix: Any) -> Any:
    """The square orthogonal matrix whose first columns are those of the QR factors' first, with a
    positive diagonal in the second.
    """
    columns = matrix.shape[-1]
    made, upper = numpy.linalg.qr(matrix, mode="complete")
    signs = numpy.where(numpy.diagonal(upper, 0, -2, -1) < 0, -1, 1).astype(made.dtype)
    made[..., :columns] *= signs[..., None, :]
    return made


def orthogonal(
    module: Any,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Any:
    """Train a weight among the matrices with orthonormal columns, or rows if it is wider than high:
    by "matrix_exp", "cayley" or "householder" (`Orthogonal`), by default the first for square
    matrices and the last for others. Gives the module.

    Raises ShapeError for a weight of fewer than two axes, ConfigError for another map.

    >>> layer = nn.utils.parametrizations.orthogonal(nn.Linear(3, 3))
    >>> (layer.weight @ layer.weight.T).allclose(Tensor.eye(3), atol=1e-5)
    True
    """
    weight = getattr(module, name)
    if weight.ndim < 2:
        raise ShapeError(f"orthogonal: a weight of shape {show_shape(weight.shape)} is no matrix")
    is_square = weight.shape[-1] == weight.shape[-2]
    chosen = orthogonal_map or ("matrix_exp" if is_square else "householder")
    if chosen not in MAPS:
        raise ConfigError(f"orthogonal: there is no map {chosen!r}", known=", ".join(MAPS))
    made = Orthogonal(weight, chosen, use_trivialization)
    return register_parametrization(module, name, made)
