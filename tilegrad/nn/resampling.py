"""Images made larger or smaller, as modules: `Tensor.interpolate` with PyTorch's arguments."""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.nn.functional.resampling import interpolate
from tilegrad.nn.module import Module
from tilegrad.tensor.tensor import Tensor

__all__ = ["Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"]


class Upsample(Module):
    """Resample all axes but the first two.

    Args:
        size: the new sizes.
        scale_factor: factor of the sizes, rounded down, instead.
        mode: "nearest", "linear", "bilinear", "bicubic" or "trilinear".
        align_corners: the first and last points keep their positions.
        recompute_scale_factor: positions follow from the sizes, not from the factor.

    Shape: (N, C, *sizes) to (N, C, *new sizes), in the same dtype.

    Raises DTypeError for another mode, ShapeError unless there are as many sizes as axes to
    resample.

    >>> nn.Upsample(scale_factor=2)(Tensor([[[1.0, 2.0]]])).tolist()
    [[[1.0, 1.0, 2.0, 2.0]]]
    """

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ):
        self.size, self.scale_factor = size, scale_factor
        self.mode, self.align_corners = mode, align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def __call__(self, x: Tensor) -> Tensor:
        return interpolate(
            x,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            self.recompute_scale_factor,
        )


class UpsamplingNearest2d(Upsample):
    """`Upsample` with mode="nearest".

    Shape: (N, C, H, W) to (N, C, *new sizes).

    Raises ShapeError unless there are two sizes.

    >>> nn.UpsamplingNearest2d(scale_factor=2)(Tensor([[[[1.0, 2.0]]]])).tolist()
    [[[[1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 2.0, 2.0]]]]
    """

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
    ):
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """`Upsample` with mode="bilinear" and corners that keep their positions.

    Shape: (N, C, H, W) to (N, C, *new sizes).

    Raises ShapeError unless there are two sizes.

    >>> nn.UpsamplingBilinear2d(scale_factor=2)(Tensor.ones(1, 1, 2, 2)).shape
    (1, 1, 4, 4)
    """

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
    ):
        super().__init__(size, scale_factor, "bilinear", True)
