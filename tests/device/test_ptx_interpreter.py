"""The PTX interpreter of the tests: it computes what the manual says, and reports what a GPU would
not. Each program here is written by hand.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.device.ptx import matrix, numbers
from tests.device.ptx.machine import run
from tests.device.ptx.memory import GlobalMemory
from tests.device.ptx.parse import PTXError, parse

HEAD = """.version 7.0
.target sm_80
.address_size 64

.visible .entry k(
{parameters}
)
.maxntid {lanes}, 1, 1
{{
  .reg .pred %p<8>;
  .reg .b16 %h<8>;
  .reg .b32 %r<16>;
  .reg .b64 %rd<8>;
  .reg .f32 %f<16>;
  .reg .f64 %fd<8>;
{body}
  ret;
}}
"""


def execute(
    body: str, *arrays: Any, lanes: int = 1, blocks: int = 1, most: int | None = None
) -> None:
    """Run `body` as a kernel whose parameter i is the address of array i, in %rd0 and so on."""
    parameters = ",\n".join(f"  .param .u64 d{number}" for number in range(len(arrays)))
    loads = [f"ld.param.u64 %rd{number}, [d{number}];" for number in range(len(arrays))]
    lines = [*loads, "mov.u32 %r0, %tid.x;", *body.strip().splitlines()]
    text = HEAD.format(
        parameters=parameters, lanes=most or lanes, body="\n".join(f"  {line}" for line in lines)
    ).replace("  $", "$")
    memory = GlobalMemory()
    places = []
    for array in arrays:
        places.append(memory.allocate(array.nbytes))
        memory.window(places[-1], array.nbytes)[:] = array.view(np.uint8).ravel()
    run(parse(text)["k"], memory, places, (blocks, 1, 1), (lanes, 1, 1))
    for place, array in zip(places, arrays):
        array.view(np.uint8).ravel()[:] = memory.window(place, array.nbytes)


def computed(instruction: str, kind: str, result: str, *values: Any) -> Any:
    """The result of one instruction on numbers; {d}, {a}, {b}, {c} stand for registers."""
    register = {"f16": "h", "bf16": "h", "f32": "f", "f64": "fd"}
    wide = {**register, "u64": "rd", "s64": "rd"}
    prefix, out = (f"%{wide.get(each, 'r')}" for each in (kind, result))
    first = 4 if prefix == "%rd" else 1
    names = [f"{prefix}{first + number}" for number in range(len(values))]
    target = f"{out}7"
    given = np.array(values, numbers.TYPES[kind])
    found = np.zeros(1, numbers.TYPES[result])
    move = {"f16": "b16", "bf16": "b16"}
    lines = [
        f"ld.global.{move.get(kind, kind)} {name}, [%rd1+{number * given.itemsize}];"
        for number, name in enumerate(names)
    ]
    text = instruction.format(d=target, **dict(zip("abc", names)))
    execute(
        "\n".join([*lines, f"{text};", f"st.global.{move.get(result, result)} [%rd0], {target};"]),
        found,
        given,
    )
    return found[0]


# what it computes


def test_a_fused_product_and_sum_is_rounded_once() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(2000).astype(np.float32) for _ in range(2))
    c = (-a.astype(np.float64) * b).astype(np.float32)  # what is left is below the last digit
    found = numbers.fma(a, b, c, "f32")
    wanted = [
        float(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)))
        for x, y, z in zip(a, b, c)
    ]
    np.testing.assert_array_equal(found, np.array(wanted).astype(np.float32))


def test_a_sum_half_way_goes_where_the_rest_points() -> None:
    """1 + 2**-24 + 2**-60: float64 alone would lose the rest and round to even."""
    one, half = np.float32([1.0]), np.float32([2.0**-12])
    more = np.float32([1 + 2.0**-23])
    assert numbers.fma(half, half, one, "f32")[0] == 1.0
    assert numbers.fma(half * more, half, one, "f32")[0] == np.float32(1 + 2.0**-23)


@pytest.mark.parametrize(
    ("value", "wanted"), [(1e30, 2**31 - 1), (-1e30, -(2**31)), (np.nan, 0), (-1.9, -1), (2.9, 2)]
)
def test_a_float_becomes_the_nearest_integer_toward_zero(value: float, wanted: int) -> None:
    assert computed("cvt.rzi.s32.f32 {d}, {a}", "f32", "s32", value) == wanted


def test_nan_becomes_the_least_integer_where_the_manual_says_so() -> None:
    assert computed("cvt.rzi.s32.f64 {d}, {a}", "f64", "s32", np.nan) == -(2**31)
    assert computed("cvt.rzi.s64.f32 {d}, {a}", "f32", "s64", np.nan) == -(2**63)
    assert computed("cvt.rzi.u64.f64 {d}, {a}", "f64", "u64", np.nan) == 2**63


def test_an_integer_is_rounded_as_the_instruction_says() -> None:
    value = 2**24 + 3
    assert computed("cvt.rn.f32.s32 {d}, {a}", "s32", "f32", value) == 2**24 + 4
    assert computed("cvt.rz.f32.s32 {d}, {a}", "s32", "f32", value) == 2**24 + 2


@pytest.mark.parametrize(("value", "bits"), [(1 + 2.0**-8, 0x3F80), (1 + 3 * 2.0**-8, 0x3F82)])
def test_bfloat16_is_rounded_to_even(value: float, bits: int) -> None:
    assert computed("cvt.rn.bf16.f32 {d}, {a}", "f32", "bf16", value) == bits


@pytest.mark.parametrize("byte", [0x80, 0x96, 0xEA, 0xCA, 0x01, 0xFF])
def test_lop3_looks_up_each_bit(byte: int) -> None:
    a, b, c = 0xF0F0F0F0, 0xCCCCCCCC, 0xAAAAAAAA
    found = computed(f"lop3.b32 {{d}}, {{a}}, {{b}}, {{c}}, {byte:#x}", "u32", "u32", a, b, c)
    assert found == byte * 0x01010101


@pytest.mark.parametrize(
    ("instruction", "value", "wanted"),
    [
        ("shl.b32 {d}, {a}, 32", 5, 0),
        ("shr.u32 {d}, {a}, 40", 5, 0),
        ("shr.s32 {d}, {a}, 99", 0x80000000, 0xFFFFFFFF),
    ],
)
def test_a_shift_by_the_width_or_more_leaves_the_sign(
    instruction: str, value: int, wanted: int
) -> None:
    assert computed(instruction, "u32", "u32", value) == wanted


def test_the_maximum_drops_nan_unless_asked() -> None:
    assert computed("max.f32 {d}, {a}, {b}", "f32", "f32", np.nan, 3.0) == 3.0
    assert np.isnan(computed("max.NaN.f32 {d}, {a}, {b}", "f32", "f32", np.nan, 3.0))
    zero = computed("max.f32 {d}, {a}, {b}", "f32", "f32", -0.0, 0.0)
    assert not np.signbit(zero)


@pytest.mark.parametrize(("k", "kind"), [(8, "f16"), (16, "f16"), (16, "bf16")])
def test_the_tables_of_a_matrix_instruction_hold_each_element_once(k: int, kind: str) -> None:
    shape = matrix.shape_of(f"m16n8k{k}", kind, "f32")
    for operand, size in (("a", 16 * k), ("b", 8 * k), ("c", 128)):
        rows, columns = shape.rows(operand)
        assert len({*zip(rows.ravel().tolist(), columns.ravel().tolist())}) == size == rows.size


def test_lanes_that_took_different_branches_meet_again() -> None:
    out = np.zeros(8, np.uint32)
    execute(
        """mov.b32 %r1, 0;
