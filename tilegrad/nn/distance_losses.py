"""Losses of distances and similarities between embeddings, as modules, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tilegrad.base.errors import ConfigError
from tilegrad.nn import functional
from tilegrad.nn.module import Module
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "CosineEmbeddingLoss", "CosineSimilarity", "HingeEmbeddingLoss", "MarginRankingLoss",
    "PairwiseDistance", "TripletMarginLoss", "TripletMarginWithDistanceLoss",
]  # fmt: skip


@dataclass(eq=False, repr=False)
class MarginRankingLoss(Module):
    """Ranking loss: max(0, margin - target * (input1 - input2)); the first should be above the
    second where the target is 1, below it where it is -1. It is `functional.margin_ranking_loss` as
    a module.

    Args:
        margin: the least difference.
        reduction: "mean" and "sum" give one number, "none" one for each element.

    Shape: input1 a tensor; input2 a tensor that broadcasts with it; target 1 or -1; broadcasts. The
    loss is a float number, or for "none" a tensor of the shape of the elements.

    Raises ShapeError unless the shapes broadcast, ConfigError for another `reduction`.

    >>> nn.MarginRankingLoss(margin=1.0)(Tensor([2.0]), Tensor([1.5]), Tensor([1.0])).item()
    0.5
    """

    margin: float = 0.0
    reduction: str = "mean"

    def __call__(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return functional.margin_ranking_loss(input1, input2, target, self.margin, self.reduction)


@dataclass(eq=False, repr=False)
class HingeEmbeddingLoss(Module):
    """Hinge loss of distances: themselves where the target is 1, max(0, margin - input) where it is
    -1. It is `functional.hinge_embedding_loss` as a module.

    Args:
        margin: least distance of unlike things.
        reduction: "mean" and "sum" give one number, "none" one for each element.

    Shape: input distances, of any shape; target 1 or -1; broadcasts. The loss is a float number, or
    for "none" a tensor of the shape of the elements.

    Raises ShapeError unless the shapes broadcast, ConfigError for another `reduction`.

    >>> nn.HingeEmbeddingLoss()(Tensor([0.5, 0.5]), Tensor([1, -1])).item()
    0.5
    """

    margin: float = 1.0
    reduction: str = "mean"

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.hinge_embedding_loss(input, target, self.margin, self.reduction)


@dataclass(eq=False, repr=False)
class CosineEmbeddingLoss(Module):
    """Cosine loss of pairs of vectors: 1 - cos where the target is 1, max(0, cos - margin) where it
    is -1. It is `functional.cosine_embedding_loss` as a module.

    Args:
        margin: the largest cosine of unlike vectors that costs nothing.
        reduction: "mean" and "sum" give one number, "none" one for each element.

    Shape: input1 (N, D) or (D,); input2 the same shape; target 1 or -1, (N,) or (). The loss is a
    float number, or (N,) for "none".

    Raises ShapeError for other shapes, ConfigError for another `reduction`.

    >>> nn.CosineEmbeddingLoss()(Tensor([[1.0, 0.0]]), Tensor([[0.0, 1.0]]), Tensor([1])).item()
    1.0
    """

    margin: float = 0.0
    reduction: str = "mean"

    def __call__(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return functional.cosine_embedding_loss(input1, input2, target, self.margin, self.reduction)


@dataclass(eq=False, repr=False)
class TripletMarginLoss(Module):
    """Triplet loss: max(0, d(anchor, positive) - d(anchor, negative) + margin), d(a, b) the p-norm
    of a - b + eps along the last axis (Balntas et al. 2016). It is `functional.triplet_margin_loss`
    as a module.

    Args:
        margin: how much farther the negative is to be.
        p: order of the norm.
        eps: added to the differences.
        swap: take the nearer of anchor and positive to the negative.
        reduction: "mean" and "sum" give one number, "none" one for each element.

    Shape: anchor (N, D) or (D,); positive the same shape; negative the same shape. The loss is a
    float number, or (N,) for "none".

    Raises ShapeError unless the shapes broadcast, ConfigError for another option and unless
    `margin` is above 0.

    >>> nn.TripletMarginLoss(eps=0.0)(Tensor([[0.0]]), Tensor([[1.0]]), Tensor([[1.5]])).item()
    0.5
    """

    margin: float = 1.0
    p: float = 2.0
    eps: float = 1e-6
    swap: bool = False
    reduction: str = "mean"

    def __post_init__(self) -> None:
        if self.margin <= 0:
            raise ConfigError(f"TripletMarginLoss: margin must be above 0, not {self.margin}")

    def __call__(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return functional.triplet_margin_loss(
            anchor, positive, negative, self.margin, self.p, self.eps, self.swap, self.reduction
        )


@dataclass(eq=False, repr=False)
class TripletMarginWithDistanceLoss(Module):
    """`triplet_margin_loss` by a distance of one's own:
    `functional.triplet_margin_with_distance_loss` as a module.

    Args:
        distance_function: takes two tensors and gives (N,); by default `pairwise_distance`.
        margin: how much farther the negative is to be.
        swap: take the nearer of anchor and positive to the negative.
        reduction: "mean" and "sum" give one number, "none" one for each element.

    Shape: anchor (N, D) or (D,); positive the same shape; negative the same shape. The loss is a
    float number, or (N,) for "none".

    Raises ConfigError for another option, ShapeError unless the shapes broadcast.

    >>> nn.TripletMarginWithDistanceLoss()(Tensor([[0.0]]), Tensor([[1.0]]), Tensor([[4.0]])).item()
    0.0
    """

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
class CosineSimilarity(Module):
    """Cosine of the angle between vectors: x1 * x2 summed along an axis, divided by the product of
    the lengths. It is `functional.cosine_similarity` as a module.

    Args:
        dim: the axis; a negative one counts from the last.
        eps: least length.

    Shape: x1 a tensor; x2 a tensor whose shape broadcasts with it. The result is a float tensor of
    the broadcast shape without `dim`.

    Raises ShapeError unless the shapes broadcast, IndexBoundsError for an axis that is out of
    range.

    >>> nn.CosineSimilarity()(Tensor([[1.0, 0.0]]), Tensor([[0.0, 1.0]])).tolist()
    [0.0]
    """

    dim: int = 1
    eps: float = 1e-8

    def __call__(self, x1: Tensor, x2: Tensor) -> Tensor:
        return functional.cosine_similarity(x1, x2, self.dim, self.eps)


@dataclass(eq=False, repr=False)
class PairwiseDistance(Module):
    """Distance of vectors: the p-norm of x1 - x2 + eps along the last axis. It is
    `functional.pairwise_distance` as a module.

    Args:
        p: order of the norm.
        eps: added to the difference, so that there is a gradient at 0.
        keepdim: keep the last axis, with size 1.

    Shape: x1 (..., D); x2 (..., D), which broadcasts with it. The result is a float tensor of the
    broadcast shape without the last axis.

    Raises ShapeError unless the shapes broadcast, DTypeError for what is no tensor.

    >>> nn.PairwiseDistance(eps=0.0)(Tensor([[0.0, 0.0]]), Tensor([[3.0, 4.0]])).tolist()
    [5.0]
    """

    p: float = 2.0
    eps: float = 1e-6
    keepdim: bool = False

    def __call__(self, x1: Tensor, x2: Tensor) -> Tensor:
        return functional.pairwise_distance(x1, x2, self.p, self.eps, self.keepdim)
