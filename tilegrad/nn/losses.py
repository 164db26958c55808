"""Losses as modules, under PyTorch's names; each keeps its arguments for `nn.functional`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tilegrad.nn import functional
from tilegrad.nn.functional.ctc import Lengths
from tilegrad.nn.functional.losses import IGNORED
from tilegrad.nn.module import Module
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss", "CosineSimilarity",
    "CrossEntropyLoss", "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss",
    "MSELoss", "MarginRankingLoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss",
    "MultiMarginLoss", "NLLLoss", "PairwiseDistance", "PoissonNLLLoss", "SmoothL1Loss",
    "SoftMarginLoss", "TripletMarginLoss", "TripletMarginWithDistanceLoss",
]  # fmt: skip


class _Loss(Module):
    """A loss trains nothing: the weights of its classes are state."""

    buffer_names = ("weight", "pos_weight")


@dataclass(eq=False, repr=False)
class CrossEntropyLoss(_Loss):
    """`functional.cross_entropy`.

    >>> loss = nn.CrossEntropyLoss(label_smoothing=0.1)
    >>> round(loss(Tensor([[0.0, 0.0]]), Tensor([1])).item(), 4)
    0.6931
    """

    weight: Tensor | None = None
    ignore_index: int | None = IGNORED
    reduction: str = "mean"
    label_smoothing: float = 0.0

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(
            input, target, self.weight, self.ignore_index, self.reduction, self.label_smoothing
        )


@dataclass(eq=False, repr=False)
class NLLLoss(_Loss):
    """`functional.nll_loss`."""

    weight: Tensor | None = None
    ignore_index: int | None = IGNORED
    reduction: str = "mean"

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.nll_loss(input, target, self.weight, self.ignore_index, self.reduction)


@dataclass(eq=False, repr=False)
class MSELoss(_Loss):
    """`functional.mse_loss`."""

    reduction: str = "mean"

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.mse_loss(input, target, self.reduction)


@dataclass(eq=False, repr=False)
class L1Loss(_Loss):
    """`functional.l1_loss`."""

    reduction: str = "mean"

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.l1_loss(input, target, self.reduction)


@dataclass(eq=False, repr=False)
class SmoothL1Loss(_Loss):
    """`functional.smooth_l1_loss`."""

    reduction: str = "mean"
    beta: float = 1.0

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.smooth_l1_loss(input, target, self.reduction, self.beta)


@dataclass(eq=False, repr=False)
class HuberLoss(_Loss):
    """`functional.huber_loss`."""

    reduction: str = "mean"
    delta: float = 1.0

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.huber_loss(input, target, self.reduction, self.delta)


@dataclass(eq=False, repr=False)
class BCELoss(_Loss):
    """`functional.binary_cross_entropy`."""

    weight: Tensor | None = None
    reduction: str = "mean"

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.binary_cross_entropy(input, target, self.weight, self.reduction)


@dataclass(eq=False, repr=False)
class BCEWithLogitsLoss(_Loss):
    """`functional.binary_cross_entropy_with_logits`."""

    weight: Tensor | None = None
    reduction: str = "mean"
    pos_weight: Tensor | None = None

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(
            input, target, self.weight, self.reduction, self.pos_weight
        )


@dataclass(eq=False, repr=False)
class KLDivLoss(_Loss):
    """`functional.kl_div`."""

    reduction: str = "mean"
    log_target: bool = False

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.kl_div(input, target, self.reduction, self.log_target)


@dataclass(eq=False, repr=False)
class PoissonNLLLoss(_Loss):
    """`functional.poisson_nll_loss`."""

    log_input: bool = True
    full: bool = False
    eps: float = field(default=1e-8, kw_only=True)
    reduction: str = field(default="mean", kw_only=True)

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.poisson_nll_loss(
            input, target, self.log_input, self.full, self.eps, self.reduction
        )


@dataclass(eq=False, repr=False)
class GaussianNLLLoss(_Loss):
    """`functional.gaussian_nll_loss`."""

    full: bool = field(default=False, kw_only=True)
    eps: float = field(default=1e-6, kw_only=True)
    reduction: str = field(default="mean", kw_only=True)

    def __call__(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        return functional.gaussian_nll_loss(input, target, var, self.full, self.eps, self.reduction)


@dataclass(eq=False, repr=False)
class MarginRankingLoss(_Loss):
    """`functional.margin_ranking_loss`."""

    margin: float = 0.0
    reduction: str = "mean"

    def __call__(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return functional.margin_ranking_loss(input1, input2, target, self.margin, self.reduction)


@dataclass(eq=False, repr=False)
class HingeEmbeddingLoss(_Loss):
    """`functional.hinge_embedding_loss`."""

    margin: float = 1.0
    reduction: str = "mean"

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.hinge_embedding_loss(input, target, self.margin, self.reduction)


@dataclass(eq=False, repr=False)
class CosineEmbeddingLoss(_Loss):
    """`functional.cosine_embedding_loss`."""

    margin: float = 0.0
    reduction: str = "mean"

    def __call__(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return functional.cosine_embedding_loss(input1, input2, target, self.margin, self.reduction)


@dataclass(eq=False, repr=False)
class TripletMarginLoss(_Loss):
    """`functional.triplet_margin_loss`."""

    margin: float = 1.0
    p: float = 2.0
    eps: float = 1e-6
    swap: bool = False
    reduction: str = "mean"

    def __call__(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return functional.triplet_margin_loss(
            anchor, positive, negative, self.margin, self.p, self.eps, self.swap, self.reduction
        )


@dataclass(eq=False, repr=False)
class TripletMarginWithDistanceLoss(_Loss):
    """`functional.triplet_margin_with_distance_loss`."""

    distance_function: Callable[[Tensor, Tensor], Tensor] | None = field(default=None, kw_only=True)
    margin: float = field(default=1.0, kw_only=True)
    swap: bool = field(default=False, kw_only=True)
    reduction: str = field(default="mean", kw_only=True)

    def __call__(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return functional.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


@dataclass(eq=False, repr=False)
class SoftMarginLoss(_Loss):
    """`functional.soft_margin_loss`."""

    reduction: str = "mean"

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.soft_margin_loss(input, target, self.reduction)


@dataclass(eq=False, repr=False)
class MultiMarginLoss(_Loss):
    """`functional.multi_margin_loss`."""

    p: int = 1
    margin: float = 1.0
    weight: Tensor | None = None
    reduction: str = "mean"

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.multi_margin_loss(
            input, target, self.p, self.margin, self.weight, self.reduction
        )


@dataclass(eq=False, repr=False)
class MultiLabelMarginLoss(_Loss):
    """`functional.multilabel_margin_loss`."""

    reduction: str = "mean"

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.multilabel_margin_loss(input, target, self.reduction)


@dataclass(eq=False, repr=False)
class MultiLabelSoftMarginLoss(_Loss):
    """`functional.multilabel_soft_margin_loss`."""

    weight: Tensor | None = None
    reduction: str = "mean"

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.multilabel_soft_margin_loss(input, target, self.weight, self.reduction)


@dataclass(eq=False, repr=False)
class CTCLoss(_Loss):
    """`functional.ctc_loss`."""

    blank: int = 0
    reduction: str = "mean"
    zero_infinity: bool = False

    def __call__(
        self, log_probs: Tensor, targets: Tensor, input_lengths: Lengths, target_lengths: Lengths
    ) -> Tensor:
        return functional.ctc_loss(
            log_probs,
            targets,
            input_lengths,
            target_lengths,
            self.blank,
            self.reduction,
            self.zero_infinity,
        )


@dataclass(eq=False, repr=False)
class CosineSimilarity(_Loss):
    """`functional.cosine_similarity`."""

    dim: int = 1
    eps: float = 1e-8

    def __call__(self, x1: Tensor, x2: Tensor) -> Tensor:
        return functional.cosine_similarity(x1, x2, self.dim, self.eps)


@dataclass(eq=False, repr=False)
class PairwiseDistance(_Loss):
    """`functional.pairwise_distance`."""

    p: float = 2.0
    eps: float = 1e-6
    keepdim: bool = False

    def __call__(self, x1: Tensor, x2: Tensor) -> Tensor:
        return functional.pairwise_distance(x1, x2, self.p, self.eps, self.keepdim)
