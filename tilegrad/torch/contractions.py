"""`torch.tensordot`: sums of products over axes, where one of size 1 stretches."""

from __future__ import annotations

from typing import Any

from tilegrad.torch.tensor import Tensor, as_ours

__all__ = ["tensordot"]


def tensordot(a: Any, b: Any, dims: Any = 2) -> Tensor:
    """The sum of products over several axes."""
    left, right = as_ours(a), as_ours(b)
    if isinstance(dims, int):
        dims = [range(left.ndim - dims, left.ndim), range(dims)]
    mine, theirs = [[int(axis) for axis in axes] for axes in dims]
    if len(mine) == len(theirs):
        left, right = _beside_ones(left, mine, right, theirs)
    found: Tensor = left.tensordot(right, (mine, theirs))
    return found


def _beside_ones(a: Any, mine: list[int], b: Any, theirs: list[int]) -> tuple[Any, Any]:
    """Two tensors, each summed along the axes that meet one of size 1 of the other."""
    pairs = [
        (one, other)
        for one, other in zip(mine, theirs, strict=True)
        if -a.ndim <= one < a.ndim and -b.ndim <= other < b.ndim
    ]
    return (
        _summed(a, [one for one, other in pairs if b.shape[other] == 1 != a.shape[one]]),
        _summed(b, [other for one, other in pairs if a.shape[one] == 1 != b.shape[other]]),
    )


def _summed(x: Any, axes: list[int]) -> Any:
    return x.sum(axes, keepdim=True).to(x.dtype) if axes else x
