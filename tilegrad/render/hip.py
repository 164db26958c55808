"""HIP C++ without its headers, as `clang -x hip -nogpuinc` takes it.

Positions and mathematics come from the device libraries: `__ockl_` functions for the first,
`__ocml_` for the second, declared above a kernel that calls them. Vectors are clang's
`ext_vector_type`.
"""

from __future__ import annotations

from typing import ClassVar

from tilegrad.base.dtype import dtypes
from tilegrad.hardware import hip_target
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.pattern import Rule, UPat
from tilegrad.ir.uop import UOp
from tilegrad.render.clike import CStyleRenderer, Rendering
from tilegrad.render.dialect import Dialect, define_whole
from tilegrad.render.names import C_TYPES, MATH, SHORT_TYPES
from tilegrad.render.text_rules import C_RULES

__all__ = ["HIPRenderer"]

_MATH = {**MATH, Ops.FMOD: "fmod", Ops.MULACC: "fma"}
_WIDTHS = {dtypes.float16: "f16", dtypes.float32: "f32", dtypes.float64: "f64"}
_LIBRARY = 'extern "C" __attribute__((device, const))'
_ARGUMENTS = {1: "{0}", 2: "{0},{1}", 3: "{0},{1},{2}"}
_ADD = "__hip_atomic_fetch_add({pointer}, {value}, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);"
_MAX = _ADD.replace("add", "max")
_INTEGERS = (dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64)


_DIALECT = Dialect(
    kernel=(
        'extern "C" __attribute__((global)) void '
        "__attribute__((amdgpu_flat_work_group_size(1, {lanes}))) {name}({parameters}) {{"
    ),
    prelude=(
        "#define INFINITY (__builtin_inff())",
        '#define NAN (__builtin_nanf(""))',
        "#pragma clang fp contract(off)",
        f"{_LIBRARY} unsigned long __ockl_get_group_id(unsigned int);",
        f"{_LIBRARY} unsigned long __ockl_get_local_id(unsigned int);",
    ),
    types={**C_TYPES, dtypes.int64: "long", dtypes.uint64: "unsigned long"},
    stems=SHORT_TYPES,
    vector_elements={dtypes.bool: "unsigned char"},
    vector="make_{type}({lanes})",
    lanes=(".x", ".y", ".z", ".w"),
    wide_lanes=tuple(f".s{digit}" for digit in "0123456789abcdef"),
    memory_lanes=frozenset({2, 4, 8, 16}),
    define_vector=(
        "typedef {type} {name} __attribute__((ext_vector_type({count}))); "
        "static inline __attribute__((device)) {name} make_{name}({arguments}) "
        "{{ return ({name}){{{fields}}}; }}"
    ),
    headers={dtypes.float16: "typedef _Float16 half;"},
    ids={"gidx": "__ockl_get_group_id({number})", "lidx": "__ockl_get_local_id({number})"},
    shared="__attribute__((shared, aligned(16))) ",
    barrier=(
        '__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); __builtin_amdgcn_s_barrier(); '
        '__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");'
    ),
    functions={
        (op, dtype): f"__ocml_{name}_{width}({_ARGUMENTS[op.definition.arity or 1]})"
        for op, name in _MATH.items()
        for dtype, width in _WIDTHS.items()
    },
    define_whole=define_whole("static inline __attribute__((device))"),
    combine={
        **{(Ops.ADD, dtype): _ADD for dtype in (*_INTEGERS, dtypes.float32, dtypes.float64)},
        **{(Ops.MAX, dtype): _MAX for dtype in _INTEGERS},
    },
)


def declare_function(u: UOp, ctx: Rendering) -> None:
    """Only puts the declaration above the kernel; the common rule writes the call."""
    width = _WIDTHS.get(u.dtype.scalar)
    if width is not None:
        kind = ctx.type(u.dtype.scalar)
        arguments = ", ".join([kind] * len(u.src))
        ctx.need(f"{_LIBRARY} {kind} __ocml_{_MATH[u.op]}_{width}({arguments});")


_RULES = PatternMatcher(
    "hip",
    [Rule("hip-declare-function", UPat(tuple(_MATH), name="u"), function=declare_function)],
)


class HIPRenderer(CStyleRenderer):
    """HIP C++ for the architecture `arch`, such as "gfx1100"."""

    dialect = _DIALECT
    rules = _RULES + C_RULES
    flags: ClassVar[tuple[str, ...]] = ("-fno-strict-aliasing",)

    def __init__(self, arch: str = "gfx1100"):
        super().__init__(hip_target(arch))
