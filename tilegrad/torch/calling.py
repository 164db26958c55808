"""Functions of `torch` that are methods of tensors, with what only a function takes: the tensor as
`input=`, a result to write to as `out=`, and a number in front of tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tilegrad.base.errors import UnsupportedDTypeError
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.complex import Complex
from tilegrad.torch.expecting import no_tensor, refused_as_tensor
from tilegrad.torch.function_protocol import asked, overriding
from tilegrad.torch.made_tensors import tensor
from tilegrad.torch.naming import called
from tilegrad.torch.tensor import Tensor, as_ours

__all__ = ["as_function", "written_to"]

# PyTorch's names of the first tensor, where it is not `input`.
_FIRST = {
    "cdist": ("x1",), "isin": ("elements",), "lstsq": ("A",), "searchsorted": ("sorted_sequence",),
    "trapezoid": ("y",), "trapz": ("y",), "unravel_index": ("indices",), "vander": ("x",),
    "cumulative_trapezoid": ("y",), "lu_solve": ("b",), "matrix_exp": ("A",),
    "take_along_dim": ("x",),
}  # fmt: skip
# Classes that have methods with names of tensors', and are no tensors.
_PLAIN = (str, bytes, list, tuple, dict, set)


def written_to(out: Any, found: Any) -> Any:
    """`found` written to `out`, or to each of several; what was written to."""
    if isinstance(out, (tuple, list)):
        for each, value in zip(out, found):
            written_to(each, value)
        return out
    if tuple(out.shape) != tuple(found.shape):
        # As PyTorch resizes it.
        out.replace(found.cast(out.dtype).detach())
        return out
    return out.copy_(found)


def as_function(name: str) -> Callable[..., Any]:
    """The method `name` of tensors as a function."""
    method = getattr(Tensor, name)
    firsts = ("input", "self", *_FIRST.get(name, ()))

    @functools.wraps(method)
    def call(*args: Any, out: Any = None, **options: Any) -> Any:
        if not args:
            named = next((key for key in firsts if key in options), "input")
            args = (options.pop(named, None),)
        try:
            if args[0].__class__ is Tensor:
                found = method(*args, **options)
            else:
                found = computed(*args, **options)
        except (AttributeError, TypeError) as error:
            # A class that is no tensor may take the function over.
            found = overriding((*args, *options.values()))
            if found:
                return asked(call_of(), found, args, options)
            if isinstance(error, TypeError):
                raise
            raise refused_as_tensor(name, error, args, options) from None
        return found if out is None else written_to(out, found)

    def refused(*args: Any, **options: Any) -> Any:
        raise UnsupportedDTypeError(
            f"{name}: not for complex numbers",
            remedy="z.real, z.imag, z.abs() and z.angle() are real",
        )

    def computed(*args: Any, **options: Any) -> Any:
        first = args[0]
        if isinstance(first, (bool, int, float)):
            rest = [*args[1:], *options.values()]
            is_beside = any(isinstance(each, OurTensor) for each in rest)
            return method(tensor(first) if is_beside else first, *args[1:], **options)
        if isinstance(first, OurTensor):
            return method(as_ours(first), *args[1:], **options)
        if isinstance(first, Complex):
            return getattr(Complex, name, refused)(*args, **options)
        if first is None or isinstance(first, _PLAIN):
            raise no_tensor(name, first)
        return getattr(type(first), name, method)(*args, **options)

    made = called(call, name)

    def call_of() -> Any:
        return made

    return made
