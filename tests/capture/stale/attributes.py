"""Attributes that are read, looked for, set and deleted."""

from __future__ import annotations

import dataclasses
import functools
import operator
from typing import Any

from tests.capture.stale.registry import Box, case
from tilegrad import Tensor


@case
def hasattr_of_an_object() -> Any:
    box = Box()

    def change(n: int) -> None:
        if n % 2:
            box.extra = 1
        elif n:
            del box.extra

    return lambda x: x * (2 if hasattr(box, "extra") else 1), change


@case
def getattr_with_a_default() -> Any:
    box = Box()

    def change(n: int) -> None:
        if n >= 3:
            box.k = float(n)

    return lambda x: x * getattr(box, "k", 7.0), change


@case
def except_attribute_error() -> Any:
    box = Box()

    def function(x: Tensor) -> Tensor:
        try:
            return x * box.k
        except AttributeError:
            return x + 10

    return function, lambda n: setattr(box, "k", 3.0) if n == 3 else None


@case
def an_attribute_is_deleted() -> Any:
    class Kind:
        k = 1.0

    box = Kind()
    box.k = 5.0

    def change(n: int) -> None:
        if n == 3:
            del box.k

    return lambda x: x * box.k, change


@case
def an_attribute_shadows_the_class() -> Any:
    class Kind:
        k = 1.0

    box = Kind()
    return lambda x: x * box.k, lambda n: setattr(box, "k", 4.0) if n == 3 else None


@case
def a_method_is_shadowed() -> Any:
    class Kind:
        def rate(self) -> float:
            return 2.0

    box = Kind()
    return lambda x: x * box.rate(), lambda n: setattr(box, "rate", lambda: 9.0) if n == 3 else None


@case
def attribute_of_the_type() -> Any:
    class Kind:
        k = 1.0

    box = Kind()
    return lambda x: x * type(box).k, lambda n: setattr(Kind, "k", 1.0 + n // 2)


@case
def attribute_of_a_base_class() -> Any:
    class Base:
        k = 1.0

    class Kind(Base):
        pass

    box = Kind()

    def change(n: int) -> None:
        if n == 3:
            Kind.k = 8.0
        elif n == 5:
            Base.k, _ = 3.0, delattr(Kind, "k")

    return lambda x: x * box.k, change


@case
def the_class_is_exchanged() -> Any:
    class One:
        def rate(self) -> float:
            return 1.0

    class Two:
        def rate(self) -> float:
            return 2.0

    box = One()
    return lambda x: x * box.rate(), lambda n: setattr(box, "__class__", Two) if n == 3 else None


@case
def isinstance_of_an_exchanged_class() -> Any:
    class One:
        pass

    class Two:
        pass

    box = One()
    return (
        lambda x: x * (2 if isinstance(box, One) else 3),
        lambda n: setattr(box, "__class__", Two) if n == 3 else None,
    )


@case
def reduce_getattr() -> Any:
    box = Box(inner=Box(k=1.0))
    return (
        lambda x: x * functools.reduce(getattr, ["inner", "k"], box),
        lambda n: setattr(box.inner, "k", float(n // 2)),
    )


@case
def map_attrgetter() -> Any:
    boxes = [Box(k=1.0), Box(k=2.0)]
    return (
        lambda x: x * sum(map(operator.attrgetter("k"), boxes)),
        lambda n: setattr(boxes[1], "k", float(n // 2)),
    )


@case
def sorted_by_attrgetter() -> Any:
    boxes = [Box(k=1.0, v=10.0), Box(k=2.0, v=20.0)]
    return (
        lambda x: x * sorted(boxes, key=operator.attrgetter("k"))[0].v,
        lambda n: setattr(boxes[0], "k", 5.0) if n == 3 else None,
    )


@case
def methodcaller() -> Any:
    box = Box(k=1.0)
    box.get = lambda: box.k
    call = operator.methodcaller("get")
    return lambda x: x * call(box), lambda n: setattr(box, "k", float(n // 2))


@case
def match_class() -> Any:
    @dataclasses.dataclass
    class Point:
        a: float
        b: float

    point = Point(1.0, 2.0)

    def function(x: Tensor) -> Tensor:
        match point:
            case Point(1.0, b):
                return x * b
            case Point(a=a):
                return x * a * 100
        return x

    def change(n: int) -> None:
        if n == 3:
            point.b = 5.0
        if n == 5:
            point.a = 3.0

    return function, change


@case
def match_mapping() -> Any:
    table = {"kind": "a", "value": 2.0}

    def function(x: Tensor) -> Tensor:
        match table:
            case {"kind": "a", "value": value}:
                return x * value
            case {"other": value}:
                return x + value
        return x

    def change(n: int) -> None:
        if n == 3:
            table["value"] = 3.0
        if n == 5:
            table["kind"], table["other"] = "b", 4.0

    return function, change


@case
def match_sequence() -> Any:
    values = [1.0]

    def function(x: Tensor) -> Tensor:
        match values:
            case [one]:
                return x * one
            case [_, *rest]:
                return x * rest[-1]
        return x

    return function, lambda n: values.append(float(n)) if n >= 3 else None


@case
def dunder_dict() -> Any:
    box = Box(k=1.0)
    return lambda x: x * box.__dict__["k"], lambda n: setattr(box, "k", float(n // 2))


@case
def vars_get() -> Any:
    box = Box()
    return (
        lambda x: x * vars(box).get("k", 2.0),
        lambda n: setattr(box, "k", 3.0) if n > 2 else None,
    )


@case
def vars_of_a_class() -> Any:
    class Kind:
        k = 1.0

    return lambda x: x * vars(Kind)["k"], lambda n: setattr(Kind, "k", float(n // 2))


@case
def dict_of_a_class() -> Any:
    class Kind:
        k = 1.0

    def function(x: Tensor) -> Tensor:
        own = Kind.__dict__
        return x * own["k"]

    return function, lambda n: setattr(Kind, "k", float(n // 2))


@case
def dir_of_an_object() -> Any:
    box = Box(a=1)
    return lambda x: x * len(dir(box)), lambda n: setattr(box, f"a{n}", 1) if n > 2 else None
