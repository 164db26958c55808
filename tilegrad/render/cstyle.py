"""The renderers of C-like languages, by name.

    clike    the table's columns, and the walk over a program
    inline   which values are rendered inline
    rules    node -> text, common to all
    clang, cuda, hip, metal, opencl    a table each, and the rules that differ

    CUDARenderer("sm_80").render("fill", program)    the source of `program` as the kernel `fill`

They need no compiler, driver or vendor's library.
"""

from __future__ import annotations

from tilegrad.render.clang import ClangRenderer
from tilegrad.render.clike import CStyleRenderer, Rendering, parameters
from tilegrad.render.cuda import CUDARenderer
from tilegrad.render.dialect import Dialect
from tilegrad.render.hip import HIPRenderer
from tilegrad.render.metal import MetalRenderer
from tilegrad.render.opencl import OpenCLRenderer
from tilegrad.render.text_rules import C_RULES

__all__ = [
    "C_RULES", "CStyleRenderer", "CUDARenderer", "ClangRenderer", "Dialect", "HIPRenderer",
    "MetalRenderer", "OpenCLRenderer", "Rendering", "parameters",
]  # fmt: skip
