"""The Metal shading language.

Vectors have at most four lanes. A matrix unit is an 8x8 `simdgroup_matrix`; each lane
holds two elements.
"""

from __future__ import annotations

from typing import ClassVar

from tilegrad.base.dtype import AddressSpace, DType, dtypes
from tilegrad.hardware import metal_target
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.pattern import Rule, UPat
from tilegrad.ir.uop import UOp
from tilegrad.render.clike import CStyleRenderer, Rendering
from tilegrad.render.dialect import Dialect, define_whole
from tilegrad.render.names import MATH, SHORT_TYPES
from tilegrad.render.text_rules import C_RULES
from tilegrad.target import MatrixUnit

__all__ = ["MetalRenderer"]

_NAMES = {dtype: name for dtype, name in SHORT_TYPES.items() if dtype is not dtypes.float64}
_NAMES[dtypes.bfloat16] = "bfloat"
_PRECISE = {op: f"precise::{MATH[op]}" for op in (Ops.EXP, Ops.SIN, Ops.COS)}
_MATH = {**MATH, **_PRECISE}
# Metal has no mathematics of bfloat.
_FUNCTIONS: dict[Ops | tuple[Ops, DType], str] = {
    **{op: f"{name}({{0}})" for op, name in _MATH.items()},
    **{(op, dtypes.bfloat16): f"(bfloat)({name}((float)({{0}})))" for op, name in _MATH.items()},
    Ops.MULACC: "fma({0},{1},{2})",
    (Ops.MULACC, dtypes.bfloat16): "(bfloat)(fma((float)({0}),(float)({1}),(float)({2})))",
}
_ATOMIC_ADD = (
    "atomic_fetch_add_explicit((device atomic_{type}*){{pointer}}, {{value}}, "
    "memory_order_relaxed);"
)

_DIALECT = Dialect(
    kernel="kernel void {name}({parameters}) {{",
    prelude=("#include <metal_stdlib>", "using namespace metal;"),
    types=_NAMES,
    stems=_NAMES,
    vector="{type}({lanes})",
    lanes=(".x", ".y", ".z", ".w"),
    pointers={
        AddressSpace.GLOBAL: "device ",
        AddressSpace.SHARED: "threadgroup ",
        AddressSpace.SCRATCH: "thread ",
    },
    scalar="constant {type}& {name}",
    launch_parameters=(
        "uint3 gid [[threadgroup_position_in_grid]]",
        "uint3 lid [[thread_position_in_threadgroup]]",
    ),
    ids={"gidx": "gid.{axis}", "lidx": "lid.{axis}"},
    shared="threadgroup __attribute__((aligned(16))) ",
    barrier="threadgroup_barrier(mem_flags::mem_threadgroup);",
    functions=_FUNCTIONS,
    reinterpret="as_type<{type}>({value})",
    define_whole=define_whole("static inline"),
    combine={
        (Ops.ADD, dtype): _ATOMIC_ADD.format(type=_NAMES[dtype])
        for dtype in (dtypes.int32, dtypes.uint32, dtypes.float32)
    },
)


def matrix_multiply(u: UOp, ctx: Rendering) -> str:
    """A call of the unit's helper, which stands above the kernel once."""
    unit: MatrixUnit = u.arg
    kind_in, kind_out = ctx.type(unit.dtype_in), ctx.type(unit.dtype_out)
    name = f"__WMMA_{unit.n}_{unit.m}_{unit.k}_{kind_in}_{kind_out}"
    lines = [f"static {kind_out}2 {name}({kind_in}2 a, {kind_in}2 b, {kind_out}2 c) {{"]
    lines += [f"  simdgroup_matrix<{kind_in},8,8> ma, mb; simdgroup_matrix<{kind_out},8,8> mc;"]
    for operand in "abc":
        lines.append(
            "  " + " ".join(f"m{operand}.thread_elements()[{i}] = {operand}[{i}];" for i in (0, 1))
        )
    lines.append("  simdgroup_multiply_accumulate(mc, ma, mb, mc);")
    lines.append(f"  return {kind_out}2(mc.thread_elements()[0], mc.thread_elements()[1]);")
    ctx.need("\n".join([*lines, "}"]))
    return f"{name}({', '.join(map(ctx.text, u.src))})"


def shuffle(u: UOp, ctx: Rendering) -> str:
    return f"simd_shuffle_xor({ctx.text(u.src[0])}, (ushort){u.arg})"


_RULES = PatternMatcher(
    "metal",
    [
        Rule("metal-shuffle", UPat(Ops.SHUFFLE, name="u"), function=shuffle),
        Rule("metal-matrix-multiply", UPat(Ops.WMMA, name="u"), function=matrix_multiply),
    ],
)


class MetalRenderer(CStyleRenderer):
    """Metal source for Apple GPUs."""

    dialect = _DIALECT
    rules = _RULES + C_RULES
    flags: ClassVar[tuple[str, ...]] = ("-fno-fast-math", "-ffp-contract=off")

    def __init__(self) -> None:
        super().__init__(metal_target())
