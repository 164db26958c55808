"""Guards: the Python values that a capture rests on, as checks compiled to one flat function.

A value stands at a place (places.py): in the arguments, or in a container that the captured
function reads. Numbers, strings and the like must be equal, other objects the same; containers have
a class, a size and places inside. Tensors are no guards but inputs: the compiled function gives
them back, with those that changed since the last call. A `Variable` with a value, among the
arguments, is given back too.
"""

from __future__ import annotations

import enum
import functools
import math
import types
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from tilegrad.base.dtype import DType
from tilegrad.base.errors import CaptureError
from tilegrad.capture.objects import instance_dict, own_values
from tilegrad.capture.places import ABSENT, KEYWORDS, POSITIONAL, Place
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "Check", "Guards", "describe", "is_array", "is_plain", "is_value", "same", "snapshot",
    "without",
]  # fmt: skip

_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, slice, type(Ellipsis), DType)
_LARGEST_ARRAY = 1 << 16
_NOTHING: Mapping[str, Any] = {}


@dataclass(eq=False)
class Check:
    """What must hold at a place. `test` is "same", "is", "some" (not None), "class" (and size),
    "keys", "members" (of a set), "absent" (nothing stands there), "without" (an object that has
    none of some attributes itself), "calls" (a function with a cache gives the same again),
    "tensor" or "symbol".
    """

    place: Place
    test: str
    expected: Any

    def holds(self, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] = _NOTHING) -> bool:
        """Whether it holds now."""
        value = self.place.peek(args, kwargs)
        if self.test == "absent" or value is ABSENT:
            return self.test == "absent" and value is ABSENT
        if self.test == "without":
            return without(value, self.expected)
        if self.test == "calls":
            args, result = self.expected
            return same(value(*args), result)
        if self.test == "members":
            return bool(value == self.expected)
        if self.test == "same":
            return same(value, self.expected)
        if self.test == "class":
            kind, size = self.expected
            return type(value) is kind and (size is None or len(value) == size)
        if self.test == "keys":
            return isinstance(value, dict) and list(value) == self.expected
        if self.test == "some":
            return value is not None
        return value is self.expected

    def show(self) -> str:
        """The condition as text."""
        label, expected = self.place.label, self.expected
        if self.test == "class":
            kind, size = expected
            return f"{label} is a {kind.__name__}" + ("" if size is None else f" of {size}")
        if self.test == "some":
            return f"{label} is not None"
        if self.test == "tensor":
            return f"{label} is a tensor"
        if self.test == "absent":
            return f"there is no {label}"
        if self.test == "without":
            return f"{label} itself has no {', '.join(sorted(expected))}"
        if self.test == "calls":
            return f"{label} gives {describe(expected[1])}"
        if self.test == "members":
            return f"{label} has the same members"
        if self.test == "keys":
            return f"{label} has the keys {describe(expected)}"
        return f"{label} is {describe(expected)}"


