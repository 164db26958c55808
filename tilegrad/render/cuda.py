"""CUDA C++, for NVRTC or nvcc.

Vectors that CUDA lacks, such as half8, are structs, written above a kernel that uses them. A matrix
unit is a function around one `mma.sync`: its operands are pairs of 16-bit numbers in 32-bit
registers, and the numbers of registers follow from the unit's layouts. Functions around
`ldmatrix` and `cp.async` fill these registers and the tiles in shared memory. The operands of all
of them are called ra, rb and rc.
"""

from __future__ import annotations

from typing import ClassVar

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import CompileError
from tilegrad.hardware import cuda_target
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.pattern import Rule, UPat
from tilegrad.ir.uop import UOp
from tilegrad.render.clike import CStyleRenderer, Rendering, strip_parentheses
from tilegrad.render.dialect import Dialect, define_whole
from tilegrad.render.names import C_TYPES, MATH, SHORT_TYPES
from tilegrad.render.text_rules import C_RULES
from tilegrad.target import MatrixUnit

__all__ = ["CUDARenderer"]

_SHORT_FLOATS = (dtypes.float16, dtypes.bfloat16)
_FUNCTIONS: dict[Ops | tuple[Ops, DType], str] = {
    **{op: f"{name}({{0}})" for op, name in MATH.items()},
    **{(op, dtype): f"h{name}({{0}})" for op, name in MATH.items() for dtype in _SHORT_FLOATS},
    **{(Ops.MULACC, dtype): "__hfma({0},{1},{2})" for dtype in _SHORT_FLOATS},
    Ops.FMOD: "fmod({0},{1})",
    # Within 2 units in the last place (CUDA C++ Programming Guide, "Mathematical Functions").
    Ops.EXP2_APPROX: "exp2f({0})",
    Ops.MULACC: "fma({0},{1},{2})",
}

_STEMS = {
    **SHORT_TYPES,
    dtypes.int64: "longlong",
    dtypes.uint64: "ulonglong",
    dtypes.bfloat16: "bfloat16x",
}
_STRUCTS = (dtypes.bool, *_SHORT_FLOATS)
_LANES = tuple(f".{letter}" for letter in "xyzw")
_INTEGERS = (dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64)
# Dtypes that atomicAdd takes; a signed long is added as an unsigned one.
_ADDED = (
    dtypes.int32, dtypes.uint32, dtypes.uint64, *_SHORT_FLOATS, dtypes.float32, dtypes.float64,
)  # fmt: skip
_ADD_LONG = "atomicAdd((unsigned long long*){pointer}, (unsigned long long)({value}));"

_DIALECT = Dialect(
    kernel='extern "C" __global__ void __launch_bounds__({lanes}) {name}({parameters}) {{',
    prelude=(
        "#define INFINITY (__int_as_float(0x7f800000))",
        "#define NAN (__int_as_float(0x7fffffff))",
    ),
    types={**C_TYPES, dtypes.bfloat16: "__nv_bfloat16"},
    stems=_STEMS,
    vector="make_{type}({lanes})",
    lanes=_LANES,
    wide_lanes=_LANES + tuple(f".{letter}" for letter in "abcdefghijkl"),
    memory_lanes=frozenset({2, 4, 8, 16}),
    define_vector=(
        "struct __align__({alignment}) {name} {{ {type} {fields}; }}; "
        "__device__ inline {name} make_{name}({arguments}) "
        "{{ {name} r = {{ {fields} }}; return r; }}"
    ),
    built_in=frozenset(
        {
            f"{stem}{count}"
            for dtype, stem in _STEMS.items()
            if dtype not in _STRUCTS
            for count in (2, 3, 4)
        }
    )
    | {"half2"},
    headers={dtypes.float16: "#include <cuda_fp16.h>", dtypes.bfloat16: "#include <cuda_bf16.h>"},
    ids={"gidx": "blockIdx.{axis}", "lidx": "threadIdx.{axis}"},
    shared="__shared__ __align__(16) ",
    asked="extern __shared__ __align__(16) unsigned char asked[];",
    barrier="__syncthreads();",
    functions=_FUNCTIONS,
    shields_short_floats=True,
    define_whole=define_whole("static __device__ inline"),
    combine={
        **{(Ops.ADD, dtype): "atomicAdd({pointer}, {value});" for dtype in _ADDED},
        (Ops.ADD, dtypes.int64): _ADD_LONG,
        **{(Ops.MAX, dtype): "atomicMax({pointer}, {value});" for dtype in _INTEGERS},
    },
)


_PTX_NAMES = {dtypes.float16: "f16", dtypes.bfloat16: "bf16", dtypes.float32: "f32"}


def matrix_multiply(u: UOp, ctx: Rendering) -> str | None:
    """A call of the unit's helper, which stands above the kernel once."""
    unit: MatrixUnit = u.arg
    if unit.name not in {known.name for known in ctx.target.matrix_units}:
        raise CompileError(
            f"render: {ctx.target.name} has no matrix unit {unit.name}", isa=ctx.target.isa
        )
    a, b, c = (ctx.type(source.dtype) for source in u.src)
    name = f"__WMMA_{unit.n}_{unit.m}_{unit.k}_{ctx.type(unit.dtype_in)}_{ctx.type(unit.dtype_out)}"
    ctx.need(_helper(unit, name, a, b, c))
    return f"{name}({', '.join(map(ctx.text, u.src))})"


