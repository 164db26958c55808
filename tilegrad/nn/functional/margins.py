"""Losses of a margin: what is right should score higher, or lie nearer, by so much."""

from __future__ import annotations

from collections.abc import Callable

from tilegrad.base.errors import ConfigError, ShapeError
from tilegrad.base.origin import as_users
from tilegrad.nn.functional.distances import cosine_similarity, pairwise_distance
from tilegrad.nn.functional.loss_checks import check_shapes, reduced
from tilegrad.tensor.handle.core import check_tensors, describe
from tilegrad.tensor.handle.size_arguments import same_shape, show_shape
from tilegrad.tensor.storage.checked import checked
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "cosine_embedding_loss", "hinge_embedding_loss", "margin_ranking_loss", "multi_margin_loss",
    "multilabel_margin_loss", "multilabel_soft_margin_loss", "soft_margin_loss",
    "triplet_margin_loss", "triplet_margin_with_distance_loss",
]  # fmt: skip


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Cosine loss of pairs of vectors: 1 - cos where the target is 1, max(0, cos - margin) where it
    is -1, and 0 for another target.

    Args:
        input1: (N, D) or (D,).
        input2: the same shape.
        target: 1 or -1, (N,) or ().
        margin: the largest cosine of unlike vectors that costs nothing.
        reduction: "mean" and "sum" give one number, "none" one for each element.

    Returns a float number, or (N,) for "none".

    Raises ShapeError for other shapes, ConfigError for another `reduction`.

    >>> x = Tensor([[1.0, 0.0]])
    >>> nn.functional.cosine_embedding_loss(x, x, Tensor([1])).item()
    0.0
    """
    check_shapes("cosine_embedding_loss", input1, input2)
    cosine = cosine_similarity(input1, input2, -1)
    unlike = (target.eq(-1)).where((cosine - margin).clip(0.0), 0.0)
    loss = (target.eq(1)).where(1 - cosine, unlike)
    return reduced("cosine_embedding_loss", loss, reduction)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Triplet loss: max(0, d(anchor, positive) - d(anchor, negative) + margin), d(a, b) the p-norm
    of a - b + eps along the last axis (Balntas et al. 2016).

    Args:
        anchor: (N, D) or (D,).
        positive: the same shape.
        negative: the same shape.
        margin: how much farther the negative is to be.
        p: order of the norm.
        eps: added to the differences.
        swap: take the nearer of anchor and positive to the negative.
        reduction: "mean" and "sum" give one number, "none" one for each element.

    Returns a float number, or (N,) for "none".

    Raises ShapeError unless the shapes broadcast, ConfigError for another option.

    >>> x = Tensor([[1.0, 0.0]])
    >>> nn.functional.triplet_margin_loss(x, x, x + 9).item()
    0.0
    """
    check_shapes("triplet_margin_loss", anchor, positive)
    check_shapes("triplet_margin_loss", anchor, negative)

    def far_apart(one: Tensor, other: Tensor) -> Tensor:
        return pairwise_distance(one, other, p, eps)

    near, far = far_apart(anchor, positive), far_apart(anchor, negative)
    if swap:
        far = far.minimum(far_apart(positive, negative))
    return reduced("triplet_margin_loss", (near - far + margin).clip(0.0), reduction)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """`triplet_margin_loss` by a distance of one's own.

    Args:
        anchor: (N, D) or (D,).
        positive: the same shape.
        negative: the same shape.
        distance_function: takes two tensors and gives (N,); by default `pairwise_distance`.
        margin: how much farther the negative is to be.
        swap: take the nearer of anchor and positive to the negative.
        reduction: "mean" and "sum" give one number, "none" one for each element.

    Returns a float number, or (N,) for "none".

    Raises ConfigError for another option, ShapeError unless the shapes broadcast.

    >>> x = Tensor([[1.0, 0.0]])
    >>> nn.functional.triplet_margin_with_distance_loss(x, x, x + 9).item()
    0.0
    """

    def far_apart(one: Tensor, other: Tensor) -> Tensor:
        return as_users(distance_function or pairwise_distance, one, other)

    near, far = far_apart(anchor, positive), far_apart(anchor, negative)
    if swap:
        far = far.minimum(far_apart(positive, negative))
    return reduced("triplet_margin_with_distance_loss", (near - far + margin).clip(0.0), reduction)


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """Ranking loss: max(0, margin - target * (input1 - input2)); the first should be above the
    second where the target is 1, below it where it is -1.

    Args:
        input1: a tensor.
        input2: a tensor that broadcasts with it.
        target: 1 or -1; broadcasts.
        margin: the least difference.
        reduction: "mean" and "sum" give one number, "none" one for each element.

    Returns a float number, or for "none" a tensor of the shape of the elements.

    Raises ShapeError unless the shapes broadcast, ConfigError for another `reduction`.

    >>> one, two = Tensor([1.0]), Tensor([2.0])
    >>> nn.functional.margin_ranking_loss(one, two, Tensor([1.0]), margin=0.5).item()
    1.5
    """
    check_shapes("margin_ranking_loss", input1, input2)
    check_shapes("margin_ranking_loss", input1, target)
    loss = (margin - target * (input1 - input2)).clip(0.0)
    return reduced("margin_ranking_loss", loss, reduction)


