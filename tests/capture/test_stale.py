"""A captured function never gives what an uncaptured one would not: every way of reading state.

Each case makes a function and a change of what it reads. It is made twice: one is called as it is,
the other captured, both after the same changes, and all values are compared. A capture may be
refused with an error; it may not be wrong.
"""

from __future__ import annotations

import array
import collections
import contextvars
import copy
import dataclasses
import enum
import functools
import itertools
import json
import math
import operator
import os
import queue
import random
import re
import secrets
import string
import sys
import threading
import time
import types
import uuid
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.capture.helpers import full
from tilegrad import Tensor, jit
from tilegrad.base.errors import CaptureError
from tilegrad.func import vmap

Case = Callable[[], tuple[Callable[[Tensor], Tensor], Callable[[int], Any]]]
CASES: dict[str, Case] = {}


def case(make: Case) -> Case:
    """A way of reading state: gives a function, and what changes the state before call `n`."""
    CASES[make.__name__] = make
    return make


class Box:
    """An object with attributes."""

    def __init__(self, **values: Any):
        self.__dict__.update(values)


def nothing(n: int) -> None:
    """The state changes by being read."""


# generators


@case
def default_rng() -> Any:
    rng = np.random.default_rng(3)
    return lambda x: x * float(rng.random()), nothing


@case
def numpy_random_state() -> Any:
    rng = np.random.RandomState(3)
    return lambda x: x * float(rng.rand()), nothing


@case
def numpy_bit_generator() -> Any:
    rng = np.random.PCG64(5)
    return lambda x: x * float(rng.random_raw() % 1000), nothing


@case
def python_random() -> Any:
    rng = random.Random(3)
    return lambda x: x * rng.random(), nothing


@case
def python_random_choice() -> Any:
    rng, values = random.Random(3), [1.0, 2.0, 3.0, 4.0, 5.0]
    return lambda x: x * rng.choice(values), nothing


@case
def python_shuffle() -> Any:
    rng, values = random.Random(1), [1.0, 2.0, 3.0, 4.0]

    def function(x: Tensor) -> Tensor:
        own = list(values)
        rng.shuffle(own)
        return x * own[0] + own[1]

    return function, nothing


@case
def itertools_count() -> Any:
    numbers = itertools.count(1)
    return lambda x: x * next(numbers), nothing


@case
def a_generator_function() -> Any:
    def numbers() -> Any:
        n = 0
        while True:
            n += 1
            yield n

    source = numbers()
    return lambda x: x * source.send(None), nothing


@case
def a_method_of_an_iterator() -> Any:
    advance = iter(range(1, 100)).__next__
    return lambda x: x * advance(), nothing


@case
def an_iterator_in_a_class() -> Any:
    class Source:
        numbers = itertools.cycle([1.0, 2.0, 3.0])

    return lambda x: x * next(Source.numbers), nothing


# attributes


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


# variables, functions


def _in_globals(source: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "apart", "k": 1.0, "values": [1.0, 2.0]}
    exec(compile(source, "apart.py", "exec"), names)
    return names


