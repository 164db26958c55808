"""Layers that take the size of their input from the first call: they are made then, and are layers
of the ordinary class from there on.

Before that they have no tensors. So call the model once, on a tensor of any values, before its
parameters go to an optimizer, or a file's to the model.
"""

from __future__ import annotations

from typing import Any

from tilegrad.nn import layers, norms
from tilegrad.nn.module import Module
from tilegrad.tensor.handle.core import check_tensors
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d",
    "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d",
    "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d", "LazyLinear",
]  # fmt: skip


class _Lazy(Module):
    """A layer of class `_kind`, whose first argument is the size of axis `_axis` of its input."""

    _kind: Any = None
    _axis = 1

    def __init__(self, *args: Any, **options: Any):
        self._given = (args, options)

    def extra_repr(self) -> str:
        args, options = self._given
        named = [f"{name}={value!r}" for name, value in options.items()]
        return ", ".join([*map(repr, args), *named])

    def __call__(self, x: Tensor) -> Any:
        check_tensors(type(self).__name__, x)
        args, options = self.__dict__.pop("_given")
        kind, axis = self._kind, self._axis
        mode, hooks = self._mode, self._hooks
        size = x._sizes[axis] if -x.ndim <= axis < x.ndim else 0
        lazy, self.__class__ = type(self), kind
        try:
            kind.__init__(self, size, *args, **options)
        except Exception:
            # Lazy as before: another input may fit.
            self.__class__, self._given = lazy, (args, options)
            raise
        self._mode, self._hooks = mode, hooks
        return self.forward(x)


def _lazy(name: str, kind: Any, axis: int) -> Any:
    eager, sizes = name.removeprefix("Lazy"), ", ".join("5" * int(name[-2]))
    given = "2, 1" if "Conv" in eager else ""
    text = (
        f"`nn.{eager}` whose first argument, the number of channels, the first call finds.\n\n"
        f"Args:\n    args: the arguments of `nn.{eager}` behind the first.\n"
        f"    options: its keywords.\n\n"
        f"Shape: as `nn.{eager}`.\n\nRaises as `nn.{eager}`.\n\n"
        f">>> layer = nn.{name}({given})\n>>> y = layer(Tensor.ones(4, 3, {sizes}))\n"
        f">>> type(layer).__name__, y.shape\n"
        f"('{kind.__name__}', (4, {2 if given else 3}, {sizes}))\n"
    )
    space = {"_kind": kind, "_axis": axis, "__doc__": text, "__module__": __name__}
    return type(name, (_Lazy,), space)


class LazyLinear(_Lazy):
    """`nn.Linear` whose `in_features` the first call determines.

    Args:
        args: `out_features` and `bias` of `nn.Linear`.
        options: its keywords.

    Shape: (..., in_features) to (..., out_features).

    Raises ConfigError for weights that are asked for before the first call.

    >>> layer = nn.LazyLinear(3)
    >>> layer(Tensor.ones(5, 2)).shape, layer
    ((5, 3), Linear(in_features=2, out_features=3, bias=True))
    """

    _kind = layers.Linear
    _axis = -1


LazyConv1d = _lazy("LazyConv1d", layers.Conv1d, -2)
LazyConv2d = _lazy("LazyConv2d", layers.Conv2d, -3)
LazyConv3d = _lazy("LazyConv3d", layers.Conv3d, -4)
LazyConvTranspose1d = _lazy("LazyConvTranspose1d", layers.ConvTranspose1d, -2)
LazyConvTranspose2d = _lazy("LazyConvTranspose2d", layers.ConvTranspose2d, -3)
LazyConvTranspose3d = _lazy("LazyConvTranspose3d", layers.ConvTranspose3d, -4)
LazyBatchNorm1d = _lazy("LazyBatchNorm1d", norms.BatchNorm1d, 1)
LazyBatchNorm2d = _lazy("LazyBatchNorm2d", norms.BatchNorm2d, 1)
LazyBatchNorm3d = _lazy("LazyBatchNorm3d", norms.BatchNorm3d, 1)
LazyInstanceNorm1d = _lazy("LazyInstanceNorm1d", norms.InstanceNorm1d, 1)
LazyInstanceNorm2d = _lazy("LazyInstanceNorm2d", norms.InstanceNorm2d, 1)
LazyInstanceNorm3d = _lazy("LazyInstanceNorm3d", norms.InstanceNorm3d, 1)
