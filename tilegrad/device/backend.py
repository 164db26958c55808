"""The record that ties renderer, compiler and runtime to one kind of hardware.

A device is a file with a function `backend(name, runtime=None) -> Backend` and a line in the
registry. Called with a runtime, it must describe the code generator and touch no hardware: so
`NULL:CUDA` compiles where there is no GPU.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tilegrad.base.dtype import DType
from tilegrad.base.errors import DeviceError
from tilegrad.base.forks import held_at_fork
from tilegrad.ir.uop import UOp
from tilegrad.runtime.buffer import Buffer, LRUAllocator
from tilegrad.runtime.protocol import Runtime
from tilegrad.target import Target

__all__ = ["Backend", "arch_of", "require_number"]

_lock = held_at_fork(threading.Lock(), 65)


@dataclass(frozen=True, eq=False)
class Backend:
    """One open device.

    Attributes:
        name: the canonical name, "CUDA:1".
        target: what the hardware can do, for the stages above.
        render: name of the function and the linear program -> source text.
        compile: source text -> binary.
        runtime: memory and launches.
        compiler: facts that `compile` depends on beside the source and the target (versions,
            processor), for cache keys.
        spills: source text -> how many vectors its innermost loops move to the stack and back;
            None where that cannot be told.
        hardware: the maker's name of the device; empty where there is nothing to add.
        assembly: source text -> the instructions, to read; None where only the binary is known.
        compiles_unlocked: whether `compile` may run in any thread, and does not hold Python's lock.
        sooner: source text -> that of the same function, compiled sooner into code that may be a
            little slower, for kernels that others will replace; None where there is no such.
    """

    name: str
    target: Target
    render: Callable[[str, Sequence[UOp]], str]
    compile: Callable[[str], bytes]
    runtime: Runtime
    compiler: str = ""
    spills: Callable[[str], int] | None = None
    hardware: str = ""
    assembly: Callable[[str], str] | None = None
    compiles_unlocked: bool = False
    sooner: Callable[[str], str] | None = None
    _allocators: list[LRUAllocator] = field(default_factory=list, repr=False)

    @property
    def allocator(self) -> LRUAllocator:
        """The memory of the device, shared by all its buffers."""
        if not self._allocators:
            with _lock:
                if not self._allocators:
                    self._allocators.append(LRUAllocator(self.name, self.runtime))
        return self._allocators[0]

    def buffer(self, size: int, dtype: DType) -> Buffer:
        """A buffer of `size` elements; no memory is taken yet."""
        return Buffer(self.allocator, size, dtype)


def arch_of(name: str, default: str) -> str:
    """The architecture that a device's name gives, as NULL:CUDA:sm_90 does; a number is none."""
    rest = name.partition(":")[2]
    return rest.lower() if rest and not rest.isdecimal() else default


def require_number(name: str) -> None:
    """Raise DeviceError if anything but a number follows the kind of a device that has no
    architectures.
    """
    if arch := arch_of(name, ""):
        kind = name.partition(":")[0]
        raise DeviceError(
            f"{kind.lower()}: {arch!r} is no architecture",
            rule=f"{kind} or {kind}:number, as in {kind}:1",
        )
