"""What the renderers of C-like languages write, piece by piece."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.render import programs
from tests.render.programs import BOOL, FLOAT, HALF, INT, PROGRAMS, body, const, data, load, special
from tilegrad.base.config import Context
from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import CompileError, DeviceError, InternalError
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.pattern import Rule, UPat
from tilegrad.ir.uop import UOp
from tilegrad.render.cstyle import (
    C_RULES,
    ClangRenderer,
    CStyleRenderer,
    CUDARenderer,
    HIPRenderer,
    MetalRenderer,
    OpenCLRenderer,
    Rendering,
    parameters,
)

CUDA, METAL, OPENCL, HIP, CLANG = (
    CUDARenderer("sm_80"),
    MetalRenderer(),
    OpenCLRenderer(),
    HIPRenderer(),
    ClangRenderer(),
)
GPUS = [CUDA, METAL, OPENCL, HIP]


def expression(value: UOp, renderer: CStyleRenderer = CUDA, dtype: DType | None = None) -> str:
    """The text of `value` where it is stored."""
    out, zero = data(0, dtype or value.dtype.scalar), const(0)
    (line,) = [
        line
        for line in body(renderer.render([out, zero, value, out.store(zero, value)]))
        if "data0" in line
    ]
    return line.split(" = ", 1)[1].removesuffix(";")


# constants


@pytest.mark.row("M8.5")
@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (1.0, FLOAT, "1.0f"),
        (0.1, FLOAT, "0.10000000149011612f"),
        (1e-9, FLOAT, "9.999999717180685e-10f"),
        (-2.5, FLOAT, "(-2.5f)"),
        (-0.0, FLOAT, "(-0.0f)"),
        (math.nan, FLOAT, "NAN"),
        (math.inf, FLOAT, "INFINITY"),
        (-math.inf, FLOAT, "(-INFINITY)"),
        (0.1, dtypes.double, "0.1"),
        (-3.0, dtypes.double, "(-3.0)"),
        (math.inf, dtypes.double, "(double)(INFINITY)"),
        (-math.inf, dtypes.double, "(double)(-INFINITY)"),
        (1.5, HALF, "(half)(1.5f)"),
        (-1.5, HALF, "(half)(-1.5f)"),
        (math.nan, HALF, "(half)(NAN)"),
        (2.0, dtypes.bfloat16, "(__nv_bfloat16)(2.0f)"),
        (True, BOOL, "true"),
        (False, BOOL, "false"),
        (7, INT, "7"),
        (-7, INT, "(-7)"),
        (-(2**31), INT, "(-2147483647-1)"),
        (7, dtypes.long, "(long long)(7)"),
        (-(2**63), dtypes.long, "(long long)(-9223372036854775807-1)"),
        (2**64 - 1, dtypes.ulong, "(unsigned long long)(18446744073709551615u)"),
        (7, dtypes.uint, "(unsigned int)(7u)"),
        (-1, dtypes.short, "(short)(-1)"),
        (-1, dtypes.char, "(signed char)(-1)"),
    ],
)
def test_constant(value: object, dtype: DType, text: str) -> None:
    assert expression(const(value, dtype)) == text


@pytest.mark.row("M8.5", "R7.4")
def test_constant_vector() -> None:
    value = const(1.0, FLOAT).broadcast(2)
    assert [expression(value, renderer) for renderer in (CUDA, METAL, OPENCL, HIP, CLANG)] == [
        "make_float2(1.0f,1.0f)",
        "float2(1.0f,1.0f)",
        "(float2)(1.0f,1.0f)",
        "make_float2(1.0f,1.0f)",
        "(float2){1.0f,1.0f}",
    ]


# names


@pytest.mark.row("M8.6")
def test_one_use_is_written_in_place_and_two_get_a_name() -> None:
    out, rows, zero = data(0), data(1), const(0)
    x = load(rows, zero)
    once, twice = x + 1.0, x * 2.0
    program = [
        out,
        rows,
        zero,
        x,
        once,
        twice,
        out.store(zero, once),
        out.store(zero, twice * twice),
    ]
    assert body(CUDA.render(program)) == [
        "float val0 = *(data1+0);",
        "float alu0 = (val0*2.0f);",
        "*(data0+0) = (val0+1.0f);",
        "*(data0+0) = (alu0*alu0);",
    ]


@pytest.mark.row("M8.6")
@pytest.mark.parametrize("renderer", [HIP, CLANG], ids=["hip", "clang"])
def test_max_is_never_written_in_place(renderer: CStyleRenderer) -> None:
    """Its operands are mentioned twice, so what is more than a name gets one."""
    out, rows, zero = data(0, INT), data(1, INT), const(0)
    x = load(rows, zero)
    value = (x ^ 1).maximum(3) ^ 2
    assert body(renderer.render([out, rows, zero, x, value, out.store(zero, value)])) == [
        "int val0 = *(data1+0);",
        "int alu0 = (val0^1);",
        "int alu1 = (3>alu0?3:alu0);",
        "*(data0+0) = (alu1^2);",
    ]


@pytest.mark.row("M8.6", "X.4")
def test_expand_ssa_names_every_value() -> None:
    with Context(EXPAND_SSA=1):
        text = CUDA.render(programs.add_4_4())
    assert body(text) == [
        "int lidx0 = threadIdx.x; /* 4 */",
        "int alu0 = (lidx0<<2);",
        "float4 val0 = *((float4*)((data1+alu0)));",
        "float4 val1 = *((float4*)((data2+alu0)));",
        "float alu1 = (val0.x+val1.x);",
        "float alu2 = (val0.y+val1.y);",
        "float alu3 = (val0.z+val1.z);",
        "float alu4 = (val0.w+val1.w);",
        "float4 cast0 = make_float4(alu1,alu2,alu3,alu4);",
        "*((float4*)((data0+alu0))) = cast0;",
    ]


@pytest.mark.row("M8.7")
@pytest.mark.parametrize("op", [Ops.ADD, Ops.MUL, Ops.XOR])
def test_chains_have_one_pair_of_parentheses(op: Ops) -> None:
    a, b, c = (load(data(1, dtypes.uint32), const(number)) for number in range(3))
    symbol = op.definition.symbol
    chain = f"(val0{symbol}val1{symbol}val2)"
    assert expression(a.alu(op, b).alu(op, c), CLANG) == chain
    assert expression(a.alu(op, b.alu(op, c)), CLANG) == chain


@pytest.mark.row("M8.7")
def test_a_chain_does_not_regroup_floats() -> None:
    """(a+b)+c is what C reads in a+b+c; a+(b+c) is another number."""
    a, b, c = (load(data(1), const(number)) for number in range(3))
    assert expression((a + b) + c) == "(val0+val1+val2)"
    assert expression(a + (b + c)) == "(val0+(val1+val2))"


def test_long_chains_render_without_recursion() -> None:
    value = load(data(1), const(0))
    for number in range(5000):
        value = value.alu(Ops.FDIV, const(float(number), FLOAT))
    text = CUDA.render([value])
    assert text.count("/") == 5000
    assert max(line.count("(") for line in text.splitlines()) < 100


@pytest.mark.row("M11.6")
def test_the_kernel_is_called_what_c_accepts() -> None:
    assert "void __launch_bounds__(1) r_3Clength5B42D85D3E(" in CUDA.render("r_<length[4-8]>", [])


# values


@pytest.mark.row("M8.1")
def test_one_element_has_index_zero() -> None:
    total = "(int)((unsigned int)val0+(unsigned int)val1)"
    assert body(CLANG.render("E_", programs.single_add()))[-1] == f"*(data0+0) = {total};"


@pytest.mark.row("M8.2")
def test_several_elements_have_a_position() -> None:
    out, index = data(0, INT, 3), special("lidx0", 3)
    text = CUDA.render("E_3", [out, index, out.store(index, const(1))])
    assert body(text) == ["int lidx0 = threadIdx.x; /* 3 */", "*(data0+lidx0) = 1;"]
    assert "__launch_bounds__(3)" in text


@pytest.mark.row("M8.3")
def test_a_cast_stands_around_the_sum() -> None:
    text = CLANG.render("E_", programs.single_add_cast())
    total = "(int)((unsigned int)val0+(unsigned int)val1)"
    assert body(text)[-1] == f"*(data0+0) = (float)({total});"
    text = CUDA.render("E_", programs.single_add_cast())
    assert "(float* data0, int* data1, int* data2)" in text


@pytest.mark.row("M8.4")
@pytest.mark.parametrize(
    ("renderer", "lines"),
    [
        (METAL, ["*(data0+gidx0) = as_type<int>((val0+1.0f));"]),
        (OPENCL, ["*(data0+gidx0) = as_int((val0+1.0f));"]),
        (CUDA, ["float alu0 = (val0+1.0f);", "*(data0+gidx0) = *((int*)&alu0);"]),
        (CLANG, ["float alu0 = (val0+1.0f);", "*(data0+gidx0) = *((int*)&alu0);"]),
    ],
    ids=["metal", "opencl", "cuda", "clang"],
)
def test_bitcast_reads_the_same_bits(renderer: CStyleRenderer, lines: list[str]) -> None:
    assert body(renderer.render(programs.bitcast()))[-len(lines) :] == lines


@pytest.mark.parametrize(
    ("renderer", "cast"), [(METAL, "as_type<half>"), (OPENCL, "as_half")], ids=["metal", "opencl"]
)
def test_short_bits_are_reinterpreted_in_their_own_size(
    renderer: CStyleRenderer, cast: str
) -> None:
    """C computes in int what is narrower, and four bytes are no half."""
    bits = load(data(1, dtypes.uint16), const(0)) & 0x7FFF
    text = expression(bits.bitcast(HALF), renderer)
    assert text == f"{cast}((ushort)(val0&(ushort)(32767u)))"


def test_max_lets_nan_win() -> None:
    a, b = (load(data(1), const(number)) for number in range(2))
    assert expression(a.maximum(b) + 0.0) == "(alu0+0.0f)"
    assert "float alu0 = (((val1>val0)|(val1!=val1))?val1:val0);" in CUDA.render([a.maximum(b)])


def test_narrow_integers_wrap_around() -> None:
    a = load(data(1, dtypes.uchar), const(0))
    assert expression((a + 1) < 3, dtype=BOOL) == (
        "((unsigned char)((val0+(unsigned char)(1u)))<(unsigned char)(3u))"
    )


def test_floats_become_integers_alike_everywhere() -> None:
    """To the nearest integer there is: C leaves a cast of what is out of range undefined."""
    a = load(data(1), const(0))
    texts = [
        expression(a.cast(dtypes.uchar), renderer) for renderer in (CUDA, OPENCL, CLANG, METAL)
    ]
    assert texts == [
        "uchar_of_float(val0)",
        "uchar_of_float(val0)",
        "uchar_of_float(val0)",
        "uchar_of_float(val0)",
    ]
    for renderer in (CUDA, METAL, CLANG, HIP):
        text = renderer.render([a.cast(dtypes.uchar)])
        assert "return x!=x ? 0 : x>=256.0f ? 255u : x<=0.0f ? 0 : (" in text
    half = load(data(1, HALF), const(0))
    assert expression(half.cast(INT)) == "int_of_float((float)(val0))"
    assert expression(half.cast(dtypes.double)) == "(double)((float)(val0))"
    assert expression(half.cast(dtypes.bfloat16), METAL) == "(bfloat)((float)(val0))"


@pytest.mark.row("M7.6")
def test_metal_computes_functions_of_bfloat_in_float() -> None:
    """It has none of its own; CUDA's numbers of 16 bits have, and HIP calls float32's."""
    x = load(data(1, dtypes.bfloat16), const(0))
    assert (
        expression(UOp(Ops.EXP2, dtypes.bfloat16, (x,)), METAL) == "(bfloat)(exp2((float)(val0)))"
    )


def test_bools_stay_bools() -> None:
    a, b = (load(data(1, BOOL), const(number)) for number in range(2))
    assert expression(a + b) == "(val0|val1)"
    assert expression(a * b) == "(val0&val1)"
    assert expression(a.bitcast(dtypes.uchar), METAL) == "(uchar)(val0)"


def test_division_has_no_traps() -> None:
    a, b = (load(data(1, INT), const(number)) for number in range(2))
    assert expression(a.alu(Ops.IDIV, const(3))) == "(val0/3)"
    negated = "(int)(-(unsigned int)val0)"
    assert expression(a.alu(Ops.IDIV, b)) == f"(val1==0?0:(val1==-1?{negated}:(val0/val1)))"
    hip = expression(a.alu(Ops.IDIV, b), HIP)
    assert hip == f"(val1==0?0:(val1==-1?{negated}:(val0/val1)))"
    assert expression(a.alu(Ops.MOD, b)) == "(val1==0?val0:(val1==-1?0:(val0%val1)))"
    position = special("gidx0", 8)
    assert expression(position // 3) == "(gidx0/3)"
    with pytest.raises(CompileError, match="CUDA has no FLOORDIV"):
        expression(a // 3)


def test_not() -> None:
    a = load(data(1), const(0))
    assert expression((a < 1.0).logical_not(), dtype=BOOL) == "(!(val0<1.0f))"


# signatures and tables


@pytest.mark.row("F4.6")
def test_variables_are_parameters() -> None:
    assert (
        "(device float* data0, device float* data1, constant int& dim, uint3 gid"
        in METAL.render(programs.symbolic())
    )
    assert "(float* data0, float* data1, int dim)" in CUDA.render(programs.symbolic())
    assert "(__global float* data0, __global float* data1, int dim)" in OPENCL.render(
        programs.symbolic()
    )
    assert "(float* restrict data0, const float* restrict data1, int dim)" in CLANG.render(
        programs.symbolic()
    )
    assert "ridx0 < dim;" in CUDA.render(programs.symbolic())


def test_parameters_stand_in_the_order_of_their_slots() -> None:
    n, m = UOp.variable("n", 1, 4, INT), UOp.variable("m", 1, 4, INT)
    program = [n, data(1), data(0), m]
    assert parameters(program) == [data(0), data(1), n, m]


def test_a_variable_may_be_called_like_a_word_of_the_language() -> None:
    variable = UOp.variable("float", 1, 4, INT)
    assert "example(int float_)" in CUDA.render([variable])
    assert "example(int data0_)" in CUDA.render([UOp.variable("data0", 1, 4, INT)])


@pytest.mark.row("F1.5")
def test_a_buffer_is_one_parameter() -> None:
    out, rows, index = data(0), data(1), special("gidx0", 16)
    x = load(rows, index)
    program = [out, rows, index, x, out.store(index, x * x)]
    assert "(float* data0, float* data1)" in CUDA.render(program)
    assert "(float* restrict data0, const float* restrict data1, int gidx0)" in CLANG.render(
        program
    )


@pytest.mark.row("F4.5")
def test_hip_takes_positions_and_mathematics_from_the_device_libraries() -> None:
    text = HIP.render(programs.scalar_math())
    assert (
        'extern "C" __attribute__((device, const)) unsigned long __ockl_get_group_id(unsigned int);'
        in text
    )
    assert 'extern "C" __attribute__((device, const)) float __ocml_sin_f32(float);' in text
    assert (
        'extern "C" __attribute__((device, const)) float __ocml_fma_f32(float, float, float);'
        in text
    )
    assert "int gidx0 = __ockl_get_group_id(0); /* 16 */" in text
    assert text.count("float __ocml_exp2_f32(float);") == 1
    assert "#include" not in text


@pytest.mark.row("F4.4")
@pytest.mark.parametrize(
    "renderer", [*GPUS, CLANG], ids=["cuda", "metal", "opencl", "hip", "clang"]
)
def test_every_program_renders(renderer: CStyleRenderer) -> None:
    """Programs whose ops a target lacks apart."""
    for name, program in PROGRAMS.items():
        if name == "matrix_unit" and renderer is not CUDA:
            continue
        if renderer is CLANG and name not in programs.ON_HOST:
            continue
        text = renderer.render(name, program())
        assert text.count("{") == text.count("}")
        assert text.count("(") == text.count(")")


@pytest.mark.row("R7.4")
def test_a_target_may_replace_the_rule_for_vectors() -> None:
    def braces(u: UOp, ctx: Rendering) -> str:
        return f"{ctx.type(u.dtype)}{{{','.join(map(ctx.text, u.src))}}}"

    class Braces(CUDARenderer):
        rules = (
            PatternMatcher([Rule("braces", UPat(Ops.VECTORIZE, name="u"), function=braces)])
            + CUDARenderer.rules
        )

    assert "= float4{(val0.x+val1.x),(val0.y+val1.y)," in Braces().render(programs.add_4_4())
    assert expression(const(1.0, FLOAT).broadcast(2), Braces()) == "float2{1.0f,1.0f}"


@pytest.mark.row("R7.4")
def test_a_renderer_is_a_matcher_that_returns_text() -> None:
    ctx = Rendering(CUDA, [])
    assert C_RULES.rewrite(const(2.0, FLOAT), ctx) == "2.0f"  # type: ignore[comparison-overlap]


# errors


def test_a_missing_dtype_is_named() -> None:
    for renderer in (OPENCL, HIP, CLANG, CUDARenderer("sm_75")):
        with pytest.raises(CompileError, match=f"{renderer.target.name} has no bfloat16"):
            renderer.render([const(1.0, dtypes.bfloat16)])
    with pytest.raises(CompileError, match="METAL has no float64"):
        METAL.render([data(0, dtypes.double)])
    with pytest.raises(CompileError, match="CUDA has no index"):
        CUDA.render([UOp.range(4)])


def test_a_missing_op_is_named() -> None:
    with pytest.raises(CompileError, match="CLANG has no BARRIER"):
        CLANG.render([UOp(Ops.BARRIER)])
    with pytest.raises(CompileError, match="CLANG has no shared memory"):
        CLANG.render(programs.group_4())
    with pytest.raises(CompileError, match="METAL has no vector of 8 lanes"):
        METAL.render([load(data(0), const(0), lanes=8)])
    with pytest.raises(CompileError, match="CLANG has no vector of 3 lanes"):
        CLANG.render([load(data(0), const(0), lanes=3)])
    with pytest.raises(CompileError, match="no position 'gidx3'"):
        CUDA.render([special("gidx3", 2)])
    with pytest.raises(CompileError, match="parameter 0 is no pointer"):
        CUDA.render([UOp(Ops.DEFINE_GLOBAL, FLOAT, (), 0)])
    with pytest.raises(DeviceError, match="'90' is no architecture"):
        CUDARenderer("90")


def test_an_open_loop_is_refused() -> None:
    with pytest.raises(InternalError, match="leaves 1 loops open"):
        CUDA.render([programs.loop(4)])


# what the languages' own compilers say


@pytest.mark.parametrize("name", programs.ON_HOST)
def test_gcc_accepts_the_host_text(name: str) -> None:
    programs.check_syntax([CLANG.render(name, PROGRAMS[name]())])


@pytest.mark.row("M9.4", "M9.6", "R4.6")
def test_nvcc_accepts_the_cuda_text(tmp_path: Path) -> None:
    """All programs in one file, so that the compiler starts once."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not installed")
    above: dict[str, None] = {}
    kernels = []
    for name, program in PROGRAMS.items():
        head, kernel = CUDA.render(name, program()).split('extern "C" __global__')
        above |= dict.fromkeys(re.split(r"\n(?=[^ }])", head.rstrip()))
        kernels.append(f'extern "C" __global__{kernel}')
    source = tmp_path / "all.cu"
    source.write_text("#undef INFINITY\n#undef NAN\n" + "\n".join([*above, *kernels]))
    command = [
        nvcc,
        "-arch=sm_80",
        *CUDA.flags,
        "-cubin",
        "-o",
        str(tmp_path / "all.cubin"),
        str(source),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
