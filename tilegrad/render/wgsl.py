"""WGSL, the shading language of WebGPU.

    wgsl_walk     the walk over a program: bindings, positions in the launch, types
    wgsl_rules    values -> text
    wgsl_seals    which values must be rounded where they stand
    wgsl_layout   how elements lie in memory; wgsl_memory: loads and stores
    wgsl_long     integers of 64 bits as pairs of words

Values of int8, int16, uint8 and uint16 are stored in 32 bits and wrapped after what may leave their
dtype. float16 and float64 are rendered only for a target that has them.

Drivers may treat floats as real numbers: make `x` of `(x + y) - y`, 0 of `x * 0`, or a sum of two
products one product. Where a program relies on the rounding of each op, the value passes through a
*seal*: an exclusive or of its bits with zeros that only the launch knows.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.hardware import webgpu_target
from tilegrad.ir.uop import UOp, toposort
from tilegrad.render.clike import CStyleRenderer
from tilegrad.render.text_rules import C_RULES
from tilegrad.render.wgsl_memory import MEMORY_RULES
from tilegrad.render.wgsl_rules import VALUE_RULES
from tilegrad.render.wgsl_walk import WGSL, WGSLRendering, kernel_name
from tilegrad.target import Target

__all__ = ["WGSLRenderer"]


class WGSLRenderer(CStyleRenderer):
    """WGSL for a target of `webgpu_target`."""

    dialect = WGSL
    rules = VALUE_RULES + MEMORY_RULES + C_RULES

    def __init__(self, target: Target | None = None):
        super().__init__(target or webgpu_target())

    def render(self, name: str | Sequence[UOp], uops: Sequence[UOp] | None = None) -> str:
        title, program = (name, uops) if isinstance(name, str) else ("example", name)
        assert program is not None, "render: a name without a program"
        return WGSLRendering(self, list(toposort(program))).source(kernel_name(str(title)))
