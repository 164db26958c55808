"""Losses: how far a prediction is from what it should be.

`reduction` is "mean", "sum" or "none" in all of them.
"""

from __future__ import annotations

from typing import Self

from tilegrad.base.errors import DTypeError, ShapeError, check_choice
from tilegrad.base.origin import composed
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.core import describe
from tilegrad.tensor.handle.size_arguments import same_shape, show_shape
from tilegrad.tensor.products.pooling_methods import Pooling
from tilegrad.tensor.storage.checked import check_shares, checked

__all__ = ["Loss"]

# exp(-100), which float32 holds as a subnormal number.
_LEAST_PROBABILITY = 3.7835e-44


class Loss(Pooling):
    """Losses; the prediction is this tensor."""

    __slots__ = ()

    def _reduced(self, name: str, reduction: str) -> Self:
        check_choice(name, "reduction", reduction, ("mean", "sum", "none"))
        return self.mean() if reduction == "mean" else self.sum() if reduction == "sum" else self

    @templated
    @composed
    def mse_loss(self, target: Self, reduction: str = "mean") -> Self:
        """Squared difference: (self - target)^2.

        Args:
            target: a tensor whose shape broadcasts with this one.
            reduction: "mean" and "sum" give one number, "none" one for each element.

        Returns a float number, or for "none" the broadcast shape.

        Raises ShapeError unless the shapes broadcast, ConfigError for another `reduction`.

        >>> Tensor([1.0, 2.0]).mse_loss(Tensor([2.0, 4.0])).item()
        2.5
        """
        return (self - target).square()._reduced("mse_loss", reduction)

    @templated
    @composed
    def l1_loss(self, target: Self, reduction: str = "mean") -> Self:
        """Magnitude of the difference: |self - target|.

        Args:
            target: a tensor whose shape broadcasts with this one.
            reduction: "mean" and "sum" give one number, "none" one for each element.

        Returns a float number, or for "none" the broadcast shape.

        Raises ShapeError unless the shapes broadcast, ConfigError for another `reduction`.

        >>> Tensor([1.0, 2.0]).l1_loss(Tensor([2.0, 4.0])).item()
        1.5
        """
        return (self - target).abs()._reduced("l1_loss", reduction)

    @composed
    def binary_crossentropy(self, target: Self, reduction: str = "mean") -> Self:
        """Binary cross-entropy of probabilities p: -(t log p + (1 - t) log(1 - p)). No logarithm
        counts as less than about -100, so that the loss is finite where p is 0 or 1; there the
        gradient is 0.

        Args:
            target: t, numbers in 0..1 whose shape broadcasts with this one.
            reduction: "mean" and "sum" give one number, "none" one for each element.

        Returns a float number, or for "none" the broadcast shape.

        Raises ShapeError unless the shapes broadcast, ConfigError for another `reduction`,
        DataError under `TILEGRAD_CHECK` for what is no probability.

        >>> Tensor([0.5, 0.5]).binary_crossentropy(Tensor([0.0, 1.0]), "none").shape
        (2,)
        """

        check_shares("binary_crossentropy", "probability", self)
        check_shares("binary_crossentropy", "target", target)

        def logarithm(p: Self) -> Self:
            return p._in_float(lambda x: x.clip(_LEAST_PROBABILITY).log())

        return (-target * logarithm(self) - (1 - target) * logarithm(1 - self))._reduced(
            "binary_crossentropy", reduction
        )

    @templated
    @composed
    def binary_crossentropy_logits(
        self, target: Self, reduction: str = "mean", pos_weight: Self | None = None
    ) -> Self:
        """Binary cross-entropy of sigmoid(self), without overflow.

        Args:
            target: numbers in 0..1 whose shape broadcasts with this one.
            reduction: "mean" and "sum" give one number, "none" one for each element.
            pos_weight: factor of the loss of positives; broadcasts.

        Returns a float number, or for "none" the broadcast shape.

        Raises ShapeError unless the shapes broadcast, ConfigError for another `reduction`.

        >>> Tensor([100.0]).binary_crossentropy_logits(Tensor([0.0])).item()
        100.0
        """
        negative, positive = (-self).logsigmoid(), self.logsigmoid()
        weighted = positive if pos_weight is None else positive * pos_weight
        return (-(target * weighted) - (1 - target) * negative)._reduced(
            "binary_crossentropy_logits", reduction
        )

    @composed
    def nll_loss(
        self,
        target: Self,
        weight: Self | None = None,
        ignore_index: int | None = None,
        reduction: str = "mean",
    ) -> Self:
        """Negated log-probability of each target class. This tensor holds log-probabilities with
        the classes along axis 1, or 0 of one axis.

        Args:
            target: integer classes, this shape without the axis of classes.
            weight: factor of each class, (classes,).
            ignore_index: a class that does not count.
            reduction: "mean" (over the weights that count), "sum" or "none".

        Returns a float number, or for "none" the shape of `target`.

        Raises ShapeError unless `target` has this shape without the axis of classes, DTypeError
        unless it is integer, or for another `reduction`.

        >>> Tensor([[-0.5, -1.0]]).nll_loss(Tensor([1])).item()
        1.0
        """
        axis = 1 if self.ndim > 1 else 0
        shape = (*self.shape[:axis], *self.shape[axis + 1 :])
        if not same_shape(target.shape, shape):
            raise ShapeError(
                f"nll_loss: target {show_shape(target.shape)} does not fit "
                f"{show_shape(self.shape)}",
                input=describe(self.uop),
                target=describe(target.uop),
                rule="the target has the input's shape without the axis of classes",
            )
        if target.dtype.is_float:
            raise DTypeError(f"nll_loss: classes must be integers, not {target.dtype.name}")
        target = checked("nll_loss", target, self.shape[axis], axis, wraps=False, skip=ignore_index)
        return self._loss_of_classes(target, axis, weight, ignore_index, reduction)

    @templated
    def _loss_of_classes(
        self,
        target: Self,
        axis: int,
        weight: Self | None,
        ignore_index: int | None,
        reduction: str,
    ) -> Self:
        # Chosen by comparison, so that the choice and its derivative fuse with the softmax around
        # them.
        is_class = target.unsqueeze(-1).eq(self._iota(self.shape[axis])).movedim(-1, axis)
        loss = -(is_class.where(self, 0).sum(axis))
        counts = (
            None if weight is None else is_class.where(self._per_class(weight, axis), 0).sum(axis)
        )
        if ignore_index is not None:
            is_counted = target.ne(ignore_index)
            counts = is_counted.where(1.0 if counts is None else counts, 0)
            loss = is_counted.where(loss, 0)
        if counts is None:
            return loss._reduced("nll_loss", reduction)
        counts = counts.cast(loss.dtype)
        loss = loss * counts if weight is not None else loss
        return (
            loss.sum() / counts.sum()
            if reduction == "mean"
            else loss._reduced("nll_loss", reduction)
        )

    @composed
    def cross_entropy(
        self,
        target: Self,
        weight: Self | None = None,
        ignore_index: int | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> Self:
        """Cross-entropy of softmax over axis 1 (0, of one axis).

        Args:
            target: integer classes, this shape without axis 1, or probabilities of this shape.
            weight: factor of each class, (classes,).
            ignore_index: a class that does not count.
            reduction: "mean" (over the weights that count), "sum" or "none".
            label_smoothing: share in 0..1 of each target that is spread over all classes (Szegedy
                et al. 2015, arXiv:1512.00567).

        Returns a float number, or for "none" this shape without axis 1.

        Raises ShapeError for a target of another shape, DTypeError unless 0 <= label_smoothing <=
        1, or for another `reduction`.

        >>> Tensor([[100.0, 0.0]]).cross_entropy(Tensor([1])).item()
        100.0
        """
        if not 0 <= label_smoothing <= 1:
            raise DTypeError(f"cross_entropy: label_smoothing {label_smoothing} is not in 0..1")
        axis = 1 if self.ndim > 1 else 0
        logarithms = self.log_softmax(axis)
        if target.dtype.is_float or target.ndim == self.ndim:
            if not same_shape(target.shape, self.shape):
                raise ShapeError(
                    f"cross_entropy: target {show_shape(target.shape)} does not fit "
                    f"{show_shape(self.shape)}",
                    input=describe(self.uop),
                    target=describe(target.uop),
                    rule="classes without axis 1, or probabilities of the same shape",
                    remedy="classes are integers without that axis: squeeze(1), cast(dtypes.int32)",
                )
            smooth = target * (1 - label_smoothing) + label_smoothing / self._length(axis)
            weights = 1 if weight is None else self._per_class(weight, axis)
            loss = -(logarithms * smooth * weights).sum(axis)
            return loss._reduced("cross_entropy", reduction)
        loss = logarithms.nll_loss(target, weight, ignore_index, reduction)
        if not label_smoothing:
            return loss
        spread = logarithms._spread_loss(target, axis, weight, ignore_index, reduction)
        return loss * (1 - label_smoothing) + spread * label_smoothing

    def _spread_loss(
        self, target: Self, axis: int, weight: Self | None, ignore_index: int | None, reduction: str
    ) -> Self:
        """The loss where each target is spread over all classes, of logarithms: all classes of a
        position count, each by its weight, and the mean is over the weights of the targets, as that
        of `nll_loss`.
        """
        weights = self.ones_like() if weight is None else self._per_class(weight, axis)
        spread = -((self if weight is None else self * weights).mean(axis))
        if ignore_index is not None:
            spread = target.ne(ignore_index).where(spread, 0)
        if reduction == "mean" and not (weight is None and ignore_index is None):
            all_counts = (-weights).expand(self.shape)
            return spread.sum() / all_counts.nll_loss(target, None, ignore_index, "sum")
        return spread._reduced("cross_entropy", reduction)

    def _per_class(self, weight: Self, axis: int) -> Self:
        """`weight`, one element a class, along `axis` of this tensor."""
        return weight.reshape([-1 if at == axis else 1 for at in range(self.ndim)])

    @composed
    def sparse_categorical_crossentropy(
        self,
        target: Self,
        ignore_index: int = -1,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> Self:
        """Cross-entropy of softmax over the last axis.

        Args:
            target: integer classes, this shape without the last axis.
            ignore_index: a class that does not count.
            label_smoothing: as of `cross_entropy`.
            reduction: "mean" and "sum" give one number, "none" one for each element.

        Returns a float number, or for "none" the shape of `target`.

        Raises ShapeError for a target of another shape, DTypeError unless it is integer.

        >>> Tensor([[100.0, 0.0]]).sparse_categorical_crossentropy(Tensor([1])).item()
        100.0
        """
        if not same_shape(target.shape, self.shape[:-1]):
            raise ShapeError(
                f"sparse_categorical_crossentropy: target {show_shape(target.shape)} does "
                f"not fit {show_shape(self.shape)}",
                input=describe(self.uop),
                target=describe(target.uop),
                rule="the target has the input's shape without its last axis",
            )
        rows = self.reshape(-1, self.shape[-1]) if self.ndim > 2 else self
        ignored = None if target.dtype.kind == "uint" or ignore_index is None else ignore_index
        loss = rows.cross_entropy(
            target.reshape(rows.shape[:-1]),
            ignore_index=ignored,
            reduction=reduction,
            label_smoothing=label_smoothing,
        )
        return loss.reshape(target.shape) if reduction == "none" else loss
