"""`torch.distributions.utils`: what a program's own distributions are made with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.functions import broadcast_tensors
from tilegrad.torch.made_tensors import tensor, tril_indices
from tilegrad.torch.random_tensors import randn
from tilegrad.torch.tensor import Tensor, as_ours

__all__ = [
    "broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits",
    "tril_matrix_to_vec", "vec_to_tril_matrix",
]  # fmt: skip

# The distance of probabilities from 0 and 1 below which their logarithms are not taken.
_EPSILON = {dtypes.float64: 2.0**-52, dtypes.float32: 2.0**-23, dtypes.float16: 2.0**-10}


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Tensors and numbers as tensors of one shape; numbers take the dtype of the first tensor.

    >>> import tilegrad.torch as torch
    >>> made = torch.distributions.utils.broadcast_all(torch.zeros(2), 1.0)
    >>> [each.tolist() for each in made]
    [[0.0, 0.0], [1.0, 1.0]]
    """
    first = next((each for each in values if isinstance(each, OurTensor)), None)
    dtype = dtypes.default_float if first is None else first.dtype
    made = [
        as_ours(each) if isinstance(each, OurTensor) else tensor(each, dtype=dtype)
        for each in values
    ]
    return tuple(broadcast_tensors(*made))


def _standard_normal(shape: Sequence[int], dtype: DType, device: Any) -> Tensor:
    """Draws of the standard normal distribution."""
    return randn(tuple(shape), dtype=dtype, device=device)


def _sum_rightmost(value: Tensor, dim: int) -> Tensor:
    """The sum over the last `dim` axes."""
    return value if dim == 0 else value.reshape(*value.shape[: value.ndim - dim], -1).sum(-1)


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Matrices whose lower triangles, below the diagonal number `diag` and with it, hold the last
    axis of `vec` row by row.

    Raises ValueError where that has as many elements as no triangle.
    """
    size = count = 0
    while count < vec.shape[-1]:
        size += 1
        count = sum(min(size, max(0, row + 1 + diag)) for row in range(size))
    if count != vec.shape[-1]:
        raise ValueError(f"vec_to_tril_matrix: {vec.shape[-1]} elements fill no lower triangle")
    rows, columns = tril_indices(size, size, diag)
    found: Tensor = vec.new_zeros(*vec.shape[:-1], size, size)
    found[..., rows, columns] = vec
    return found


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The lower triangles of matrices, below the diagonal number `diag` and with it, row by row."""
    rows, columns = tril_indices(mat.shape[-1], mat.shape[-1], diag)
    found: Tensor = mat[..., rows, columns]
    return found


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities whose logarithms are finite."""
    least = _EPSILON.get(probs.dtype, _EPSILON[dtypes.float16])
    return probs.clamp(least, 1 - least)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """The logarithms of probabilities, or of those of 1 beside those of 0."""
    inside = clamp_probs(probs)
    return inside.log() - (-inside).log1p() if is_binary else inside.log()


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """The probabilities of logarithms, which need not add up to one before."""
    return logits.sigmoid() if is_binary else logits.softmax(-1)


class lazy_property:
    """A method as an attribute that is computed when it is asked for first."""

    def __init__(self, wrapped: Any):
        self.wrapped, self.__doc__ = wrapped, wrapped.__doc__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value
