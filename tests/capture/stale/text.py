"""Text, patterns, copies."""

from __future__ import annotations

import copy
import dataclasses
import json
import operator
import re
import string
from typing import Any

from tests.capture.stale.registry import Box, case


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
