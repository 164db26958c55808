"""Guards: the Python values that a capture rests on, as checks compiled to one flat function.

A value is reached by a path (access_paths.py): in the arguments, or in a container that the
captured function reads. Numbers, strings and the like must be equal, other objects the same;
containers have a class, a size and paths inside. Tensors are no guards but inputs: the compiled
function gives them back, with those that changed since the last call. A `Variable` with a value,
among the arguments, is given back too.
"""

from __future__ import annotations

import enum
import functools
import math
import operator
import types
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tilegrad.base.dtype import DType
from tilegrad.base.errors import CaptureError
from tilegrad.capture.access_paths import ABSENT, KEYWORDS, POSITIONAL, AccessPath
from tilegrad.capture.objects import instance_dict, own_values
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "TESTS", "Check", "Guards", "describe", "is_array", "is_plain", "is_value", "same", "snapshot",
    "without",
]  # fmt: skip

_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, slice, type(Ellipsis), DType)
_LARGEST_ARRAY = 1 << 16
_NOTHING: Mapping[str, Any] = {}


@dataclass(eq=False)
class Check:
    """A condition on the object at a path. `test` is "same", "is", "some" (not None), "class" (and
    size), "keys", "members" (of a set), "absent" (nothing stands there), "without" (an object that
    has none of some attributes itself), "calls" (a function with a cache gives the same again),
    "tensor", "known" (a tensor is the one of a weak reference) or "symbol".
    """

    path: AccessPath
    test: str
    expected: Any

    def holds(self, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] = _NOTHING) -> bool:
        """Whether it holds now."""
        value = self.path.peek(args, kwargs)
        if value is ABSENT and self.test != "absent":
            return False
        return bool(TESTS[self.test].holds(value, self.expected))

    def show(self) -> str:
        """The condition as text."""
        return TESTS[self.test].shown(self.expected).format(self.path.label)


def describe(value: Any) -> str:
    """A value as text: itself if it is plain, else its kind."""
    if isinstance(value, (types.FunctionType, type, types.ModuleType)):
        return f"{value.__name__}"
    if not is_value(value):
        return f"the same {type(value).__name__}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def without(value: Any, names: set[str]) -> bool:
    """Whether an object has none of `names` itself, whatever its class has."""
    own = instance_dict(value)
    return own is None or names.isdisjoint(own)


def same(value: Any, expected: Any) -> bool:
    """Whether two plain values are one: of one type, and equal; nan is itself, -0.0 is not 0.0."""
    if value is expected:
        return True
    kind = type(expected)
    if type(value) is not kind:
        return False
    if kind is float:
        if value != value or expected != expected:
            return bool(value != value and expected != expected)
        return bool(value == expected) and math.copysign(1, value) == math.copysign(1, expected)
    if isinstance(expected, (list, tuple, deque)):
        return len(value) == len(expected) and all(map(same, value, expected))
    if isinstance(expected, dict):
        return list(value) == list(expected) and all(map(same, value.values(), expected.values()))
    if is_array(expected):
        if value.dtype != expected.dtype or value.shape != expected.shape:
            return False
        return bool(value.tobytes() == expected.tobytes())
    return bool(value == expected)


def _is_of_class(value: Any, expected: Any) -> bool:
    kind, size = expected
    return type(value) is kind and (size is None or len(value) == size)


def _value_of(expected: Any) -> str:
    return f"{{}} is {describe(expected)}"


class GuardTest(NamedTuple):
    """A kind of check.

    Attributes:
        holds: whether a value passes, given the expected one.
        fails: the same as text, for a value {0} and the expected one {1}: whether it fails. Empty
            where it takes more than that (`checker.CheckerSource`).
        shown: the text of the check for an expected value: a format of the path's label.
    """

    holds: Callable[[Any, Any], Any]
    fails: str = ""
    shown: Callable[[Any], str] = _value_of


TESTS = {
    "same": GuardTest(same, "{0} is not {1} and not same({0}, {1})"),
    "is": GuardTest(operator.is_, "{0} is not {1}"),
    "some": GuardTest(operator.is_not, "{0} is None", lambda _: "{} is not None"),
    "known": GuardTest(
        lambda value, reference: value is reference(),
        "{0} is not {1}()",
        lambda _: "{} is the same tensor",
    ),
    "members": GuardTest(operator.eq, "{0} != {1}", lambda _: "{} has the same members"),
    "keys": GuardTest(
        lambda value, keys: isinstance(value, dict) and list(value) == keys,
        "list({0}) != {1}",
        lambda keys: f"{{}} has the keys {describe(keys)}",
    ),
    "class": GuardTest(
        _is_of_class,
        shown=lambda it: f"{{}} is a {it[0].__name__}" + ("" if it[1] is None else f" of {it[1]}"),
    ),
    "without": GuardTest(
        without, shown=lambda names: f"{{}} itself has no {', '.join(sorted(names))}"
    ),
    "calls": GuardTest(
        lambda function, expected: same(function(*expected[0]), expected[1]),
        "not same({0}(*{1}[0]), {1}[1])",
        lambda expected: f"{{}} gives {describe(expected[1])}",
    ),
    "absent": GuardTest(lambda value, _: value is ABSENT, shown=lambda _: "there is no {}"),
    "tensor": GuardTest(operator.is_, shown=lambda _: "{} is a tensor"),
    "symbol": GuardTest(operator.is_),
    "call": GuardTest(operator.is_),
}


