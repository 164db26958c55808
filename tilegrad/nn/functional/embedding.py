"""Rows of tables, picked by number, as functions; and numbers as such rows."""

from __future__ import annotations

from tilegrad.base.errors import ConfigError, DTypeError, OptionError, ShapeError, check_choice
from tilegrad.tensor.handle.core import check_tensors, describe
from tilegrad.tensor.handle.size_arguments import as_int, show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = ["embedding", "embedding_bag", "one_hot", "padding_index"]


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of a table: row `input` of `weight` for each index.

    Args:
        input: integers of any shape.
        weight: (num_embeddings, embedding_dim).
        padding_idx: a row that gets no gradient.
        max_norm: rows asked for that are longer are first shortened, in the weight itself.
        norm_type: order of that norm.
        scale_grad_by_freq: divide the gradient of a row by how often it is asked for.
        sparse: accepted and ignored: only the rows asked for are read, and the gradient costs no
            more than they do.

    Returns a tensor of shape (*input.shape, embedding_dim) in the dtype of `weight`.

    Raises DTypeError for indices that are no integers, ShapeError unless `weight` has two axes,
    ConfigError for a `padding_idx` out of range.

    >>> nn.functional.embedding(Tensor([1, 0]), Tensor([[1.0], [2.0]])).tolist()
    [[2.0], [1.0]]
    """
    check_tensors("Embedding", input, weight)
    if not input.dtype.is_int:
        raise DTypeError(
            f"Embedding: indices must be integers, not {input.dtype.name}",
            input=describe(input.uop),
            remedy="cast them: .cast(dtypes.int32)",
        )
    if weight.ndim != 2:
        raise ShapeError(
            f"Embedding: the weight has rows, it is not of shape {show_shape(weight.shape)}",
            weight=describe(weight.uop),
        )
    if max_norm is not None:
        _shorten_rows(weight, input, max_norm, norm_type)
    rows = weight[input]
    if scale_grad_by_freq:
        rows = _by_counts(rows, input, weight._sizes[0])
    if padding_idx is None:
        return rows
    position = padding_index(padding_idx, weight._sizes[0])
    return input.eq(position).unsqueeze(-1).where(rows.detach(), rows)


def _shorten_rows(weight: Tensor, input: Tensor, most: float, order: float) -> None:
    """Write those rows of `weight` that are asked for and are longer than `most` so long."""
    # A table that is written needs memory; no gradient flows to it, and a leaf keeps its own.
    table = weight.realize().detach()
    rows = table[input]
    length = rows.norm(order, -1, keepdim=True)
    table[input] = (length > most).where(rows * (most / (length + 1e-7)), rows)


def _by_counts(rows: Tensor, input: Tensor, count: int) -> Tensor:
    """`rows`, whose gradients are over how often `input` asks for their row."""
    ones = input.flatten().zeros_like(dtype=rows.dtype) + 1
    zeros = type(rows).zeros(count, dtype=rows.dtype, device=rows.device)
    often = zeros.scatter_add(0, input.flatten(), ones)[input].unsqueeze(-1)
    fixed = rows.detach()
    return fixed + (rows - fixed) / often


def padding_index(padding_idx: int, count: int) -> int:
    """A row's number, from the end where it is negative. Raises OptionError out of range."""
    if not -count <= padding_idx < count:
        raise OptionError(f"Embedding: padding_idx {padding_idx} is none of {count} rows")
    return padding_idx % count


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Rows of a table, reduced over bags of indices. An empty bag gives zeros.

    Args:
        input: integers (B, L), a bag in each row, or (L,) with `offsets`.
        weight: (num_embeddings, embedding_dim).
        offsets: (B,), where each bag begins in `input`.
        max_norm: rows asked for that are longer are first shortened, in the weight itself.
        norm_type: order of that norm.
        scale_grad_by_freq: divide the gradient of a row by how often it is asked for.
        mode: "sum", "mean" or "max".
        sparse: accepted and ignored.
        per_sample_weights: factor of each row, of the shape of `input`, for "sum".
        include_last_offset: the last offset is an end.
        padding_idx: indices that do not count.

    Returns a tensor of shape (B, embedding_dim) in the dtype of `weight`.

    Raises ConfigError for an unknown mode, for weights unless the mode is "sum", and for a
    `padding_idx` out of range; DTypeError for indices that are no integers; ShapeError for other
    shapes.

    >>> table = Tensor([[1.0], [2.0], [4.0]])
    >>> nn.functional.embedding_bag(Tensor([0, 2, 1]), table, Tensor([0, 2]), mode="sum").tolist()
    [[5.0], [2.0]]
    """
    check_tensors("embedding_bag", input, weight)
    _check_bags(input, mode, has_offsets=offsets is not None)
    if per_sample_weights is not None and mode != "sum":
        raise ConfigError(f"embedding_bag: weights need mode 'sum', not {mode!r}")
    rows = embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    is_counted = None
    if padding_idx is not None:
        is_counted = input.ne(padding_index(padding_idx, weight._sizes[0]))
    if offsets is None:
        return _reduced_rows(rows, is_counted, mode)
    starts = offsets[:-1] if include_last_offset else offsets
    return _reduced_bags(rows, starts, is_counted, mode)


def _check_bags(input: Tensor, mode: str, *, has_offsets: bool) -> None:
    check_choice("embedding_bag", "mode", mode, ("sum", "mean", "max"))
    if input.ndim != (1 if has_offsets else 2):
        raise ShapeError(
            f"embedding_bag: indices {show_shape(input.shape)} "
            f"{'with' if has_offsets else 'without'} offsets",
            rule="(B, L) without, or (L,) with offsets",
        )


def _reduced_bags(rows: Tensor, starts: Tensor, is_counted: Tensor | None, mode: str) -> Tensor:
    """(L, D) to (B, D), by what counts, (L,), where each bag begins at one of `starts`, (B,)."""
    bags = starts._sizes[0]
    positions = type(rows).arange(rows._sizes[0], device=rows.device)
    bag = starts.cast(positions.dtype).searchsorted(positions, right=True) - 1
    if is_counted is not None:
        # One bag more than there are takes in what does not count.
        bag = is_counted.where(bag, bags)
    index = bag.contiguous().unsqueeze(1).expand(rows.shape)
    zeros = type(rows).zeros(bags + 1, rows._sizes[1], dtype=rows.dtype, device=rows.device)
    kind = {"sum": "sum", "mean": "mean", "max": "amax"}[mode]
    return zeros.scatter_reduce(0, index, rows, kind, include_self=False)[:bags]


def _reduced_rows(rows: Tensor, is_counted: Tensor | None, mode: str) -> Tensor:
    """(B, L, D) to (B, D), by what counts, (B, L)."""
    if is_counted is None:
        # `max` of this package: that of `tilegrad.torch` gives pairs.
        reduced = {"sum": Tensor.sum, "mean": Tensor.mean, "max": Tensor.max}[mode]
        return reduced(rows, 1)
    counted = is_counted.unsqueeze(-1)
    count = counted.cast(rows.dtype).sum(1)
    if mode == "max":
        return (count > 0).where(Tensor.max(counted.where(rows, rows.dtype.min), 1), 0.0)
    total = counted.where(rows, 0.0).sum(1)
    return total if mode == "sum" else total / count.maximum(1.0)


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """A vector with a single 1 for each integer.

    Args:
        input: integers of any shape.
        num_classes: length of the vectors; -1 takes the largest index plus 1, which is computed
            now.

    Returns an int32 tensor of shape (*input.shape, num_classes).

    Raises DTypeError for floats, ShapeError for fewer classes than none.

    >>> nn.functional.one_hot(Tensor([1, 0]), 2).tolist()
    [[0, 1], [1, 0]]
    """
    check_tensors("one_hot", input)
    count = as_int("one_hot", "num_classes", num_classes)
    if count < -1:
        raise ShapeError(f"one_hot: {count} classes", rule="0 or more, or -1")
    if count == -1:
        count = int(input.max().item()) + 1
    return input.one_hot(count)
