"""Functions of layers: products, tables, dropout, padding, resampling, attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilegrad.base.errors import ConfigError, DTypeError, ShapeError
from tilegrad.tensor.core import check_tensors, describe
from tilegrad.tensor.sizes import here, show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "affine_grid", "alpha_dropout", "bilinear", "dropout", "dropout1d", "dropout2d", "dropout3d",
    "embedding", "embedding_bag", "feature_alpha_dropout", "grid_sample", "interpolate", "linear",
    "one_hot", "pad", "scaled_dot_product_attention", "upsample",
]  # fmt: skip


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias over the last axis; `weight` is (out_features, in_features).

    >>> nn.functional.linear(Tensor([1.0, 2.0]), Tensor([[1.0, 10.0]])).tolist()
    [21.0]
    """
    check_tensors("linear", input, weight)
    return input.linear(weight.T, bias)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """For each output k, input1 @ weight[k] @ input2 + bias[k] over the last axes; `weight` is
    (out_features, in1_features, in2_features).

    Raises ShapeError for sizes that do not fit.

    >>> nn.functional.bilinear(Tensor([2.0]), Tensor([3.0]), Tensor([[[5.0]]])).tolist()
    [30.0]
    """
    check_tensors("bilinear", input1, input2, weight)
    wanted = (input1.shape[-1], input2.shape[-1])
    if weight.ndim != 3 or weight.shape[1:] != wanted or input1.shape[:-1] != input2.shape[:-1]:
        raise ShapeError(
            f"bilinear: {show_shape(input1.shape)} and {show_shape(input2.shape)} do not fit the "
            f"weight {show_shape(weight.shape)}",
            rule="(..., I), (..., J) and (out, I, J)",
            line=here(),
        )
    half = input1 @ weight.permute(1, 0, 2).reshape(weight.shape[1], -1)
    parts = half.reshape(*input1.shape[:-1], weight.shape[0], weight.shape[2])
    result = (parts * input2.unsqueeze(-2)).sum(-1)
    return result if bias is None else result + bias


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Row `input` of `weight`, (num_embeddings, embedding_dim), for each index. No gradient goes to
    row `padding_idx`. `sparse` is taken and does nothing: only the rows asked for are read, and the
    gradient costs no more than they do. With `max_norm` the rows asked for that are longer, by the
    norm `norm_type`, are first written so long. With `scale_grad_by_freq` the gradient of a row is
    over how often it is asked for.

    Raises DTypeError for indices that are no integers, ConfigError for a `padding_idx` out of
    range.

    >>> nn.functional.embedding(Tensor([1, 0]), Tensor([[1.0], [2.0]])).tolist()
    [[2.0], [1.0]]
    """
    check_tensors("Embedding", input, weight)
    if not input.dtype.is_int:
        raise DTypeError(
            f"Embedding: indices must be integers, not {input.dtype.name}",
            input=describe(input.uop),
            line=here(),
            remedy="cast them: .cast(dtypes.int32)",
        )
    if max_norm is not None:
        _shorten_rows(weight, input, max_norm, norm_type)
    rows = weight[input]
    if scale_grad_by_freq:
        rows = _by_counts(rows, input, weight._sizes[0])
    if padding_idx is None:
        return rows
    place = padding_place(padding_idx, weight._sizes[0])
    return input.eq(place).unsqueeze(-1).where(rows.detach(), rows)


def _shorten_rows(weight: Tensor, input: Tensor, most: float, order: float) -> None:
    """Write those rows of `weight` that are asked for and are longer than `most` so long."""
    # What is written needs memory; no gradient flows to it, and a leaf keeps its own.
    table = weight.realize().detach()
    rows = table[input]
    length = rows.norm(order, -1, keepdim=True)
    table[input] = (length > most).where(rows * (most / (length + 1e-7)), rows)


def _by_counts(rows: Tensor, input: Tensor, count: int) -> Tensor:
    """`rows`, whose gradients are over how often `input` asks for their row."""
    ones = input.flatten().zeros_like(dtype=rows.dtype) + 1
    zeros = Tensor.zeros(count, dtype=rows.dtype, device=rows.device)
    often = zeros.scatter_add(0, input.flatten(), ones)[input].unsqueeze(-1)
    fixed = rows.detach()
    return fixed + (rows - fixed) / often


def padding_place(padding_idx: int, count: int) -> int:
    """A row's number, from the end where it is negative. Raises ConfigError out of range."""
    if not -count <= padding_idx < count:
        raise ConfigError(
            f"Embedding: padding_idx {padding_idx} is none of {count} rows", line=here()
        )
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
    """The rows of `weight` that each bag of indices asks for, folded to one: their "sum", "mean" or
    "max". Bags are the rows of `input`, (B, L), or the parts of (L,) that begin at `offsets`, (B,);
    with `include_last_offset` the last offset is an end. An empty bag gives zeros. Indices equal to
    `padding_idx` do not count.

    Raises ConfigError for an unknown mode, for weights unless the mode is "sum", and as
    `embedding`; ShapeError for other shapes.

    >>> table = Tensor([[1.0], [2.0], [4.0]])
    >>> nn.functional.embedding_bag(Tensor([0, 2, 1]), table, Tensor([0, 2]), mode="sum").tolist()
    [[5.0], [2.0]]
    """
    check_tensors("embedding_bag", input, weight)
    if mode not in ("sum", "mean", "max"):
        raise ConfigError(
            f"embedding_bag: unknown mode {mode!r}", allowed="'sum', 'mean', 'max'", line=here()
        )
    if per_sample_weights is not None and mode != "sum":
        raise ConfigError(f"embedding_bag: weights need mode 'sum', not {mode!r}", line=here())
    if (input.ndim == 2) == (offsets is not None) or input.ndim not in (1, 2):
        raise ShapeError(
            f"embedding_bag: indices {show_shape(input.shape)} "
            f"{'with' if offsets is not None else 'without'} offsets",
            rule="(B, L) without, or (L,) with offsets",
            line=here(),
        )
    rows = embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    is_counted = None
    if padding_idx is not None:
        is_counted = input.ne(padding_place(padding_idx, weight._sizes[0]))
    if offsets is None:
        return _folded_rows(rows, is_counted, mode)
    starts = offsets[:-1] if include_last_offset else offsets
    bags = starts._sizes[0]
    places = Tensor.arange(input._sizes[0], device=input.device)
    bag = starts.cast(places.dtype).searchsorted(places, right=True) - 1
    if is_counted is not None:
        # One bag more than there are takes in what does not count.
        bag = is_counted.where(bag, bags)
    index = bag.contiguous().unsqueeze(1).expand(rows.shape)
    zeros = Tensor.zeros(bags + 1, rows._sizes[1], dtype=rows.dtype, device=rows.device)
    kind = {"sum": "sum", "mean": "mean", "max": "amax"}[mode]
    return zeros.scatter_reduce(0, index, rows, kind, include_self=False)[:bags]