@case
def globals_item() -> Any:
    names = _in_globals("def f(x): return x * globals()['k']")
    return names["f"], lambda n: names.update(k=float(n // 2))


@case
def globals_get() -> Any:
    names = _in_globals("def f(x): return x * globals().get('later', 2.0)")
    return names["f"], lambda n: names.update(later=3.0) if n == 3 else None


@case
def a_name_that_appears() -> Any:
    names = _in_globals("def f(x):\n  try: return x * later\n  except NameError: return x * 5")
    return names["f"], lambda n: names.update(later=3.0) if n == 3 else None


@case
def a_builtin_is_shadowed() -> Any:
    names = _in_globals("def f(x): return x * max(values)")
    return names["f"], lambda n: names.update(max=min) if n == 3 else None


@case
def eval_of_text() -> Any:
    names = _in_globals("def f(x): return x * eval('k + 1')")
    return names["f"], lambda n: names.update(k=float(n // 2))


@case
def mutable_default() -> Any:
    def function(x: Tensor, own: list[float] = [1.0]) -> Tensor:  # noqa: B006
        return x * own[0]

    defaults = function.__defaults__
    assert defaults is not None
    return function, lambda n: defaults[0].__setitem__(0, float(n // 2))


@case
def default_that_counts() -> Any:
    def function(x: Tensor, own: list[float] = []) -> Tensor:  # noqa: B006
        own.append(1.0)
        return x * len(own)

    return function, nothing


@case
def defaults_are_exchanged() -> Any:
    def inner(x: Tensor, k: float = 1.0) -> Tensor:
        return x * k

    return lambda x: inner(x), lambda n: setattr(inner, "__defaults__", (float(n // 2),))


@case
def keyword_defaults() -> Any:
    def inner(x: Tensor, *, k: float = 1.0) -> Tensor:
        return x * k

    kwdefaults = inner.__kwdefaults__
    return lambda x: inner(x), lambda n: kwdefaults.update(k=float(n // 2))


@case
def attribute_of_a_function() -> Any:
    def inner(x: Tensor) -> Tensor:
        return x * inner.k

    inner.k = 1.0  # type: ignore[attr-defined]
    return inner, lambda n: setattr(inner, "k", float(n // 2))


@case
def code_of_a_function() -> Any:
    def inner(x: Tensor) -> Tensor:
        return x * 1

    def other(x: Tensor) -> Tensor:
        return x * 9

    return (
        lambda x: inner(x),
        lambda n: setattr(inner, "__code__", other.__code__) if n == 3 else None,
    )


@case
def a_nested_closure() -> Any:
    k = 1.0

    def change(n: int) -> None:
        nonlocal k
        k = float(n // 2)

    def outer() -> Callable[[Tensor], Tensor]:
        def middle(x: Tensor) -> Tensor:
            return sum([x * k for _ in range(2)])  # type: ignore[return-value]

        return middle

    return lambda x: outer()(x), change


@case
def a_partial() -> Any:
    options = {"k": 1.0}
    inner = functools.partial(lambda x, table: x * table["k"], table=options)
    return lambda x: inner(x), lambda n: options.update(k=float(n // 2))


@case
def a_partial_that_is_captured() -> Any:
    options = {"k": 1.0}
    function = functools.partial(lambda table, x: x * table["k"], options)
    return function, lambda n: options.update(k=float(n // 2))


@case
def a_partial_of_a_partial_that_is_captured() -> Any:
    box = Box(k=1.0)
    inner = functools.partial(lambda by, box, x: x * by * box.k, 2.0)
    return functools.partial(inner, box), lambda n: setattr(box, "k", float(n // 2))


@case
def a_partial_method_that_is_captured() -> Any:
    options = {"k": 1.0}

    class Scale:
        scaled = functools.partialmethod(lambda self, table, x: x * table["k"], options)

    return Scale().scaled, lambda n: options.update(k=float(n // 2))


@case
def an_object_called_by_a_partial_method() -> Any:
    options = {"k": 1.0}

    class Scale:
        __call__ = functools.partialmethod(lambda self, table, x: x * table["k"], options)

    return Scale(), lambda n: options.update(k=float(n // 2))


@case
def a_partial_that_the_core_calls() -> Any:
    options = {"k": 1.0}
    inner = functools.partial(lambda table, x: x * table["k"], options)
    return lambda x: vmap(inner)(x), lambda n: options.update(k=float(n // 2))


@case
def a_partial_that_c_calls() -> Any:
    options = {"k": 1.0}
    inner = functools.partial(lambda x, table: x * table["k"], table=options)
    return lambda x: next(map(inner, [x])), lambda n: options.update(k=float(n // 2))


@case
def a_cached_function() -> Any:
    box = Box(k=1.0)

    @functools.lru_cache
    def find() -> float:
        return box.k

    def change(n: int) -> None:
        box.k = float(n)
        if n % 2:
            find.cache_clear()

    return lambda x: x * find(), change


@case
def what_a_cache_holds() -> Any:
    @functools.lru_cache
    def find() -> list[float]:
        return [1.0]

    return lambda x: x * find()[0], lambda n: find().__setitem__(0, float(n // 2))


@case
def single_dispatch() -> Any:
    @functools.singledispatch
    def rate(value: Any) -> float:
        return 1.0

    def change(n: int) -> None:
        if n == 3:
            rate.register(int, lambda value: 5.0)

    return lambda x: x * rate(3), change


# containers


@case
def a_key_that_appears() -> Any:
    table: dict[str, float] = {}
    return (
        lambda x: x * (table["k"] * 2 if "k" in table else 3.0),
        lambda n: table.update(k=4.0) if n == 3 else None,
    )


@case
def except_key_error() -> Any:
    table: dict[str, float] = {}

    def function(x: Tensor) -> Tensor:
        try:
            return x * table["k"]
        except KeyError:
            return x * 3

    return function, lambda n: table.update(k=4.0) if n == 3 else None


@case
def except_index_error() -> Any:
    values = [1.0]

    def function(x: Tensor) -> Tensor:
        try:
            return x * values[1]
        except IndexError:
            return x * 3

    return function, lambda n: values.append(4.0) if n == 3 else None


@case
def dict_get_and_setdefault() -> Any:
    table: dict[str, float] = {"a": 1.0}
    return (
        lambda x: x * table.get("a", 0.0) + table.get("b", 9.0),
        lambda n: table.update(a=float(n // 2), **({"b": 1.0} if n > 4 else {})),
    )


@case
def items_keys_values() -> Any:
    table = {"a": 1.0, "b": 2.0}
    return (
        lambda x: x * sum(v for _, v in table.items()) + max(table.values()) * len(list(table)),
        lambda n: table.__setitem__("b" if n < 4 else f"c{n}", float(n // 2)),
    )


@case
def user_dict() -> Any:
    table = collections.UserDict(k=1.0)
    return lambda x: x * table["k"], lambda n: table.__setitem__("k", float(n // 2))


@case
def chain_map() -> Any:
    first: dict[str, float] = {}
    table = collections.ChainMap(first, {"k": 1.0})

    def change(n: int) -> None:
        if n == 3:
            first["k"] = 6.0

    return lambda x: x * table["k"], change


@case
def default_dict() -> Any:
    table: Any = collections.defaultdict(lambda: 2.0)

    def change(n: int) -> None:
        if n == 3:
            table["k"] = 6.0

    return lambda x: x * table["k"], change


@case
def ordered_dict() -> Any:
    table = collections.OrderedDict(a=1.0, b=2.0)
    return (
        lambda x: x * next(iter(table.values())),
        lambda n: table.move_to_end("a") if n == 3 else 0,
    )


@case
def a_counter() -> Any:
    table = collections.Counter("aab")
    return lambda x: x * table["a"] + table["z"], lambda n: table.update("az") if n > 2 else None


@case
def a_deque() -> Any:
    values = collections.deque([1.0, 2.0])
    return (
        lambda x: x * values[0] + len(values),
        lambda n: values.appendleft(float(n)) if n > 2 else 0,
    )


@case
def a_set() -> Any:
    values = {1, 2}
    return lambda x: x * sum(values) + (5 if 7 in values else 0), lambda n: values.add(n + 3)


@case
def a_named_tuple() -> Any:
    Pair = collections.namedtuple("Pair", "a b")
    box = Box(pair=Pair(1.0, 2.0))
    return (
        lambda x: x * box.pair.a + box.pair[1],
        lambda n: setattr(box, "pair", Pair(float(n // 2), 3.0)),
    )


@case
def a_list_in_a_tuple() -> Any:
    pair = ([1.0], 2)
    return lambda x: x * pair[0][0], lambda n: pair[0].__setitem__(0, float(n // 2))


@case
def unpacking() -> Any:
    values = [1.0, 2.0]

    def function(x: Tensor) -> Tensor:
        first, *rest = values
        return x * first + sum(rest) + sum([*values, *values])

    return function, lambda n: values.append(float(n)) if n > 2 else None


@case
def spread_arguments() -> Any:
    values, named = [1.0], {"b": 1.0}

    def inner(x: Tensor, *a: float, b: float = 0.0, **c: float) -> Tensor:
        return x * sum(a) + b + sum(c.values())

    def change(n: int) -> None:
        values.append(float(n))
        named["b"] = float(n // 2)
        if n > 4:
            named["z"] = 7.0

    return lambda x: inner(x, *values, **named), change


@case
def slices() -> Any:
    values = [1.0, 2.0, 3.0]
    return lambda x: x * sum(values[:2]) + values[-1], lambda n: values.insert(0, float(n))


@case
def comparison_of_lists() -> Any:
    values = [[1.0], [2.0]]
    return (
        lambda x: x * (2 if values == [[1.0], [2.0]] else 3),
        lambda n: values[1].append(1) if n == 3 else 0,
    )


@case
def min_by_key() -> Any:
    values = [3.0, 1.0]
    return lambda x: x * min(values, key=lambda v: -v), lambda n: values.append(float(n * 2))


@case
def zip_and_enumerate() -> Any:
    a, b = [1.0, 2.0], [3.0, 4.0]
    return (
        lambda x: x * sum(p * q * i for i, (p, q) in enumerate(zip(a, b, strict=True))),
        lambda n: b.__setitem__(1, float(n)),
    )


@case
def a_list_that_it_appends_to() -> Any:
    values: list[int] = []

    def function(x: Tensor) -> Tensor:
        values.append(1)
        return x * len(values)

    return function, nothing


@case
def pop_from_a_list() -> Any:
    values = [float(n) for n in range(40)]
    return lambda x: x * values.pop(), nothing


@case
def rotate_a_deque() -> Any:
    values = collections.deque([1.0, 2.0, 3.0])

    def function(x: Tensor) -> Tensor:
        values.rotate(1)
        return x * values[0]

    return function, nothing


@case
def augmented_assignment() -> Any:
    values: list[int] = []

    def function(x: Tensor) -> Tensor:
        nonlocal values
        values += [1]
        return x * len(values)

    return function, nothing


@case
def a_dict_subclass() -> Any:
    class Settings(dict[str, Any]):
        def __getattr__(self, name: str) -> Any:
            return self[name]

    table = Settings(k=1.0)
    return lambda x: x * table.k, lambda n: table.update(k=float(n // 2))


@case
def a_list_subclass() -> Any:
    class Values(list[float]):
        pass

    values = Values([1.0, 2.0])
    return lambda x: x * values[0] + len(values), lambda n: values.insert(0, float(n))


@case
def a_mapping_proxy() -> Any:
    table = {"k": 1.0}
    view = types.MappingProxyType(table)
    return lambda x: x * view["k"] * len(view), lambda n: table.update(
        {"k": float(n // 2), f"z{n}": 1}
    )


@case
def a_dict_view() -> Any:
    table = {"k": 1.0}
    view = table.values()
    return lambda x: x * sum(view), lambda n: table.update({f"z{n}": 1.0})


@case
def a_simple_namespace() -> Any:
    box = types.SimpleNamespace(a=types.SimpleNamespace(k=1.0))
    other = types.SimpleNamespace(k=2.0)
    return lambda x: x * box.a.k * (2 if box.a == other else 1), lambda n: setattr(
        box.a, "k", float(n // 2)
    )


@case
def array_array() -> Any:
    values = array.array("d", [1.0, 2.0])
    return lambda x: x * values[0], lambda n: values.__setitem__(0, float(n // 2))


@case
def a_bytearray() -> Any:
    values = bytearray([1, 2])
    return lambda x: x * values[0], lambda n: values.__setitem__(0, n // 2)


@case
def a_memory_view() -> Any:
    values = bytearray([1, 2])
    view = memoryview(values)
    return lambda x: x * view[0], lambda n: values.__setitem__(0, n // 2)


@case
def a_zero_dimensional_array() -> Any:
    value = np.array(1.0)
    return lambda x: x * float(value), lambda n: value.__setitem__((), float(n // 2))


@case
def an_array_in_arithmetic() -> Any:
    value = np.array(1.0)
    return lambda x: x * (value + 1).item(), lambda n: value.__setitem__((), float(n // 2))


@case
def a_view_of_an_array() -> Any:
    values = np.array([1.0, 2.0])
    return lambda x: x * values.T[1:].tolist()[0], lambda n: values.__setitem__(1, float(n // 2))


@case
def a_numpy_function() -> Any:
    values = np.array([1.0, 2.0])
    return lambda x: x * float(np.sum(values)) + float(values.max()), lambda n: values.__setitem__(
        1, n
    )


@case
def an_array_in_a_list() -> Any:
    values = [np.array([1.0, 2.0])]
    return lambda x: x * Tensor(np.stack(values)[0]).float(), lambda n: values[0].__setitem__(1, n)


@case
def numpy_print_options() -> Any:
    value = np.array([1.23456])
    return (
        lambda x: x * len(str(value)),
        lambda n: np.set_printoptions(precision=8 if n % 2 else 2),
    )


# text


@case
def format_of_an_attribute() -> Any:
    box = Box(k=1.0, text="{0.k}")
    return lambda x: x * float(box.text.format(box)), lambda n: setattr(box, "k", float(n // 2))


@case
def format_of_an_item() -> Any:
    table, box = {"k": 1.0}, Box(text="{0[k]}")
    return lambda x: x * float(box.text.format(table)), lambda n: table.update(k=float(n // 2))


@case
def format_map() -> Any:
    table = {"k": 1.0}
    return lambda x: x * float("{k}".format_map(table)), lambda n: table.update(k=float(n // 2))


@case
def f_string() -> Any:
    class Kind:
        k = 1.0

        def __str__(self) -> str:
            return str(self.k)

        __repr__ = __str__

    box = Kind()
    return lambda x: x * float(f"{box}") * float(f"{box!r}"), lambda n: setattr(
        box, "k", float(n // 2)
    )


@case
def percent_format() -> Any:
    values = [1.0]
    return lambda x: x * float(operator.mod("%s", values)[1:-1]), lambda n: values.__setitem__(
        0, float(n // 2)
    )


@case
def join() -> Any:
    words = ["1", "2"]
    return lambda x: x * float("".join(words)), lambda n: words.__setitem__(0, str(n // 2))


@case
def a_template() -> Any:
    table = {"k": "1"}
    template = string.Template("$k")
    return lambda x: x * float(template.substitute(table)), lambda n: table.update(k=str(n // 2))


@case
def a_regular_expression() -> Any:
    box = Box(pattern="a+")
    return (
        lambda x: x * len(re.findall(box.pattern, "aabb")),
        lambda n: setattr(box, "pattern", "b") if n == 3 else None,
    )


@case
def json_of_a_dict() -> Any:
    table = {"k": [1.0]}
    return lambda x: x * json.loads(json.dumps(table))["k"][0], lambda n: table["k"].insert(
        0, n // 2
    )


@case
def a_deep_copy() -> Any:
    table = {"box": Box(k=1.0)}
    return lambda x: x * copy.deepcopy(table)["box"].k, lambda n: setattr(table["box"], "k", n // 2)


@case
def a_shallow_copy() -> Any:
    box = Box(k=1.0)
    return lambda x: x * copy.copy(box).k, lambda n: setattr(box, "k", float(n // 2))


@case
def dataclass_replace() -> Any:
    @dataclasses.dataclass
    class Point:
        a: float
        b: float = 0.0

    point = Point(1.0)
    return lambda x: x * dataclasses.replace(point, b=2.0).a, lambda n: setattr(point, "a", n // 2)


# surroundings


@case
def a_context_variable() -> Any:
    value: contextvars.ContextVar[float] = contextvars.ContextVar("value", default=1.0)
    return lambda x: x * value.get(), lambda n: value.set(float(n // 2))


@case
def thread_local() -> Any:
    local = threading.local()
    local.k = 1.0
    return lambda x: x * local.k, lambda n: setattr(local, "k", float(n // 2))


@case
def a_subclass_of_thread_local() -> Any:
    class Local(threading.local):
        k = 1.0

    local = Local()
    return lambda x: x * local.k, lambda n: setattr(local, "k", float(n // 2))


@case
def a_queue() -> Any:
    values: queue.Queue[float] = queue.Queue()
    for n in range(40):
        values.put(float(n))
    return lambda x: x * values.get(), nothing


@case
def a_simple_queue() -> Any:
    values: queue.SimpleQueue[float] = queue.SimpleQueue()
    for n in range(40):
        values.put(float(n))
    return lambda x: x * values.get(), nothing


@case
def an_event() -> Any:
    event = threading.Event()
    return lambda x: x * (2 if event.is_set() else 3), lambda n: event.set() if n == 3 else None


@case
def a_lock() -> Any:
    lock = threading.Lock()
    return lambda x: x * (2 if lock.locked() else 3), lambda n: lock.acquire() if n == 3 else None


@case
def the_environment() -> Any:
    return (
        lambda x: x * float(os.environ["STALE_TEST_K"]),
        lambda n: os.environ.__setitem__("STALE_TEST_K", str(n // 2)),
    )


@case
def getenv() -> Any:
    os.environ.pop("STALE_TEST_L", None)

    def change(n: int) -> None:
        if n == 3:
            os.environ["STALE_TEST_L"] = "4"
        if n == 0:
            os.environ.pop("STALE_TEST_L", None)

    return lambda x: x * float(os.getenv("STALE_TEST_L", "2")), change


@case
def a_file() -> Any:
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"tilegrad-stale-{uuid.uuid4().hex}"

    def function(x: Tensor) -> Tensor:
        with open(path) as file:
            return x * float(file.read())

    return function, lambda n: path.write_text(str(n // 2))


@case
def a_path() -> Any:
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"tilegrad-stale-{uuid.uuid4().hex}"

    def change(n: int) -> None:
        if n == 3:
            path.write_text("")
        if n == 5:
            path.unlink()

    return lambda x: x * (2 if path.exists() else 3), change


@case
def an_open_file() -> Any:
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"tilegrad-stale-{uuid.uuid4().hex}"
    path.write_text("\n".join(map(str, range(40))))
    file = open(path)  # noqa: SIM115
    return lambda x: x * float(file.readline()), nothing


def _replace(path: Path, k: int) -> None:
    """Let another file have the name."""
    other = path.with_suffix(".other")
    other.write_bytes(np.full(2, k, np.float32).tobytes())
    os.replace(other, path)


@case
def a_file_of_a_tensor() -> Any:
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"tilegrad-stale-{uuid.uuid4().hex}"

    def function(x: Tensor) -> Tensor:
        return x * Tensor.empty(2, device=f"DISK:{path}").to("CPU")

    return function, lambda n: _replace(path, n // 2)


@case
def a_file_that_a_tensor_is_written_to() -> Any:
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"tilegrad-stale-{uuid.uuid4().hex}"

    def function(x: Tensor) -> Tensor:
        Tensor.empty(2, device=f"DISK:{path}").assign(x * 3)
        return x + 1

    def change(n: int) -> None:
        if n:
            # It is there again after each call.
            path.unlink()

    return function, change


@case
def the_working_directory() -> Any:
    return lambda x: x * len(os.getcwd()), lambda n: os.chdir("/" if n % 2 else "/tmp")


@case
def the_recursion_limit() -> Any:
    first = sys.getrecursionlimit()
    return (
        lambda x: x * sys.getrecursionlimit(),
        lambda n: sys.setrecursionlimit(first + (n // 2) * 10 if n < 5 else first),
    )


@case
def a_weak_reference() -> Any:
    box = Box(inner=Box(k=1.0))
    reference = weakref.ref(box.inner)

    def function(x: Tensor) -> Tensor:
        found = reference()
        return x * (found.k if found is not None else 9.0)

    def change(n: int) -> None:
        if n == 3:
            box.inner.k = 2.0
        if n == 5:
            box.inner = None

    return function, change


@case
def a_weak_proxy() -> Any:
    box = Box(k=1.0)
    proxy = weakref.proxy(box)
    box_holder = [box]
    return lambda x: x * proxy.k, lambda n: setattr(box_holder[0], "k", float(n // 2))


@case
def a_weak_dictionary() -> Any:
    keys = [Box(), Box()]
    table: Any = weakref.WeakKeyDictionary(dict.fromkeys(keys, 1.0))
    return lambda x: x * sum(table.values()), lambda n: keys.pop() if n in (3, 5) else None


@case
def modules_that_are_there() -> Any:
    def change(n: int) -> None:
        if n == 0:
            sys.modules.pop("tilegrad_test_module", None)
        if n == 3:
            sys.modules["tilegrad_test_module"] = types.ModuleType("tilegrad_test_module")

    return lambda x: x * (2 if "tilegrad_test_module" in sys.modules else 3), change


@case
def an_import_inside() -> Any:
    def change(n: int) -> None:
        module = types.ModuleType("tilegrad_test_rates")
        module.k = float(n // 2)  # type: ignore[attr-defined]
        sys.modules["tilegrad_test_rates"] = module

    def function(x: Tensor) -> Tensor:
        from tilegrad_test_rates import k  # type: ignore[import-not-found]

        return x * k

    return function, change


@case
def an_attribute_of_a_module() -> Any:
    return (
        lambda x: x * math.tau_of_test,  # type: ignore[attr-defined]
        lambda n: setattr(math, "tau_of_test", float(n // 2)),
    )


@case
def an_enum_member() -> Any:
    class Mode(enum.Enum):
        A = 1
        B = 2

    box = Box(mode=Mode.A)
    return (
        lambda x: x * box.mode.value * (5 if box.mode is Mode.B else 1) + Mode(2).value,
        lambda n: setattr(box, "mode", Mode.B) if n == 3 else None,
    )


@case
def an_attribute_of_an_enum_member() -> Any:
    class Mode(enum.Enum):
        A = 1

    Mode.A.rate = 1.0  # type: ignore[attr-defined]
    return lambda x: x * Mode.A.rate, lambda n: setattr(Mode.A, "rate", float(n // 2))  # type: ignore[attr-defined]


@case
def a_frame() -> Any:
    box = Box(depth=0)
    return lambda x: x * len(sys._getframe().f_code.co_name) * (box.depth + 1), lambda n: setattr(
        box, "depth", n
    )


@case
def identity_of_objects() -> Any:
    box = Box(a=Box(), b=Box())
    return (
        lambda x: x * (2 if box.a is box.b else 3),
        lambda n: setattr(box, "b", box.a) if n == 3 else 0,
    )


@case
def identity_of_lists() -> Any:
    box = Box(a=[1.0], b=[1.0])
    return (
        lambda x: x * (2 if box.a is box.b else 3),
        lambda n: setattr(box, "b", box.a) if n == 3 else 0,
    )


@case
def a_list_becomes_none() -> Any:
    box = Box(a=[1.0])
    return (
        lambda x: x * (2 if box.a is None else 3),
        lambda n: setattr(box, "a", None) if n == 3 else 0,
    )


@case
def an_attribute_of_a_tensor() -> Any:
    weight = full(2, 2)
    return (
        lambda x: x * weight * (2 if weight.requires_grad else 3),
        lambda n: setattr(weight, "requires_grad", True) if n == 3 else None,
    )


@case
def a_context_manager() -> Any:
    class Scaled:
        def __init__(self) -> None:
            self.k = 1.0

        def __enter__(self) -> float:
            return self.k

        def __exit__(self, *exc: object) -> None:
            pass

    scaled = Scaled()

    def function(x: Tensor) -> Tensor:
        with scaled as k:
            return x * k

    return function, lambda n: setattr(scaled, "k", float(n // 2))


@case
def a_callable_object() -> Any:
    class Scale:
        def __init__(self) -> None:
            self.k = 1.0

        def __call__(self, x: Tensor) -> Tensor:
            return x * self.k

    scale = Scale()

    def change(n: int) -> None:
        scale.k = float(n // 2)
        if n == 5:
            Scale.__call__ = lambda self, x: x * 50  # type: ignore[method-assign]

    return lambda x: scale(x), change


@case
def an_iterable_object() -> Any:
    class Values:
        def __init__(self) -> None:
            self.values = [1.0, 2.0]

        def __iter__(self) -> Any:
            yield from self.values

    values = Values()
    return lambda x: x * sum(values) + max(values), lambda n: values.values.append(float(n))


@case
def the_number_of_threads() -> Any:
    events: list[threading.Event] = []

    def change(n: int) -> None:
        if n == 3:
            event = threading.Event()
            threading.Thread(target=event.wait, args=(5,)).start()
            events.append(event)
        if n == 5:
            events.pop().set()
            time.sleep(0.05)

    return lambda x: x * min(threading.active_count(), 90), change


@pytest.fixture(autouse=True)
def _environment_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a case sets is not there for the tests, and their processes, that follow."""
    for name in ("STALE_TEST_K", "STALE_TEST_L"):
        monkeypatch.setenv(name, "1")
        monkeypatch.delenv(name)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", sorted(CASES))
def test_never_stale(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The values of eight calls are those of a function that nobody captures."""
    monkeypatch.chdir(tmp_path)
    function, change = CASES[name]()
    expected = []
    for n in range(8):
        change(n)
        expected.append(function(full(1, 2)).tolist())
    function, change = CASES[name]()
    captured = jit(function)
    found, refused = [], "remedy"
    for n in range(8):
        change(n)
        try:
            found.append(captured(full(1, 2)).tolist())
        except CaptureError as error:
            refused = str(error)
            break
    assert found == expected[: len(found)]
    assert "remedy" in refused


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "read",
    [
        time.time_ns, time.perf_counter_ns, time.monotonic_ns, lambda: os.urandom(8),
        lambda: secrets.token_hex(8), lambda: uuid.uuid4().hex, random.SystemRandom().random,
        lambda: next(tuple(secrets.token_bytes(8) for _ in range(1)).__iter__()), object,
    ],
)  # fmt: skip
def test_what_is_never_the_same_is_read_at_each_call(read: Callable[[], Any]) -> None:
    """Clocks and the system's random numbers: no value comes twice."""
    seen = []

    @jit
    def function(x: Tensor) -> tuple[Tensor, int]:
        value = read()
        return x + 1, value if isinstance(value, int) else int.from_bytes(str(value).encode())

    for _ in range(8):
        try:
            seen.append(function(full(1, 2))[1])
        except CaptureError:
            break
        time.sleep(0.001)
    assert len(set(seen)) == len(seen) or read is object


def test_a_function_that_runs_anew_says_so_once_with_the_line() -> None:
    rng = np.random.default_rng(3)

    @jit
    def function(x: Tensor) -> Tensor:
        return x * float(rng.random())  # the line

    with pytest.warns(RuntimeWarning, match="runs anew at each call") as caught:
        [function(full(1, 2)) for _ in range(8)]
    assert len(caught) == 1
    text = str(caught[0].message)
    assert "rng.random())  # the line   test_stale.py:" in text and "remedy" in text
    assert "Generator.random" in text
    assert "Generator.random" in function.explain()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        function(full(1, 2))
