"""`torch.segment_reduce`: rows that follow one another, reduced by groups."""

from __future__ import annotations

import math
from typing import Any

from tilegrad.base.errors import ConfigError, ShapeError, check_choice
from tilegrad.torch.made_tensors import arange, full
from tilegrad.torch.tensor import Tensor

__all__ = ["segment_reduce"]

# The value of a group without rows, and the name of the reduction in `scatter_reduce`.
_KINDS = {
    "sum": (0.0, "sum"), "mean": (0.0, "sum"), "max": (-math.inf, "amax"),
    "min": (math.inf, "amin"), "prod": (1.0, "prod"),
}  # fmt: skip


def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Tensor:
    """Reduce the rows of `data` along `axis` by groups of `lengths`, or between `offsets`.

    Args:
        data: floats of any shape.
        reduce: "sum", "mean", "max", "min" or "prod".
        lengths: the number of rows of each group, of the sizes before `axis` and the groups.
        indices: not taken, as in PyTorch.
        offsets: where each group begins, and the end of the last one.
        axis: the axis of the rows: the last one of `lengths` or `offsets`.
        unsafe: whether the lengths are taken as they are.
        initial: what each group begins with; without it a group of no rows has 0 for a sum, NaN for
            a mean, an infinity for "max" and "min", and 1 for a product.

    Returns a tensor with the groups in place of the rows.

    Raises ConfigError for another reduction, ShapeError for lengths that do not fit.

    >>> import tilegrad.torch as torch
    >>> data, lengths = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2, 1])
    >>> torch.segment_reduce(data, "sum", lengths=lengths).tolist()
    [3.0, 3.0]
    """
    _check_arguments(reduce, lengths, indices, offsets)
    counts: Any = lengths if offsets is None else offsets.diff(dim=-1)
    axis = axis % data.ndim
    _check_counts(data, counts, axis)
    rows, groups = int(data.shape[axis]), int(counts.shape[-1])
    if not unsafe and not bool((counts.sum(-1) == rows).all().item()):
        raise ShapeError(f"segment_reduce: the lengths do not add up to the {rows} rows")
    before, after = tuple(data.shape[:axis]), tuple(data.shape[axis + 1 :])
    counts = counts.reshape(-1, groups)
    found = _reduced(data.reshape(len(counts), rows, -1), counts, reduce, initial)
    if reduce == "mean":
        size = counts.unsqueeze(-1)
        divisor = size if initial is None else size.clamp(min=1)
        found = found / divisor.to(data.dtype)
    made: Tensor = found.reshape(*before, groups, *after)
    return made


def _check_arguments(
    reduce: str, lengths: Tensor | None, indices: Tensor | None, offsets: Tensor | None
) -> None:
    """Raise unless the reduction is known and the groups are given in one way."""
    check_choice("segment_reduce", "reduction", reduce, _KINDS)
    if (lengths is None) == (offsets is None):
        raise ShapeError("segment_reduce: pass either lengths or offsets")
    if indices is not None:
        raise ConfigError(
            "segment_reduce: indices are not taken, as in PyTorch",
            remedy="pass lengths or offsets; scatter_reduce takes an index for each row",
        )


def _check_counts(data: Tensor, counts: Any, axis: int) -> None:
    """Raise ShapeError unless there is a row of counts for each row of the sizes before `axis`."""
    if counts.ndim != axis + 1 or counts.shape[:-1] != data.shape[:axis]:
        raise ShapeError(
            f"segment_reduce: groups of shape {tuple(counts.shape)} for axis {axis} of "
            f"{tuple(data.shape)}",
            rule="the sizes before the axis, and the number of groups",
        )


def _reduced(rows: Tensor, counts: Any, reduce: str, initial: Any) -> Any:
    """The sums, products or extremes of groups of `counts` rows along axis 1, beginning with
    `initial`.
    """
    # A group ends where as many rows as it has with those before it are passed.
    ends = counts.cumsum(-1)
    group = (ends.unsqueeze(1) <= arange(rows.shape[1]).reshape(1, -1, 1)).sum(-1)
    first, name = _KINDS[reduce]
    if initial is not None and name in ("sum", "prod"):
        first = float(initial)
    begin = full((*counts.shape, rows.shape[-1]), first, dtype=rows.dtype)
    found: Any = begin.scatter_reduce(1, group.unsqueeze(-1).expand(rows.shape), rows, name)
    if initial is not None and name in ("amax", "amin"):
        # At a tie the gradient is that of the rows.
        is_beyond = found < initial if name == "amax" else found > initial
        found = is_beyond.where(float(initial), found)
    return found
