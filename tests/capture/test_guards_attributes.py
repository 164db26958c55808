"""Attributes that a captured function reads are guards."""

from __future__ import annotations

import copy
import dataclasses
import operator
import types
from typing import Any

import numpy as np
import pytest

from tests.capture.helpers import full
from tests.capture.test_guards import Options, run, warm
from tilegrad import Tensor, jit


class Layer:
    kind = "plain"

    def __init__(self, weight: float):
        self.weight = full(weight, 2)
        self.factor = 1.0
        self.unread = 0

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.weight * self.factor + (1 if self.kind == "biased" else 0)


class Model:
    def __init__(self) -> None:
        self.layers = [Layer(2), Layer(3)]
        self.last = Layer(5)
        self.settings = types.SimpleNamespace(bias=0.0)
        self.options = {"twice": False}

    def __call__(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        x = self.last(x) + self.settings.bias
        return x * 2 if self.options["twice"] else x


def captured() -> tuple[Any, Model]:
    model = Model()
    function = jit(lambda x: model(x))
    warm(function)
    assert run(function) == 30
    assert function.captures == 1
    return function, model


def test_an_attribute_that_is_not_read_does_not_count() -> None:
    function, model = captured()
    model.layers[0].unread = 7
    model.fresh = 3  # type: ignore[attr-defined]
    assert run(function) == 30
    assert function.captures == 1


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda m: setattr(m.layers[1], "factor", 2.0), 60),
        (lambda m: setattr(m.last, "factor", 2.0), 60),
        (lambda m: setattr(m.last, "weight", full(7, 2)), 42),
        (lambda m: m.last.weight.assign(full(7, 2)), 42),
        (lambda m: m.last.weight.assign(full(7, 2)).realize(), 42),
        (lambda m: m.last.weight.replace(full(7, 2)), 42),
        (lambda m: setattr(m.last, "kind", "biased"), 31),
        (lambda m: setattr(m, "last", Layer(7)), 42),
        (lambda m: m.layers.append(Layer(2)), 60),
        (lambda m: m.layers.pop(), 10),
        (lambda m: m.layers.reverse() or setattr(m.layers[0], "factor", 2.0), 60),
        (lambda m: m.layers.__setitem__(0, Layer(4)), 60),
        (lambda m: setattr(m, "layers", [Layer(4)]), 20),
        (lambda m: setattr(m.settings, "bias", 1.0), 31),
        (lambda m: m.options.update(twice=True), 60),
        (lambda m: setattr(m, "options", {"twice": True}), 60),
    ],
)
def test_attributes(change: Any, expected: float) -> None:
    function, model = captured()
    change(model)
    for _ in range(3):
        assert run(function) == expected


def test_class_attributes_and_methods() -> None:
    function, _model = captured()
    Layer.kind = "biased"
    try:
        assert run(function) == ((1 * 2 + 1) * 3 + 1) * 5 + 1
    finally:
        Layer.kind = "plain"
    original = Layer.__call__
    Layer.__call__ = lambda self, x: x  # type: ignore[method-assign]
    try:
        assert run(function) == 1
    finally:
        Layer.__call__ = original  # type: ignore[method-assign]
    assert run(function) == 30


def test_properties_and_slots() -> None:
    class Part:
        __slots__ = ("_rate", "bias")

        def __init__(self) -> None:
            self._rate, self.bias = 2.0, 1.0

        @property
        def rate(self) -> float:
            return self._rate

    part = Part()
    function = jit(lambda x: x * part.rate + part.bias)
    warm(function)
    part._rate = 3.0
    assert run(function) == 4
    part.bias = 2.0
    assert run(function) == 5


def test_attributes_read_by_name() -> None:
    part = types.SimpleNamespace(a=1.0, b=2.0)
    holder = Layer(1)
    names = ["factor"]

    def read(thing: Any, name: str) -> Any:
        return getattr(thing, name)

    function = jit(lambda x: x * read(holder, names[0]) + part.a)
    warm(function)
    holder.factor = 4.0
    assert run(function) == 5
    part.a = 2.0
    assert run(function) == 6


def test_attributes_read_by_libraries() -> None:
    options = Options()
    rate = operator.attrgetter("rate")
    for read in (
        rate,
        lambda x: operator.attrgetter("rate")(x),
        lambda x: dataclasses.asdict(x)["rate"],
        lambda x: vars(x)["rate"],
        lambda x: x.__dict__["rate"],
        lambda x: copy.copy(x).rate,
        lambda x: 2.0 if x == Options(2.0) else 1.0,
    ):
        options.rate = 1.0
        function = jit(lambda x, read=read: x * read(options))
        warm(function)
        options.rate = 2.0
        assert run(function) == 2


def test_objects_that_come_from_a_call() -> None:
    store = {"layer": Layer(2)}

    def find() -> Layer:
        return store["layer"]

    function = jit(lambda x: x * find().factor)
    warm(function)
    store["layer"].factor = 3.0
    assert run(function) == 3
    store["layer"] = Layer(2)
    assert run(function) == 1


def test_an_attribute_on_the_way_is_aliased() -> None:
    holder = types.SimpleNamespace(inner=types.SimpleNamespace(rate=2.0))

    @jit
    def function(x: Tensor) -> Tensor:
        inner = holder.inner
        if x.ndim:
            rate = inner.rate
        return x * rate

    warm(function)
    holder.inner.rate = 3.0
    assert run(function) == 3


def test_a_numpy_array_that_is_read() -> None:
    array = np.array([1.0, 2.0], dtype=np.float32)
    function = jit(lambda x: x + Tensor(array))
    warm(function)
    assert run(function) == 2
    array[0] = 5
    assert run(function) == 6
