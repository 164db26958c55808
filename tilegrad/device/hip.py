"""AMD's GPUs through HIP C++, as text so far.

render    tilegrad.render.hip   for the architecture behind the colon: NULL:HIP:gfx942
run       not yet: NULL:HIP compiles, EMU:HIP runs it in Python
"""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.device.backend import Backend, arch_of, text_only
from tilegrad.ir.uop import UOp
from tilegrad.runtime.protocol import Runtime
from tilegrad.target import hip_target

__all__ = ["backend"]

_DEFAULT_ARCH = "gfx1100"


def backend(name: str, runtime: Runtime | None = None) -> Backend:
    """The code generator; `runtime` stands for the hardware."""
    arch = arch_of(name, _DEFAULT_ARCH)

    def render(function: str, program: Sequence[UOp]) -> str:
        from tilegrad.render.hip import HIPRenderer

        return HIPRenderer(arch).render(function, program)

    return text_only(name, hip_target(arch), render, runtime)