def _nothing(*args: Any) -> bool:
    return False


def is_plain(value: Any) -> bool:
    """Whether `value` is known by its value, not by who it is."""
    return isinstance(value, (*_PLAIN, enum.Enum)) or _is_array_scalar(value)


def is_array(value: Any) -> bool:
    return hasattr(type(value), "__array_interface__") and hasattr(value, "tobytes")


def _is_array_scalar(value: Any) -> bool:
    return type(value).__module__ == "numpy" and any(
        kind.__name__ == "generic" for kind in type(value).__mro__
    )


def snapshot(value: Any, depth: int = 0) -> Any:
    """A copy of a container that holds plain values only; raises LookupError for any other."""
    if is_plain(value):
        return value
    if depth > 20:
        raise LookupError
    if type(value) in (list, tuple, deque):
        return type(value)([snapshot(item, depth + 1) for item in value])
    if type(value) is dict and all(map(is_plain, value)):
        return {key: snapshot(item, depth + 1) for key, item in value.items()}
    if type(value) in (set, frozenset) and all(map(is_plain, value)):
        return type(value)(value)
    raise LookupError


def is_value(value: Any) -> bool:
    """Whether `value` is plain, or a container of plain values."""
    try:
        snapshot(value)
    except LookupError:
        return False
    return True


