"""Losses as modules, under PyTorch's names; each keeps its arguments for `nn.functional`."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilegrad.nn import functional
from tilegrad.nn.functional.ctc import Lengths
from tilegrad.nn.functional.loss_checks import IGNORED
from tilegrad.nn.module import Module
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CrossEntropyLoss", "GaussianNLLLoss", "HuberLoss",
    "KLDivLoss", "L1Loss", "MSELoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss",
    "MultiMarginLoss", "NLLLoss", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss",
]  # fmt: skip


class _Loss(Module):
    """A loss trains nothing: the weights of its classes are state."""

    buffer_names = ("weight", "pos_weight")


@dataclass(eq=False, repr=False)
class CrossEntropyLoss(_Loss):
    """Cross-entropy of softmax(input) over axis 1: `functional.cross_entropy` as a module.

    Args:
        weight: factor of each class, (C,).
        ignore_index: a class that does not count.
        reduction: "mean" (over the weights that count), "sum" or "none".
        label_smoothing: share in 0..1 of each target that is spread over all classes (Szegedy et
            al. 2015, arXiv:1512.00567).

    Shape: input logits, (N, C, ...) or (C,); target integer classes (N, ...) or (), or
    probabilities of the shape of `input`. The loss is a float number, or for "none" (N, ...).

    Raises ShapeError for a target of another shape, DTypeError for classes that are no integers, or
    another option.

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
    """Negated log-probability of each target class: `functional.nll_loss` as a module.

    Args:
        weight: factor of each class, (C,).
        ignore_index: a class that does not count.
        reduction: "mean" (over the weights that count), "sum" or "none".

    Shape: input log-probabilities, (N, C, ...) or (C,); target integer classes, (N, ...) or (). The
    loss is a float number, or for "none" (N, ...).

    Raises ShapeError for a target of another shape, DTypeError for classes that are no integers.

    >>> nn.NLLLoss()(Tensor([[-1.0, -2.0], [-3.0, -0.5]]), Tensor([0, 1])).item()
    0.75
    """

    weight: Tensor | None = None
    ignore_index: int | None = IGNORED
    reduction: str = "mean"

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.nll_loss(input, target, self.weight, self.ignore_index, self.reduction)


@dataclass(eq=False, repr=False)
class MSELoss(_Loss):
    """Squared difference: (input - target)^2. It is `functional.mse_loss` as a module.

    Args:
        reduction: "mean" and "sum" give one number, "none" one for each element.

    Shape: input a tensor of any shape; target a tensor whose shape broadcasts with `input`. The
    loss is a float number, or for "none" a tensor of the shape of the elements.

    Raises ShapeError unless the shapes broadcast, DTypeError for what is no tensor.

    >>> nn.MSELoss()(Tensor([1.0, 2.0]), Tensor([1.0, 4.0])).item()
    2.0
    """

    reduction: str = "mean"

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.mse_loss(input, target, self.reduction)


@dataclass(eq=False, repr=False)
class L1Loss(_Loss):
    """Magnitude of the difference: |input - target|. It is `functional.l1_loss` as a module.

    Args:
        reduction: "mean" and "sum" give one number, "none" one for each element.

    Shape: input a tensor of any shape; target a tensor whose shape broadcasts with `input`. The
    loss is a float number, or for "none" a tensor of the shape of the elements.

    Raises ShapeError unless the shapes broadcast, DTypeError for what is no tensor.

    >>> nn.L1Loss()(Tensor([1.0, 2.0]), Tensor([1.0, 4.0])).item()
    1.0
    """

    reduction: str = "mean"

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.l1_loss(input, target, self.reduction)


@dataclass(eq=False, repr=False)
class SmoothL1Loss(_Loss):
    """Smooth magnitude of the difference: `huber_loss` divided by `beta`; the magnitude itself
    where that is 0 (Girshick 2015, arXiv:1504.08083). It is `functional.smooth_l1_loss` as a
    module.

    Args:
        reduction: "mean" and "sum" give one number, "none" one for each element.
        beta: where the line begins, at least 0.

    Shape: input a tensor of any shape; target a tensor whose shape broadcasts with `input`. The
    loss is a float number, or for "none" a tensor of the shape of the elements.

    Raises ShapeError unless the shapes broadcast, ConfigError for another option.

    >>> nn.SmoothL1Loss()(Tensor([0.0, 0.0]), Tensor([0.5, 2.0])).item()
    0.8125
    """

    reduction: str = "mean"
    beta: float = 1.0

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.smooth_l1_loss(input, target, self.reduction, self.beta)


