"""Devices whose programs `qemu-user` runs: the common base of AARCH64 and RISCV."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from tilegrad.base.errors import DeviceError
from tilegrad.device.backend import Backend
from tilegrad.device.processors import Processor, described, processor
from tilegrad.runtime.protocol import Runtime

__all__ = ["emulated"]


def emulated(
    name: str,
    table: Mapping[str, Processor],
    emulator: str,
    machine: int,
    runtime: Runtime | None,
) -> Backend:
    """The back end of the processor that `name` asks for; `runtime` stands for the emulator.

    Raises DeviceError where the program `emulator` is not on the path.
    """
    found = processor(name, table)
    if runtime is not None:
        return described(name, found, runtime)
    path = shutil.which(emulator)
    if path is None:
        kind = name.split(":")[0]
        raise DeviceError(
            f"{kind}: {emulator} is not on the path",
            remedy="on Debian: apt-get install qemu-user; "
            f"NULL:{kind} compiles and runs nothing without it",
        )
    from tilegrad.runtime.guest import GuestRuntime

    guest = GuestRuntime((path, "-cpu", found.emulator), machine, found.compile)
    return described(name, found, guest, f"under {emulator}")
