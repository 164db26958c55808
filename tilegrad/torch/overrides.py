"""`torch.overrides`: functions of PyTorch that other classes, or blocks, take over: none is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.absent_hints import absent, refusing

__all__ = [
    "TorchFunctionMode", "has_torch_function", "has_torch_function_unary",
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
    """False: no argument takes a function over."""
    return False


def has_torch_function_unary(argument: Any) -> bool:
    """False."""
    return False


def has_torch_function_variadic(*arguments: Any) -> bool:
    """False."""
    return False


def is_tensor_like(inp: Any) -> bool:
    """Whether `inp` is a tensor."""
    return isinstance(inp, OurTensor)


if not TYPE_CHECKING:
    __getattr__ = refusing(__name__)
