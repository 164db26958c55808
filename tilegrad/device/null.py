"""A device that compiles and never runs: `NULL` for the emulator's target, `NULL:CUDA` for that
of another device, `NULL:CUDA:sm_90` for one of its architectures.

    render, compile   those of the named device, as far as they need no hardware
    run               memory that reads as zeros; a launch does nothing

For compile times, kernel counts and source text on a machine without the hardware, and for
planning memory larger than there is: an allocation is a number.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilegrad.device.backend import Backend
from tilegrad.device.registry import Device
from tilegrad.runtime.protocol import Dims, Runtime

__all__ = ["NullRuntime", "backend"]


class NullRuntime(Runtime):
    """Takes every request and does nothing. A handle is a serial number."""

    is_timed = False

    def __init__(self) -> None:
        self._serial = 0
        self._lock = threading.Lock()

    def allocate(self, nbytes: int) -> Any:
        with self._lock:
            self._serial += 1
            return self._serial

    def free(self, handle: Any, nbytes: int) -> None:
        """There is no memory."""

    def copy_in(self, handle: Any, data: memoryview) -> None:
        """There is no memory."""

    def copy_out(self, data: memoryview, handle: Any) -> None:
        data[:] = bytes(data.nbytes)

    def view(self, handle: Any, offset: int, nbytes: int) -> Any:
        return handle

    def load(self, name: str, binary: bytes) -> Any:
        return name

    def launch(
        self,
        program: Any,
        handles: Sequence[Any],
        variables: Sequence[int],
        global_size: Dims,
        local_size: Dims,
        wait: bool = False,
    ) -> float | None:
        return 0.0 if wait else None


def backend(name: str, runtime: Runtime | None = None) -> Backend:
    _, _, like = name.partition(":")
    described = Device.describe(
        "EMU" if not like or like.isdecimal() else like, runtime or NullRuntime()
    )
    return replace(described, name=name, _allocators=[])
