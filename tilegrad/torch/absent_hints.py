"""Messages for names of PyTorch's that are not here."""

from __future__ import annotations

import difflib
import importlib.abc
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from tilegrad.base.absent import as_asked
from tilegrad.torch.hints import FAMILIES, HINTS

__all__ = ["Advising", "absent", "hint_of", "refuse_others", "refusing"]


def hint_of(name: str) -> str | None:
    """The hint for a dotted name, if there is one."""
    last = name.rpartition(".")[2]
    if name not in HINTS:
        for pattern, hint in FAMILIES:
            if pattern.search(last):
                return hint
    prefix = name
    while prefix:
        if prefix in HINTS:
            return HINTS[prefix]
        prefix = prefix.rpartition(".")[0]
    return None


def absent(module: str, name: str, known: Iterable[str]) -> str:
    """The message where `module` ("torch.nn") has no `name`; `known` are the names that it has."""
    whole = f"{module}.{name}"
    text = f"{whole}: not in tilegrad.torch"
    hint = hint_of(whole)
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, 1, 0.75)
    if not close:
        lower = {each.lower(): each for each in names}
        close = [lower[name.lower()]] if name.lower() in lower else []
    if close and (hint is None or (whole not in HINTS and _is_misspelt(name, close[0]))):
        return f"{text}; did you mean {module}.{close[0]}?"
    return f"{text}; {hint or 'docs/moving-from-pytorch.md says what there is'}"


def _is_misspelt(name: str, known: str) -> bool:
    """Whether `name` is surely meant to be `known`, which is there, and not what is not."""
    return difflib.SequenceMatcher(None, name, known).ratio() >= 0.9


class Advising:
    """Base of classes whose AttributeError says what to write instead of a name of PyTorch's."""

    # The class by its name in PyTorch.
    _advised: str

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name[:1] != "_" and any(name in vars(kind) for kind in type(self).__mro__):
                # A property that has no value here: its own error says why.
                return object.__getattribute__(self, name)
            others = getattr(super(), "__getattr__", None)
            if others is not None:
                return others(name)
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            hint = HINTS.get(f"{type(self)._advised}.{name}")
            raise AttributeError(f"{text}; {hint}" if hint else text, name=name, obj=self)


def refusing(module: str, spelling: str = "") -> Callable[[str], NoReturn]:
    """The `__getattr__` of `module`, which refuses every name and says what to write. PyTorch's
    name of the module is `spelling`, where it has another.
    """

    def refuse(name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
        known = vars(sys.modules[module])["__all__"]
        text = absent(spelling or module.removeprefix("tilegrad."), name, known)
        raise as_asked(AttributeError(text, name=name))

    return refuse


def refuse_others(module: str, spelling: str = "") -> None:
    """Let `module` refuse the names that it lacks. Type checkers see no `__getattr__` there."""
    vars(sys.modules[module])["__getattr__"] = refusing(module, spelling)


class _Absent(importlib.abc.MetaPathFinder):
    """Comes last, and says of a module of PyTorch's that is not here what to write."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname.startswith("tilegrad.torch."):
            name = fullname.removeprefix("tilegrad.")
            text = f"{name}: not in tilegrad.torch"
            hint = hint_of(name) or "docs/moving-from-pytorch.md says what there is"
            raise ModuleNotFoundError(f"{text}; {hint}", name=fullname)


sys.meta_path.append(_Absent())
