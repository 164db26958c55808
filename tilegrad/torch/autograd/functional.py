"""`torch.autograd.functional`: derivatives of functions at given inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilegrad.torch import func as transforms
from tilegrad.torch.absent import refusing
from tilegrad.torch.tensor import with_ours

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _each(inputs: Any) -> tuple[Any, ...]:
    return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)


def jacobian(func: Callable[..., Any], inputs: Any, *args: Any, **options: Any) -> Any:
    """The derivative of each output with respect to each input."""
    given = _each(inputs)
    numbers = tuple(range(len(given))) if isinstance(inputs, (tuple, list)) else 0
    return with_ours(transforms.jacrev(func, numbers)(*given))


def hessian(func: Callable[..., Any], inputs: Any, *args: Any, **options: Any) -> Any:
    """The second derivatives of a number."""
    given = _each(inputs)
    numbers = tuple(range(len(given))) if isinstance(inputs, (tuple, list)) else 0
    return with_ours(transforms.hessian(func, numbers)(*given))


def vjp(func: Callable[..., Any], inputs: Any, v: Any = None, *args: Any, **options: Any) -> Any:
    """What `func` gives, and `v` times its derivative."""
    value, pull = transforms.vjp(func, *_each(inputs))
    found = pull(value.ones_like() if v is None else v)
    return value, found if isinstance(inputs, (tuple, list)) else found[0]


def jvp(func: Callable[..., Any], inputs: Any, v: Any = None, *args: Any, **options: Any) -> Any:
    """What `func` gives, and its derivative times `v`."""
    tangents = tuple(each.ones_like() for each in _each(inputs)) if v is None else _each(v)
    return transforms.jvp(func, _each(inputs), tangents)


def hvp(func: Callable[..., Any], inputs: Any, v: Any = None, *args: Any, **options: Any) -> Any:
    """What `func`, a number, gives, and its second derivatives times `v`."""
    given = _each(inputs)
    numbers = tuple(range(len(given))) if isinstance(inputs, (tuple, list)) else 0
    tangents = tuple(each.ones_like() for each in given) if v is None else _each(v)
    return func(*given), transforms.jvp(transforms.grad(func, numbers), given, tangents)[1]


vhp = hvp


if not TYPE_CHECKING:
    __getattr__ = refusing(__name__)
