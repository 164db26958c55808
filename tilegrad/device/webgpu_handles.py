"""Objects of a WebGPU device on the host: memory, programs, and texts of errors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Binding", "WebGPUMemory", "WebGPUProgram", "bindings", "cause_of", "rounded_up"]


@dataclass(frozen=True)
class Binding:
    """A binding of a kernel: the memory of a slot, or a slice of it from the byte `first` to before
    `end`.
    """

    slot: int
    first: int = 0
    end: int | None = None

    def of(self, memory: WebGPUMemory) -> WebGPUMemory | None:
        """The slice in the memory of its slot; None where that ends before."""
        if not self.first and self.end is None:
            return memory
        end = memory.nbytes if self.end is None else min(self.end, memory.nbytes)
        nbytes = end - self.first
        if nbytes <= 0:
            return None
        return replace(memory, offset=memory.offset + self.first, nbytes=nbytes)


def cause_of(error: Exception) -> str:
    """The cause in a driver's message, which is its last line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def rounded_up(size: int, unit: int) -> int:
    """The least multiple of `unit` that is not below `size`."""
    return -(-size // unit) * unit


def bindings(text: str) -> tuple[Binding, ...]:
    """Bindings in the head of a kernel's text: `0`, `0@first:end`, or `0@first:` for all the
    rest.
    """
    found = []
    for word in text.split():
        slot, _, slice = word.partition("@")
        first, _, end = slice.partition(":")
        found.append(Binding(int(slot), int(first or 0), int(end) if end else None))
    return tuple(found)


@dataclass(frozen=True)
class WebGPUMemory:
    """`nbytes` bytes of a buffer from `offset` on; `serial` is the buffer's own number. A part of
    it has others' bytes beside it.
    """

    buffer: Any
    offset: int
    nbytes: int
    serial: int
    is_view: bool = False


@dataclass(frozen=True)
class WebGPUProgram:
    """A kernel in the device. It takes the memory of `bindings`, and, if `variables` is not -1, a
    zero and that many integers.
    """

    name: str
    pipeline: Any
    layout: Any
    bindings: tuple[Binding, ...]
    variables: int
