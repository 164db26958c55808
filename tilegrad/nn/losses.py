"""Losses as objects, under PyTorch's names; each keeps its arguments for `nn.functional`."""

from __future__ import annotations

from dataclasses import dataclass

from tilegrad.nn import functional
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CrossEntropyLoss", "HuberLoss", "L1Loss", "MSELoss", "NLLLoss",
    "SmoothL1Loss",
]  # fmt: skip


@dataclass(eq=False)
class CrossEntropyLoss:
    """`functional.cross_entropy`."""

    weight: Tensor | None = None
    ignore_index: int | None = functional.IGNORED
    reduction: str = "mean"
    label_smoothing: float = 0.0

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(
            input, target, self.weight, self.ignore_index, self.reduction, self.label_smoothing
        )


@dataclass(eq=False)
class NLLLoss:
    """`functional.nll_loss`."""

    weight: Tensor | None = None
    ignore_index: int | None = functional.IGNORED
    reduction: str = "mean"

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.nll_loss(input, target, self.weight, self.ignore_index, self.reduction)


@dataclass(eq=False)
class MSELoss:
    """`functional.mse_loss`."""

    reduction: str = "mean"

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.mse_loss(input, target, self.reduction)


@dataclass(eq=False)
class L1Loss:
    """`functional.l1_loss`."""

    reduction: str = "mean"

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.l1_loss(input, target, self.reduction)


@dataclass(eq=False)
class SmoothL1Loss:
    """`functional.smooth_l1_loss`."""

    reduction: str = "mean"
    beta: float = 1.0

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.smooth_l1_loss(input, target, self.reduction, self.beta)


@dataclass(eq=False)
class HuberLoss:
    """`functional.huber_loss`."""

    reduction: str = "mean"
    delta: float = 1.0

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.huber_loss(input, target, self.reduction, self.delta)


@dataclass(eq=False)
class BCELoss:
    """`functional.binary_cross_entropy`."""

    weight: Tensor | None = None
    reduction: str = "mean"

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.binary_cross_entropy(input, target, self.weight, self.reduction)


@dataclass(eq=False)
class BCEWithLogitsLoss:
    """`functional.binary_cross_entropy_with_logits`."""

    weight: Tensor | None = None
    reduction: str = "mean"
    pos_weight: Tensor | None = None

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(
            input, target, self.weight, self.reduction, self.pos_weight
        )