$L0:
add.s32 %r1, %r1, 1;
setp.le.s32 %p0, %r1, %r0;
@%p0 bra $L0;
bar.sync 0;
mad.wide.u32 %rd1, %r0, 4, %rd0;
st.global.u32 [%rd1], %r1;""",
        out,
        lanes=8,
    )
    assert out.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


# what it reports

STORE = "mad.wide.u32 %rd1, %r0, 4, %rd0;\nst.global.u32 [%rd1{offset}], %r0;"


def test_an_access_outside_memory() -> None:
    out = np.zeros(8, np.uint32)
    execute(STORE.format(offset=""), out, lanes=8)
    assert out.tolist() == [*range(8)]
    with pytest.raises(PTXError, match="outside all memory"):
        execute(STORE.format(offset="+4"), out, lanes=8)
    with pytest.raises(PTXError, match="outside all memory"):
        execute(STORE.format(offset="+-4"), out, lanes=8)


def test_an_access_that_is_not_aligned() -> None:
    with pytest.raises(PTXError, match="no multiple of its 4 bytes"):
        execute(STORE.format(offset="+2"), np.zeros(16, np.uint32), lanes=8)
    with pytest.raises(PTXError, match="no multiple of its 8 bytes"):
        execute("st.global.v2.u32 [%rd0+4], {%r0, %r0};", np.zeros(16, np.uint32))


def test_lanes_that_store_different_values_at_one_address() -> None:
    with pytest.raises(PTXError, match="different values at one address"):
        execute("st.global.u32 [%rd0], %r0;", np.zeros(1, np.uint32), lanes=2)


EXCHANGE = """.shared .align 16 .b8 shared0[256];
mov.b32 %r1, shared0;
mad.lo.s32 %r2, %r0, 4, %r1;
st.shared.u32 [%r2], %r0;
{barrier}
xor.b32 %r3, %r0, 1;
mad.lo.s32 %r4, %r3, 4, %r1;
ld.shared.u32 %r5, [%r4];
mad.wide.u32 %rd1, %r0, 4, %rd0;
st.global.u32 [%rd1], %r5;"""


def test_a_missing_barrier() -> None:
    out = np.zeros(64, np.uint32)
    execute(EXCHANGE.format(barrier="bar.sync 0;"), out, lanes=64)
    assert out.tolist() == [each ^ 1 for each in range(64)]
    with pytest.raises(PTXError, match="another lane wrote since the last barrier"):
        execute(EXCHANGE.format(barrier=""), out, lanes=64)


def test_a_barrier_that_some_lanes_miss() -> None:
    with pytest.raises(PTXError, match="do not meet: 4 lanes"):
        execute(
            "setp.lt.u32 %p0, %r0, 4;\n@%p0 bra $L0;\nret;\n$L0:\nbar.sync 0;",
            np.zeros(1, np.uint32),
            lanes=8,
        )


def test_a_matrix_instruction_without_its_whole_warp() -> None:
    words = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {{{c}}}, {{{a}}}, {{{b}}}, {{{c}}};"
    text = words.format(c="%f0, %f1, %f2, %f3", a="%r1, %r2", b="%r3")
    zeros = "\n".join(
        [f"mov.f32 %f{i}, 0f00000000;" for i in range(4)]
        + [f"mov.b32 %r{i}, 0;" for i in range(1, 4)]
    )
    execute(f"{zeros}\n{text}", np.zeros(1, np.uint32), lanes=32)
    with pytest.raises(PTXError, match="whole warps"):
        execute(
            f"{zeros}\nsetp.lt.u32 %p0, %r0, 16;\n@%p0 {text}", np.zeros(1, np.uint32), lanes=32
        )
    with pytest.raises(PTXError, match="whole warps"):
        execute(f"{zeros}\n{text}", np.zeros(1, np.uint32), lanes=16)


def test_lanes_of_a_warp_exchange_values() -> None:
    """PTX ISA, shfl.sync: in mode bfly, a lane reads the lane whose number is its own ^ b."""
    out = np.zeros(64, np.uint32)
    body = """mul.lo.u32 %r1, %r0, 3;
    shfl.sync.bfly.b32 %r2, %r1, {mask}, 31, 0xffffffff;
    shl.b32 %r3, %r0, 2;
    cvt.u64.u32 %rd1, %r3;
    add.s64 %rd1, %rd0, %rd1;
    st.global.u32 [%rd1], %r2;"""
    for mask in (1, 8, 31):
        execute(body.format(mask=mask), out, lanes=64)
        assert out.tolist() == [3 * (lane ^ mask) for lane in range(64)]


def test_an_exchange_without_its_whole_warp() -> None:
    text = "shfl.sync.bfly.b32 %r2, %r0, 1, 31, 0xffffffff;"
    for gate, lanes in (("", 16), ("setp.lt.u32 %p0, %r0, 7;\n@%p0 ", 32)):
        with pytest.raises(PTXError, match="members of a shuffle"):
            execute(f"{gate}{text}", np.zeros(1, np.uint32), lanes=lanes)


def test_constant_loads_of_what_the_launch_writes() -> None:
    with pytest.raises(PTXError, match="the same launch writes"):
        execute("ld.global.nc.u32 %r1, [%rd0];\nst.global.u32 [%rd0], %r1;", np.zeros(1, np.uint32))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("add.rn.f32 %f1, %f2, 5;", "no number of f32"),
        ("add.f32 %f1, %f1, %f1;", "must say how it rounds"),
        ("add.s32 %r1, %f1, %r1;", "is a float"),
        ("add.s64 %rd1, %r1, %rd1;", "has 32 bits"),
        ("add.s32 %r99, %r1, %r1;", "not declared"),
        ("add.s32 %r1, %r9, %r1;", "read before it is set"),
        ("selp.b32 %r1, 1, 0, %r2;", "is a b32, not pred"),
        ("cvt.f32.s32 %f1, %r1;", "cvt says how it rounds"),
        ("cvt.rn.bf16.s32 %h1, %r1;", "no cvt.bf16.s32 on sm_80"),
        ("frobnicate.b32 %r1, %r2;", "unknown instruction"),
        ("ld.global.v4.f64 {%fd0, %fd1, %fd2, %fd3}, [%rd0];", "a vector of 4 f64"),
        ("ld.global.f32 %f1, [%r1];", "the address %r1 is a b32"),
        ("mov.b32 %r1, 1", "no semicolon"),
    ],
)
def test_a_line_that_breaks_a_rule(line: str, message: str) -> None:
    with pytest.raises(PTXError, match=message):
        execute(f"mov.b32 %r1, 0;\n{line}", np.zeros(8, np.uint32))


def test_a_block_with_more_lanes_than_declared() -> None:
    with pytest.raises(PTXError, match="maxntid is 4"):
        execute("", np.zeros(1, np.uint32), lanes=8, most=4)
