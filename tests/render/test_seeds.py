"""The texts that the notes print, exactly."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.render import programs
from tests.render.programs import FLOAT, body, const, data, special
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.pattern import UPat
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp
from tilegrad.render.cstyle import ClangRenderer, CUDARenderer, MetalRenderer

CUDA_HEAD = (
    "#define INFINITY (__int_as_float(0x7f800000))\n#define NAN (__int_as_float(0x7fffffff))\n"
)
METAL_HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
METAL_IDS = (
    "uint3 gid [[threadgroup_position_in_grid]], uint3 lid [[thread_position_in_threadgroup]]"
)


@pytest.mark.row("S1.5")
def test_four_threads_move_a_float4_each() -> None:
    assert MetalRenderer().render("E_4_4", programs.add_4_4()) == (
        METAL_HEAD
        + "kernel void E_4_4(device float* data0, device float* data1, device float* data2, "
        f"{METAL_IDS}) {{\n"
        "  int lidx0 = lid.x; /* 4 */\n"
        "  int alu0 = (lidx0<<2);\n"
        "  float4 val0 = *((device float4*)((data1+alu0)));\n"
        "  float4 val1 = *((device float4*)((data2+alu0)));\n"
        "  *((device float4*)((data0+alu0))) = "
        "float4((val0.x+val1.x),(val0.y+val1.y),(val0.z+val1.z),(val0.w+val1.w));\n"
        "}"
    )
    assert CUDARenderer("sm_50").render("E_4_4", programs.add_4_4()) == (
        CUDA_HEAD + 'extern "C" __global__ void __launch_bounds__(4) '
        "E_4_4(float* data0, float* data1, float* data2) {\n"
        "  int lidx0 = threadIdx.x; /* 4 */\n"
        "  int alu0 = (lidx0<<2);\n"
        "  float4 val0 = *((float4*)((data1+alu0)));\n"
        "  float4 val1 = *((float4*)((data2+alu0)));\n"
        "  *((float4*)((data0+alu0))) = "
        "make_float4((val0.x+val1.x),(val0.y+val1.y),(val0.z+val1.z),(val0.w+val1.w));\n"
        "}"
    )


@pytest.mark.row("S1.6")
def test_without_opts_a_block_adds_one_element() -> None:
    assert MetalRenderer().render("E_16", programs.add_16()) == (
        METAL_HEAD
        + "kernel void E_16(device float* data0, device float* data1, device float* data2, "
        f"{METAL_IDS}) {{\n"
        "  int gidx0 = gid.x; /* 16 */\n"
        "  float val0 = *(data1+gidx0);\n"
        "  float val1 = *(data2+gidx0);\n"
        "  *(data0+gidx0) = (val0+val1);\n"
        "}"
    )
    assert CUDARenderer("sm_50").render("E_16", programs.add_16()) == (
        CUDA_HEAD + 'extern "C" __global__ void __launch_bounds__(1) '
        "E_16(float* data0, float* data1, float* data2) {\n"
        "  int gidx0 = blockIdx.x; /* 16 */\n"
        "  float val0 = *(data1+gidx0);\n"
        "  float val1 = *(data2+gidx0);\n"
        "  *(data0+gidx0) = (val0+val1);\n"
        "}"
    )


@pytest.mark.row("S1.8", "S1.9")
def test_a_hand_fed_sum_is_not_folded() -> None:
    assert MetalRenderer().render("example", programs.one_plus_one()) == (
        METAL_HEAD + f"kernel void example({METAL_IDS}) {{\n  float alu0 = (1.0f+1.0f);\n}}"
    )
    assert CUDARenderer("sm_50").render("example", programs.one_plus_one()) == (
        CUDA_HEAD + 'extern "C" __global__ void __launch_bounds__(1) example() {\n'
        "  float alu0 = (1.0f+1.0f);\n}"
    )


@pytest.mark.row("S1.8", "S1.10")
def test_positions() -> None:
    """`render(uops)` without a name; the second position is y."""
    assert MetalRenderer().render(programs.positions()[:1]) == (
        METAL_HEAD + f"kernel void example({METAL_IDS}) {{\n  int gidx0 = gid.x; /* 16 */\n}}"
    )
    assert CUDARenderer("sm_50").render("example", programs.positions()) == (
        CUDA_HEAD + 'extern "C" __global__ void __launch_bounds__(1) example() {\n'
        "  int gidx0 = blockIdx.x; /* 16 */\n"
        "  int gidx1 = blockIdx.y; /* 16 */\n"
        "}"
    )


@pytest.mark.row("P.15")
@pytest.mark.row("S1.8")
def test_rendering_imports_no_compiler_and_no_driver() -> None:
    script = (
        "import sys; from tilegrad.render.cstyle import *; "
        "renderers = CUDARenderer, MetalRenderer, HIPRenderer, OpenCLRenderer, ClangRenderer; "
        "[renderer().render([]) for renderer in renderers]; "
        "print([n for n in sys.modules if n.split('.')[0] in "
        "('numpy', 'llvmlite', 'cuda', 'pyopencl', 'Metal', 'objc', 'ctypes')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.row("F4.1")
def test_no_uops_make_an_empty_kernel() -> None:
    assert (
        MetalRenderer().render("rendered", [])
        == METAL_HEAD + f"kernel void rendered({METAL_IDS}) {{\n}}"
    )


@pytest.mark.row("F4.2")
def test_a_store_is_one_assignment() -> None:
    text = MetalRenderer().render("rendered", programs.store_199())
    assert f"rendered(device int* data0, {METAL_IDS})" in text
    assert body(text) == ["*(data0+0) = 199;"]


@pytest.mark.row("F4.3")
def test_the_graph_api_folds_before_rendering() -> None:
    out, zero = data(0, const(0).dtype), const(0)
    store = simplify(out.store(zero, const(199) + 200))
    text = CUDARenderer().render([out, zero, store])
    assert "399" in text
    assert "+200" not in text


@pytest.mark.row("F1.2")
def test_dot_of_two() -> None:
    """Sums that may overflow are unsigned ones, where C defines the result."""
    assert body(ClangRenderer().render("r_2", programs.dot_2())) == [
        "int acc0 = 0;",
        "for (int ridx0 = 0; ridx0 < 2; ridx0++) {",
        "int val0 = *(data1+ridx0);",
        "int val1 = *(data2+ridx0);",
        "acc0 = (int)((unsigned int)acc0+((unsigned int)val0*(unsigned int)val1));",
        "}",
        "*(data0+0) = acc0;",
    ]


@pytest.mark.row("R7.2")
def test_a_rule_splits_a_constant() -> None:
    def split(c: UOp) -> UOp | None:
        half = UOp(Ops.CONST, c.dtype, (), 0.5)
        return half + half if c.arg == 1.0 else None

    matcher = PatternMatcher([(UPat(Ops.CONST, dtype=FLOAT, name="c"), split)])
    value = matcher.rewrite(const(1.0, FLOAT))
    assert value is not None
    assert matcher.rewrite(const(2.0, FLOAT)) is None
    out, index = data(0), special("gidx0", 16)
    text = MetalRenderer().render("rendered", [out, index, value, out.store(index, value)])
    assert text == (
        METAL_HEAD + f"kernel void rendered(device float* data0, {METAL_IDS}) {{\n"
        "  int gidx0 = gid.x; /* 16 */\n"
        "  *(data0+gidx0) = (0.5f+0.5f);\n"
        "}"
    )


@pytest.mark.row("R7.3")
def test_a_list_by_hand_renders() -> None:
    for renderer in (MetalRenderer(), CUDARenderer("sm_50")):
        assert body(renderer.render(programs.fill()))[1] == "*(data0+gidx0) = (0.5f+0.5f);"
