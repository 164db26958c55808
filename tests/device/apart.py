"""A kind of device whose memory is out of reach of all other devices: APART, APART:1, ...

On the processor all memory is in one address space, so that a kernel which reads another device's
memory works. Here a handle knows whose it is, and a launch with another device's is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tilegrad import Device
from tilegrad.device.backend import Backend
from tilegrad.device.emulator import TARGET, EmulatorRuntime
from tilegrad.render.python import render_python
from tilegrad.runtime.protocol import Dims, Runtime

__all__ = ["ApartRuntime", "apart"]


@dataclass(frozen=True, eq=False)
class Owned:
    """Bytes of one device."""

    owner: ApartRuntime
    data: memoryview


class ApartRuntime(EmulatorRuntime):
    """Memory that only its own device reads and writes, and peers copy from."""

    def allocate(self, nbytes: int) -> Owned:
        # Nobody may count on zeros.
        return Owned(self, memoryview(bytearray(b"\xa5" * nbytes)))

    def copy_in(self, handle: Any, data: memoryview) -> None:
        self._own(handle)[: data.nbytes] = data

    def copy_out(self, data: memoryview, handle: Any) -> None:
        data[:] = self._own(handle)[: data.nbytes]

    def view(self, handle: Any, offset: int, nbytes: int) -> Owned:
        return Owned(self, self._own(handle)[offset : offset + nbytes])

    def launch(
        self,
        program: Any,
        handles: Sequence[Any],
        variables: Sequence[int],
        global_size: Dims,
        local_size: Dims,
        wait: bool = False,
    ) -> float | None:
        memories = [self._own(handle) for handle in handles]
        return super().launch(program, memories, variables, global_size, local_size, wait)

    def transfer(self, target: Any, source: Any, source_runtime: Runtime, nbytes: int) -> bool:
        if not isinstance(source_runtime, ApartRuntime):
            return False
        self._own(target)[:nbytes] = source_runtime._own(source)[:nbytes]
        return True

    def _own(self, handle: Any) -> memoryview:
        if not isinstance(handle, Owned) or handle.owner is not self:
            raise AssertionError("memory of another device")
        return handle.data


@contextmanager
def apart() -> Iterator[None]:
    """While it is entered, the kind APART is known."""

    def backend(name: str) -> Backend:
        return Backend(name, TARGET, render_python, str.encode, ApartRuntime(TARGET))

    Device.register("APART", backend)
    try:
        yield
    finally:
        Device.unregister("APART")
