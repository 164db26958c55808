"""Memory in C and the languages like it: gates, vectors, shared memory, stores that add."""

from __future__ import annotations

import pytest

from tests.render import programs
from tests.render.programs import FLOAT, INT, body, const, data, load, special
from tests.render.test_cstyle import CLANG, CUDA, GPUS, HIP, METAL, OPENCL
from tilegrad.base.errors import CompileError
from tilegrad.ir.op import Ops
from tilegrad.render.cstyle import CStyleRenderer


@pytest.mark.row("M8.8", "R4.9")
def test_gates() -> None:
    assert body(CUDA.render("E_12", programs.padded_9())) == [
        "int gidx0 = blockIdx.x; /* 12 */",
        "bool alu0 = (gidx0<9);",
        "float val0 = (alu0?*(data1+gidx0):0.0f);",
        "float val1 = (alu0?*(data2+gidx0):0.0f);",
        "if (alu0) {",
        "*(data0+gidx0) = (val0+val1);",
        "}",
    ]


def test_gates_of_lanes_are_asked_lane_by_lane() -> None:
    lines = body(CUDA.render(programs.lane_gates()))
    assert any("alu0.z?*(data1+" in line or ".z?*(data1+" in line for line in lines)
    assert sum(line.startswith("if (") for line in lines) == 4


@pytest.mark.row("R4.2")
def test_row_sum() -> None:
    assert body(CUDA.render("r_4_4", programs.row_sum()))[2:6] == [
        "for (int ridx0 = 0; ridx0 < 4; ridx0++) {",
        "float val0 = *(data1+(gidx0<<2)+ridx0);",
        "acc0 = (acc0+val0);",
        "}",
    ]
    assert body(CUDA.render("r_4_4", programs.row_sum_unrolled()))[1:] == [
        "float4 val0 = *((float4*)((data1+(gidx0<<2))));",
        "*(data0+gidx0) = (val0.x+val0.y+val0.z+val0.w);",
    ]
    assert body(CUDA.render("r_4_2_2", programs.row_sum_unrolled_2()))[2:5] == [
        "for (int ridx0 = 0; ridx0 < 2; ridx0++) {",
        "float2 val0 = *((float2*)((data1+(gidx0<<2)+(ridx0<<1))));",
        "acc0 = (acc0+val0.x+val0.y);",
    ]


@pytest.mark.row("R4.3")
def test_row_sum_upcast() -> None:
    lines = body(CUDA.render("r_4_4", programs.row_sum_upcast()))
    assert [f"float acc{number} = 0.0f;" for number in range(4)] == lines[:4]
    assert [line.split("(data1+")[1] for line in lines if "data1" in line] == [
        "ridx0);",
        "ridx0+4);",
        "ridx0+8);",
        "ridx0+12);",
    ]
    assert lines[-1] == "*((float4*)((data0+0))) = make_float4(acc0,acc1,acc2,acc3);"


@pytest.mark.row("R4.4")
def test_upcast_of_eight_is_two_groups() -> None:
    lines = body(METAL.render("E_2_8", programs.add_2_8()))
    loads = [line.split(" = ")[1] for line in lines if line.startswith("float4")]
    assert loads == [
        "*((device float4*)((data1+alu0)));",
        "*((device float4*)((data2+alu0)));",
        "*((device float4*)((data1+alu1)));",
        "*((device float4*)((data2+alu1)));",
    ]
    assert "int alu1 = (alu0+4);" in lines


@pytest.mark.row("R4.5")
def test_local() -> None:
    text = CUDA.render("E_8_2", programs.local_2())
    assert "__launch_bounds__(2)" in text
    assert body(text)[:3] == [
        "int gidx0 = blockIdx.x; /* 8 */",
        "int lidx0 = threadIdx.x; /* 2 */",
        "int alu0 = (lidx0+(gidx0<<1));",
    ]


@pytest.mark.row("R4.6", "F4.4")
@pytest.mark.parametrize(
    ("renderer", "shared", "barrier"),
    [
        (CUDA, "__shared__ __align__(16) float temp0[4];", "__syncthreads();"),
        (
            METAL,
            "threadgroup __attribute__((aligned(16))) float temp0[4];",
            "threadgroup_barrier(mem_flags::mem_threadgroup);",
        ),
        (
            OPENCL,
            "__attribute__((aligned(16))) __local float temp0[4];",
            "barrier(CLK_LOCAL_MEM_FENCE);",
        ),
        (
            HIP,
            "__attribute__((shared, aligned(16))) float temp0[4];",
            '__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); __builtin_amdgcn_s_barrier(); '
            '__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");',
        ),
    ],
    ids=["cuda", "metal", "opencl", "hip"],
)
def test_lanes_meet_in_shared_memory(renderer: CStyleRenderer, shared: str, barrier: str) -> None:
    lines = body(renderer.render("r_4_4", programs.group_4()))
    assert [lines[0], *lines[3:]] == [
        shared,
        "float val0 = *(data1+lidx0+(gidx0<<2));",
        "*(temp0+lidx0) = val0;",
        barrier,
        "float acc0 = 0.0f;",
        "for (int ridx0 = 0; ridx0 < 4; ridx0++) {",
        "float val1 = *(temp0+ridx0);",
        "acc0 = (acc0+val1);",
        "}",
        "if (lidx0==0) {",
        "*(data0+gidx0) = acc0;",
        "}",
    ]