@dataclass(eq=False, repr=False)
class HuberLoss(_Loss):
    """Huber loss: half the squared difference d up to |d| = delta, then the line delta * (|d| -
    delta / 2) (Huber 1964). It is `functional.huber_loss` as a module.

    Args:
        reduction: "mean" and "sum" give one number, "none" one for each element.
        delta: where the line begins, positive.

    Shape: input a tensor of any shape; target a tensor whose shape broadcasts with `input`. The
    loss is a float number, or for "none" a tensor of the shape of the elements.

    Raises ShapeError unless the shapes broadcast, ConfigError for another option.

    >>> nn.HuberLoss(delta=2.0)(Tensor([0.0, 0.0]), Tensor([1.0, 4.0])).item()
    3.25
    """

    reduction: str = "mean"
    delta: float = 1.0

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.huber_loss(input, target, self.reduction, self.delta)


@dataclass(eq=False, repr=False)
class BCELoss(_Loss):
    """Binary cross-entropy: -(t log p + (1 - t) log(1 - p)); as in PyTorch, a logarithm is at least
    -100. It is `functional.binary_cross_entropy` as a module.

    Args:
        weight: factor of each element; broadcasts.
        reduction: "mean" and "sum" give one number, "none" one for each element.

    Shape: input probabilities p, of any shape; target t in 0..1, of the same shape. The loss is a
    float number, or for "none" a tensor of the shape of the elements.

    Raises ShapeError for another shape, ConfigError for another `reduction`, DataError under
    `TILEGRAD_CHECK` for what is no probability.

    >>> round(nn.BCELoss()(Tensor([0.5, 0.5]), Tensor([1.0, 0.0])).item(), 4)
    0.6931
    """

    weight: Tensor | None = None
    reduction: str = "mean"

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.binary_cross_entropy(input, target, self.weight, self.reduction)


@dataclass(eq=False, repr=False)
class BCEWithLogitsLoss(_Loss):
    """Binary cross-entropy of sigmoid(input), without overflow:
    `functional.binary_cross_entropy_with_logits` as a module.

    Args:
        weight: factor of each element; broadcasts.
        reduction: "mean" and "sum" give one number, "none" one for each element.
        pos_weight: factor of the loss of positives; broadcasts.

    Shape: input a tensor of any shape; target numbers in 0..1, of the same shape. The loss is a
    float number, or for "none" a tensor of the shape of the elements.

    Raises ShapeError for another shape, ConfigError for another `reduction`.

    >>> round(nn.BCEWithLogitsLoss()(Tensor([0.0, 0.0]), Tensor([1.0, 0.0])).item(), 4)
    0.6931
    """

    weight: Tensor | None = None
    reduction: str = "mean"
    pos_weight: Tensor | None = None

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(
            input, target, self.weight, self.reduction, self.pos_weight
        )


@dataclass(eq=False, repr=False)
class KLDivLoss(_Loss):
    """Kullback-Leibler divergence of log-probabilities: target * (log target - input). It is
    `functional.kl_div` as a module.

    Args:
        reduction: "mean", "sum", "none", or "batchmean", the sum divided by the length of the first
            axis.
        log_target: whether `target` is a logarithm.

    Shape: input log-probabilities, of any shape; target probabilities of the same shape, or their
    logarithms with `log_target`. The loss is a float number, or for "none" a tensor of the shape of
    the elements.

    Raises ShapeError unless the shapes broadcast, ConfigError for another `reduction`.

    >>> nn.KLDivLoss(reduction="sum")(Tensor([0.5, 0.5]).log(), Tensor([0.5, 0.5])).item()
    0.0
    """

    reduction: str = "mean"
    log_target: bool = False

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.kl_div(input, target, self.reduction, self.log_target)


