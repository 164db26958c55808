"""Checks compiled to one flat function: a look-up, a comparison, and a return for each that fails.

    def check(a, k, seen):
        if len(a) != 2 or k: return 0
        v0 = a[0]
        if v0.__class__ is not C0: return 1
        if seen[0]() is not v0.uop: changed.append(0)
        v1 = C1.scale
        if v1 is not C2 and not same(v1, C2): return 2
        ...
        return (v0,), changed, ()

Most checks end at `is`, which costs 30 nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from tilegrad.capture.guards import Check, Guards, same, without
from tilegrad.capture.places import KEYWORDS, POSITIONAL, Place
from tilegrad.ir.uop import UOp

__all__ = ["Checker", "Found", "compile_checks"]

Found = tuple[tuple[Any, ...], list[int], tuple[UOp, ...]]
"""The inputs, the numbers of those that changed, and the symbolic arguments."""
Checker = Callable[[tuple[Any, ...], dict[str, Any], list[Any]], "int | Found"]


class _Writer:
    def __init__(self, guards: Guards):
        self.guards = guards
        self.lines: list[str] = []
        self.names: dict[str, Any] = {"same": same, "UOp": UOp, "without": without}
        self.held: dict[int, str] = {}
        self.values: dict[Hashable, str] = {}
        self.inputs: dict[int, str] = {}
        self.symbols: list[str] = []

    def const(self, value: Any) -> str:
        """A name for an object that the function holds."""
        name = self.held.get(id(value))
        if name is None:
            name = self.held[id(value)] = f"C{len(self.held)}"
            self.names[name] = value
        return name

    def value(self, place: Place) -> str:
        """The variable with what stands at `place`."""
        identity = place.identity
        found = self.values.get(identity)
        if found is not None:
            return found
        if isinstance(place.holder, Place):
            holder = self.value(place.holder)
        elif place.holder is POSITIONAL:
            holder = "a"
        elif place.holder is KEYWORDS:
            holder = "k"
        else:
            holder = self.const(place.holder)
        name = f"v{len(self.values)}"
        if not place.is_item:
            is_name = isinstance(place.key, str) and place.key.isidentifier()
            source = f"{holder}.{place.key}" if is_name else f"getattr({holder}, {place.key!r})"
        elif type(place.key) in (int, str):
            source = f"{holder}[{place.key!r}]"
        else:
            source = f"{holder}[{self.const(place.key)}]"
        self.lines.append(f"{name} = {source}")
        self.values[identity] = name
        return name

    def fail(self, condition: str, number: int) -> None:
        self.lines.append(f"if {condition}: return {number}")

    def check(self, number: int, check: Check) -> None:
        expected = check.expected
        if check.test == "call":
            count, names = expected
            wrong = f"len(a) != {count} or len(k) != {len(names)}"
            self.fail(" or ".join([wrong, *[f"{name!r} not in k" for name in names]]), number)
            return
        if check.test == "absent":
            place = check.place
            if place.is_item and type(place.holder) is dict:
                self.fail(f"{self.const(place.key)} in {self.const(place.holder)}", number)
            else:
                self.fail(f"{self.const(check)}.holds(a, k) is False", number)
            return
        value = self.value(check.place)
        if check.test == "same":
            held = self.const(expected)
            self.fail(f"{value} is not {held} and not same({value}, {held})", number)
        elif check.test == "is":
            self.fail(f"{value} is not {self.const(expected)}", number)
        elif check.test == "some":
            self.fail(f"{value} is None", number)
        elif check.test == "class":
            kind, size = expected
            wrong = f"{value}.__class__ is not {self.const(kind)}"
            self.fail(wrong if size is None else f"{wrong} or len({value}) != {size}", number)
        elif check.test == "without":
            names = self.const(expected)
            standing: Any = None if check.place.is_argument else check.place.peek()
            reads: Any = type(standing).__getattribute__
            is_generic = reads is object.__getattribute__
            if is_generic and standing is not None:
                self.fail(f"not {names}.isdisjoint({value}.__dict__)", number)
            else:
                self.fail(f"not without({value}, {names})", number)
        elif check.test == "calls":
            args, result = self.const(expected[0]), self.const(expected[1])
            self.fail(f"not same({value}(*{args}), {result})", number)
        elif check.test == "members":
            self.fail(f"{value} != {self.const(expected)}", number)
        elif check.test == "keys":
            self.fail(f"list({value}) != {self.const(expected)}", number)
        elif check.test == "symbol":
            self.fail(f"{value}.__class__ is not UOp", number)
            self.symbols.append(value)
        else:
            self.tensor(number, value, expected)

    def tensor(self, number: int, value: str, expected: Any) -> None:
        place = self.guards.number_of(expected)
        assert place is not None
        first = self.inputs.get(place)
        if first is not None:
            self.fail(f"{value} is not {first}", number)
            return
        self.inputs[place] = value
        self.fail(f"{value}.__class__ is not {self.const(type(expected))}", number)
        self.lines.append(
            f"if seen[{place}]() is not {value}.uop or "
            f"{value}._requires_grad is not {expected._requires_grad}: changed.append({place})"
        )


def _tuple(names: list[str]) -> str:
    return f"({', '.join(names)},)" if names else "()"


def compile_checks(guards: Guards) -> Checker:
    """A function of a call's arguments: the number of the first check that fails (-1 if a value is
    gone), or what it found.
    """
    writer = _Writer(guards)
    for number, check in enumerate(guards.checks):
        writer.check(number, check)
    inputs = [writer.inputs[number] for number in range(len(guards.tensors))]
    gone = "except (KeyError, AttributeError, IndexError, TypeError, ValueError)"
    body = "\n        ".join(
        [*writer.lines, f"return {_tuple(inputs)}, changed, {_tuple(writer.symbols)}"]
    )
    text = (
        f"def check(a, k, seen):\n    changed = []\n    try:\n        {body}\n"
        f"    {gone}:\n        return -1\n"
    )
    exec(compile(text, "<jit guards>", "exec"), writer.names)
    found: Checker = writer.names["check"]
    return found
