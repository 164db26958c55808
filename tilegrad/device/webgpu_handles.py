"""What the host holds of a WebGPU device: memory and programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["WebGPUMemory", "WebGPUProgram"]


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
    """A kernel in the device. It takes the memory of `slots`, and, if `variables` is not -1, a zero
    and that many integers.
    """

    name: str
    pipeline: Any
    layout: Any
    slots: tuple[int, ...]
    variables: int
