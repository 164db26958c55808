"""`__torch_function__`: a class takes over functions of `torch` that it is an argument of.

A class that derives from `torch.Tensor` and has the method is asked by the methods of its tensors
and, from its definition on, by the functions of `torch` and its modules: these are wrapped when the
first such class is made, so that programs without one pay nothing. A class that is no tensor is
asked by functions that are methods of tensors, too, where they would refuse it. Attributes that are
no methods, such as `shape`, ask no class.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from tilegrad.tensor.tensor import Tensor as OurTensor

__all__ = ["DisableTorchFunctionSubclass", "Overridable", "asked", "overriding"]

_MODULES = (
    "tilegrad.torch", "tilegrad.torch.nn.functional", "tilegrad.torch.linalg",
    "tilegrad.torch.fft", "tilegrad.torch.special",
)  # fmt: skip
# Methods with two underscores that ask; the others are Python's own.
_SPECIAL = frozenset(
    [f"__{each}{name}__" for each in ("", "r", "i") for name in (
        "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor",
        "lshift", "rshift",
    )]
    + [f"__{name}__" for name in (
        "eq", "ne", "lt", "le", "gt", "ge", "neg", "abs", "invert", "getitem", "setitem", "repr",
        "len", "bool", "float", "int", "index", "contains",
    )]
)  # fmt: skip
# The methods that stand for operators, as PyTorch names them.
_OPERATORS = {
    **{f"__{name}__": name for name in (
        "add", "sub", "mul", "matmul", "pow", "eq", "ne", "lt", "le", "gt", "ge", "neg", "abs",
    )},
    **{f"__i{name}__": f"{name}_" for name in ("add", "sub", "mul", "pow")},
    "__radd__": "add", "__rmul__": "mul", "__truediv__": "div", "__itruediv__": "div_",
}  # fmt: skip
# Methods about the class of a tensor itself, and those that take no tensor first.
_PLAIN = frozenset({"as_subclass", "apply", "manual_seed"})
# Functions that make tensors, or are about programs, which PyTorch asks no class for.
_NEVER_ASKING = frozenset({
    "as_tensor", "asarray", "compile", "from_dlpack", "from_numpy", "load", "manual_seed", "save",
    "tensor", "typename", "vmap",
})  # fmt: skip


class _Asking(threading.local):
    """Whether this thread asks, and whether any class is to be asked."""

    depth = 0


_asking = _Asking()
_wrapped = False


class DisableTorchFunctionSubclass:
    """A block in which no class is asked."""

    def __enter__(self) -> None:
        _asking.depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None
    ) -> None:
        _asking.depth -= 1


def overriding(arguments: Any) -> list[Any]:
    """Those among arguments, and in lists of them, whose class takes functions over: one of each
    class, those of a derived class before those of its base.
    """
    found: list[Any] = []
    if _asking.depth:
        return found
    for each in _each(arguments):
        kind = type(each)
        if not _takes_over(kind) or any(type(other) is kind for other in found):
            continue
        before = [at for at, other in enumerate(found) if issubclass(kind, type(other))]
        found.insert(before[0] if before else len(found), each)
    return found


def _each(arguments: Any) -> Iterator[Any]:
    for each in arguments:
        if isinstance(each, (tuple, list)):
            yield from each
        else:
            yield each


def _takes_over(kind: type) -> bool:
    method = getattr(kind, "__torch_function__", None)
    if method is None:
        return False
    return getattr(method, "__func__", method) is not Overridable.__dict__[_NAME].__func__


_NAME = "__torch_function__"


def asked(function: Any, found: list[Any], args: Any, options: dict[str, Any]) -> Any:
    """The first answer of the classes of `found` for a call of `function`.

    Raises TypeError where each gives NotImplemented.
    """
    types = tuple([type(each) for each in found])
    for kind in types:
        answer = kind.__torch_function__(function, types, args, options)
        if answer is not NotImplemented:
            return answer
    raise TypeError(
        f"Multiple dispatch failed for '{getattr(function, '__name__', function)}'; all "
        f"__torch_function__ handlers returned NotImplemented: {list(types)}"
    )


class Overridable(OurTensor):
    """A tensor whose derived classes may take functions over."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if _NAME in cls.__dict__:
            _let_methods_ask(cls)
            _let_functions_ask()

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """The result of `func` for these arguments, as tensors of this class."""
        if not all(issubclass(cls, kind) for kind in types):
            return NotImplemented
        with DisableTorchFunctionSubclass():
            return _as_kind(func(*args, **(kwargs or {})), cls)


def _as_kind(value: Any, kind: type) -> Any:
    if isinstance(value, OurTensor):
        plain: Any = value
        return value if isinstance(value, kind) else plain.as_subclass(kind)
    if isinstance(value, (tuple, list)) and not hasattr(value, "_make"):
        made = [_as_kind(each, kind) for each in value]
        is_plain = type(value) in (tuple, list)
        return type(value)(made) if is_plain else value
    return value


def _let_methods_ask(kind: Any) -> None:
    count = next(at for at, each in enumerate(kind.__mro__) if Overridable in each.__bases__)
    base = kind.__mro__[count]
    for name in dir(base):
        method = getattr(base, name)
        is_public = not name.startswith("_") and name not in _PLAIN
        is_static = isinstance(inspect.getattr_static(base, name), (staticmethod, classmethod))
        is_asking = (is_public or name in _SPECIAL) and callable(method) and not is_static
        if is_asking and not any(name in each.__dict__ for each in kind.__mro__[:count]):
            shown = getattr(base, _OPERATORS.get(name, name))
            setattr(kind, name, _asking_first(method, shown))


def _asking_first(function: Any, shown: Any = None) -> Any:
    """`function` where no class is to be asked; the classes are asked for `shown`, or for what is
    made here.
    """

    @functools.wraps(function, assigned=("__doc__", "__name__", "__qualname__"))
    def call(*args: Any, **options: Any) -> Any:
        found = overriding((*args, *options.values()))
        if not found:
            return function(*args, **options)
        return asked(call if shown is None else shown, found, args, options)

    return call


def _let_functions_ask() -> None:
    """Wrap the functions of `torch` and its modules, once."""
    global _wrapped
    if _wrapped:
        return
    _wrapped = True
    made: dict[Any, Any] = {}
    for path in _MODULES:
        module: Any = importlib.import_module(path)
        for name in module.__all__:
            function = getattr(module, name)
            is_about_modes = name.startswith(("is_", "set_", "get_")) or name in _NEVER_ASKING
            if inspect.isfunction(function) and not is_about_modes:
                made.setdefault(function, _asking_first(function))
                setattr(module, name, made[function])
