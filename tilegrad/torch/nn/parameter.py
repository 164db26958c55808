"""`torch.nn.parameter`: what is trained is a Parameter, what a module keeps beside is a buffer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tilegrad.base.errors import UnsupportedError
from tilegrad.nn.tree import Paired
from tilegrad.tensor.handle.aliases import is_alone
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch import thread_modes
from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.complex import Complex
from tilegrad.torch.tensor import Tensor, as_ours

__all__ = ["Buffer", "Parameter", "is_parameter", "marked"]


def is_parameter(value: object) -> bool:
    """Whether `value` is a tensor that a module trains, or may train."""
    return isinstance(value, Tensor) and value._is_parameter


def marked(tensor: Any, requires_grad: bool | None = None) -> Any:
    """A tensor as a parameter: itself, or of tilegrad's own an alias of it."""
    made = as_ours(tensor)
    made._is_leaf = made._is_parameter = True
    if requires_grad is not None:
        made.requires_grad = requires_grad
    return made


class _ParameterKind(type(Tensor)):  # type: ignore[misc]
    def __instancecheck__(cls, value: object) -> bool:
        return is_parameter(value)


class Parameter(Tensor, metaclass=_ParameterKind):
    """A tensor that its module trains.

    Its class is `torch.Tensor`: what is computed from a parameter is none.

    >>> import tilegrad.torch as torch
    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> isinstance(weight, torch.nn.Parameter), isinstance(weight * 2, torch.nn.Parameter)
    (True, False)
    """

    if TYPE_CHECKING:

        def __init__(self, data: Any = None, requires_grad: bool = True) -> None: ...

    else:

        def __new__(cls, data: Any = None, requires_grad: bool = True) -> Tensor:
            if isinstance(data, Complex):
                with thread_modes.enable_grad():
                    return Complex(marked(data.pair.detach(), requires_grad))
            if isinstance(data, Paired):
                raise UnsupportedError(
                    "Parameter: a sparse tensor is not trained by itself",
                    remedy="hold its values, torch.nn.Parameter(data.values()), and make the "
                    "sparse tensor of them where it is used",
                )
            with thread_modes.enable_grad():
                if not isinstance(data, OurTensor):
                    return marked(Tensor(data), requires_grad)
                # It is an alias of the given tensor. If that tensor has no other holder, it is a
                # copy, which is memory of its own from the first step on.
                is_seen = sys.getrefcount(data) > _GIVEN or not is_alone(data)
                own = as_ours(data).detach()
                return marked(own if is_seen else own.clone(), requires_grad)


class _Probe(metaclass=_ParameterKind):
    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Any:
        return sys.getrefcount(data)


# The count of references to the argument of a class, seen from its `__new__`, where the caller has
# no other one.
_GIVEN: Any = _Probe(object())


class _BufferKind(type(Tensor)):  # type: ignore[misc]
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Tensor) and "_is_persistent" in value.__dict__


class Buffer(Tensor, metaclass=_BufferKind):
    """A tensor that its module keeps and does not train."""

    if TYPE_CHECKING:

        def __init__(self, data: Any = None, *, persistent: bool = True) -> None: ...

    else:

        def __new__(cls, data: Any = None, *, persistent: bool = True) -> Tensor:
            made = (as_ours(data) if isinstance(data, OurTensor) else Tensor(data)).detach()
            made._is_persistent = persistent
            return made


refuse_others(__name__)
