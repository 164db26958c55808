"""Where a value stands, so that it can be looked up again at each call."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["ABSENT", "KEYWORDS", "POSITIONAL", "Place"]


class _Arguments:
    """The arguments of a call: not held, given anew each time."""


POSITIONAL = _Arguments()
KEYWORDS = _Arguments()
ABSENT = object()
_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, eq=False)
class Place:
    """An item or an attribute of `holder`: an object that is held, or what stands at a place.

    Attributes:
        label: how a user would write it, for messages.
    """

    holder: Any
    is_item: bool
    key: Any
    label: str

    def __repr__(self) -> str:
        return f"<place {self.label}>"

    @property
    def identity(self) -> Hashable:
        """Equal for equal places."""
        place: Any = self
        parts: list[Hashable] = []
        while isinstance(place, Place):
            parts += (_name(place.key), place.is_item)
            place = place.holder
        return (id(place), *reversed(parts))

    def item(self, key: Any) -> Place:
        return Place(self, True, key, f"{self.label}[{key!r}]")

    def attribute(self, name: str) -> Place:
        return Place(self, False, name, f"{self.label}.{name}")

    @property
    def is_argument(self) -> bool:
        """Whether the value comes with each call."""
        place = self
        while isinstance(place.holder, Place):
            place = place.holder
        return isinstance(place.holder, _Arguments)

    @property
    def is_attribute(self) -> bool:
        """Whether it is an object's, directly or further up: its state, not a value given."""
        place: Any = self
        while isinstance(place, Place):
            if not place.is_item:
                return True
            place = place.holder
        return False

    def get(self, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] = _NOTHING) -> Any:
        """What stands here now. Raises what the look-up raises."""
        place: Any = self
        way: list[Place] = []
        while isinstance(place, Place):
            way.append(place)
            place = place.holder
        if isinstance(place, _Arguments):
            place = args if place is POSITIONAL else kwargs
        for step in reversed(way):
            place = place[step.key] if step.is_item else getattr(place, step.key)
        return place

    def peek(self, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] = _NOTHING) -> Any:
        """What stands here now, or ABSENT."""
        try:
            return self.get(args, kwargs)
        except (KeyError, AttributeError, IndexError, TypeError, ValueError):
            return ABSENT

    def set(self, value: Any) -> None:
        """Put `value` here. Raises what the assignment raises."""
        holder = self.holder.get() if isinstance(self.holder, Place) else self.holder
        if self.is_item:
            holder[self.key] = value
        else:
            setattr(holder, self.key, value)


def _name(key: Any) -> Hashable:
    try:
        hash(key)
    except TypeError:
        return id(key)
    return (type(key), key)
