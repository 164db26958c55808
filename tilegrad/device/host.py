"""Plain host memory: where lists, NumPy arrays and files stand before they are copied to a device
that computes.

render, compile   none: no program runs here
run               memory only
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.base.errors import DeviceError
from tilegrad.device.backend import Backend
from tilegrad.ir.uop import UOp
from tilegrad.runtime.protocol import Dims, Runtime
from tilegrad.target import Target

__all__ = ["HostMemory", "backend"]


class HostMemory(Runtime):
    """Bytes of this process; a handle is a writable or read-only memoryview of exactly the
    memory's bytes.
    """

    def allocate(self, nbytes: int) -> Any:
        return memoryview(bytearray(nbytes))

    def free(self, handle: Any, nbytes: int) -> None:
        """The memory goes with the last reference to the handle."""

    def copy_in(self, handle: Any, data: memoryview) -> None:
        handle[: data.nbytes] = data

    def copy_out(self, data: memoryview, handle: Any) -> None:
        data[:] = handle[: data.nbytes]

    def view(self, handle: Any, offset: int, nbytes: int) -> Any:
        return handle[offset : offset + nbytes]

    def host_view(self, handle: Any, nbytes: int) -> memoryview | None:
        found: memoryview = handle[:nbytes]
        return found

    def wrap(self, memory: memoryview) -> Any:
        return memory

    def load(self, name: str, binary: bytes) -> Any:
        raise _no_programs(name)

    def launch(
        self,
        program: Any,
        handles: Sequence[Any],
        variables: Sequence[int],
        global_size: Dims,
        local_size: Dims,
        wait: bool = False,
    ) -> float | None:
        raise _no_programs(str(program))


def _no_programs(name: str) -> DeviceError:
    return DeviceError(
        f"HOST: {name} cannot run in plain host memory",
        remedy="copy the inputs to a device that computes",
    )


def _render(name: str, program: Sequence[UOp]) -> str:
    raise _no_programs(name)


def _compile(source: str) -> bytes:
    raise _no_programs("a kernel")


def backend(name: str, runtime: Runtime | None = None) -> Backend:
    return Backend(name, Target("host"), _render, _compile, runtime or HostMemory())
