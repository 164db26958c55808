"""Images at other sizes, and at positions that a grid names, as functions."""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.base.errors import ShapeError, UnsupportedError
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.core import check_tensors, describe
from tilegrad.tensor.handle.size_arguments import show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = ["affine_grid", "grid_sample", "interpolate", "upsample"]


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
            remedy="unsqueeze() the axes of batch and channels, or choose the mode of so many axes",
        )
    given = scale_factor if size is None else size
    if isinstance(given, (tuple, list)) and len(given) != input.ndim - 2:
        raise ShapeError(
            f"interpolate: {len(given)} numbers for the {input.ndim - 2} axes after the first two",
            tensor=describe(input.uop),
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
        )
    return _affine_positions(theta, tuple(size[2:]), bool(align_corners))


@templated
def _affine_positions(theta: Tensor, sizes: tuple[int, ...], is_aligned: bool) -> Tensor:
    """(N, *sizes, axes): where the maps `theta` take the elements of an image of `sizes`."""
    axes = len(sizes)
    lines = []
    for axis, count in enumerate(sizes):
        line = _coordinates(theta, count)
        if not is_aligned:
            line = line * (count - 1) / count
        lines.append(line.reshape(*[-1 if at == axis else 1 for at in range(axes)]).expand(*sizes))
    # x, the last axis, comes first.
    # One product after the other, each rounded, and the shift at last, as PyTorch does: a matrix
    # product rounds otherwise, and at a tie of `grid_sample` the last bit decides.
    factors = theta.reshape(theta.shape[0], *[1] * axes, axes, axes + 1)
    *scaled, shift = [factors[..., k] for k in range(axes + 1)]
    terms = [line.unsqueeze(-1) * factor for line, factor in zip(lines[::-1], scaled)]
    return sum(terms[1:], terms[0]) + shift


def _coordinates(like: Tensor, count: int) -> Tensor:
    """From -1 to 1 in `count` equal steps, each rounded once, from a step in the dtype of `like`;
    0 for one. At an element the gradient of `grid_sample` depends on the last bit.
    """
    steps = Tensor.arange(count, device=like.device)
    line = steps.cast(like.dtype)._wide()
    if count < 2:
        return line.cast(like.dtype)
    step = line.const_like(2 / (count - 1)).cast(like.dtype).cast(line.dtype)
    first = line._times_plus(step, -1)
    last = (line * -1 + (count - 1))._times_plus(-step, 1)
    return (steps < count // 2).where(first, last).cast(like.dtype)
