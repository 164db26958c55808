"""Closed sets of named values, as `enum.Enum` has them, where a member is found and hashed like any
other attribute and object.

The compiler asks `node.op is Ops.ADD` ten million times for one network. In Python 3.11 the class
of Enum classes answers a missing attribute itself, which makes each attribute that is there take
0.2 us, six times as long; and an Enum member hashes its name by a call into Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["Members"]

if TYPE_CHECKING:
    # A checker knows the members of an Enum.
    from enum import Enum as Members
else:

    class _Closed(type):
        """The class of a class whose public attributes, but for functions, are its members."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> Any:
            values = {
                key: value
                for key, value in body.items()
                if not key.startswith("_") and not hasattr(value, "__get__")
            }
            made = super().__new__(cls, name, bases, body)
            made.__members__ = {}
            for key, value in values.items():
                member = object.__new__(made)
                member.name, member.value = key, value
                member.__init__(*value if isinstance(value, tuple) else (value,))
                made.__members__[key] = member
                setattr(made, key, member)
            return made

        def __call__(cls, value: Any) -> Any:
            for member in cls.__members__.values():
                if member.value == value:
                    return member
            raise ValueError(f"{value!r} is no {cls.__name__}")

        def __getitem__(cls, name: str) -> Any:
            return cls.__members__[name]

        def __iter__(cls) -> Any:
            return iter(cls.__members__.values())

        def __len__(cls) -> int:
            return len(cls.__members__)

    class Members(metaclass=_Closed):
        """As `enum.Enum`: a subclass lists its members as `NAME = value`, and may have `__init__`,
        which is given the value, a tuple part by part.
        """

        def __init__(self, *value: Any) -> None:
            pass

        def __repr__(self) -> str:
            return f"{type(self).__name__}.{self.name}"

        def __reduce_ex__(self, protocol: Any) -> Any:
            return getattr, (type(self), self.name)
