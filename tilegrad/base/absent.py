"""Text of an AttributeError for a missing name: the nearest name that exists, or the spelling to
use.
"""

from __future__ import annotations

import opcode
import sys
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, NoReturn

__all__ = ["absent", "as_asked", "nearest", "refuse_others", "says_what_to_call"]

_IMPORT_FROM = opcode.opmap["IMPORT_FROM"]


def nearest(name: str, known: Iterable[str]) -> str:
    """The name among `known` that was probably meant: the same letters in another case, or with
    other underscores, before one that is spelled alike; empty if there is none.

    >>> nearest("Relu", ["ReLU", "ReLU6"]), nearest("softmx", ["softmin", "softmax"])
    ('ReLU', 'softmax')
    """
    names = sorted(known)
    plain = _plain(name)
    for candidate in names:
        if _plain(candidate) == plain:
            return candidate
    from difflib import get_close_matches

    found = get_close_matches(plain, [_plain(candidate) for candidate in names], 1, 0.75)
    return next((each for each in names if found and _plain(each) == found[0]), "")


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def absent(
    what: str, name: str, known: Iterable[str], instead: Mapping[str, str] | None = None
) -> AttributeError:
    """The error for attribute `name`, which `what` does not have: with the spelling to use
    `instead`, or the nearest name.
    """
    text = f"{what} has no attribute {name!r}"
    if instead and name in instead:
        text += f"; write {instead[name]}"
    elif meant := nearest(name, known):
        text += f"; did you mean {meant}?"
    # No object is named: Python would look for another nearest name and print that, too.
    return AttributeError(text, name=name, obj=None)


def as_asked(error: AttributeError) -> AttributeError | ImportError:
    """The error that the `__getattr__` of a module raises: `error`, or for a `from` import, which
    would replace the text, an ImportError with the same text.
    """
    asker = sys._getframe(2)
    if asker.f_code.co_code[asker.f_lasti] == _IMPORT_FROM:
        return ImportError(str(error), name=error.name)
    return error


def refusing(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module, which refuses every name.

    >>> try:
    ...     nn.Relu
    ... except AttributeError as error:
    ...     print(error)
    module 'tilegrad.nn' has no attribute 'Relu'; did you mean ReLU?
    """

    def refuse(name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        known = vars(sys.modules[module])["__all__"]
        raise as_asked(absent(f"module {module!r}", name, known))

    return refuse


def refuse_others(module: str) -> None:
    """Let `module` refuse the names that it lacks. Type checkers see no `__getattr__` there."""
    vars(sys.modules[module])["__getattr__"] = refusing(module)


class _Package(ModuleType):
    """A package that has the name of a function elsewhere: calling it gives the spelling to use."""

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError(f"{self.__name__} is a package; write {vars(self)['_instead']}")


def says_what_to_call(package: str, instead: str) -> None:
    """Let a call of the package `package` name the spelling `instead`.

    >>> import tilegrad.compile
    >>> tilegrad.compile(print)
    Traceback (most recent call last):
        ...
    TypeError: tilegrad.compile is a package; write tilegrad.jit(function)
    """
    module = sys.modules[package]
    vars(module)["_instead"] = instead
    module.__class__ = _Package
