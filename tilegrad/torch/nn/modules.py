"""`torch.nn.modules`: the layers of `torch.nn` by the files that PyTorch has them in, and the
classes that several of them are of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tilegrad.torch import nn
from tilegrad.torch.module_aliases import also_known

__all__ = [
    "RNNBase", "RNNCellBase", "_BatchNorm", "_ConvNd", "_DropoutNd", "_InstanceNorm", "_Loss",
    "_NormBase", "_WeightedLoss", "_ntuple", "_pair", "_quadruple", "_single", "_triple",
]  # fmt: skip


class _Family(type):
    """A class that layers answer `isinstance` and `issubclass` for, beside those that derive from
    it.
    """

    members: tuple[str, ...]

    def _kinds(cls) -> tuple[type, ...]:
        # A class that a program derives has none but its own.
        return tuple(getattr(nn, name) for name in cls.__dict__.get("members", ()))

    def __instancecheck__(cls, value: object) -> bool:
        return type.__instancecheck__(cls, value) or isinstance(value, cls._kinds())

    def __subclasscheck__(cls, kind: type) -> bool:
        return type.__subclasscheck__(cls, kind) or issubclass(kind, cls._kinds())


def _numbered(stem: str, end: str = "d") -> tuple[str, ...]:
    return tuple(f"{stem}{axes}{end}" for axes in (1, 2, 3))


class _BatchNorm(nn.SyncBatchNorm, metaclass=_Family):
    """A batch normalisation of any number of axes."""

    members = (*_numbered("BatchNorm"), "SyncBatchNorm")


class _InstanceNorm(metaclass=_Family):
    """An instance normalisation of any number of axes."""

    members = _numbered("InstanceNorm")


class _NormBase(metaclass=_Family):
    """A batch or instance normalisation."""

    members = _BatchNorm.members + _InstanceNorm.members


class _ConvNd(metaclass=_Family):
    """A convolution, transposed or not, of any number of axes."""

    members = _numbered("Conv") + _numbered("ConvTranspose")


class _DropoutNd(metaclass=_Family):
    """A dropout."""

    members = ("Dropout", "AlphaDropout", "FeatureAlphaDropout", *_numbered("Dropout"))


class RNNBase(metaclass=_Family):
    """A recurrent layer."""

    members = ("RNN", "LSTM", "GRU")


class RNNCellBase(metaclass=_Family):
    """A step of a recurrent layer."""

    members = ("RNNCell", "LSTMCell", "GRUCell")


_LOSSES = tuple(name for name in nn.__all__ if name.endswith("Loss"))


def _reduction(size_average: Any, reduce: Any, reduction: str) -> str:
    """The reduction, by PyTorch's older arguments if they are given."""
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


class _Loss(nn.Module, metaclass=_Family):
    """A loss; one of a program's own reads `self.reduction`."""

    members = _LOSSES

    def __init__(self, size_average: Any = None, reduce: Any = None, reduction: str = "mean"):
        super().__init__()
        self.reduction = _reduction(size_average, reduce, reduction)


class _WeightedLoss(_Loss):
    """A loss with a weight for each class, a buffer."""

    def __init__(
        self,
        weight: Any = None,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
    ):
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)

    members = ("NLLLoss", "BCELoss", "CrossEntropyLoss", "MultiMarginLoss")


def _ntuple(count: int, name: str) -> Callable[[Any], tuple[Any, ...]]:
    """Function that makes a tuple of `count` copies of a number, and a tuple of an iterable."""

    def parse(value: Any) -> tuple[Any, ...]:
        return tuple(value) if isinstance(value, Iterable) else (value,) * count

    parse.__name__ = name
    return parse


_single, _pair = _ntuple(1, "_single"), _ntuple(2, "_pair")
_triple, _quadruple = _ntuple(3, "_triple"), _ntuple(4, "_quadruple")

_FILES = (
    "activation", "adaptive", "batchnorm", "channelshuffle", "container", "conv", "distance",
    "dropout", "flatten", "fold", "instancenorm", "lazy", "linear", "loss", "module",
    "normalization", "padding", "pixelshuffle", "pooling", "rnn", "sparse", "transformer",
    "upsampling", "utils",
)  # fmt: skip
also_known(__name__, _FILES, nn, {name: globals()[name] for name in __all__})


def __getattr__(name: str) -> Any:
    return getattr(nn, name)
