"""Losses of a prediction and what it should be, element by element or class by class.

`reduction` is "mean", "sum" or "none" throughout.
"""

from __future__ import annotations

import math

from tilegrad.base.dtype_promotion import sum_dtype
from tilegrad.base.errors import ConfigError, DTypeError
from tilegrad.nn.functional.loss_checks import IGNORED, check_shapes, reduced
from tilegrad.tensor.handle.core import check_tensors, describe
from tilegrad.tensor.handle.size_arguments import as_int
from tilegrad.tensor.storage.checked import check_shares
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy",
    "gaussian_nll_loss", "huber_loss", "kl_div", "l1_loss", "mse_loss", "nll_loss",
    "poisson_nll_loss", "smooth_l1_loss",
]  # fmt: skip


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int | None = IGNORED,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross-entropy of softmax(input) over axis 1.

    Args:
        input: logits, (N, C, ...) or (C,).
        target: integer classes (N, ...) or (), or probabilities of the shape of `input`.
        weight: factor of each class, (C,).
        ignore_index: a class that does not count.
        reduction: "mean" (over the weights that count), "sum" or "none".
        label_smoothing: share in 0..1 of each target that is spread over all classes (Szegedy et
            al. 2015, arXiv:1512.00567).

    Returns a float number, or for "none" (N, ...).

    Raises ShapeError for a target of another shape, DTypeError for classes that are no integers and
    for probabilities that are, or another option.

    >>> nn.functional.cross_entropy(Tensor([[100.0, 0.0]]), Tensor([1])).item()
    100.0
    """
    check_tensors("cross_entropy", input, target)
    if target.ndim == input.ndim and not target.dtype.is_float and input.ndim:
        raise DTypeError(
            f"cross_entropy: probabilities of classes are floats, not {target.dtype.name}",
            input=describe(input.uop),
            target=describe(target.uop),
            remedy="integer classes without the axis of the classes, or target.float()",
        )
    ignored = _ignored("cross_entropy", target, ignore_index)
    return input.cross_entropy(target, weight, ignored, reduction, label_smoothing)


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int | None = IGNORED,
    reduction: str = "mean",
) -> Tensor:
    """Negated log-probability of each target class.

    Args:
        input: log-probabilities, (N, C, ...) or (C,).
        target: integer classes, (N, ...) or ().
        weight: factor of each class, (C,).
        ignore_index: a class that does not count.
        reduction: "mean" (over the weights that count), "sum" or "none".

    Returns a float number, or for "none" (N, ...).

    Raises ShapeError for a target of another shape, DTypeError for classes that are no integers.

    >>> nn.functional.nll_loss(Tensor([[-0.5, -1.0]]), Tensor([1])).item()
    1.0
    """
    check_tensors("nll_loss", input, target)
    ignored = _ignored("nll_loss", target, ignore_index)
    return input.nll_loss(target, weight, ignored, reduction)


def _ignored(name: str, target: Tensor, ignore_index: int | None) -> int | None:
    """The class that does not count; None where no target can be it."""
    if ignore_index is None or target.dtype.is_float:
        return None
    index = as_int(name, "ignore_index", ignore_index)
    return index if index >= target.dtype.min else None


def mse_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """Squared difference: (input - target)^2.

    Args:
        input: a tensor of any shape.
        target: a tensor whose shape broadcasts with `input`.
        reduction: "mean" and "sum" give one number, "none" one for each element.
        weight: factor of each element; "mean" divides by the sum of the weights.

    Returns a float number, or for "none" a tensor of the shape of the elements.

    Raises ShapeError unless the shapes broadcast, DTypeError for what is no tensor.

    >>> nn.functional.mse_loss(Tensor([1.0, 2.0]), Tensor([2.0, 4.0])).item()
    2.5
    """
    check_shapes("mse_loss", input, target)
    if weight is not None:
        return _weighted("mse_loss", (input - target).square(), weight, reduction)
    return input.mse_loss(target, reduction)


def l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """Magnitude of the difference: |input - target|.

    Args:
        input: a tensor of any shape.
        target: a tensor whose shape broadcasts with `input`.
        reduction: "mean" and "sum" give one number, "none" one for each element.
        weight: factor of each element; "mean" divides by the sum of the weights.

    Returns a float number, or for "none" a tensor of the shape of the elements.

    Raises ShapeError unless the shapes broadcast, DTypeError for what is no tensor.

    >>> nn.functional.l1_loss(Tensor([1.0, 2.0]), Tensor([2.0, 4.0])).item()
    1.5
    """
    check_shapes("l1_loss", input, target)
    if weight is not None:
        return _weighted("l1_loss", (input - target).abs(), weight, reduction)
    return input.l1_loss(target, reduction)


def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """Huber loss: half the squared difference d up to |d| = delta, then the line delta * (|d| -
    delta / 2) (Huber 1964).

    Args:
        input: a tensor of any shape.
        target: a tensor whose shape broadcasts with `input`.
        reduction: "mean" and "sum" give one number, "none" one for each element.
        delta: where the line begins, positive.
        weight: factor of each element; "mean" divides by the number of elements.

    Returns a float number, or for "none" a tensor of the shape of the elements.

    Raises ShapeError unless the shapes broadcast, ConfigError for another option.

    >>> nn.functional.huber_loss(Tensor([0.0, 0.0]), Tensor([1.0, 3.0])).item()
    1.5
    """
    check_shapes("huber_loss", input, target)
    if not delta > 0:
        raise ConfigError(f"huber_loss: delta must be above 0, not {delta}")
    loss = _huber(input, target, delta)
    loss = loss.cast((input - target).dtype)
    return reduced("huber_loss", loss if weight is None else loss * weight, reduction)


def _weighted(name: str, loss: Tensor, weight: Tensor, reduction: str) -> Tensor:
    """`loss` times `weight`; the mean is that of the weights."""
    if reduction == "mean":
        return (loss * weight).sum() / weight.expand(*loss.shape).sum()
    return reduced(name, loss * weight, reduction)


def _huber(input: Tensor, target: Tensor, delta: float) -> Tensor:
    """The loss of each element; of half types in float32, to be rounded once."""
    dtype = (input - target).dtype
    error = input.cast(sum_dtype(dtype)) - target
    # One expression for both: inside, the bounded error is the error itself.
    inner = error.clip(-delta, delta)
    return inner * (error - inner * 0.5)


def smooth_l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """Smooth magnitude of the difference: `huber_loss` divided by `beta`; the magnitude itself
    where that is 0 (Girshick 2015, arXiv:1504.08083).

    Args:
        input: a tensor of any shape.
        target: a tensor whose shape broadcasts with `input`.
        reduction: "mean" and "sum" give one number, "none" one for each element.
        beta: where the line begins, at least 0.

    Returns a float number, or for "none" a tensor of the shape of the elements.

    Raises ShapeError unless the shapes broadcast, ConfigError for another option.

    >>> nn.functional.smooth_l1_loss(Tensor([0.0, 0.0]), Tensor([1.0, 3.0])).item()
    1.5
    """
    if beta == 0:
        return l1_loss(input, target, reduction)
    check_shapes("smooth_l1_loss", input, target)
    if not beta > 0:
        raise ConfigError(f"smooth_l1_loss: beta must not be below 0, not {beta}")
    loss = _huber(input, target, beta) * (1 / beta)
    return reduced("smooth_l1_loss", loss.cast((input - target).dtype), reduction)


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Binary cross-entropy: -(t log p + (1 - t) log(1 - p)); as in PyTorch, a logarithm is at least
    -100.

    Args:
        input: probabilities p, of any shape.
        target: t in 0..1, of the same shape.
        weight: factor of each element; broadcasts.
        reduction: "mean" and "sum" give one number, "none" one for each element.

    Returns a float number, or for "none" a tensor of the shape of the elements.

    Raises ShapeError for another shape, ConfigError for another `reduction`, DataError under
    `TILEGRAD_CHECK` for what is no probability.

    >>> nn.functional.binary_cross_entropy(Tensor([1.0, 0.0]), Tensor([1.0, 0.0])).item()
    -0.0
    """
    check_shapes("binary_cross_entropy", input, target)
    check_shares("binary_cross_entropy", "probability", input)
    check_shares("binary_cross_entropy", "target", target)
    loss = -(target * _limited_log(input) + (1 - target) * _limited_log(1 - input))
    return reduced("binary_cross_entropy", loss if weight is None else loss * weight, reduction)


