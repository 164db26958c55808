"""Checks compiled to one flat function: a look-up, a comparison, and a return for each that fails.

    def check(a, k, seen):
        if len(a) != 2 or k: return 0
        v0 = a[0]
        if v0.__class__ is not C0: return 1
        if seen[0]() is not (v0._node if v0._call is None else v0.uop): changed.append(0)
        v1 = C1.scale
        if v1 is not C2 and not same(v1, C2): return 2
        ...
        return (v0,), changed, ()

Most checks end at `is`, which costs 30 nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from tilegrad.capture.access_paths import KEYWORDS, POSITIONAL, AccessPath
from tilegrad.capture.guards import Check, Guards, same, without
from tilegrad.ir.uop import UOp

__all__ = ["Checker", "Found", "compile_checks"]

Found = tuple[tuple[Any, ...], list[int], tuple[UOp, ...]]
"""The inputs, the numbers of those that changed, and the symbolic arguments."""
Checker = Callable[[tuple[Any, ...], dict[str, Any], list[Any]], "int | Found"]


# When a check fails, of the value and of what is expected.
_FAILS = {
    "same": "{0} is not {1} and not same({0}, {1})",
    "is": "{0} is not {1}",
    "some": "{0} is None",
    "members": "{0} != {1}",
    "keys": "list({0}) != {1}",
}


class _CheckerSource:
    def __init__(self, guards: Guards):
        self.guards = guards
        self.lines: list[str] = []
        self.names: dict[str, Any] = {"same": same, "UOp": UOp, "without": without}
        self.constants: dict[int, str] = {}
        self.values: dict[Hashable, str] = {}
        self.inputs: dict[int, str] = {}
        self.symbols: list[str] = []

    def const(self, value: Any) -> str:
        """A name for an object that the function holds."""
        name = self.constants.get(id(value))
        if name is None:
            name = self.constants[id(value)] = f"C{len(self.constants)}"
            self.names[name] = value
        return name

    def value(self, path: AccessPath) -> str:
        """The variable with what stands at `path`."""
        identity = path.identity
        found = self.values.get(identity)
        if found is not None:
            return found
        if isinstance(path.holder, AccessPath):
            holder = self.value(path.holder)
        elif path.holder is POSITIONAL:
            holder = "a"
        elif path.holder is KEYWORDS:
            holder = "k"
        else:
            holder = self.const(path.holder)
        name = f"v{len(self.values)}"
        if not path.is_item:
            is_name = isinstance(path.key, str) and path.key.isidentifier()
            source = f"{holder}.{path.key}" if is_name else f"getattr({holder}, {path.key!r})"
        elif type(path.key) in (int, str):
            source = f"{holder}[{path.key!r}]"
        else:
            source = f"{holder}[{self.const(path.key)}]"
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
            path = check.path
            if path.is_item and type(path.holder) is dict:
                self.fail(f"{self.const(path.key)} in {self.const(path.holder)}", number)
            else:
                self.fail(f"{self.const(check)}.holds(a, k) is False", number)
            return
        value = self.value(check.path)
        if check.test in _FAILS:
            name = "" if check.test == "some" else self.const(expected)
            self.fail(_FAILS[check.test].format(value, name), number)
        elif check.test == "class":
            kind, size = expected
            wrong = f"{value}.__class__ is not {self.const(kind)}"
            self.fail(wrong if size is None else f"{wrong} or len({value}) != {size}", number)
        elif check.test == "without":
            names = self.const(expected)
            standing: Any = None if check.path.is_argument else check.path.peek()
            reads: Any = type(standing).__getattribute__
            is_generic = reads is object.__getattribute__
            if is_generic and standing is not None:
                self.fail(f"not {names}.isdisjoint({value}.__dict__)", number)
            else:
                self.fail(f"not without({value}, {names})", number)
        elif check.test == "calls":
            args, result = self.const(expected[0]), self.const(expected[1])
            self.fail(f"not same({value}(*{args}), {result})", number)
        elif check.test == "symbol":
            self.fail(f"{value}.__class__ is not UOp", number)
            self.symbols.append(value)
        else:
            self.tensor(number, value, expected)

    def tensor(self, number: int, value: str, expected: Any) -> None:
        seen = self.guards.number_of(expected)
        assert seen is not None
        first = self.inputs.get(seen)
        if first is not None:
            self.fail(f"{value} is not {first}", number)
            return
        self.inputs[seen] = value
        self.fail(f"{value}.__class__ is not {self.const(type(expected))}", number)
        # As `uop`, without its function where no call waits.
        node = f"({value}._node if {value}._call is None else {value}.uop)"
        self.lines.append(
            f"if seen[{seen}]() is not {node} or "
            f"{value}._requires_grad is not {expected._requires_grad}: changed.append({seen})"
        )


def _tuple(names: list[str]) -> str:
    return f"({', '.join(names)},)" if names else "()"


def compile_checks(guards: Guards) -> Checker:
    """A function of a call's arguments: the number of the first check that fails (-1 if a value is
    gone), or what it found.
    """
    writer = _CheckerSource(guards)
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
