"""`torch.autograd.function`: what belongs to functions with gradients of their own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilegrad.base.absent import as_asked
from tilegrad.func.transformed_function import FunctionContext
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.absent_hints import absent

if TYPE_CHECKING:
    from tilegrad.torch.autograd import Function as Function

__all__ = ["Function", "FunctionCtx", "once_differentiable"]

FunctionCtx = FunctionContext


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, a `backward`, whose results have no gradients in turn."""

    @functools.wraps(fn)
    def backward(ctx: Any, *args: Any) -> Any:
        found = fn(ctx, *args)
        if isinstance(found, tuple):
            return tuple(each.detach() if isinstance(each, OurTensor) else each for each in found)
        return found.detach() if isinstance(found, OurTensor) else found

    return backward


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "Function":
            # The package imports this module first.
            from tilegrad.torch import autograd

            return autograd.Function
        raise as_asked(AttributeError(absent("torch.autograd.function", name, __all__), name=name))
