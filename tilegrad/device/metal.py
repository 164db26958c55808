"""Apple's GPUs through the Metal shading language, as text so far.

render    tilegrad.render.metal
run       not yet: NULL:METAL compiles, EMU:METAL runs it in Python
"""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.base.errors import DeviceError
from tilegrad.device.backend import Backend, arch_of, text_only
from tilegrad.ir.uop import UOp
from tilegrad.runtime.protocol import Runtime
from tilegrad.target import metal_target

__all__ = ["backend"]


def backend(name: str, runtime: Runtime | None = None) -> Backend:
    """The code generator; `runtime` stands for the hardware."""
    if arch := arch_of(name, ""):
        raise DeviceError(f"metal: {arch!r} is no architecture", rule="METAL has one for all")

    def render(function: str, program: Sequence[UOp]) -> str:
        from tilegrad.render.metal import MetalRenderer

        return MetalRenderer().render(function, program)

    return text_only(name, metal_target(), render, runtime)
