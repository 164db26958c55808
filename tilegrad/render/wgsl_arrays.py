"""Reads and writes of the elements of one array of WGSL.

A buffer that holds more bytes than one binding may (`Target.bound_bytes`) is several bindings: each
is a *slice* of it. A function for each kind of access chooses the slice of an index.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilegrad.render.wgsl_layout import Layout

__all__ = ["Array", "slice_length"]

Need = Callable[[str], object]
Body = Callable[[str], list[str]]


def slice_length(layout: Layout, size: int, bound_bytes: int) -> int:
    """Elements of a slice of an array of `size` values, or 0 where one binding holds them all."""
    if not bound_bytes or size <= 0:
        return 0
    # A power of two, so that a slice begins where the driver lets a binding begin.
    length = (1 << bound_bytes.bit_length() - 1) // layout.nbytes
    return length if layout.length(size) * layout.nbytes > bound_bytes else 0


@dataclass(frozen=True)
class Array:
    """An array of a kernel.

    Attributes:
        name: of the array, or the begin of the names of its slices.
        layout: how its elements lie.
        need: puts a function above the kernel.
        length: elements of each slice but the last.
        slices: how many there are.
    """

    name: str
    layout: Layout
    need: Need
    length: int = 0
    slices: int = 1

    @property
    def names(self) -> list[str]:
        """The variables that are bound."""
        if self.slices == 1:
            return [self.name]
        return [f"{self.name}_{number}" for number in range(self.slices)]

    @property
    def _type(self) -> str:
        element = self.layout.element
        return element[len("atomic<") : -1] if self.layout.is_atomic else element

    def read(self, index: str) -> str:
        """The element at an index."""
        is_atomic = self.layout.is_atomic
        if self.slices == 1:
            return f"atomicLoad(&{self.name}[{index}])" if is_atomic else f"{self.name}[{index}]"

        def body(name: str) -> list[str]:
            return [f"return atomicLoad(&{name}[at]);" if is_atomic else f"return {name}[at];"]

        self._choose("read", body, f"(index: u32) -> {self._type}")
        return f"read_{self.name}(u32({index}))"

    def write(self, index: str, value: str) -> str:
        """The statement that stores a value at an index."""
        is_atomic = self.layout.is_atomic
        if self.slices == 1:
            address = f"{self.name}[{index}]"
            return f"atomicStore(&{address}, {value});" if is_atomic else f"{address} = {value};"

        def body(name: str) -> list[str]:
            return [f"atomicStore(&{name}[at], value);" if is_atomic else f"{name}[at] = value;"]

        self._choose("write", body, f"(index: u32, value: {self._type})")
        return f"write_{self.name}(u32({index}), {value});"

    def combine(self, function: str, index: str, value: str) -> str:
        """The statement that calls one of WGSL's own atomic functions."""
        if self.slices == 1:
            return f"{function}(&{self.name}[{index}], {value});"
        body = lambda name: [f"{function}(&{name}[at], value);"]  # noqa: E731
        self._choose(function, body, f"(index: u32, value: {self._type})")
        return f"{function}_{self.name}(u32({index}), {value});"

    def call(self, stem: str, kind: str, body: Body, index: str, value: str, units: int = 1) -> str:
        """A call of a function `stem` whose `body` changes the array of a name at `at`, which
        counts `units` to an element, by a `value` of a `kind`.
        """
        self._choose(stem, body, f"(index: u32, value: {kind})", units)
        return f"{stem}_{self.name}(u32({index}), {value});"

    def _choose(self, stem: str, body: Body, signature: str, units: int = 1) -> None:
        """Define a function with `body` for each slice."""
        lines = [f"fn {stem}_{self.name}{signature} {{"]
        for number, name in enumerate(self.names):
            first = number * self.length * units
            at = f"let at = index - {first}u;" if first else "let at = index;"
            text = [at, *body(name)]
            if number < self.slices - 1:
                last = [] if text[-1].startswith("return") else ["return;"]
                text = [f"if (index < {first + self.length * units}u) {{",
                        *(f"  {line}" for line in [*text, *last]), "}"]  # fmt: skip
            lines += [f"  {line}" for line in text]
        self.need("\n".join([*lines, "}"]))
