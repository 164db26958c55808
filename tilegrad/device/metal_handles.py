"""Objects of a Metal device on the host: memory, programs, and launches of them."""

from __future__ import annotations

import ctypes
import struct
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tilegrad.runtime.interface import Interface
from tilegrad.runtime.protocol import Dims

__all__ = ["MetalLaunch", "MetalMemory", "MetalProgram", "Size"]


class Size(ctypes.Structure):
    """MTLSize."""

    _fields_ = [(name, ctypes.c_size_t) for name in ("width", "height", "depth")]


@dataclass(frozen=True)
class MetalMemory:
    """Bytes of a buffer from an offset on."""

    buffer: int
    address: int
    offset: int

    def __add__(self, nbytes: int) -> MetalMemory:
        """The memory that begins `nbytes` behind it."""
        return replace(self, offset=self.offset + nbytes)


class MetalProgram:
    """A kernel, compiled for the GPU; it is given back with the last reference. If `is_indirect`,
    an indirect command may run it.
    """

    __slots__ = ("__weakref__", "interface", "is_indirect", "lanes", "pipeline")

    def __init__(
        self,
        interface: Interface,
        pipeline: int,
        lanes: int,
        is_indirect: bool,
        give_back: Callable[[int], object],
    ):
        self.interface, self.pipeline, self.lanes = interface, pipeline, lanes
        self.is_indirect = is_indirect
        weakref.finalize(self, give_back, pipeline).atexit = False

    @property
    def entries(self) -> int:
        """How many buffers and integers a launch passes."""
        return len(self.interface.slots) + len(self.interface.codes)


class MetalLaunch:
    """Arguments of one launch of a program: the memory that the kernel takes, and its integers as
    bytes, which come behind it.

    Args:
        program: the kernel.
        handles: memory by slot; the kernel takes some of it.
        variables: its integers.
        blocks, lanes: the sizes of the launch.
    """

    __slots__ = ("blocks", "lanes", "memories", "numbers", "program")

    def __init__(
        self,
        program: MetalProgram,
        handles: Sequence[MetalMemory],
        variables: Sequence[int],
        blocks: Dims,
        lanes: Dims,
    ):
        interface = program.interface
        self.program, self.blocks, self.lanes = program, blocks, lanes
        self.memories = [handles[slot] for slot in interface.slots]
        self.numbers = [struct.pack(*each) for each in zip(interface.codes, variables)]