class Guards:
    """The checks of one capture, in the order in which they were found.

    Attributes:
        tensors: the tensors at paths, each once; their numbers are those of the inputs.
        paths: for each, how it is reached.
        refusal: why this cannot be captured, if it cannot.
    """

    def __init__(
        self,
        is_input: Callable[[Tensor], bool],
        on_object: Callable[[AccessPath, Any], object] = _nothing,
        on_container: Callable[[AccessPath, Any, bool], object] = _nothing,
    ):
        self.checks: list[Check] = []
        self.tensors: list[Tensor] = []
        self.paths: list[list[AccessPath]] = []
        self.symbols: list[UOp] = []
        self.refusal: CaptureError | None = None
        self.is_input = is_input
        self._on_object: Callable[[AccessPath, Any], object] = on_object
        self._on_container: Callable[[AccessPath, Any, bool], object] = on_container
        self._lacks: dict[Hashable, set[str]] = {}
        self._numbers: dict[int, int] = {}
        self._known: dict[Hashable, None] = {}
        self._identified: dict[Hashable, None] = {}

    def release(self) -> None:
        """Release the tensors of the captured call, which only served to find the checks."""
        for check in self.checks:
            if check.test == "tensor":
                check.expected = None
        self.tensors, self.paths, self.symbols = [], [], []
        self._numbers, self._known, self._identified = {}, {}, {}
        self._on_object = self._on_container = self.is_input = _nothing

    def number_of(self, tensor: Tensor) -> int | None:
        """Its number among the inputs."""
        return self._numbers.get(id(tensor))

    def hold(self, tensor: Tensor, label: str) -> int:
        """The number of a tensor that no path is known to: it is held itself."""
        if id(tensor) not in self._numbers:
            self._add(AccessPath.fixed(tensor, label), tensor)
        return self._numbers[id(tensor)]

    def weaken(self, tensor: Tensor) -> None:
        """Ask only that there is a tensor where this one stood: it is no input any more."""
        number = self._numbers.pop(id(tensor))
        del self.tensors[number], self.paths[number]
        self._numbers = {id(each): path for path, each in enumerate(self.tensors)}
        for check in self.checks:
            if check.test == "tensor" and check.expected is tensor:
                check.test, check.expected = "some", None

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any], names: list[str]) -> None:
        """Guard the arguments of a call; `names` are those of the parameters."""
        self.checks.append(
            Check(
                AccessPath(None, False, "", "the number of arguments"),
                "call",
                (len(args), tuple(kwargs)),
            )
        )
        for number, value in enumerate(args):
            label = names[number] if number < len(names) else f"argument {number}"
            self.expand(AccessPath(POSITIONAL, True, number, label), value)
        for name, value in kwargs.items():
            self.expand(AccessPath(KEYWORDS, True, name, name), value)

    def knows(self, path: AccessPath) -> bool:
        """Whether the path is guarded already."""
        return path.identity in self._known

    def expand(self, path: AccessPath, value: Any) -> None:
        """Guard `value`, which stands at `path`, and its members."""
        # None where all that a container holds was expanded.
        stack: list[tuple[AccessPath, Any] | None] = [(path, value)]
        around: list[Any] = []
        while stack:
            found = stack.pop()
            if found is None:
                around.pop()
                continue
            path, value = found
            identity = path.identity
            if identity in self._known:
                continue
            self._known[identity] = None
            if any(each is value for each in around):
                self._refuse(
                    f"{path.label} is a {type(value).__name__} that contains itself",
                    "pass what it holds, not the container",
                )
                continue
            pending = self._one(path, value)
            if pending:
                around.append(value)
                stack.append(None)
                stack.extend(reversed(pending))

    def hold_object(self, path: AccessPath, value: Any) -> None:
        """Guard who stands at `path`, whatever it holds."""
        identity = path.identity
        if identity not in self._identified:
            self._identified[identity] = None
            # A bound method is made anew each time it is looked up.
            test = "same" if isinstance(value, types.MethodType) else "is"
            self.checks.append(Check(path, test, value))

    def identify(self, tensor: Tensor) -> bool:
        """Guard the identity of a tensor, if it is state: arguments of a call may be others each
        time.
        """
        number = self.number_of(tensor)
        if number is None or any(path.is_argument for path in self.paths[number]):
            return False
        # Referred to weakly: a capture is not to hold the memory.
        self.add(Check(self.paths[number][0], "known", weakref.ref(tensor)))
        return True

    def add(self, check: Check) -> None:
        """Add a check, unless there is one like it."""
        fact = check.expected if check.test == "class" else None
        identity = (check.path.identity, check.test, fact)
        if identity not in self._identified:
            self._identified[identity] = None
            self.checks.append(check)

    def without(self, holder: Any, name: str, label: str) -> None:
        """Guard that an object has no attribute `name` itself."""
        is_path = isinstance(holder, AccessPath)
        path = holder if is_path else AccessPath.fixed(holder, label)
        names = self._lacks.setdefault(path.identity if is_path else id(holder), set())
        if not names:
            self.checks.append(Check(path, "without", names))
        names.add(name)

    def _one(self, path: AccessPath, value: Any) -> list[tuple[AccessPath, Any]]:
        if isinstance(value, Tensor):
            self._add(path, value)
            return []
        if isinstance(value, UOp):
            is_symbol = path.is_argument and any(node.op is Ops.BIND for node in value.toposort())
            if is_symbol:
                self.symbols.append(value)
            self.checks.append(Check(path, "symbol" if is_symbol else "is", value))
            return []
        try:
            self.checks.append(Check(path, "same", snapshot(value)))
            if not is_plain(value):
                self._on_container(path, value, True)
            return []
        except LookupError:
            pass
        if is_array(value) or isinstance(value, (bytearray, memoryview)):
            self._array(path, value)
            return []
        if hasattr(type(value), "__next__"):
            self._refuse(
                f"{path.label} is an iterator, which a replay would not advance",
                "take the next element outside, and pass it as an argument",
            )
            return []
        return self._inside(path, value)

    def _inside(self, path: AccessPath, value: Any) -> list[tuple[AccessPath, Any]]:
        """Guard an object or a container; its members are left to do."""
        if isinstance(value, (dict, list, tuple, deque)):
            self._on_container(path, value, False)
            self.checks.append(Check(path, "class", (type(value), len(value))))
            pairs = list(enumerate(value))
            if isinstance(value, dict):
                self.checks.append(Check(path, "keys", list(value)))
                pairs = list(value.items())
            return [(path.item(key), item) for key, item in pairs]
        if path.is_argument and isinstance(value, functools.partial):
            self.checks.append(Check(path, "class", (type(value), None)))
            return [
                (path.attribute(name), getattr(value, name))
                for name in ("func", "args", "keywords")
            ]
        self._on_object(path, value)
        if path.is_argument and not callable(value):
            # A record of tensors (a batch): they are given like arguments.
            return [
                (path.attribute(name), item)
                for name, item in own_values(value)
                if isinstance(item, Tensor)
            ]
        return []

    def _add(self, path: AccessPath, tensor: Tensor) -> None:
        if not self.is_input(tensor):
            return
        number = self._numbers.get(id(tensor))
        if number is None:
            number = self._numbers[id(tensor)] = len(self.tensors)
            self.tensors.append(tensor)
            self.paths.append([])
        self._known[path.identity] = None
        self.paths[number].append(path)
        self.checks.append(Check(path, "tensor", tensor))

    def _array(self, path: AccessPath, value: Any) -> None:
        """An array may change under our eyes: small ones are compared, large ones refused."""
        nbytes = value.nbytes if hasattr(type(value), "nbytes") else len(value)
        is_number = is_array(value) and value.shape == ()
        if is_number or (not path.is_argument and is_array(value) and nbytes <= _LARGEST_ARRAY):
            self.checks.append(Check(path, "same", value.copy()))
        elif path.is_argument:
            self._refuse(
                f"{path.label} is a {type(value).__name__}, whose values a replay would not see",
                f"pass Tensor({path.label})",
            )
        else:
            self._refuse(
                f"{path.label} is a {type(value).__name__} of {nbytes} bytes, too large to be "
                "compared at each call",
                f"make it a tensor once, outside: Tensor({path.label})",
            )

    def _refuse(self, fact: str, remedy: str) -> None:
        if self.refusal is None:
            self.refusal = CaptureError(f"jit: {fact}", remedy=remedy)
