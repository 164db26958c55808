"""Layers of tilegrad that take more, or have other defaults, in PyTorch."""

from __future__ import annotations

from typing import Any

from tilegrad import nn as ours
from tilegrad.nn import functional
from tilegrad.torch.tensor import Tensor

__all__ = ["ADAPTED"]


class RMSNorm(ours.RMSNorm):
    __doc__ = ours.RMSNorm.__doc__

    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        **options: Any,
    ):
        super().__init__(normalized_shape, eps, elementwise_affine, **options)


class Embedding(ours.Embedding):
    __doc__ = ours.Embedding.__doc__

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Any = None,
        _freeze: bool = False,
        **options: Any,
    ):
        rows = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
        super().__init__(num_embeddings, embedding_dim, *rows, **options)
        if _weight is not None:
            if tuple(_weight.shape) != (num_embeddings, embedding_dim):
                raise AssertionError(
                    "Shape of weight does not match num_embeddings and embedding_dim"
                )
            self.weight = self._as_parameter(_weight)
        self.weight.requires_grad_(not _freeze)


def _transposed(kind: Any, axes: int) -> type:
    """A transposed convolution whose call takes the sizes that its output is to have."""
    convolve = getattr(functional, f"conv_transpose{axes}d")

    def __call__(self: Any, input: Tensor, output_size: Any = None) -> Any:
        if output_size is None:
            return kind.__call__(self, input)
        added = _added(self, input, axes, tuple(output_size))
        shape = (self.stride, self.padding, added, self.groups, self.dilation)
        return convolve(input, self.weight, self.bias, *shape)

    return type(kind.__name__, (kind,), {"__call__": __call__, "__doc__": kind.__doc__})


def _added(layer: Any, input: Tensor, axes: int, wanted: tuple[int, ...]) -> tuple[int, ...]:
    """The elements to add at the end of each axis for an output of the sizes `wanted`, with or
    without batch and channels.

    Raises ValueError for sizes that no input has as many windows of.
    """
    if len(wanted) not in (axes, input.ndim):
        raise ValueError(
            f"ConvTranspose{axes}D: for {input.ndim}D input, output_size must have {axes} or "
            f"{input.ndim} elements (got {len(wanted)})"
        )
    sizes = tuple(int(size) for size in input.shape[-axes:])
    least = [
        (size - 1) * step - 2 * width + spread * (length - 1) + 1
        for size, step, width, spread, length in zip(
            sizes, layer.stride, layer.padding, layer.dilation, layer.kernel_size, strict=True
        )
    ]
    added = tuple(size - low for size, low in zip(wanted[-axes:], least))
    if not all(0 <= more < step for more, step in zip(added, layer.stride)):
        most = [low + step - 1 for low, step in zip(least, layer.stride)]
        raise ValueError(
            f"requested an output size of {list(wanted[-axes:])}, but valid sizes range from "
            f"{least} to {most} (for an input of {sizes})"
        )
    return added


ADAPTED: dict[str, type] = {
    "Embedding": Embedding, "RMSNorm": RMSNorm,
    **{
        f"ConvTranspose{axes}d": _transposed(getattr(ours, f"ConvTranspose{axes}d"), axes)
        for axes in (1, 2, 3)
    },
}  # fmt: skip
