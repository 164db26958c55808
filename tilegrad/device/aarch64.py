"""A processor of Arm's 64-bit architecture, through LLVM and an emulator.

    render    tilegrad.render.llvm    NEON; with `AARCH64:SVE` vectors of 32 bytes or more, with
    predicates
    compile   tilegrad.compile.llvm   an object for AArch64
    run       tilegrad.runtime.guest  `qemu-aarch64`

On a machine that has such a processor the device is CPU.
"""

from __future__ import annotations

from tilegrad.device.backend import Backend
from tilegrad.device.emulated import emulated
from tilegrad.device.processors import AARCH64
from tilegrad.runtime import link
from tilegrad.runtime.protocol import Runtime

__all__ = ["backend"]


def backend(name: str, runtime: Runtime | None = None) -> Backend:
    """The device `name`, as AARCH64 or AARCH64:SVE; `runtime` stands for the emulator.

    Raises DeviceError where there is none.
    """
    return emulated(name, AARCH64, "qemu-aarch64", link.AARCH64, runtime)