def _folded_rows(rows: Tensor, is_counted: Tensor | None, mode: str) -> Tensor:
    """(B, L, D) to (B, D), by what counts, (B, L)."""
    if is_counted is None:
        folded = {"sum": rows.sum, "mean": rows.mean, "max": rows.max}[mode]
        return folded(1)
    counted = is_counted.unsqueeze(-1)
    count = counted.cast(rows.dtype).sum(1)
    if mode == "max":
        return (count > 0).where(counted.where(rows, rows.dtype.min).amax(1), 0.0)
    total = counted.where(rows, 0.0).sum(1)
    return total if mode == "sum" else total / count.maximum(1.0)


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """(...) to (..., num_classes): 1 at the index, else 0. Without a number of classes there are as
    many as the largest index says, which waits for it.

    >>> nn.functional.one_hot(Tensor([1, 0]), 2).tolist()
    [[0, 1], [1, 0]]
    """
    check_tensors("one_hot", input)
    count = int(input.max().item()) + 1 if num_classes < 0 else num_classes
    return input.one_hot(count)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training a share `p` of the elements is 0, the rest over 1 - p; otherwise the input.

    >>> nn.functional.dropout(Tensor([1.0, 2.0]), training=False).tolist()
    [1.0, 2.0]
    """
    if not _drops("dropout", p, training):
        return input
    with Tensor.train():
        return input.dropout(p)


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """As `dropout`, of whole channels of (N, C, ...): one draw for each item and channel.

    >>> nn.functional.dropout1d(Tensor.ones(1, 2, 2), training=False).tolist()
    [[[1.0, 1.0], [1.0, 1.0]]]
    """
    return input * _channels(input, p) if _drops("dropout2d", p, training) else input


dropout1d = dropout3d = dropout2d


def _channels(input: Tensor, p: float) -> Tensor:
    """0 or 1 / (1 - p) for each item and channel."""
    shape = (*input.shape[:2], *[1] * (input.ndim - 2))
    with Tensor.train():
        return Tensor.ones(*shape, device=input.device, dtype=input.dtype).dropout(p)


def _drops(name: str, p: float, training: bool) -> bool:
    if not 0 <= p <= 1:
        raise ConfigError(f"{name}: p must be between 0 and 1, not {p!r}", line=here())
    return training and p > 0


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout for `selu`: in training a share `p` of the elements takes SELU's least value, and all
    are scaled and shifted so that mean 0 and variance 1 stay (Klambauer et al., 2017).

    >>> nn.functional.alpha_dropout(Tensor([1.0, 2.0]), training=False).tolist()
    [1.0, 2.0]
    """
    if not _drops("alpha_dropout", p, training):
        return input
    return _alpha(input, input.rand_like(requires_grad=False) >= p, p)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """As `alpha_dropout`, of whole channels of (N, C, ...).

    >>> nn.functional.feature_alpha_dropout(Tensor([[1.0, 2.0]]), training=False).tolist()
    [[1.0, 2.0]]
    """
    if not _drops("feature_alpha_dropout", p, training):
        return input
    shape = (*input.shape[:2], *[1] * (input.ndim - 2))
    return _alpha(input, Tensor.rand(*shape, device=input.device) >= p, p)


