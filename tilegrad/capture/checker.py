"""The checks of a call as source text: a look-up, a comparison, and a return for each that fails.

    changed = []
    try:
        if len(a) != 2 or k: return M0
        v0 = a[0]
        if v0.__class__ is not k4: return M1
        if seen[0]() is not (v0._node if v0._call is None else v0.uop): changed.append(0)
        v1 = k5.scale
        if v1 is not k6 and not same(v1, k6): return M2
        ...
    except (KeyError, ...):
        return GONE

Most checks end at `is`, which costs 30 nanoseconds.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from tilegrad.base.flat_code import FlatCode
from tilegrad.capture.access_paths import KEYWORDS, POSITIONAL, AccessPath
from tilegrad.capture.entry import Mismatch
from tilegrad.capture.guards import TESTS, Check, Guards, same, without
from tilegrad.ir.uop import UOp

__all__ = ["CheckerSource"]

_GONE = "except (KeyError, AttributeError, IndexError, TypeError, ValueError):"


class CheckerSource(FlatCode):
    """The lines of the checks.

    Attributes:
        inputs: the variable of each input, by its number.
        symbols: the variables of the symbolic arguments.
    """

    def __init__(self, guards: Guards):
        super().__init__(same=same, UOp=UOp, without=without, GONE=Mismatch())
        self.guards = guards
        self.values: dict[Hashable, str] = {}
        self.inputs: dict[int, str] = {}
        self.symbols: list[str] = []

    def value(self, path: AccessPath) -> str:
        """The variable with the object at `path`."""
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
            holder = self.name(path.holder)
        name = f"v{len(self.values)}"
        if not path.is_item:
            is_name = isinstance(path.key, str) and path.key.isidentifier()
            source = f"{holder}.{path.key}" if is_name else f"getattr({holder}, {path.key!r})"
        elif type(path.key) in (int, str):
            source = f"{holder}[{path.key!r}]"
        else:
            source = f"{holder}[{self.name(path.key)}]"
        self.lines.append(f"{name} = {source}")
        self.values[identity] = name
        return name

    def fail(self, condition: str, number: int) -> None:
        self.names[f"M{number}"] = Mismatch(number)
        self.lines.append(f"if {condition}: return M{number}")

    def check_all(self) -> None:
        """Leave with the first check that fails."""
        lines, self.lines = self.lines, []
        for number, check in enumerate(self.guards.checks):
            self.check(number, check)
        # A tensor that the call gives up may be among these: it must not be held to the call's end.
        dropped = [self.value(each.path) for each in self.guards.checks if each.test == "some"]
        inner = [f"    {line}" for line in [*self.lines, *[f"{name} = None" for name in dropped]]]
        self.lines = [*lines, "changed = []", "try:", *inner, _GONE, "    return GONE"]

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
                self.fail(f"{self.name(path.key)} in {self.name(path.holder)}", number)
            else:
                self.fail(f"{self.name(check)}.holds(a, k) is False", number)
            return
        value = self.value(check.path)
        fails = TESTS[check.test].fails
        if fails:
            name = self.name(expected) if "{1}" in fails else ""
            self.fail(fails.format(value, name), number)
        elif check.test == "class":
            kind, size = expected
            wrong = f"{value}.__class__ is not {self.name(kind)}"
            self.fail(wrong if size is None else f"{wrong} or len({value}) != {size}", number)
        elif check.test == "without":
            names = self.name(expected)
            standing: Any = None if check.path.is_argument else check.path.peek()
            reads: Any = type(standing).__getattribute__
            is_generic = reads is object.__getattribute__
            if is_generic and standing is not None:
                self.fail(f"not {names}.isdisjoint({value}.__dict__)", number)
            else:
                self.fail(f"not without({value}, {names})", number)
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
        self.fail(f"{value}.__class__ is not {self.name(type(expected))}", number)
        # As `uop`, without its function where no call waits.
        node = f"({value}._node if {value}._call is None else {value}.uop)"
        self.lines.append(
            f"if seen[{seen}]() is not {node} or "
            f"{value}._requires_grad is not {expected._requires_grad}: changed.append({seen})"
        )
