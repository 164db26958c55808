"""`torch.autograd.functional`: derivatives of functions at given inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilegrad.func.argument_trees import flatten
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch import func as transforms
from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.tensor import with_ours

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _each(inputs: Any) -> tuple[Any, ...]:
    return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)


def _finished(found: Any, create_graph: bool) -> Any:
    """The result of a function here: without a graph, unless one is asked for."""
    if create_graph:
        return with_ours(found)
    leaves, rebuild = flatten(with_ours(found))
    return rebuild([each.detach() if isinstance(each, OurTensor) else each for each in leaves])


def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The derivative of each output with respect to each input."""
    given = _each(inputs)
    numbers = tuple(range(len(given))) if isinstance(inputs, (tuple, list)) else 0
    transform = (
        transforms.jacfwd if outer_jacobian_strategy == "forward-mode" else transforms.jacrev
    )
    return _finished(transform(func, numbers)(*given), create_graph)


def hessian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a number."""
    given = _each(inputs)
    numbers = tuple(range(len(given))) if isinstance(inputs, (tuple, list)) else 0
    return _finished(transforms.hessian(func, numbers)(*given), create_graph)


def vjp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> Any:
    """The value of `func`, and `v` times its derivative."""
    value, pull = transforms.vjp(func, *_each(inputs))
    found = pull(value.ones_like() if v is None else v)
    several = isinstance(inputs, (tuple, list))
    return _finished((value, found if several else found[0]), create_graph)


def jvp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> Any:
    """The value of `func`, and its derivative times `v`."""
    tangents = tuple(each.ones_like() for each in _each(inputs)) if v is None else _each(v)
    return _finished(transforms.jvp(func, _each(inputs), tangents), create_graph)


def hvp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> Any:
    """The value of `func`, a number, and its second derivatives times `v`."""
    given = _each(inputs)
    numbers = tuple(range(len(given))) if isinstance(inputs, (tuple, list)) else 0
    tangents = tuple(each.ones_like() for each in given) if v is None else _each(v)
    found = transforms.jvp(transforms.grad(func, numbers), given, tangents)[1]
    return _finished((func(*given), found), create_graph)


vhp = hvp

refuse_others(__name__)
