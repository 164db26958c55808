"""What a class defines: properties, descriptors, operators, truth, equality."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from tests.capture.stale.registry import Box, case
from tilegrad import Tensor


@case
def a_property() -> Any:
    class Kind:
        hidden = Box(k=1.0)

        @property
        def k(self) -> float:
            return self.hidden.k

    box = Kind()

    def change(n: int) -> None:
        if n == 3:
            Kind.hidden.k = 2.0
        if n == 5:
            Kind.k = property(lambda self: 6.0)

    return lambda x: x * box.k, change


@case
def dunder_getattr() -> Any:
    class Kind:
        def __init__(self) -> None:
            self.table = {"k": 1.0}

        def __getattr__(self, name: str) -> float:
            return self.table[name]

    box = Kind()

    def change(n: int) -> None:
        if n == 3:
            box.table["k"] = 3.0
        if n == 5:
            box.k = 7.0

    return lambda x: x * box.k, change


@case
def dunder_getattribute() -> Any:
    class Kind:
        def __init__(self) -> None:
            self.k = 1.0

        def __getattribute__(self, name: str) -> Any:
            return object.__getattribute__(self, name)

    box = Kind()
    return lambda x: x * box.k, lambda n: setattr(box, "k", float(n // 2))


@case
def a_descriptor() -> Any:
    class Value:
        def __init__(self) -> None:
            self.value = 1.0

        def __get__(self, holder: Any, kind: Any) -> float:
            return self.value

    value = Value()

    class Kind:
        k = value

    box = Kind()
    return lambda x: x * box.k, lambda n: setattr(value, "value", float(n // 2))


@case
def slots() -> Any:
    class Kind:
        __slots__ = ("k",)

    box = Kind()

    def function(x: Tensor) -> Tensor:
        try:
            return x * box.k
        except AttributeError:
            return x

    def change(n: int) -> None:
        if n == 3:
            box.k = 4.0
        if n == 5:
            del box.k

    return function, change


@case
def a_cached_property() -> Any:
    class Kind:
        def __init__(self) -> None:
            self.base = 2.0

        @functools.cached_property
        def k(self) -> float:
            return self.base * 2

    box = Kind()

    def change(n: int) -> None:
        if n == 4:
            box.base = 5.0
            del box.k

    return lambda x: x * box.k, change


@case
def truth_of_an_object() -> Any:
    class Kind:
        def __init__(self) -> None:
            self.items: list[int] = []

        def __len__(self) -> int:
            return len(self.items)

    box = Kind()
    return lambda x: x * (2 if box else 3), lambda n: box.items.append(1) if n == 3 else None


@case
def truth_that_is_defined_later() -> Any:
    class Kind:
        pass

    box = Kind()
    return (
        lambda x: x * (2 if box else 3),
        lambda n: setattr(Kind, "__bool__", lambda self: False) if n == 3 else None,
    )


@case
def an_operator_of_a_class() -> Any:
    class Kind:
        def __init__(self, k: float):
            self.k = k

        def __add__(self, other: float) -> float:
            return self.k + other

        def __contains__(self, other: float) -> bool:
            return other < self.k

        def __getitem__(self, key: int) -> float:
            return self.k * key

    box = Kind(1.0)
    return (
        lambda x: x * (box + 1) * box[2] * (2 if 3.0 in box else 1),
        lambda n: setattr(box, "k", float(n)),
    )


@case
def equality_of_dataclasses() -> Any:
    @dataclasses.dataclass
    class Point:
        a: float

    one, two = Point(1.0), Point(2.0)
    return (
        lambda x: x * (2 if one == two else 3),
        lambda n: setattr(one, "a", 2.0) if n == 3 else None,
    )


@case
def a_bound_method() -> Any:
    box = Box(k=1.0)

    class Kind:
        def __init__(self) -> None:
            self.k = 1.0

        def get(self) -> float:
            return self.k

    thing = Kind()
    box.get = thing.get
    return lambda x: x * box.get(), lambda n: setattr(thing, "k", float(n // 2))


@case
def super_attribute() -> Any:
    class Base:
        k = 1.0

        def rate(self) -> float:
            return self.k

    class Kind(Base):
        def rate(self) -> float:
            return super().rate() * 2

    box = Kind()

    def change(n: int) -> None:
        if n == 3:
            Base.k = 3.0
        if n == 5:
            Base.rate = lambda self: 10.0

    return lambda x: x * box.rate(), change


@case
def super_data() -> Any:
    class Base:
        k = 1.0

    class Kind(Base):
        k = 5.0

        def rate(self) -> float:
            return super().k

    box = Kind()
    return lambda x: x * box.rate(), lambda n: setattr(Base, "k", float(n // 2))


@case
def a_metaclass() -> Any:
    class Meta(type):
        k = 1.0

    class Kind(metaclass=Meta):
        pass

    return lambda x: x * Kind.k, lambda n: setattr(Meta, "k", float(n // 2))
