"""Losses as functions, under the names and arguments of PyTorch's `nn.functional`.

`reduction` is "mean", "sum" or "none" throughout. They are the losses that `Tensor` has as methods,
and a few made of them.
"""

from __future__ import annotations

from tilegrad.base.errors import ConfigError, ShapeError
from tilegrad.tensor.core import describe
from tilegrad.tensor.sizes import here, same_shape, show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss",
    "cosine_similarity", "cross_entropy", "huber_loss", "kl_div", "l1_loss", "mse_loss", "nll_loss",
    "smooth_l1_loss", "triplet_margin_loss",
]  # fmt: skip

# PyTorch's: no class has this number.
IGNORED = -100


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int | None = IGNORED,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The cross-entropy of softmax(input) over axis 1 with classes, or with probabilities."""
    ignored = _ignored(target, ignore_index)
    return input.cross_entropy(target, weight, ignored, reduction, label_smoothing)


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int | None = IGNORED,
    reduction: str = "mean",
) -> Tensor:
    """The negated log-probability of each class in `target`; `input` has them along axis 1."""
    return input.nll_loss(target, weight, _ignored(target, ignore_index), reduction)


def _ignored(target: Tensor, ignore_index: int | None) -> int | None:
    """The class that does not count; None where no target can be it."""
    if ignore_index is None or target.dtype.is_float:
        return None
    return ignore_index if ignore_index >= target.dtype.min else None


def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """The squared difference."""
    _check_shapes("mse_loss", input, target)
    return input.mse_loss(target, reduction)


def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """The magnitude of the difference."""
    _check_shapes("l1_loss", input, target)
    return input.l1_loss(target, reduction)


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0
) -> Tensor:
    """Half the squared difference d up to |d| = delta, then the line delta * (|d| - delta / 2)."""
    _check_shapes("huber_loss", input, target)
    if not delta > 0:
        raise ConfigError(f"huber_loss: delta must be above 0, not {delta}", line=here())
    size = (input - target).abs()
    # One expression for both: inside, the smaller is the size itself.
    inner = size.minimum(delta)
    return _reduced("huber_loss", inner * (size - inner * 0.5), reduction)


def smooth_l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """`huber_loss` over `beta`; the magnitude of the difference where that is 0."""
    if beta == 0:
        return l1_loss(input, target, reduction)
    return huber_loss(input, target, reduction, beta) * (1 / beta)


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """-(t log p + (1 - t) log(1 - p)); as in PyTorch, a logarithm is at least -100."""
    _check_shapes("binary_cross_entropy", input, target)
    loss = -(target * _limited_log(input) + (1 - target) * _limited_log(1 - input))
    return _reduced("binary_cross_entropy", loss if weight is None else loss * weight, reduction)


def _limited_log(p: Tensor) -> Tensor:
    # The logarithm never sees 0, whose derivative is infinite.
    is_positive = p > 0
    return is_positive.where(is_positive.where(p, 1.0).log().maximum(-100.0), -100.0)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """`binary_cross_entropy` of sigmoid(input); positives count `pos_weight` times."""
    name = "binary_cross_entropy_with_logits"
    _check_shapes(name, input, target)
    loss = input.binary_crossentropy_logits(target, "none", pos_weight)
    return _reduced(name, loss if weight is None else loss * weight, reduction)


def kl_div(
    input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """target * (log target - input) of log-probabilities `input`; with `log_target`, `target` is a
    logarithm too. "batchmean" is the sum over the length of the first axis.
    """
    _check_shapes("kl_div", input, target)
    if log_target:
        loss = target.exp() * (target - input)
    else:
        is_positive = target > 0
        logarithm = is_positive.where(target, 1.0).log()
        loss = is_positive.where(target * (logarithm - input), target * 0)
    if reduction == "batchmean":
        return loss.sum() / input._sizes[0]
    return _reduced("kl_div", loss, reduction)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1 * x2 summed along `dim`, over the product of the lengths, each at least `eps`."""
    lengths = [x.square().sum(dim).maximum(eps * eps).sqrt() for x in (x1, x2)]
    return (x1 * x2).sum(dim) / (lengths[0] * lengths[1])


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1: (N, D) and (N,)."""
    _check_shapes("cosine_embedding_loss", input1, input2)
    cosine = cosine_similarity(input1, input2, -1)
    loss = (target > 0).where(1 - cosine, (cosine - margin).maximum(0.0))
    return _reduced("cosine_embedding_loss", loss, reduction)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), d(a, b) the p-norm of
    a - b + eps along the last axis.
    """
    _check_shapes("triplet_margin_loss", anchor, positive)
    _check_shapes("triplet_margin_loss", anchor, negative)
    near, far = (
        (anchor - other + eps).abs().pow(p).sum(-1).pow(1 / p) for other in (positive, negative)
    )
    return _reduced("triplet_margin_loss", (near - far + margin).maximum(0.0), reduction)


def _check_shapes(name: str, input: Tensor, target: Tensor) -> None:
    """Raise ShapeError unless both have one shape: stretching one to the other hides a mistake."""
    if not same_shape(input.shape, target.shape):
        raise ShapeError(
            f"{name}: shapes differ: {show_shape(input.shape)} and {show_shape(target.shape)}",
            input=describe(input.uop),
            target=describe(target.uop),
            line=here(),
        )


def _reduced(name: str, loss: Tensor, reduction: str) -> Tensor:
    if reduction not in ("mean", "sum", "none"):
        raise ConfigError(
            f"{name}: unknown reduction {reduction!r}", allowed="'mean', 'sum', 'none'", line=here()
        )
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss
