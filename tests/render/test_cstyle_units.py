"""Matrix units and half in the languages like C."""

from __future__ import annotations

import pytest

from tests.render import programs
from tests.render.programs import FLOAT, HALF, MMA, body, const
from tests.render.test_cstyle import CUDA, METAL
from tilegrad.base.errors import CompileError
from tilegrad.hardware import cuda_target, metal_target
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.render.cstyle import CUDARenderer


@pytest.mark.row("M9.4", "M9.6")
def test_matrix_unit() -> None:
    text = CUDA.render("r_wmma", programs.matrix_unit())
    assert (
        text.count(
            "__device__ inline float4 __WMMA_8_16_16_half_float(half8 a, half4 b, float4 c) {"
        )
        == 1
    )
    assert "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 " in text
    assert body(text)[-3:] == [
        "float4 wmma0 = __WMMA_8_16_16_half_float(val0, val1, make_float4(0.0f,0.0f,0.0f,0.0f));",
        "float4 wmma1 = __WMMA_8_16_16_half_float(val0, val1, wmma0);",
        "*((float4*)((data0+alu0))) = wmma1;",
    ]
    for line in (
        "#include <cuda_fp16.h>",
        "struct __align__(8) half4 { half x, y, z, w; };",
        "struct __align__(16) half8 { half x, y, z, w, a, b, c, d; };",
        "__device__ inline half4 make_half4(half x, half y, half z, half w)",
    ):
        assert text.count(line) == 1


@pytest.mark.row("M9.6", "M9.7")
def test_half_is_defined_only_where_it_is_used() -> None:
    text = CUDA.render("E_8_32_4", programs.half_cast())
    assert "#include <cuda_fp16.h>" in text
    assert "half4 make_half4(" in text
    assert "half8" not in text
    assert body(text)[-1] == (
        "*((half4*)((data0+alu0))) = "
        "make_half4((half)(val0.x),(half)(val0.y),(half)(val0.z),(half)(val0.w));"
    )
    plain = CUDA.render(programs.add_16())
    assert "half" not in plain
    assert "#include" not in plain


def test_an_older_architecture_has_no_such_unit() -> None:
    with pytest.raises(CompileError, match=r"CUDA has no matrix unit mma\.m16n8k16"):
        CUDARenderer("sm_75").render(programs.matrix_unit())


@pytest.mark.row("M9.8")
def test_metal_multiplies_simdgroup_matrices() -> None:
    unit = METAL.target.matrix_units[1]
    zero = const(0.0, FLOAT).broadcast(2)
    ones = const(1.0, HALF).broadcast(2)
    text = METAL.render([UOp(Ops.WMMA, zero.dtype, (ones, ones, zero), unit)])
    assert "static float2 __WMMA_8_8_8_half_float(half2 a, half2 b, float2 c) {" in text
    assert "simdgroup_multiply_accumulate(mc, ma, mb, mc);" in text
    assert metal_target(has_matrix_units=False).matrix_units == ()


@pytest.mark.row("M9.5")
@pytest.mark.parametrize(
    "unit", [*cuda_target("sm_90").matrix_units, *cuda_target("sm_75").matrix_units], ids=repr
)
def test_lane_layouts_are_those_of_ptx(unit: object) -> None:
    assert isinstance(unit, type(MMA))
    for lane in range(32):
        g, t = divmod(lane, 4)
        half = [(g, 2 * t), (g, 2 * t + 1), (g + 8, 2 * t), (g + 8, 2 * t + 1)]
        steps = range(0, unit.k, 8)
        assert list(unit.a_layout[lane]) == [
            (row, column + step) for step in steps for row, column in half
        ]
        assert list(unit.b_layout[lane]) == [
            (2 * t + pair + step, g) for step in steps for pair in (0, 1)
        ]
        assert list(unit.c_layout[lane]) == half


@pytest.mark.row("M9.5", "M9.8")
@pytest.mark.parametrize(
    "unit", [*cuda_target("sm_90").matrix_units, *metal_target().matrix_units], ids=repr
)
def test_lanes_hold_each_element_once(unit: object) -> None:
    assert isinstance(unit, type(MMA))
    for layout, rows, columns in (
        (unit.a_layout, unit.m, unit.k),
        (unit.b_layout, unit.k, unit.n),
        (unit.c_layout, unit.m, unit.n),
    ):
        held = sorted(position for lane in layout for position in lane)
        assert held == [(row, column) for row in range(rows) for column in range(columns)]