@dataclass(eq=False, repr=False)
class PoissonNLLLoss(_Loss):
    """Negated log-probability of counts in Poisson distributions: exp(input) - target * input, or
    input - target * log(input + eps) without `log_input`. It is `functional.poisson_nll_loss` as a
    module.

    Args:
        log_input: whether `input` is a logarithm.
        full: add Stirling's formula for log(target!) where the target is above 1: target *
            log(target) - target + log(2 * pi * target) / 2.
        eps: added to the mean in the logarithm.
        reduction: "mean" and "sum" give one number, "none" one for each element.

    Shape: input logarithms of the means, or the means; target counts; broadcasts. The loss is a
    float number, or for "none" a tensor of the shape of the elements.

    Raises ShapeError unless the shapes broadcast, ConfigError for another `reduction`.

    >>> nn.PoissonNLLLoss()(Tensor([0.0, 0.0]), Tensor([1.0, 2.0])).item()
    1.0
    """

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
    """Negated log-probability in normal distributions: (log v + (input - target)^2 / v) / 2, v the
    variance, at least `eps`, whose gradient goes on below that. It is
    `functional.gaussian_nll_loss` as a module.

    Args:
        full: add log(2 * pi) / 2.
        eps: least variance.
        reduction: "mean" and "sum" give one number, "none" one for each element.

    Shape: input means, of any shape; target values; broadcasts; var variances, in the shape of
    `input`, that with 1 for its last axis or without it, or a number. The loss is a float number,
    or for "none" a tensor of the shape of the elements.

    Raises ShapeError for another shape, ConfigError for another option.

    >>> nn.GaussianNLLLoss()(Tensor([1.0]), Tensor([3.0]), Tensor([1.0])).item()
    2.0
    """

    full: bool = field(default=False, kw_only=True)
    eps: float = field(default=1e-6, kw_only=True)
    reduction: str = field(default="mean", kw_only=True)

    def __call__(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        return functional.gaussian_nll_loss(input, target, var, self.full, self.eps, self.reduction)


@dataclass(eq=False, repr=False)
class SoftMarginLoss(_Loss):
    """Logistic loss: log(1 + exp(-target * input)), without overflow. It is
    `functional.soft_margin_loss` as a module.

    Args:
        reduction: "mean" and "sum" give one number, "none" one for each element.

    Shape: input a tensor of any shape; target 1 or -1; broadcasts. The loss is a float number, or
    for "none" a tensor of the shape of the elements.

    Raises ShapeError unless the shapes broadcast, ConfigError for another `reduction`.

    >>> round(nn.SoftMarginLoss()(Tensor([0.0, 0.0]), Tensor([1.0, -1.0])).item(), 4)
    0.6931
    """

    reduction: str = "mean"

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.soft_margin_loss(input, target, self.reduction)


@dataclass(eq=False, repr=False)
class MultiMarginLoss(_Loss):
    """Multi-class hinge loss: the sum over the other classes i of max(0, margin - input[target] +
    input[i])^p, divided by C, times the weight of the target's class. It is
    `functional.multi_margin_loss` as a module.

    Args:
        p: 1 or 2.
        margin: the least difference.
        weight: factor of each class, (C,).
        reduction: "mean" and "sum" give one number, "none" one for each element.

    Shape: input scores, (N, C) or (C,); target integer classes, (N,) or (). The loss is a float
    number, or (N,) for "none".

    Raises ConfigError unless p is 1 or 2, ShapeError for targets of another shape.

    >>> nn.MultiMarginLoss()(Tensor([[1.0, 1.0]]), Tensor([0])).item()
    0.5
    """

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
    """Hinge loss of several classes at once: the sum over each target class t and each class i that
    is none of them of max(0, 1 - input[t] + input[i]), divided by C. It is
    `functional.multilabel_margin_loss` as a module.

    Args:
        reduction: "mean" and "sum" give one number, "none" one for each element.

    Shape: input scores, (N, C) or (C,); target integer classes in that shape; those before the
    first -1 count. The loss is a float number, or (N,) for "none".

    Raises ShapeError for other shapes, ConfigError for another `reduction`.

    >>> nn.MultiLabelMarginLoss()(Tensor([[1.0, 1.0]]), Tensor([[0, -1]])).item()
    0.5
    """

    reduction: str = "mean"

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.multilabel_margin_loss(input, target, self.reduction)


@dataclass(eq=False, repr=False)
class MultiLabelSoftMarginLoss(_Loss):
    """Mean over the classes of the binary cross-entropy of sigmoid(input):
    `functional.multilabel_soft_margin_loss` as a module.

    Args:
        weight: factor of each class, (C,).
        reduction: "mean" and "sum" give one number, "none" one for each element.

    Shape: input scores, (N, C) or (C,); target 1 or 0, in that shape. The loss is a float number,
    or (N,) for "none".

    Raises ShapeError for other shapes, ConfigError for another `reduction`.

    >>> loss = nn.MultiLabelSoftMarginLoss()
    >>> round(loss(Tensor([[0.0, 0.0]]), Tensor([[1.0, 0.0]])).item(), 4)
    0.6931
    """

    weight: Tensor | None = None
    reduction: str = "mean"

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.multilabel_soft_margin_loss(input, target, self.weight, self.reduction)


@dataclass(eq=False, repr=False)
class CTCLoss(_Loss):
    """Connectionist temporal classification: the negated log-probability of label sequences, summed
    over all alignments (Graves et al. 2006). It is `functional.ctc_loss` as a module.

    Args:
        blank: the class that stands for no label.
        reduction: "none" for (N,), "sum", or "mean": of the losses over the lengths of the targets.
        zero_infinity: 0, with a gradient of 0, where the steps are too few for the labels;
            otherwise the loss is infinite.

    Shape: log_probs logarithms of probabilities, (T, N, C), or (T, C) of one sequence; targets
    labels, integers (N, S), the first `target_lengths` of each row, or all sequences one after
    another (the sum of `target_lengths`,); input_lengths how many steps of each sequence count,
    (N,); target_lengths how many labels each sequence has, (N,). The loss is a float number, or
    (N,) for "none".

    Raises ShapeError for shapes or lengths that do not fit, DTypeError for labels that are no
    integers, ConfigError for a blank that is no class.

    >>> nn.CTCLoss()(Tensor.zeros(2, 1, 2), Tensor([[1]]), Tensor([2]), Tensor([1])).shape
    ()
    """

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