def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """Hinge loss of distances: themselves where the target is 1, max(0, margin - input) where it is
    -1.

    Args:
        input: distances, of any shape.
        target: 1 or -1; broadcasts.
        margin: least distance of unlike things.
        reduction: "mean" and "sum" give one number, "none" one for each element.

    Returns a float number, or for "none" a tensor of the shape of the elements.

    Raises ShapeError unless the shapes broadcast, ConfigError for another `reduction`.

    >>> nn.functional.hinge_embedding_loss(Tensor([3.0, 0.25]), Tensor([1, -1])).item()
    1.875
    """
    check_shapes("hinge_embedding_loss", input, target)
    # Another target has both terms.
    loss = target.ne(-1).where(input, 0.0) + target.ne(1).where((margin - input).clip(0.0), 0.0)
    return reduced("hinge_embedding_loss", loss, reduction)


def soft_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Logistic loss: log(1 + exp(-target * input)), without overflow.

    Args:
        input: a tensor of any shape.
        target: 1 or -1; broadcasts.
        reduction: "mean" and "sum" give one number, "none" one for each element.

    Returns a float number, or for "none" a tensor of the shape of the elements.

    Raises ShapeError unless the shapes broadcast, ConfigError for another `reduction`.

    >>> round(nn.functional.soft_margin_loss(Tensor([0.0]), Tensor([1.0])).item(), 4)
    0.6931
    """
    check_shapes("soft_margin_loss", input, target)
    return reduced("soft_margin_loss", -(input * target).logsigmoid(), reduction)


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Multi-class hinge loss: the sum over the other classes i of max(0, margin - input[target] +
    input[i])^p, divided by C, times the weight of the target's class.

    Args:
        input: scores, (N, C) or (C,).
        target: integer classes, (N,); () or (1,) beside (C,).
        p: 1 or 2.
        margin: the least difference.
        weight: factor of each class, (C,).
        reduction: "mean" and "sum" give one number, "none" one for each element.

    Returns a float number, or (N,) for "none".

    Raises ConfigError unless p is 1 or 2, ShapeError for targets of another shape, IndexBoundsError
    for a class that there is not, where the targets are known.

    >>> nn.functional.multi_margin_loss(Tensor([[0.5, 1.0, 0.0]]), Tensor([1])).item()
    0.1666666716337204
    """
    if p not in (1, 2):
        raise ConfigError(f"multi_margin_loss: p must be 1 or 2, not {p}")
    if input.ndim == 1 and same_shape(target.shape, (1,)):
        target = target.reshape(())
    _check_classes("multi_margin_loss", input, target, input.shape[:-1])
    target = checked("multi_margin_loss", target, input._sizes[-1], wraps=False)
    is_target = target.unsqueeze(-1).eq(Tensor.arange(input._sizes[-1], device=input.device))
    own = is_target.where(input, 0.0).sum(-1, keepdim=True)
    short = (margin - own + input).relu()
    loss = is_target.where(0.0, short if p == 1 else short.square()).mean(-1)
    if weight is not None:
        loss = loss * is_target.where(weight, 0.0).sum(-1)
    return reduced("multi_margin_loss", loss, reduction)


def multilabel_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Hinge loss of several classes at once: the sum over each target class t and each class i that
    is none of them of max(0, 1 - input[t] + input[i]), divided by C.

    Args:
        input: scores, (N, C) or (C,).
        target: integer classes in that shape; those before the first -1 count.
        reduction: "mean" and "sum" give one number, "none" one for each element.

    Returns a float number, or (N,) for "none".

    Raises ShapeError for other shapes, ConfigError for another `reduction`.

    >>> x, y = Tensor([[0.1, 0.2, 0.4, 0.8]]), Tensor([[3, 0, -1, 1]])
    >>> round(nn.functional.multilabel_margin_loss(x, y).item(), 4)
    0.85
    """
    _check_classes("multilabel_margin_loss", input, target, input.shape)
    is_counted = (target < 0).cumsum(-1, dtype="int32").eq(0)
    classes = Tensor.arange(input._sizes[-1], device=input.device)
    is_class = target.unsqueeze(-1).eq(classes) & is_counted.unsqueeze(-1)
    own = is_class.where(input.unsqueeze(-2), 0.0).sum(-1)
    is_other = ~is_class.any(-2)
    short = (1 - own.unsqueeze(-1) + input.unsqueeze(-2)).relu()
    is_pair = is_counted.unsqueeze(-1) & is_other.unsqueeze(-2)
    loss = is_pair.where(short, 0.0).sum((-2, -1)) / input._sizes[-1]
    return reduced("multilabel_margin_loss", loss, reduction)


def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Mean over the classes of the binary cross-entropy of sigmoid(input).

    Args:
        input: scores, (N, C) or (C,).
        target: 1 or 0, in that shape.
        weight: factor of each class, (C,).
        reduction: "mean" and "sum" give one number, "none" one for each element.

    Returns a float number, or (N,) for "none".

    Raises ShapeError for other shapes, ConfigError for another `reduction`.

    >>> x, y = Tensor([[0.0, 0.0]]), Tensor([[1.0, 0.0]])
    >>> round(nn.functional.multilabel_soft_margin_loss(x, y).item(), 4)
    0.6931
    """
    check_shapes("multilabel_soft_margin_loss", input, target)
    loss = -(target * input.logsigmoid() + (1 - target) * (-input).logsigmoid())
    loss = loss if weight is None else loss * weight
    return reduced("multilabel_soft_margin_loss", loss.mean(-1), reduction)


def _check_classes(name: str, input: Tensor, target: Tensor, shape: tuple[object, ...]) -> None:
    check_tensors(name, input, target)
    if input.ndim not in (1, 2) or not same_shape(target.shape, shape):
        raise ShapeError(
            f"{name}: target {show_shape(target.shape)} does not fit {show_shape(input.shape)}",
            input=describe(input.uop),
            target=describe(target.uop),
            rule=f"scores (N, C) or (C,), and classes {show_shape(shape)}",
        )
