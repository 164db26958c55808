"""Functions of layers: products, tables, dropout, padding, resampling, attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilegrad.base.errors import ConfigError, DTypeError, OptionError, ShapeError, UnsupportedError
from tilegrad.tensor.handle.core import check_tensors, describe
from tilegrad.tensor.handle.sizes import as_int, as_number, here, show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "affine_grid", "alpha_dropout", "bilinear", "dropout", "dropout1d", "dropout2d", "dropout3d",
    "embedding", "embedding_bag", "feature_alpha_dropout", "grid_sample", "interpolate", "linear",
    "one_hot", "pad", "scaled_dot_product_attention", "upsample",
]  # fmt: skip


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Affine map: input @ weight.T + bias over the last axis.

    Args:
        input: (..., in_features).
        weight: (out_features, in_features).
        bias: (out_features,), or None.

    Returns a tensor of shape (..., out_features), in the dtype to which all promote.

    Raises ShapeError unless the sizes fit, DTypeError for what is no tensor.

    >>> nn.functional.linear(Tensor([1.0, 2.0]), Tensor([[1.0, 10.0]])).tolist()
    [21.0]
    """
    check_tensors("linear", input, weight)
    return input.linear(weight.T, bias)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Bilinear map: input1 @ weight[k] @ input2 + bias[k] for each output k, over the last axes.

    Args:
        input1: (..., in1_features).
        input2: (..., in2_features).
        weight: (out_features, in1_features, in2_features).
        bias: (out_features,), or None.

    Returns a tensor of shape (..., out_features).

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
    products = half.reshape(*input1.shape[:-1], weight.shape[0], weight.shape[2])
    result = (products * input2.unsqueeze(-2)).sum(-1)
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
            line=here(),
            remedy="cast them: .cast(dtypes.int32)",
        )
    if weight.ndim != 2:
        raise ShapeError(
            f"Embedding: the weight has rows, it is not of shape {show_shape(weight.shape)}",
            weight=describe(weight.uop),
            line=here(),
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


def padding_index(padding_idx: int, count: int) -> int:
    """A row's number, from the end where it is negative. Raises OptionError out of range."""
    if not -count <= padding_idx < count:
        raise OptionError(
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
        raise ConfigError(f"embedding_bag: weights need mode 'sum', not {mode!r}", line=here())
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
    if mode not in ("sum", "mean", "max"):
        raise ConfigError(
            f"embedding_bag: unknown mode {mode!r}", allowed="'sum', 'mean', 'max'", line=here()
        )
    if input.ndim != (1 if has_offsets else 2):
        raise ShapeError(
            f"embedding_bag: indices {show_shape(input.shape)} "
            f"{'with' if has_offsets else 'without'} offsets",
            rule="(B, L) without, or (L,) with offsets",
            line=here(),
        )


def _reduced_bags(rows: Tensor, starts: Tensor, is_counted: Tensor | None, mode: str) -> Tensor:
    """(L, D) to (B, D), by what counts, (L,), where each bag begins at one of `starts`, (B,)."""
    bags = starts._sizes[0]
    positions = Tensor.arange(rows._sizes[0], device=rows.device)
    bag = starts.cast(positions.dtype).searchsorted(positions, right=True) - 1
    if is_counted is not None:
        # One bag more than there are takes in what does not count.
        bag = is_counted.where(bag, bags)
    index = bag.contiguous().unsqueeze(1).expand(rows.shape)
    zeros = Tensor.zeros(bags + 1, rows._sizes[1], dtype=rows.dtype, device=rows.device)
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
        raise ShapeError(f"one_hot: {count} classes", line=here(), rule="0 or more, or -1")
    if count == -1:
        count = int(input.max().item()) + 1
    return input.one_hot(count)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Dropout: in training each element is zero with probability `p`, else divided by 1 - p;
    otherwise the input (Srivastava et al. 2014).

    Args:
        input: a tensor of any shape.
        p: the probability of zero, in 0..1.
        training: whether to drop at all.
        inplace: accepted for other libraries' sake; ignored.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    Raises ConfigError unless 0 <= p <= 1.

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
    """Dropout of whole channels: one draw for each item and channel (Tompson et al. 2014,
    arXiv:1411.4280).

    Args:
        input: (N, C, ...).
        p: the probability of zero, in 0..1.
        training: whether to drop at all.
        inplace: accepted for other libraries' sake; ignored.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    Raises ConfigError unless 0 <= p <= 1.

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
    if not 0 <= as_number(name, "p", p) <= 1:
        raise ConfigError(f"{name}: p must be between 0 and 1, not {p!r}", line=here())
    return training and p > 0


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout for `selu`: in training a share `p` of the elements takes SELU's least value, and all
    are scaled and shifted so that mean 0 and variance 1 stay (Klambauer et al. 2017,
    arXiv:1706.02515).

    Args:
        input: a tensor of any shape.
        p: the probability of zero, in 0..1.
        training: whether to drop at all.
        inplace: accepted for other libraries' sake; ignored.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    Raises ConfigError unless 0 <= p <= 1.

    >>> nn.functional.alpha_dropout(Tensor([1.0, 2.0]), training=False).tolist()
    [1.0, 2.0]
    """
    if not _drops("alpha_dropout", p, training):
        return input
    return _alpha(input, input.rand_like(requires_grad=False) >= p, p)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """`alpha_dropout` of whole channels.

    Args:
        input: (N, C, ...).
        p: the probability of zero, in 0..1.
        training: whether to drop at all.
        inplace: accepted for other libraries' sake; ignored.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    Raises ConfigError unless 0 <= p <= 1.

    >>> nn.functional.feature_alpha_dropout(Tensor([[1.0, 2.0]]), training=False).tolist()
    [[1.0, 2.0]]
    """
    if not _drops("feature_alpha_dropout", p, training):
        return input
    shape = (*input.shape[:2], *[1] * (input.ndim - 2))
    return _alpha(input, Tensor.rand(*shape, device=input.device) >= p, p)


def _alpha(input: Tensor, is_retained: Tensor, p: float) -> Tensor:
    least = -1.0507009873554805 * 1.6732632423543772
    if p == 1:
        return input * 0
    scale = 1 / math.sqrt((least * least * p + 1) * (1 - p))
    return is_retained.where(input, least) * scale - scale * least * p


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """Add elements around.

    Args:
        input: a tensor of any shape.
        pad: (left, right, top, bottom, ...), counted from the last axis; negative amounts cut off.
        mode: "constant", "reflect", "replicate" or "circular".
        value: fills the padding of "constant", by default 0.

    Returns a tensor of the dtype of `input`, larger by the amounts.

    Raises ShapeError if a reflected or circular padding is wider than its axis, DTypeError for
    another mode.

    >>> nn.functional.pad(Tensor([[1, 2]]), (1, 0)).tolist()
    [[0, 1, 2]]
    """
    return input.pad(tuple(pad), mode=mode, value=0.0 if value is None else value)


# The axes that a mode says, batch and channels among them; the other modes have 3 to 5.
_AXES_OF_MODES = {"linear": (3,), "bilinear": (4,), "bicubic": (4,), "trilinear": (5,)}


def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resample all axes but the first two.

    Args:
        input: (N, C, *sizes).
        size: the new sizes.
        scale_factor: factor of the sizes, rounded down, instead.
        mode: "nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic" or "area".
        align_corners: the first and last points keep their positions.
        recompute_scale_factor: positions follow from the sizes, not from the factor.
        antialias: where an axis shrinks, weigh all elements that a new one covers ("bilinear" and
            "bicubic" only).

    Returns a tensor of shape (N, C, *new sizes) in the dtype of `input`.

    Raises UnsupportedDTypeError for another mode, ConfigError for one without `antialias`;
    UnsupportedError for another number of axes than the mode has; ShapeError unless there are as
    many sizes as axes to resample.

    >>> nn.functional.interpolate(Tensor([[[1.0, 2.0]]]), scale_factor=2).tolist()
    [[[1.0, 1.0, 2.0, 2.0]]]
    """
    check_tensors("interpolate", input)
    allowed = _AXES_OF_MODES.get(mode, (3, 4, 5))
    if input.ndim not in allowed:
        raise UnsupportedError(
            f"interpolate: {show_shape(input.shape)} has {input.ndim} axes, mode {mode!r} "
            f"resamples {' or '.join(map(str, allowed))}",
            tensor=describe(input.uop),
            line=here(),
            remedy="unsqueeze() the axes of batch and channels, or choose the mode of so many axes",
        )
    given = scale_factor if size is None else size
    if isinstance(given, (tuple, list)) and len(given) != input.ndim - 2:
        raise ShapeError(
            f"interpolate: {len(given)} numbers for the {input.ndim - 2} axes after the first two",
            tensor=describe(input.uop),
            line=here(),
        )
    if recompute_scale_factor and scale_factor is not None:
        size, scale_factor = input._output_sizes(None, scale_factor)[0], None
    return input.interpolate(size, mode, bool(align_corners), scale_factor, antialias)


upsample = interpolate


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Sample images at the coordinates of a grid; see `Tensor.grid_sample`.

    Args:
        input: (N, C, H, W) or (N, C, D, H, W).
        grid: coordinates in -1..1, (N, Ho, Wo, 2) or (N, Do, Ho, Wo, 3).
        mode: "bilinear", "nearest", or of images "bicubic".
        padding_mode: "zeros", "border" or "reflection".
        align_corners: the edges are the middles of the outermost elements.

    Returns a float tensor of shape (N, C, Ho, Wo) or (N, C, Do, Ho, Wo).

    Raises ConfigError for another mode or padding, ShapeError for other shapes.

    >>> nn.functional.grid_sample(Tensor([[[[1.0, 2.0]]]]), Tensor([[[[0.0, 0.0]]]])).tolist()
    [[[[1.5]]]]
    """
    return input.grid_sample(grid, mode, padding_mode, bool(align_corners))


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Grid for `grid_sample` of affine maps.

    Args:
        theta: (N, 2, 3), or (N, 3, 4).
        size: (N, C, H, W), or (N, C, D, H, W).
        align_corners: coordinates -1 and 1 are the centres of the outer pixels, else their outer
            edges.

    Returns a float tensor of shape (N, H, W, 2), or (N, D, H, W, 3).

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
        line = _coordinates(theta, count)
        if not align_corners:
            line = line * (count - 1) / count
        lines.append(line.reshape(*[-1 if at == axis else 1 for at in range(axes)]).expand(*sizes))
    # x, the last axis, comes first.
    positions = Tensor.stack(*lines[::-1], lines[0].const_like(1), dim=-1).reshape(1, -1, axes + 1)
    return (positions @ theta.transpose(1, 2)).reshape(size[0], *sizes, axes)


def _coordinates(like: Tensor, count: int) -> Tensor:
    """From -1 to 1 in `count` equal steps, each rounded once, from a step in the dtype of `like`;
    0 for one. At an element the gradient of `grid_sample` depends on the last bit.
    """
    steps = Tensor.arange(count, device=like.device)
    if count < 2:
        return steps.cast(like.dtype)
    wide = steps.cast(steps._widest_float())
    step = (wide * 0 + 2 / (count - 1)).cast(like.dtype).cast(wide.dtype)
    first, last = wide * step - 1, (wide * -1 + (count - 1)) * -step + 1
    return (steps < count // 2).where(first, last).cast(like.dtype)


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
    """Attention: softmax(query @ key.T * scale + mask) @ value (Vaswani et al. 2017,
    arXiv:1706.03762); see `Tensor.scaled_dot_product_attention`.

    Args:
        query: (..., queries, size).
        key: (..., keys, size).
        value: (..., keys, width).
        attn_mask: broadcasts to (..., queries, keys); bool, true where a key may be seen, or float,
            added.
        dropout_p: share of the weights that is set to zero.
        is_causal: query i sees the keys 0 to i only.
        scale: factor of the scores, by default 1 / sqrt(size).
        enable_gqa: repeat the heads of key and value.

    Returns a float tensor of shape (..., queries, width).

    Raises ShapeError if both a mask and `is_causal` are given, or shapes do not fit.

    >>> q = k = Tensor.zeros(1, 2, 4)
    >>> v = Tensor([[[1.0, 2.0], [3.0, 6.0]]])
    >>> nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).tolist()
    [[[1.0, 2.0], [2.0, 4.0]]]
    """
    return query.scaled_dot_product_attention(
        key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
    )
