"""`torch.nn.init`: tilegrad's first values, with a generator to draw them from."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

from tilegrad.base.absent import as_asked
from tilegrad.nn import init as ours
from tilegrad.torch import thread_modes
from tilegrad.torch.absent_hints import absent
from tilegrad.torch.complex import Complex
from tilegrad.torch.nn.complex_layers import drawn_by_component
from tilegrad.torch.streams import drawing
from tilegrad.torch.tensor import Tensor

if TYPE_CHECKING:
    from tilegrad.nn.init import *
else:

    def _forwarded(function: Any) -> Any:
        @functools.wraps(function)
        def write(tensor: Any, *args: Any, generator: Any = None, **options: Any) -> Any:
            with thread_modes.no_grad(), drawing(generator):
                if isinstance(tensor, Complex):
                    return drawn_by_component(function.__name__, function, tensor, args, options)
                return function(tensor, *args, **options)

        return write

    calculate_gain = ours.calculate_gain
    globals().update(
        {name: _forwarded(getattr(ours, name)) for name in ours.__all__ if name.endswith("_")}
    )


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Normal, with a share `sparsity` of each column zero, at random rows."""
    rows, columns = tensor.shape
    zeros = -(-int(sparsity * rows * 1_000_000) // 1_000_000)
    with thread_modes.no_grad(), drawing(generator):
        normal_(tensor, 0.0, std)
        order = Tensor.rand(rows, columns).argsort(0)
        return tensor._update((order >= zeros).where(tensor, 0.0))


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """The numbers of values that an output is made of, and that an input goes into."""
    if tensor.ndim < 2:
        raise ValueError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"
        )
    outputs, inputs, *window = tensor.shape
    return inputs * math.prod(window), outputs * math.prod(window)


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    """One of the two by `mode`, "fan_in" or "fan_out"."""
    modes_known = ("fan_in", "fan_out")
    if mode.lower() not in modes_known:
        raise ValueError(f"Mode {mode} not supported, please use one of {list(modes_known)}")
    return _calculate_fan_in_and_fan_out(tensor)[modes_known.index(mode.lower())]


__all__ = [
    "calculate_gain", "constant_", "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_",
    "normal_", "ones_", "orthogonal_", "sparse_", "trunc_normal_", "uniform_", "xavier_normal_",
    "xavier_uniform_", "zeros_",
]  # fmt: skip

if not TYPE_CHECKING:
    # Names from before 2018, for which PyTorch warns.
    _FORMER = (
        "constant", "dirac", "eye", "kaiming_normal", "kaiming_uniform", "normal", "orthogonal",
        "sparse", "uniform", "xavier_normal", "xavier_uniform",
    )  # fmt: skip

    def __getattr__(name: str) -> Any:
        if name in _FORMER:
            return globals()[f"{name}_"]
        raise as_asked(AttributeError(absent("torch.nn.init", name, __all__), name=name))
