"""Arguments that are no tensors where PyTorch asks for tensors: a TypeError that names them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from tilegrad.base.errors import KindError, ShapeError, article, type_name
from tilegrad.tensor.handle.core import describe
from tilegrad.tensor.tensor import Tensor
from tilegrad.torch.naming import called

__all__ = ["no_tensor", "of_ranks", "of_tensors", "refused_as_tensor", "with_tensors"]

Function = TypeVar("Function", bound=Callable[..., Any])


def no_tensor(name: str, value: object, where: str = "") -> KindError:
    """The error of `name`, which was given `value` in the place of a tensor."""
    shown = article(type_name(value))
    return KindError(f"{name}: a tensor is needed{where}, not {shown}")


def of_ranks(name: str, tensors: Sequence[Any], ranks: Sequence[tuple[int, ...]]) -> None:
    """Raise ShapeError for a tensor that has another number of axes than those in `ranks`."""
    for each, allowed in zip(tensors, ranks):
        if isinstance(each, Tensor) and each.ndim not in allowed:
            shown = " or ".join(map(str, allowed))
            raise ShapeError(
                f"{name}: a tensor of {shown} axes is needed, not of shape {tuple(each.shape)}",
                tensor=describe(each.uop),
            )


def refused_as_tensor(
    name: str, error: AttributeError, args: tuple[Any, ...], options: Mapping[str, Any]
) -> Exception:
    """`error`, or what says of the argument in which nothing of its name was found that it should
    have been a tensor.
    """
    asked = getattr(error, "obj", error)
    # An object with a dtype is a tensor, or an array: that its method is absent is the error then.
    if not hasattr(asked, "dtype") and any(asked is each for each in (*args, *options.values())):
        return no_tensor(name, asked)
    return error


def with_tensors(function: Callable[..., Any], name: str) -> Any:
    """`function`, which raises KindError for an argument that lacks what tensors have."""

    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except AttributeError as error:
            raise refused_as_tensor(name, error, args, options) from None

    return called(call, name)


def of_tensors(function: Function) -> Function:
    """`with_tensors` as a decorator."""
    made: Any = with_tensors(function, function.__name__)
    functools.update_wrapper(made, function)
    return cast(Function, made)
