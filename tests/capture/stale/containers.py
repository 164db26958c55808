"""Containers: dicts, lists, deques, views, arrays of the host."""

from __future__ import annotations

import array
import collections
import types
from typing import Any

import numpy as np

from tests.capture.stale.registry import Box, case, nothing
from tilegrad import Tensor


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
