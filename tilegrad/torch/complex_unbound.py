"""Methods of `torch.Tensor` that are called with complex numbers: `torch.Tensor.view(z, 4)`.

The class has the methods of real tensors, which instances find without a detour. Who asks the class
itself for one, by `torch.Tensor.view`, gets the answer of the class's own type: a function that
looks at the first argument.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tilegrad.torch.complex import Complex
from tilegrad.torch.tensor import Tensor

__all__ = ["answer_unbound"]

_MOST = 2048


@functools.lru_cache(maxsize=_MOST)
def _of_any(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        if isinstance(self, Complex):
            return getattr(self, name)(*args, **options)
        return method(self, *args, **options)

    return call


class _Unbound:
    """The entry under a method's name on the type of `Tensor`."""

    def __init__(self, name: str):
        self._name = name

    def __get__(self, kind: Any, _: Any = None) -> Any:
        name = self._name
        for base in kind.__mro__:
            if name in base.__dict__:
                found = base.__dict__[name]
                if callable(found):
                    return _of_any(found, name)
                return found.__get__(None, kind) if hasattr(found, "__get__") else found
        raise AttributeError(name)

    def __set__(self, kind: Any, value: Any) -> None:
        delattr(type(Tensor), self._name)
        type.__setattr__(kind, self._name, value)
        # A program that replaces the method of `Tensor` is asked no more; one of a derived class
        # leaves that as it was.
        if kind is not Tensor:
            setattr(type(Tensor), self._name, self)


def answer_unbound() -> None:
    """Let the methods that complex numbers have as well take these when they are called unbound."""
    for name in dir(Complex):
        is_own = not name.startswith("_") and callable(getattr(Complex, name))
        if is_own and callable(getattr(Tensor, name, None)):
            setattr(type(Tensor), name, _Unbound(name))
