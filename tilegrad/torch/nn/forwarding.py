"""Functions of tilegrad's `nn` as PyTorch's: their results are tensors of `torch`, and arguments
that PyTorch has given up are refused with what to write.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from tilegrad.base.errors import ConfigError
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch import thread_modes
from tilegrad.torch.autocast_methods import AUTOCAST_FROM, from_float32, one_dtype
from tilegrad.torch.expecting import refused_as_tensor
from tilegrad.torch.indices import refuse_negative
from tilegrad.torch.naming import called
from tilegrad.torch.step_names import BY_ARGUMENTS, FUNCTIONS
from tilegrad.torch.steps import note
from tilegrad.torch.tensor import Tensor, with_ours

__all__ = ["asked_by_rows", "forwarded", "in_place", "of_some_axis", "taken_by"]

_state = thread_modes.state
# Products, which autocast computes in its own dtype; losses and the like come from float32.
_PRODUCTS = frozenset([
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "linear", "scaled_dot_product_attention",
])  # fmt: skip
_FROM_FLOAT32 = frozenset([
    "adaptive_avg_pool3d", "adaptive_max_pool3d", "avg_pool3d", "bilinear", "fractional_max_pool2d",
    "fractional_max_pool3d", "grid_sample", "max_pool3d", "max_unpool2d", "max_unpool3d",
])  # fmt: skip


def forwarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, whose results are tensors of `torch`."""
    name = function.__name__
    step, choose = FUNCTIONS.get(name), BY_ARGUMENTS.get(name)
    is_product, is_loss = name in _PRODUCTS, name.endswith(("_loss", "entropy", "logits"))
    is_wide = is_loss or name in _FROM_FLOAT32

    is_pool, is_index = "max_pool" in name, name == "one_hot"
    where = _position_of("inplace", function)

    @functools.wraps(function)
    def forward(*args: Any, **options: Any) -> Any:
        if is_loss and ("size_average" in options or "reduce" in options):
            _refuse_old(name, options)
        if _state.autocast is not None:
            if is_product:
                args = tuple([_cast(each, _state.autocast) for each in args])
            elif is_wide or _is_mirror(name, args, options):
                return forward_wide(*args, **options)
        elif is_product:
            one_dtype(name, args)
        try:
            made = function(*args, **options)
        except AttributeError as error:
            raise refused_as_tensor(name, error, args, options) from None
        if where and (args[where] if where < len(args) else options.get("inplace")):
            made = taken_by(args[0] if args else options["input"], made)
        if type(made) is not Tensor:
            made = with_ours(made)
            if is_pool and isinstance(made, tuple):
                made = made[0], made[1].long()
        if is_index:
            made = made.long()
        if step is not None:
            operands = (*args, *options.values())
            note(made, step if choose is None else choose(*operands), operands)
        return made

    forward_wide = from_float32(forward)
    return called(forward, name)


def _is_mirror(name: str, args: Any, options: dict[str, Any]) -> bool:
    """Whether this is a padding with elements at the edge, which autocast has in float32."""
    mode = args[2] if name == "pad" and len(args) > 2 else options.get("mode")
    return name == "pad" and mode in ("reflect", "replicate")


def _position_of(name: str, function: Callable[..., Any]) -> int:
    """The position of a parameter; 0 if there is none of the name."""
    names = [*inspect.signature(function).parameters]
    return names.index(name) if name in names else 0


def taken_by(input: Any, made: Any) -> Any:
    """`input`, which takes what was `made` of it."""
    return made if made is input else input._update(made, is_new=True)


def of_some_axis(function: Callable[..., Any]) -> Callable[..., Any]:
    """A softmax or its like, whose axis without `dim` is the first of an input of 0, 1 or 3 axes,
    else the second.
    """

    @functools.wraps(function)
    def chosen(input: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
        if dim is None and isinstance(input, OurTensor):
            dim = 0 if input.ndim in (0, 1, 3) else 1
        return function(input, dim, dtype)

    return called(chosen, function.__name__)


def asked_by_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    """`embedding` or `embedding_bag`; with `sparse` the first tells an optimizer that only rows
    asked for move.
    """

    @functools.wraps(function)
    def look_up(input: Any, weight: Any, *args: Any, **options: Any) -> Any:
        refuse_negative(function.__name__, input)
        if options.get("sparse") or args[4:5] == (True,):
            weight._moves_by_rows = True
        return function(input, weight, *args, **options)

    return called(look_up, function.__name__)


def _cast(value: Any, wanted: Any) -> Any:
    if not isinstance(value, OurTensor) or not value.dtype.is_float:
        return value
    return value.cast(wanted) if value.dtype in AUTOCAST_FROM else value


def _refuse_old(name: str, options: dict[str, Any]) -> None:
    for key in ("size_average", "reduce"):
        if options.pop(key, None) is not None:
            raise ConfigError(
                f"{name}: {key} is not supported", remedy="reduction='mean', 'sum' or 'none'"
            )


def in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, whose result its first argument takes."""

    @functools.wraps(function)
    def write(input: Any, *args: Any, **options: Any) -> Any:
        return taken_by(input, function(input, *args, **options))

    return called(write, f"{function.__name__}_")
