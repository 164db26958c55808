"""Softmax over many classes, where few classes are frequent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Unpack

from tilegrad.base.errors import ConfigError, ShapeError
from tilegrad.nn.containers import ModuleList, Sequential
from tilegrad.nn.layer_checks import FactoryOptions
from tilegrad.nn.layers import Linear
from tilegrad.nn.module import Module
from tilegrad.tensor.handle.core import check_tensors, describe
from tilegrad.tensor.tensor import Tensor

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class OutputAndLoss(NamedTuple):
    """The log probability of each target, and the mean of their negatives."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log softmax whose rare classes stand in clusters with smaller layers (Grave et al.,
    "Efficient softmax approximation for GPUs", 2017, arXiv:1609.04309).

    The head knows the first `cutoffs[0]` classes and the clusters; cluster i, with the classes from
    `cutoffs[i]` on, projects to in_features / div_value^(i + 1) features first.

    Args:
        in_features: size of the last axis of the input.
        n_classes: number of classes, the frequent ones first.
        cutoffs: where clusters begin: increasing, from 1 to `n_classes` - 1.
        div_value: ratio of the sizes of two clusters.
        head_bias: whether the head has a bias.
        options: `device` and `dtype` of the weights.

    Shape: input (N, in_features) and integers (N,), or (in_features,) and (), to `output` of the
    shape of the targets and `loss` of shape ().

    Raises ConfigError for cutoffs that do not increase, ShapeError where input and target differ,
    or where a cluster is left without a feature.

    >>> layer = nn.AdaptiveLogSoftmaxWithLoss(16, 10, [4, 7])
    >>> layer.log_prob(Tensor.ones(2, 16)).exp().sum(1).round().tolist()
    [1.0, 1.0]
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        **options: Unpack[FactoryOptions],
    ):
        ends = list(cutoffs)
        is_whole = all(isinstance(each, int) for each in ends)
        if (
            not ends
            or not is_whole
            or ends != sorted({*ends})
            or not 0 < ends[0]
            or (ends[-1] > n_classes - 1)
        ):
            raise ConfigError(
                f"AdaptiveLogSoftmaxWithLoss: cutoffs {ends} do not fit {n_classes} classes",
                rule=f"integers that increase, from 1 to {n_classes - 1}",
            )
        self.in_features, self.n_classes = in_features, n_classes
        self.cutoffs, self.div_value, self.head_bias = [*ends, n_classes], div_value, head_bias
        self.shortlist_size, self.n_clusters = ends[0], len(ends)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias)
        self.tail = ModuleList(
            Sequential(
                Linear(in_features, int(in_features // div_value ** (number + 1)), bias=False),
                Linear(int(in_features // div_value ** (number + 1)), after - first, bias=False),
            )
            for number, (first, after) in enumerate(zip(self.cutoffs, self.cutoffs[1:]))
        )
        self.to(**options)

    def __call__(self, input: Tensor, target: Tensor) -> OutputAndLoss:
        check_tensors(type(self).__name__, input, target)
        is_one = target.ndim == 0
        x, wanted = (input.unsqueeze(0), target.unsqueeze(0)) if is_one else (input, target)
        if x.ndim != 2 or wanted.ndim != 1 or x.shape[0] != wanted.shape[0]:
            raise ShapeError(
                "AdaptiveLogSoftmaxWithLoss: input and target do not fit",
                input=describe(input.uop),
                target=describe(target.uop),
                rule="(N, in_features) and (N,), or (in_features,) and ()",
            )
        head = self.head(x).log_softmax(-1)
        output = self._of_class(head, wanted, 0, self.shortlist_size)
        for number, cluster in enumerate(self.tail):
            first, after = self.cutoffs[number : number + 2]
            inside = self._of_class(cluster(x).log_softmax(-1), wanted, first, after)
            inside = inside + head[:, self.shortlist_size + number]
            output = (wanted >= first).where(inside, output)
        return OutputAndLoss(output.squeeze(0) if is_one else output, -output.mean())

    @staticmethod
    def _of_class(logs: Tensor, wanted: Tensor, first: int, after: int) -> Tensor:
        """The element of each row for its class, of the classes from `first` on."""
        inside = (wanted - first).clip(0, after - first - 1)
        return logs.gather(1, inside.unsqueeze(1)).squeeze(1)

    def log_prob(self, input: Tensor) -> Tensor:
        """The log probability of every class, (N, n_classes)."""
        head = self.head(input).log_softmax(-1)
        found = [head[:, : self.shortlist_size]]
        for number, cluster in enumerate(self.tail):
            at = self.shortlist_size + number
            found.append(cluster(input).log_softmax(-1) + head[:, at : at + 1])
        return found[0].cat(*found[1:], dim=1)

    def predict(self, input: Tensor) -> Tensor:
        """The likeliest class of each row, (N,) integers."""
        return self.log_prob(input).argmax(1)
