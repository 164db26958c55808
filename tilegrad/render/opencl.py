"""OpenCL C 1.2. A bool cannot lie in a kernel's memory there: it is a uchar."""

from __future__ import annotations

from typing import ClassVar

from tilegrad.base.dtype import AddressSpace, DType, dtypes
from tilegrad.hardware import opencl_target
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.pattern import Rule, UPat
from tilegrad.ir.uop import UOp
from tilegrad.render.clike import CStyleRenderer, Rendering
from tilegrad.render.dialect import Dialect
from tilegrad.render.names import MATH, SHORT_TYPES
from tilegrad.render.text_rules import C_RULES
from tilegrad.target import Target

__all__ = ["OpenCLRenderer"]

# OpenCL adds integers atomically; a float is compared and exchanged as the integer with its bits.
_ADD_FLOAT = """\
static void atomic_add_float(volatile __global float* p, float v) {
  uint seen, old = as_uint(*p);
  do {
    seen = old;
    old = atomic_cmpxchg((volatile __global uint*)p, seen, as_uint(as_float(seen)+v));
  } while (old != seen);
}"""
_COMBINE: dict[Ops | tuple[Ops, DType], str] = {
    (op, dtype): f"{name}({{pointer}}, {{value}});"
    for op, name in ((Ops.ADD, "atomic_add"), (Ops.MAX, "atomic_max"))
    for dtype in (dtypes.int32, dtypes.uint32)
}
_COMBINE[Ops.ADD, dtypes.float32] = "atomic_add_float({pointer}, {value});"

_DIALECT = Dialect(
    kernel="__kernel void {name}({parameters}) {{",
    prelude=("#pragma OPENCL FP_CONTRACT OFF",),
    types=SHORT_TYPES,
    memory_types={dtypes.bool: "uchar"},
    stems={**SHORT_TYPES, dtypes.bool: "uchar"},
    vector="({type})({lanes})",
    lanes=(".x", ".y", ".z", ".w"),
    wide_lanes=tuple(f".s{digit}" for digit in "0123456789abcdef"),
    memory_lanes=frozenset({2, 4, 8, 16}),
    headers={
        dtypes.float16: "#pragma OPENCL EXTENSION cl_khr_fp16 : enable",
        dtypes.float64: "#pragma OPENCL EXTENSION cl_khr_fp64 : enable",
    },
    pointers={
        AddressSpace.GLOBAL: "__global ",
        AddressSpace.SHARED: "__local ",
        AddressSpace.SCRATCH: "__private ",
    },
    ids={
        "gidx": "get_group_id({number})",
        "lidx": "get_local_id({number})",
        "chunk": "get_group_id({number})",
    },
    shared="__attribute__((aligned(16))) __local ",
    barrier="barrier(CLK_LOCAL_MEM_FENCE);",
    functions={
        **{op: f"{name}({{0}})" for op, name in MATH.items()},
        Ops.FMOD: "fmod({0},{1})",
        Ops.MULACC: "fma({0},{1},{2})",
    },
    combine=_COMBINE,
    reinterpret="as_{type}({value})",
    # That NaN gives 0 is only asked of convert_ functions, and PoCL's do not.
    define_whole=(
        "static {type} {stem}_of_{source}({source} x) {{ "
        "return x!=x ? 0 : convert_{type}_sat(x); }}"
    ),
)


def add_float(u: UOp, ctx: Rendering) -> None:
    """Only puts the helper above the kernel; the common rule writes the store."""
    if u.arg is Ops.ADD and u.value.dtype.scalar is dtypes.float32:
        ctx.need(_ADD_FLOAT)


_RULES = PatternMatcher(
    "opencl", [Rule("opencl-add-float", UPat(Ops.STORE, name="u"), function=add_float)]
)


class OpenCLRenderer(CStyleRenderer):
    """OpenCL C, for devices with 1.2 or later."""

    dialect = _DIALECT
    rules = _RULES + C_RULES
    flags: ClassVar[tuple[str, ...]] = ("-cl-fp32-correctly-rounded-divide-sqrt",)

    def __init__(self, target: Target | None = None):
        super().__init__(target or opencl_target())