def _helper(unit: MatrixUnit, name: str, a: str, b: str, c: str) -> str:
    bytes_in, bytes_out = unit.dtype_in.itemsize, unit.dtype_out.itemsize
    counts = [
        len(unit.c_layout[0]) * bytes_out // 4,
        len(unit.a_layout[0]) * bytes_in // 4,
        len(unit.b_layout[0]) * bytes_in // 4,
    ]
    numbers = iter(range(sum(counts)))
    sums, left, right = (
        "{" + ", ".join(f"%{next(numbers)}" for _ in range(count)) + "}" for count in counts
    )
    kinds = (unit.dtype_out, unit.dtype_in, unit.dtype_in, unit.dtype_out)
    shape = f"m{unit.m}n{unit.n}k{unit.k}.row.col.{'.'.join(_PTX_NAMES[kind] for kind in kinds)}"
    register, word = ("f", "float") if bytes_out == 4 else ("r", "int")
    outputs = ", ".join(f'"+{register}"(rc[{i}])' for i in range(counts[0]))
    inputs = ", ".join(
        [f'"r"(ra[{i}])' for i in range(counts[1])] + [f'"r"(rb[{i}])' for i in range(counts[2])]
    )
    return "\n".join(
        [
            f"__device__ inline {c} {name}({a} a, {b} b, {c} c) {{",
            f"  int *ra = (int*)(&a), *rb = (int*)(&b); {word} *rc = ({word}*)(&c);",
            f'  asm volatile("mma.sync.aligned.{shape} {sums}, {left}, {right}, {sums};"',
            f"    : {outputs} : {inputs});",
            "  return c;",
            "}",
        ]
    )


def fragment(u: UOp, ctx: Rendering) -> str:
    """Matrices of 8x8 elements that the lanes of a warp load together, by rows of 16 bytes."""
    count, is_transposed = u.arg
    (row,) = u.src
    result, kind = ctx.type(u.dtype), ".trans" if is_transposed else ""
    name = f"__fragment_{result}{'_transposed' if is_transposed else ''}"
    registers = ", ".join(f"%{number}" for number in range(count))
    outputs = ", ".join(f'"=r"(rc[{number}])' for number in range(count))
    ctx.need(
        "\n".join(
            [
                f"__device__ inline {result} {name}(const void *rb) {{",
                f"  {result} c; unsigned *rc = (unsigned*)(&c);",
                "  unsigned ra = (unsigned)__cvta_generic_to_shared(rb);",
                f'  asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{kind}.shared.b16 '
                f'{{{registers}}}, [%{count}];"',
                f'    : {outputs} : "r"(ra) : "memory");',
                "  return c;",
                "}",
            ]
        )
    )
    return f"{name}({ctx.address(row.src[0], row.index)})"


def copy_async(u: UOp, ctx: Rendering) -> str:
    """A copy that goes on until WAIT; elements that its load's gate hides become zero."""
    memory, index, load, *gate = u.src
    nbytes = load.dtype.nbytes
    name, cache = f"__copy_{nbytes}", "cg" if nbytes == 16 else "ca"
    ctx.need(
        "\n".join(
            [
                f"__device__ inline void {name}(void *rc, const void *rb, int ra) {{",
                "  unsigned to = (unsigned)__cvta_generic_to_shared(rc);",
                f'  asm volatile("cp.async.{cache}.shared.global [%0], [%1], {nbytes}, %2;"',
                '    : : "r"(to), "l"(rb), "r"(ra) : "memory");',
                "}",
            ]
        )
    )
    size = f"{ctx.atom(load.gate)}?{nbytes}:0" if load.is_gated else f"{nbytes}"
    to, source = ctx.address(memory, index), ctx.address(load.src[0], load.index)
    on = f"if ({strip_parentheses(ctx.text(gate[0]))}) " if gate else ""
    return f"{on}{name}({to}, {source}, {size});"


def wait(u: UOp, ctx: Rendering) -> str:
    name, text = "__wait_for_copies", "cp.async.wait_all;"
    if u.arg:
        name, text = f"{name}_but_{u.arg}", f"cp.async.commit_group; cp.async.wait_group {u.arg};"
    ctx.need(f'__device__ inline void {name}() {{ asm volatile("{text}" : : : "memory"); }}')
    return f"{name}();"


def shuffle(u: UOp, ctx: Rendering) -> str:
    return f"__shfl_xor_sync(0xffffffffu, {ctx.text(u.src[0])}, {u.arg})"


_RULES = PatternMatcher(
    "cuda",
    [
        Rule("cuda-shuffle", UPat(Ops.SHUFFLE, name="u"), function=shuffle),
        Rule("cuda-fragment", UPat(Ops.FRAGMENT, name="u"), function=fragment),
        Rule("cuda-copy-async", UPat(Ops.COPY_ASYNC, name="u"), function=copy_async),
        Rule("cuda-wait", UPat(Ops.WAIT, name="u"), function=wait),
        Rule("cuda-matrix-multiply", UPat(Ops.WMMA, name="u"), function=matrix_multiply),
    ],
)


class CUDARenderer(CStyleRenderer):
    """CUDA C++ for the architecture `arch`, such as "sm_90"."""

    dialect = _DIALECT
    rules = _RULES + C_RULES
    flags: ClassVar[tuple[str, ...]] = ("--fmad=false",)

    def __init__(self, arch: str = "sm_80"):
        super().__init__(cuda_target(arch))