def describe(value: Any) -> str:
    """A value as text: itself if it is plain, else what kind it is."""
    if isinstance(value, (types.FunctionType, type, types.ModuleType)):
        return f"{value.__name__}"
    if not is_value(value):
        return f"the same {type(value).__name__}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _nothing(*args: Any) -> bool:
    return False


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
        return type(value)([snapshot(part, depth + 1) for part in value])
    if type(value) is dict and all(map(is_plain, value)):
        return {key: snapshot(part, depth + 1) for key, part in value.items()}
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
        tensors: the tensors at places, each once; their numbers are those of the inputs.
        places: for each, where it stands.
        refusal: why this cannot be captured, if it cannot.
    """

    def __init__(
        self,
        is_input: Callable[[Tensor], bool],
        on_object: Callable[[Place, Any], object] = _nothing,
        on_container: Callable[[Place, Any, bool], object] = _nothing,
    ):
        self.checks: list[Check] = []
        self.tensors: list[Tensor] = []
        self.places: list[list[Place]] = []
        self.symbols: list[UOp] = []
        self.refusal: CaptureError | None = None
        self.is_input = is_input
        self._on_object: Callable[[Place, Any], object] = on_object
        self._on_container: Callable[[Place, Any, bool], object] = on_container
        self._lacks: dict[Hashable, set[str]] = {}
        self._numbers: dict[int, int] = {}
        self._known: dict[Hashable, None] = {}
        self._held: dict[Hashable, None] = {}

    def release(self) -> None:
        """Let go of what was only needed to find the checks: the tensors of the captured call."""
        for check in self.checks:
            if check.test == "tensor":
                check.expected = None
        self.tensors, self.places, self.symbols = [], [], []
        self._numbers, self._known, self._held = {}, {}, {}
        self._on_object = self._on_container = self.is_input = _nothing

    def number_of(self, tensor: Tensor) -> int | None:
        """Its number among the inputs."""
        return self._numbers.get(id(tensor))

    def hold(self, tensor: Tensor, label: str) -> int:
        """The number of a tensor that no place is known of: it is held itself."""
        if id(tensor) not in self._numbers:
            self._add(Place([tensor], True, 0, label), tensor)
        return self._numbers[id(tensor)]

    def weaken(self, tensor: Tensor) -> None:
        """Ask only that there is a tensor where this one stood: it is no input any more."""
        number = self._numbers.pop(id(tensor))
        del self.tensors[number], self.places[number]
        self._numbers = {id(each): place for place, each in enumerate(self.tensors)}
        for check in self.checks:
            if check.test == "tensor" and check.expected is tensor:
                check.test, check.expected = "some", None

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any], names: list[str]) -> None:
        """Guard what a call was given; `names` are those of the parameters."""
        self.checks.append(
            Check(
                Place(None, False, "", "the number of arguments"),
                "call",
                (len(args), tuple(kwargs)),
            )
        )
        for number, value in enumerate(args):
            label = names[number] if number < len(names) else f"argument {number}"
            self.expand(Place(POSITIONAL, True, number, label), value)
        for name, value in kwargs.items():
            self.expand(Place(KEYWORDS, True, name, name), value)

    def knows(self, place: Place) -> bool:
        """Whether the place is guarded already."""
        return place.identity in self._known

    def expand(self, place: Place, value: Any) -> None:
        """Guard `value`, which stands at `place`, and what it holds."""
        # None where all that a container holds was expanded.
        stack: list[tuple[Place, Any] | None] = [(place, value)]
        around: list[Any] = []
        while stack:
            found = stack.pop()
            if found is None:
                around.pop()
                continue
            place, value = found
            identity = place.identity
            if identity in self._known:
                continue
            self._known[identity] = None
            if any(each is value for each in around):
                self._refuse(
                    f"{place.label} is a {type(value).__name__} that contains itself",
                    "pass what it holds, not the container",
                )
                continue
            parts = self._one(place, value)
            if parts:
                around.append(value)
                stack.append(None)
                stack.extend(reversed(parts))

    def hold_object(self, place: Place, value: Any) -> None:
        """Guard who stands at `place`, whatever it holds."""
        identity = place.identity
        if identity not in self._held:
            self._held[identity] = None
            # A bound method is made anew each time it is looked up.
            test = "same" if isinstance(value, types.MethodType) else "is"
            self.checks.append(Check(place, test, value))

    def add(self, check: Check) -> None:
        """Add a check, unless there is one like it."""
        fact = check.expected if check.test == "class" else None
        identity = (check.place.identity, check.test, fact)
        if identity not in self._held:
            self._held[identity] = None
            self.checks.append(check)

    def without(self, holder: Any, name: str, label: str) -> None:
        """Guard that an object has no attribute `name` itself."""
        place = holder if isinstance(holder, Place) else Place([holder], True, 0, label)
        identity = place.identity if isinstance(holder, Place) else id(holder)
        names = self._lacks.get(identity)
        if names is None:
            names = self._lacks[identity] = set()
            self.checks.append(Check(place, "without", names))
        names.add(name)

    def _one(self, place: Place, value: Any) -> list[tuple[Place, Any]]:
        if isinstance(value, Tensor):
            self._add(place, value)
            return []
        if isinstance(value, UOp):
            is_symbol = place.is_argument and any(node.op is Ops.BIND for node in value.toposort())
            if is_symbol:
                self.symbols.append(value)
            self.checks.append(Check(place, "symbol" if is_symbol else "is", value))
            return []
        try:
            self.checks.append(Check(place, "same", snapshot(value)))
            if not is_plain(value):
                self._on_container(place, value, True)
            return []
        except LookupError:
            pass
        if is_array(value) or isinstance(value, (bytearray, memoryview)):
            self._array(place, value)
            return []
        if hasattr(type(value), "__next__"):
            self._refuse(
                f"{place.label} is an iterator, which a replay would not advance",
                "take the next element outside, and pass it as an argument",
            )
            return []
        return self._inside(place, value)

    def _inside(self, place: Place, value: Any) -> list[tuple[Place, Any]]:
        """Guard an object or a container; what is inside is left to do."""
        if isinstance(value, dict):
            self._on_container(place, value, False)
            self.checks.append(Check(place, "class", (type(value), len(value))))
            self.checks.append(Check(place, "keys", list(value)))
            return [(place.item(key), part) for key, part in list(value.items())]
        if isinstance(value, (list, tuple, deque)):
            self._on_container(place, value, False)
            self.checks.append(Check(place, "class", (type(value), len(value))))
            return [(place.item(number), part) for number, part in enumerate(value)]
        if place.is_argument and isinstance(value, functools.partial):
            self.checks.append(Check(place, "class", (type(value), None)))
            return [
                (place.attribute(name), getattr(value, name))
                for name in ("func", "args", "keywords")
            ]
        self._on_object(place, value)
        if place.is_argument and not callable(value):
            # A record of tensors (a batch): they are given like arguments.
            return [
                (place.attribute(name), part)
                for name, part in own_values(value)
                if isinstance(part, Tensor)
            ]
        return []

    def _add(self, place: Place, tensor: Tensor) -> None:
        if not self.is_input(tensor):
            return
        number = self._numbers.get(id(tensor))
        if number is None:
            number = self._numbers[id(tensor)] = len(self.tensors)
            self.tensors.append(tensor)
            self.places.append([])
        self._known[place.identity] = None
        self.places[number].append(place)
        self.checks.append(Check(place, "tensor", tensor))

    def _array(self, place: Place, value: Any) -> None:
        """An array may change under our eyes: small ones are compared, large ones refused."""
        nbytes = value.nbytes if hasattr(type(value), "nbytes") else len(value)
        is_number = is_array(value) and value.shape == ()
        if is_number or (not place.is_argument and is_array(value) and nbytes <= _LARGEST_ARRAY):
            self.checks.append(Check(place, "same", value.copy()))
        elif place.is_argument:
            self._refuse(
                f"{place.label} is a {type(value).__name__}, whose values a replay would not see",
                f"pass Tensor({place.label})",
            )
        else:
            self._refuse(
                f"{place.label} is a {type(value).__name__} of {nbytes} bytes, too large to be "
                "compared at each call",
                f"make it a tensor once, outside: Tensor({place.label})",
            )

    def _refuse(self, fact: str, remedy: str) -> None:
        if self.refusal is None:
            self.refusal = CaptureError(f"jit: {fact}", remedy=remedy)
