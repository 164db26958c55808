"""`torch.overrides`: classes that take functions of PyTorch over; blocks that do are absent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.absent_hints import absent, refuse_others
from tilegrad.torch.function_protocol import asked, overriding

__all__ = [
    "TorchFunctionMode", "handle_torch_function", "has_torch_function", "has_torch_function_unary",
    "has_torch_function_variadic", "is_tensor_like",
]  # fmt: skip


class TorchFunctionMode:
    """A block in which functions of `torch` go through a method: entering one raises
    NotImplementedError.
    """

    def __enter__(self) -> NoReturn:
        raise NotImplementedError(absent("torch.overrides", type(self).__name__, ()))

    def __exit__(self, *error: Any) -> None:
        """Nothing."""


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether the class of an argument takes functions over."""
    return bool(overriding(tuple(relevant_args)))


def has_torch_function_unary(argument: Any) -> bool:
    """As `has_torch_function`, of one argument."""
    return has_torch_function((argument,))


def has_torch_function_variadic(*arguments: Any) -> bool:
    """As `has_torch_function`."""
    return has_torch_function(arguments)


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """The answer of the classes of the relevant arguments to a call of a function.

    Raises TypeError where each gives NotImplemented.
    """
    return asked(public_api, overriding(tuple(relevant_args)), args, kwargs)


def is_tensor_like(inp: Any) -> bool:
    """Whether `inp` is a tensor, or an object whose class takes functions over."""
    return isinstance(inp, OurTensor) or hasattr(type(inp), "__torch_function__")


refuse_others(__name__)