def _alpha(input: Tensor, is_kept: Tensor, p: float) -> Tensor:
    least = -1.0507009873554805 * 1.6732632423543772
    if p == 1:
        return input * 0
    scale = 1 / math.sqrt((least * least * p + 1) * (1 - p))
    return is_kept.where(input, least) * scale - scale * least * p


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """A border of (left, right, top, bottom, ...), counted from the last axis; `mode` is
    "constant", "reflect", "replicate" or "circular".

    >>> nn.functional.pad(Tensor([[1, 2]]), (1, 0)).tolist()
    [[0, 1, 2]]
    """
    return input.pad(tuple(pad), mode=mode, value=0.0 if value is None else value)


def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """All axes but the first two resampled to `size`, or to their sizes times `scale_factor`; with
    `recompute_scale_factor` elements lie as the sizes say, not the factor.

    Raises as `Tensor.interpolate`; DTypeError for `antialias`.

    >>> nn.functional.interpolate(Tensor([[[1.0, 2.0]]]), scale_factor=2).tolist()
    [[[1.0, 1.0, 2.0, 2.0]]]
    """
    check_tensors("interpolate", input)
    if antialias:
        raise DTypeError(
            "interpolate: antialias is not implemented",
            remedy='mode="area" averages what an element covers',
        )
    if recompute_scale_factor and scale_factor is not None:
        size, scale_factor = input._output_sizes(None, scale_factor)[0], None
    return input.interpolate(size, mode, bool(align_corners), scale_factor)


upsample = interpolate


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Images read at the places of a grid, as `Tensor.grid_sample`.

    >>> nn.functional.grid_sample(Tensor([[[[1.0, 2.0]]]]), Tensor([[[[0.0, 0.0]]]])).tolist()
    [[[[1.5]]]]
    """
    return input.grid_sample(grid, mode, padding_mode, bool(align_corners))


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid for `grid_sample` of affine maps: theta (N, 2, 3) and size (N, C, H, W) to
    (N, H, W, 2), or (N, 3, 4) and (N, C, D, H, W) to (N, D, H, W, 3). Places go from -1 to 1: to
    the centres of the outer pixels with `align_corners`, else to their outer edges.

    Raises ShapeError for other shapes.

    >>> unit = Tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    >>> nn.functional.affine_grid(unit, (1, 1, 1, 2)).tolist()
    [[[[-0.5, 0.0], [0.5, 0.0]]]]
    """
    check_tensors("affine_grid", theta)
    axes = len(size) - 2
    if axes not in (2, 3) or theta.shape != (size[0], axes, axes + 1):
        raise ShapeError(
            f"affine_grid: theta {show_shape(theta.shape)} for size {tuple(size)}",
            rule="(N, 2, 3) for (N, C, H, W), (N, 3, 4) for (N, C, D, H, W)",
            line=here(),
        )
    sizes = list(size[2:])
    lines = []
    for axis, count in enumerate(sizes):
        steps = Tensor.arange(count, device=theta.device).cast(theta.dtype)
        if align_corners:
            line = steps * (2 / max(count - 1, 1)) - (1 if count > 1 else 0)
        else:
            line = (steps * 2 + 1) * (1 / count) - 1
        lines.append(line.reshape(*[-1 if at == axis else 1 for at in range(axes)]).expand(*sizes))
    # x, the last axis, comes first.
    places = Tensor.stack(*lines[::-1], lines[0].const_like(1), dim=-1).reshape(1, -1, axes + 1)
    return (places @ theta.transpose(1, 2)).reshape(size[0], *sizes, axes)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query @ key.T * scale + mask) @ value, as `Tensor.scaled_dot_product_attention`.

    >>> q = k = Tensor.zeros(1, 2, 4)
    >>> v = Tensor([[[1.0, 2.0], [3.0, 6.0]]])
    >>> nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).tolist()
    [[[1.0, 2.0], [2.0, 4.0]]]
    """
    return query.scaled_dot_product_attention(
        key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
    )
