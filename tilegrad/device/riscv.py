"""A 64-bit RISC-V processor with vectors, through LLVM and an emulator.

render    tilegrad.render.llvm    RVV: vectors of 16 bytes or more, of 32 with `RISCV:RVV256`
compile   tilegrad.compile.llvm   an object for RISC-V
run       tilegrad.runtime.guest  `qemu-riscv64`
"""

from __future__ import annotations

from tilegrad.device.backend import Backend
from tilegrad.device.emulated import emulated
from tilegrad.device.processors import RISCV
from tilegrad.runtime import link
from tilegrad.runtime.protocol import Runtime

__all__ = ["backend"]


def backend(name: str, runtime: Runtime | None = None) -> Backend:
    """The device `name`, as RISCV or RISCV:RVV256; `runtime` stands for the emulator.

    Raises DeviceError where there is none.
    """
    return emulated(name, RISCV, "qemu-riscv64", link.RISCV, runtime)