def _limited_log(p: Tensor) -> Tensor:
    # The derivative is at most 1e12, as in PyTorch, and so at 0 too.
    is_usual = p > 1e-12
    fixed = p.detach()
    limited = (fixed > 0).where(fixed, 1.0).log()
    least = (fixed > 0).where(limited.maximum(-100.0), -100.0)
    below = least + (p - fixed) * 1e12
    return is_usual.where(is_usual.where(p, 1.0).log(), below)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Binary cross-entropy of sigmoid(input), without overflow.

    Args:
        input: a tensor of any shape.
        target: numbers in 0..1, of the same shape.
        weight: factor of each element; broadcasts.
        reduction: "mean" and "sum" give one number, "none" one for each element.
        pos_weight: factor of the loss of positives; broadcasts.

    Returns a float number, or for "none" a tensor of the shape of the elements.

    Raises ShapeError for another shape, ConfigError for another `reduction`.

    >>> nn.functional.binary_cross_entropy_with_logits(Tensor([100.0]), Tensor([0.0])).item()
    100.0
    """
    name = "binary_cross_entropy_with_logits"
    check_shapes(name, input, target)
    loss = input.binary_crossentropy_logits(target, "none", pos_weight)
    return reduced(name, loss if weight is None else loss * weight, reduction)


def kl_div(
    input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """Kullback-Leibler divergence of log-probabilities: target * (log target - input).

    Args:
        input: log-probabilities, of any shape.
        target: probabilities of the same shape, or their logarithms with `log_target`.
        reduction: "mean", "sum", "none", or "batchmean", the sum divided by the length of the first
            axis, if there is one.
        log_target: whether `target` is a logarithm.

    Returns a float number, or for "none" a tensor of the shape of the elements.

    Raises ShapeError unless the shapes broadcast, ConfigError for another `reduction`.

    >>> nn.functional.kl_div(Tensor([[0.0, 0.0]]), Tensor([[1.0, 1.0]]), reduction="sum").item()
    0.0
    """
    check_shapes("kl_div", input, target)
    if log_target:
        loss = target.exp() * (target - input)
    else:
        is_zero = target.eq(0)
        logarithm = is_zero.where(1.0, target).log()
        loss = is_zero.where(target * 0, target * (logarithm - input))
    if reduction == "batchmean":
        return loss.sum() / (input._sizes[0] if input.ndim else 1)
    return reduced("kl_div", loss, reduction)


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """Negated log-probability of counts in Poisson distributions: exp(input) - target * input, or
    input - target * log(input + eps) without `log_input`.

    Args:
        input: logarithms of the means, or the means.
        target: counts; broadcasts.
        log_input: whether `input` is a logarithm.
        full: add Stirling's formula for log(target!) where the target is above 1: target *
            log(target) - target + log(2 * pi * target) / 2.
        eps: added to the mean in the logarithm.
        reduction: "mean" and "sum" give one number, "none" one for each element.

    Returns a float number, or for "none" a tensor of the shape of the elements.

    Raises ShapeError unless the shapes broadcast, ConfigError for another `reduction`.

    >>> nn.functional.poisson_nll_loss(Tensor([0.0]), Tensor([3.0])).item()
    1.0
    """
    check_shapes("poisson_nll_loss", input, target)
    if log_input:
        loss = input.exp() - target * input
    else:
        loss = input - target * (input + eps).log()
    if full:
        is_large = target > 1
        count = is_large.where(target, 1.0)
        stirling = count * count.log() - count + (count * (2 * math.pi)).log() * 0.5
        loss = loss + is_large.where(stirling, 0.0)
    return reduced("poisson_nll_loss", loss, reduction)


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Negated log-probability in normal distributions: (log v + (input - target)^2 / v) / 2, v the
    variance, at least `eps`, whose gradient goes on below that.

    Args:
        input: means, of any shape.
        target: values; broadcasts.
        var: variances, in the shape of `input`, that with 1 for its last axis or without it, or a
            number.
        full: add log(2 * pi) / 2.
        eps: least variance.
        reduction: "mean" and "sum" give one number, "none" one for each element.

    Returns a float number, or for "none" a tensor of the shape of the elements.

    Raises ShapeError for another shape, ConfigError for another option.

    >>> nn.functional.gaussian_nll_loss(Tensor([1.0]), Tensor([3.0]), Tensor([1.0])).item()
    2.0
    """
    check_shapes("gaussian_nll_loss", input, target)
    spread = var if isinstance(var, Tensor) else input.const_like(var)
    if spread.ndim == input.ndim - 1 and spread.shape == input.shape[:-1]:
        spread = spread.unsqueeze(-1)
    # The limit is no part of the gradient, as in PyTorch.
    v = spread + (spread.detach().maximum(eps) - spread.detach())
    loss = (v.log() + (input - target).square() / v) * 0.5
    return reduced(
        "gaussian_nll_loss", loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction
    )
