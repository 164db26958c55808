"""Real functions of complex numbers, by what they are in their tensors.

A function that is linear in its tensors is applied to the real and to the imaginary parts; one that
is linear in each of two is applied to their four pairs of parts. Gradients flow through the parts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.complex_dtypes import ComplexDType
from tilegrad.torch.complex_values import ComplexValues
from tilegrad.torch.naming import called

__all__ = ["bilinear", "has_complex", "joining", "linear", "of_components", "real_or"]

Function = Callable[..., Any]


def has_complex(tree: Any) -> bool:
    """Whether complex numbers are in nested tuples, lists and dicts."""
    if isinstance(tree, (tuple, list)):
        return any(has_complex(each) for each in tree)
    if isinstance(tree, dict):
        return has_complex(list(tree.values()))
    return isinstance(tree, (ComplexValues, complex))


def _components(tree: Any, name: str) -> Any:
    """`tree` with the real, or the imaginary, parts of its complex numbers and dtypes."""
    if isinstance(tree, (tuple, list)) and type(tree) in (tuple, list):
        return type(tree)([_components(each, name) for each in tree])
    if isinstance(tree, dict):
        return {key: _components(each, name) for key, each in tree.items()}
    if isinstance(tree, ComplexDType):
        return tree.component
    return getattr(tree, name) if isinstance(tree, (ComplexValues, complex)) else tree


def _joined(real: Any, imag: Any, kind: Any) -> Any:
    if isinstance(real, (tuple, list)):
        return tuple([_joined(one, other, kind) for one, other in zip(real, imag, strict=True)])
    return kind(real.stack(imag, dim=-1))


def of_components(function: Function, args: Any, options: Any, kind: Any) -> Any:
    """The result of a function that is linear in its tensors; of several results, each."""
    real = function(*_components(args, "real"), **_components(options, "real"))
    imag = function(*_components(args, "imag"), **_components(options, "imag"))
    return _joined(real, imag, kind)


def linear(name: str, plain: Function, kind: Any) -> Function:
    """The function of complex numbers of one that is linear in its tensors; what is real among them
    is an index, or a mask.
    """

    def function(*args: Any, **options: Any) -> Any:
        return of_components(plain, args, options, kind)

    function.__doc__ = plain.__doc__
    return called(function, name)


def real_or(made: Function, plain: Function) -> Function:
    """`plain`, or of complex numbers `made`."""

    @functools.wraps(plain)
    def function(*args: Any, **options: Any) -> Any:
        for each in args:
            if isinstance(each, (ComplexValues, tuple, list)) and has_complex(each):
                return made(*args, **options)
        if options and has_complex(options):
            return made(*args, **options)
        return plain(*args, **options)

    return called(function, plain.__name__)


def joining(plain: Function, as_complex: Function, kind: Any) -> Function:
    """A function that joins tensors: if some are complex, so is the result."""

    def joined(tree: Any) -> Any:
        if isinstance(tree, (tuple, list)):
            return type(tree)([joined(each) for each in tree])
        return as_complex(tree) if isinstance(tree, OurTensor) else tree

    def function(*args: Any, **options: Any) -> Any:
        return of_components(plain, joined(args), joined_options(options), kind)

    def joined_options(options: dict[str, Any]) -> dict[str, Any]:
        return {key: joined(each) for key, each in options.items()}

    return real_or(function, plain)


def bilinear(name: str, plain: Function, kind: Any, added: str = "bias") -> Function:
    """The function of two complex factors, its first two arguments, and perhaps a term that is
    added once: the third, or the one called `added`.
    """

    def function(x: Any, y: Any, *args: Any, **options: Any) -> Any:
        a, b = _pair(x)
        c, d = _pair(y)
        has_third = bool(args) and isinstance(args[0], (OurTensor, ComplexValues))
        bias = args[0] if has_third else options.get(added)
        rest = (None, *args[1:]) if has_third else args
        bare = {key: None if key == added else each for key, each in options.items()}

        def product(one: Any, other: Any, more: Any) -> Any:
            if more is None:
                return plain(one, other, *rest, **bare)
            if has_third:
                return plain(one, other, more, *rest[1:], **bare)
            return plain(one, other, *rest, **{**bare, added: more})

        e, f = (None, None) if bias is None else _pair(bias)
        real, imag = product(a, c, e), None
        if b is not None and d is not None:
            real = real - product(b, d, None)
        if d is not None:
            imag = product(a, d, f)
        if b is not None:
            other = product(b, c, f if imag is None else None)
            imag = other if imag is None else imag + other
        return kind(real.stack(imag, dim=-1))

    function.__doc__ = plain.__doc__
    return called(function, name)


def _pair(value: Any) -> tuple[Any, Any]:
    return (value.real, value.imag) if isinstance(value, ComplexValues) else (value, None)
