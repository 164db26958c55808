"""`SyncBatchNorm`: batch normalisation over all processes; there is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilegrad.nn.norms import BatchNorm

__all__ = ["synchronized"]


class SyncBatchNorm(BatchNorm):
    """Batch normalisation over what all processes hold: in one process that of `BatchNorm2d`, for
    inputs of any number of axes from two on.

    Args:
        num_features: number of channels C.
        eps: added to the variance.
        momentum: share of the new statistics in the running ones, or None for the mean of all
            batches.
        affine: whether there are `weight` and `bias`.
        track_running_stats: whether there are running statistics.
        process_group: the processes; there is one, whatever is given.
        place: `device` and `dtype` of the weights.

    Raises ValueError for an input of fewer than two axes.
    """

    _converts: tuple[type, ...]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        **options: Any,
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, **options)

    def __call__(self, x: Any) -> Any:
        if x.ndim < 2:
            raise ValueError(f"expected at least 2D input (got {x.ndim}D input)")
        return super().__call__(x)

    @classmethod
    def convert_sync_batchnorm(cls, module: Any, process_group: Any = None) -> Any:
        """`module` with each batch normalisation in it as one of this class, which has the same
        weights and statistics.
        """
        made = cls._of(module) if isinstance(module, cls._converts) else module
        for name, child in list(module.named_children()):
            setattr(made, name, cls.convert_sync_batchnorm(child, process_group))
        return made

    @classmethod
    def _of(cls, layer: Any) -> Any:
        made = cls(
            layer.num_features,
            layer.eps,
            layer.momentum,
            layer.affine,
            layer.track_running_stats,
        )
        for name in ("weight", "bias", *BatchNorm.buffer_names):
            setattr(made, name, getattr(layer, name))
        made.training = layer.training
        return made


def synchronized(layers: Mapping[str, type]) -> type:
    """The class, which converts the batch normalisations among `layers`."""
    SyncBatchNorm._converts = tuple(layers[f"BatchNorm{axes}d"] for axes in (1, 2, 3))
    return SyncBatchNorm