@pytest.mark.row("R4.7")
def test_group_reads_neighbours_together() -> None:
    assert "*(data1+lidx0+(gidx0<<2)+(ridx0<<1));" in CUDA.render(programs.group_2())
    assert "*(data1+(gidx0<<2)+(lidx0<<1)+ridx0);" in CUDA.render(programs.grouptop_2())


@pytest.mark.row("R9.1")
def test_folded_constant_once_per_lane() -> None:
    text = CUDA.render("E_4_4", programs.add_seven())
    assert text.count("7.0f") == 4
    assert "(val0.x+7.0f)" in text


@pytest.mark.row("M10.8")
def test_loop_over_every_value() -> None:
    assert body(CUDA.render(programs.every_value_of_a_variable())) == [
        "for (int ridx0 = 0; ridx0 < 11; ridx0++) {",
        "*(data0+ridx0) = ridx0;",
        "}",
    ]


def test_a_vector_of_three_is_not_read_through_a_pointer() -> None:
    """float3 is as long as float4 in memory on some of them."""
    for renderer in GPUS:
        text = renderer.render([load(data(1), const(0), lanes=3)])
        assert "float3*" not in text
        assert "*(data1+0),*(data1+0+1),*(data1+0+2)" in text


@pytest.mark.parametrize("renderer", [CUDA, HIP, CLANG], ids=lambda each: each.target.name)
def test_a_quotient_by_bits_opens_no_comment(renderer: CStyleRenderer) -> None:
    """`1.0f/*((float*)&val0)` would be the rest of the kernel."""
    out, zero, bits = data(0), const(0), load(data(1, INT), const(0))
    x = bits.bitcast(FLOAT)
    for value in (x.alu(Ops.RECIP), const(1.0, FLOAT).alu(Ops.FDIV, x)):
        program = [out, data(1, INT), zero, bits, x, value, out.store(zero, value)]
        assert body(renderer.render(program))[-1] == "*(data0+0) = (1.0f/ *((float*)&val0));"


@pytest.mark.parametrize("renderer", GPUS, ids=lambda each: each.target.name)
def test_a_store_that_no_atomic_does_is_a_load_and_a_store(renderer: CStyleRenderer) -> None:
    """Of lanes that verification has kept apart; the gate is asked before the load."""
    index = special("gidx0", 16)
    value, gate = load(data(1), index), index < 9
    store = data(0).store(index, value, gate, combine=Ops.MUL)
    lines = body(renderer.render([data(0), data(1), index, value, gate, store]))
    assert lines[-4:] == [
        "if (gidx0<9) {",
        "float old0 = *(data0+gidx0);",
        "*(data0+gidx0) = (old0*val0);",
        "}",
    ]


@pytest.mark.parametrize("renderer", GPUS, ids=lambda each: each.target.name)
def test_a_store_where_lanes_meet_needs_an_atomic(renderer: CStyleRenderer) -> None:
    store = data(0).store(const(0), const(1.0, FLOAT), combine=Ops.MUL)
    with pytest.raises(CompileError, match="cannot store by MUL of float32") as caught:
        renderer.render([data(0), special("lidx0", 4), store])
    assert caught.value.details["lanes"] == "all of lidx0 meet"


@pytest.mark.row("F4.4")
@pytest.mark.parametrize(
    ("renderer", "text"),
    [
        (CUDA, "atomicAdd((data0+gidx0), val0);"),
        (
            METAL,
            "atomic_fetch_add_explicit((device atomic_float*)(data0+gidx0), val0, "
            "memory_order_relaxed);",
        ),
        (OPENCL, "atomic_add_float((data0+gidx0), val0);"),
        (
            HIP,
            "__hip_atomic_fetch_add((data0+gidx0), val0, __ATOMIC_RELAXED, "
            "__HIP_MEMORY_SCOPE_AGENT);",
        ),
        (CLANG, "*(data0+gidx0) = (*(data0+gidx0)+val0);"),
    ],
    ids=["cuda", "metal", "opencl", "hip", "clang"],
)
def test_store_that_adds(renderer: CStyleRenderer, text: str) -> None:
    assert body(renderer.render(programs.scatter_add()))[-1] == text
