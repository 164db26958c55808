"""Where a value stands, so that it can be looked up again at each call."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilegrad.base.forks import held_at_fork

__all__ = ["ABSENT", "KEYWORDS", "POSITIONAL", "AccessPath", "name_of"]


class _CallArguments:
    """The arguments of a call: not held, given anew each time."""


POSITIONAL = _CallArguments()
KEYWORDS = _CallArguments()
ABSENT = object()
_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, eq=False)
class AccessPath:
    """An item or an attribute of `holder`: an object that is held, or the value at another path.

    Attributes:
        label: how a user would write it, for messages.
        identity: equal for equal paths.
        is_argument: whether the value comes with each call.
        is_attribute: whether it is an object's, directly or further up: its state, not a value
            given.
    """

    holder: Any
    is_item: bool
    key: Any
    label: str
    identity: Hashable = field(init=False, repr=False)
    is_argument: bool = field(init=False, repr=False)
    is_attribute: bool = field(init=False, repr=False)

    def __repr__(self) -> str:
        return f"<place {self.label}>"

    def __post_init__(self) -> None:
        holder = self.holder
        is_inner = isinstance(holder, AccessPath)
        above = holder.identity if is_inner else id(holder)
        own = isinstance(holder, _CallArguments)
        # Set here, once: a deeply nested path would be walked up for each of its paths.
        known = {
            "identity": _identified(above, name_of(self.key), self.is_item),
            "is_argument": holder.is_argument if is_inner else own,
            "is_attribute": not self.is_item or (is_inner and holder.is_attribute),
        }
        self.__dict__.update(known)

    @staticmethod
    def fixed(value: Any, label: str) -> AccessPath:
        """The path to a value that is held itself."""
        return AccessPath([value], True, 0, label)

    def item(self, key: Any) -> AccessPath:
        return AccessPath(self, True, key, f"{self.label}[{key!r}]")

    def attribute(self, name: str) -> AccessPath:
        return AccessPath(self, False, name, f"{self.label}.{name}")

    def get(self, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] = _NOTHING) -> Any:
        """The object at this path now. Raises the errors of the look-up."""
        path: Any = self
        way: list[AccessPath] = []
        while isinstance(path, AccessPath):
            way.append(path)
            path = path.holder
        if isinstance(path, _CallArguments):
            path = args if path is POSITIONAL else kwargs
        for step in reversed(way):
            path = path[step.key] if step.is_item else getattr(path, step.key)
        return path

    def peek(self, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] = _NOTHING) -> Any:
        """The object at this path now, or ABSENT."""
        try:
            return self.get(args, kwargs)
        except (KeyError, AttributeError, IndexError, TypeError, ValueError):
            return ABSENT

    def set(self, value: Any) -> None:
        """Put `value` here. Raises the errors of the assignment."""
        holder = self.holder.get() if isinstance(self.holder, AccessPath) else self.holder
        if self.is_item:
            holder[self.key] = value
        else:
            setattr(holder, self.key, value)


def name_of(key: Any) -> Hashable:
    """A name that equal keys share: a key itself and its class, or its identity where it has no
    hash.
    """
    try:
        hash(key)
    except TypeError:
        return id(key)
    return (type(key), key)


class _PathIdentity:
    """Identity of a path, equal for equal paths. It holds that of the path above, whose steps it
    need not repeat.
    """

    __slots__ = ("__weakref__", "above")

    def __init__(self, above: Any):
        self.above = above


_identities: weakref.WeakValueDictionary[tuple[Any, Hashable, bool], _PathIdentity] = (
    weakref.WeakValueDictionary()
)
_lock = held_at_fork(threading.Lock(), 90)


def _identified(above: Any, name: Hashable, is_item: bool) -> _PathIdentity:
    key = above, name, is_item
    with _lock:
        found = _identities.get(key)
        if found is None:
            found = _identities[key] = _PathIdentity(above)
    return found
