"""Pooling as functions, each that of its module.

An input may have a batch axis before its channels, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.nn import pooling
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d", "max_pool2d", "max_pool3d", "max_unpool1d",
    "max_unpool2d", "max_unpool3d",
]  # fmt: skip

Sizes = int | tuple[int, ...]


def _max_pool(axes: int) -> Any:
    def max_pool(
        input: Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        made = getattr(pooling, f"MaxPool{axes}d")
        return made(kernel_size, stride, padding, dilation, return_indices, ceil_mode)(input)

    return _named(max_pool, f"max_pool{axes}d", f"MaxPool{axes}d", "Largest element of each window")


def _avg_pool(axes: int) -> Any:
    def avg_pool(
        input: Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        made = getattr(pooling, f"AvgPool{axes}d")
        options = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        pooled: Tensor = made(*options)(input)
        return pooled

    return _named(avg_pool, f"avg_pool{axes}d", f"AvgPool{axes}d", "Mean of each window")


def _lp_pool(axes: int) -> Any:
    def lp_pool(
        input: Tensor,
        norm_type: float,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        ceil_mode: bool = False,
    ) -> Tensor:
        made = getattr(pooling, f"LPPool{axes}d")
        pooled: Tensor = made(norm_type, kernel_size, stride, ceil_mode)(input)
        return pooled

    return _named(lp_pool, f"lp_pool{axes}d", f"LPPool{axes}d", "Norm of each window")


def _adaptive_avg_pool(axes: int) -> Any:
    def adaptive(input: Tensor, output_size: int | Sequence[int | None] | None) -> Tensor:
        pooled: Tensor = getattr(pooling, f"AdaptiveAvgPool{axes}d")(output_size)(input)
        return pooled

    name, module = f"adaptive_avg_pool{axes}d", f"AdaptiveAvgPool{axes}d"
    return _named(adaptive, name, module, "Mean of `output_size` windows")


def _adaptive_max_pool(axes: int) -> Any:
    def adaptive(
        input: Tensor,
        output_size: int | Sequence[int | None] | None,
        return_indices: bool = False,
    ) -> Any:
        made = getattr(pooling, f"AdaptiveMaxPool{axes}d")
        return made(output_size, return_indices)(input)

    name, module = f"adaptive_max_pool{axes}d", f"AdaptiveMaxPool{axes}d"
    return _named(adaptive, name, module, "Largest element of `output_size` windows")


def _max_unpool(axes: int) -> Any:
    def max_unpool(
        input: Tensor,
        indices: Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        output_size: Sequence[int] | None = None,
    ) -> Tensor:
        made = getattr(pooling, f"MaxUnpool{axes}d")
        back: Tensor = made(kernel_size, stride, padding)(input, indices, output_size)
        return back

    name = f"max_unpool{axes}d"
    summary = f"Values back at the positions where `max_pool{axes}d` found them"
    return _named(max_unpool, name, f"MaxUnpool{axes}d", summary)


_ARGUMENTS = {
    "input": "(N, C, {sizes}), or without N.",
    "indices": "int32 positions of that shape, as the pooling gives them.",
    "norm_type": "exponent p of the norm.",
    "kernel_size": "size of the window, an int or one for each axis.",
    "stride": "step between windows, an int or one for each axis; by default `kernel_size`.",
    "padding": "width of the padding on both sides, an int or one for each axis.",
    "dilation": "step between the elements of a window, an int or one for each axis.",
    "ceil_mode": "round the number of windows up.",
    "count_include_pad": "whether padding counts as elements of a mean.",
    "divisor_override": "number by which sums are divided, instead of the window's size.",
    "output_size": "sizes of the result's last axes.",
    "return_indices": "give the positions of the maxima too.",
}
_EXAMPLES = {
    "adaptive": ("Tensor.ones(1, 2{fours}), 2", "(1, 2{twos})"),
    "lp": ("Tensor.ones(1, 2{fours}), 2, 2", "(1, 2{twos})"),
    "max_unpool": (
        "*nn.functional.max_pool{axes}d(Tensor.ones(1, 2{fours}), 2, return_indices=True), 2",
        "(1, 2{fours})",
    ),
}


def _named(function: Any, name: str, module: str, summary: str) -> Any:
    """`function` under its public name, with a docstring."""
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
    axes = int(name[-2])
    words = {
        "sizes": ("L", "H, W", "D, H, W")[axes - 1],
        "axes": axes,
        "fours": ", 4" * axes,
        "twos": ", 2" * axes,
    }
    shown = "".join(f"    {each}: {_ARGUMENTS[each]}\n" for each in arguments)
    kind = next((each for each in _EXAMPLES if name.startswith(each)), "lp")
    call, shape = _EXAMPLES[kind]
    if kind == "lp" and not name.startswith("lp"):
        call = call.removesuffix(", 2")
    function.__name__ = function.__qualname__ = name
    function.__code__ = function.__code__.replace(co_name=name, co_qualname=name)
    function.__doc__ = (
        f"{summary}: `nn.{module}` as a function.\n\nArgs:\n{shown}\n"
        f"Returns what `nn.{module}` gives, of shape (N, C, *sizes) and the dtype of `input`.\n\n"
        "Raises ShapeError for shapes or sizes that do not fit.\n\n"
        f">>> nn.functional.{name}({call}).shape\n{shape}\n"
    ).format(**words)
    return function


max_pool1d, max_pool2d, max_pool3d = (_max_pool(axes) for axes in (1, 2, 3))
avg_pool1d, avg_pool2d, avg_pool3d = (_avg_pool(axes) for axes in (1, 2, 3))
lp_pool1d, lp_pool2d, lp_pool3d = (_lp_pool(axes) for axes in (1, 2, 3))
max_unpool1d, max_unpool2d, max_unpool3d = (_max_unpool(axes) for axes in (1, 2, 3))
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = (
    _adaptive_avg_pool(axes) for axes in (1, 2, 3)
)
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = (
    _adaptive_max_pool(axes) for axes in (1, 2, 3)
)
