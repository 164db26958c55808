"""The text of PTX kernels, from ordinary tensors and from programs by hand."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.device.programs import FLOAT, INT, Program
from tests.device.ptx.kernels import kernel_texts
from tests.device.ptx.machine import run
from tests.device.ptx.memory import GlobalMemory
from tests.device.ptx.parse import parse
from tilegrad import Context, Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import CompileError, DeviceError
from tilegrad.base.trace import recording
from tilegrad.device.nv import nv_target
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.render.ptx import PTXRenderer
from tilegrad.render.ptx_code import ptx_version
from tilegrad.render.ptx_logic import table
from tilegrad.runtime.protocol import launch_dims


def texts(make: Callable[[], Tensor]) -> list[str]:
    tensor = make()
    arch = str(tensor.device).rpartition(":")[2].lower()
    return kernel_texts(tensor, arch)


def text(make: Callable[[], Tensor]) -> str:
    (found,) = texts(make)
    return found


def empty(*shape: int, dtype: str = "float", arch: str = "sm_80") -> Tensor:
    return Tensor.empty(*shape, dtype=dtype, device=f"NULL:NV:{arch}").realize()


def rendered(program: Program, arch: str = "sm_80") -> str:
    return PTXRenderer(nv_target(arch)).render("r", [*program.nodes, UOp(Ops.SINK)])


def body(source: str) -> list[str]:
    return [line.strip(" ;") for line in source.splitlines() if line.startswith("  ")]


# what a module is


@pytest.mark.row("M9.10", "P.6")
def test_a_tensor_on_a_device_that_is_not_here_becomes_ptx() -> None:
    x = empty(64)
    assert text(lambda: x * 2 + 1).split("\n", 1)[1] == (
        ".version 7.0\n"
        ".target sm_80\n"
        ".address_size 64\n"
        "\n"
        ".visible .entry E_16_4(\n"
        "  .param .u64 E_16_4_data0,\n"
        "  .param .u64 E_16_4_data1\n"
        ")\n"
        ".maxntid 16, 1, 1\n"
        "{\n"
        "  .reg .b32 %r<2>;\n"
        "  .reg .b64 %rd<4>;\n"
        "  .reg .f32 %f<12>;\n"
        "  ld.param.u64 %rd0, [E_16_4_data0];\n"
        "  cvta.to.global.u64 %rd0, %rd0;\n"
        "  ld.param.u64 %rd1, [E_16_4_data1];\n"
        "  cvta.to.global.u64 %rd1, %rd1;\n"
        "  mov.u32 %r0, %tid.x;\n"
        "  shl.b32 %r1, %r0, 2;\n"
        "  mad.wide.s32 %rd2, %r1, 4, %rd1;\n"
        "  ld.global.nc.v4.f32 {%f0, %f1, %f2, %f3}, [%rd2];\n"
        "  mul.rn.f32 %f4, %f0, 0f40000000;\n"
        "  add.rn.f32 %f5, %f4, 0f3F800000;\n"
        "  mul.rn.f32 %f6, %f1, 0f40000000;\n"
        "  add.rn.f32 %f7, %f6, 0f3F800000;\n"
        "  mul.rn.f32 %f8, %f2, 0f40000000;\n"
        "  add.rn.f32 %f9, %f8, 0f3F800000;\n"
        "  mul.rn.f32 %f10, %f3, 0f40000000;\n"
        "  add.rn.f32 %f11, %f10, 0f3F800000;\n"
        "  mad.wide.s32 %rd3, %r1, 4, %rd0;\n"
        "  st.global.v4.f32 [%rd3], {%f5, %f7, %f9, %f11};\n"
        "  ret;\n"
        "}\n"
    )


@pytest.mark.parametrize(
    ("arch", "version"),
    [("sm_75", "7.0"), ("sm_80", "7.0"), ("sm_89", "7.8"), ("sm_90a", "8.0"), ("sm_120", "8.7")],
)
def test_the_architecture_follows_the_name(arch: str, version: str) -> None:
    x = empty(8, arch=arch)
    source = text(lambda: x + 1)
    assert f".version {version}\n.target {arch}\n" in source


@pytest.mark.parametrize("arch", ["sm_70", "sm_50", "sm_99", "fast"])
def test_an_architecture_that_is_too_old_or_unknown_is_refused(arch: str) -> None:
    with pytest.raises(DeviceError, match=f"nv: .*{arch}"):
        empty(8, arch=arch)


def test_an_architecture_without_a_known_version_of_ptx_is_refused() -> None:
    with pytest.raises(CompileError, match="no PTX for sm_72"):
        ptx_version(72)


# memory


def test_a_gate_is_a_predicate_and_no_branch() -> None:
    x = empty(30)
    source = text(lambda: x.pad(((1, 1),)) + 1)
    assert "bra" not in source
    gated = [line for line in body(source) if "ld.global" in line]
    assert gated and all(line.startswith("@%p") for line in gated)


def test_a_store_with_a_gate_is_a_predicated_one() -> None:
    program = Program()
    out = program.data(0, 4)
    place = program.special("lidx0", 8)
    gate = program.add(Ops.CMPLT, dtypes.bool, place, program.const(4))
    program.add(Ops.STORE, dtypes.void, out, place, program.const(1.0, FLOAT), gate)
    (store,) = (line for line in body(rendered(program)) if "st.global" in line)
    assert store.startswith("@%p0 st.global.f32 [")


def test_an_address_that_a_loop_made_is_made_again_after_it() -> None:
    """The loop may have had no turn, and the register no value."""
    program = Program()
    out, source = program.data(0, 8), program.data(1, 16)
    place = program.special("lidx0", 8)
    count = program.add(Ops.DEFINE_VAR, INT, arg=("count", 0, 9))
    total = program.add(Ops.DEFINE_ACC, FLOAT, program.const(0.0, FLOAT), arg=0)
    loop = program.loop(count)
    inside = program.add(Ops.LOAD, FLOAT, source, place)
    done = program.add(Ops.ASSIGN, FLOAT, total, program.add(Ops.ADD, FLOAT, total, inside))
    program.end(loop)
    after = program.add(Ops.AFTER, FLOAT, total, done)
    next_place = program.add(Ops.ADD, INT, place, program.const(8))
    outside = program.add(Ops.LOAD, FLOAT, source, next_place)
    both = program.add(Ops.ADD, FLOAT, after, outside)
    program.add(Ops.STORE, dtypes.void, out, place, both)
    lines = body(rendered(program))
    loads = [re.findall(r"\[(%rd\d+)", line)[0] for line in lines if "ld.global" in line]
    assert len(loads) == len({*loads}) == 2


@pytest.mark.usefixtures("by_nodes")
def test_memory_that_is_written_is_not_read_through_the_constant_cache() -> None:
    x = empty(64)

    def add() -> Tensor:
        return x.assign(x + 1)

    source = text(add)
    assert "ld.global.v4.f32" in source and ".nc" not in source
    y = empty(64)
    assert "ld.global.nc" in text(lambda: y + 1)


@pytest.mark.parametrize(
    ("dtype", "access"),
    [
        ("float", "v4.f32"),
        ("double", "v2.f64"),
        ("half", "v4.b16"),
        ("bfloat16", "v4.b16"),
        ("int8", "v4.s8"),
        ("uint16", "v4.u16"),
        ("int64", "v2.s64"),
    ],
)
def test_neighbours_are_loaded_at_once_up_to_16_bytes(dtype: str, access: str) -> None:
    x = empty(256, dtype=dtype)
    source = text(lambda: x + x.flip(0))
    assert f"st.global.{access}" in source
    assert f"ld.global.nc.{access}" in source


def test_an_address_holds_what_indices_differ_by() -> None:
    x = empty(32, 16)
    source = text(lambda: x[:, 3:4] + x[:, 5:6] + x[:, 11:12])
    loads = re.findall(r"ld\.global\.nc\.f32 %f\d+, \[(%rd\d+)(\+\d+)\]", source)
    assert len({register for register, _ in loads}) == 1
    assert {offset for _, offset in loads} == {"+12", "+20", "+44"}


def test_a_block_meets_in_shared_memory() -> None:
    x = empty(64, 4096)
    source = "\n".join(texts(lambda: x.sum(1)))
    assert ".shared .align 16 .b8" in source
    at = [line.split()[0] for line in body(source)]
    # One lane of each warp stores what its lanes have exchanged.
    last = max(place for place, name in enumerate(at) if name == "shfl.sync.bfly.b32")
    stores = [place for place, line in enumerate(body(source)) if "st.shared.f32" in line]
    (store,), barrier = stores, at.index("bar.sync")
    assert body(source)[store].startswith("@")
    assert (
        last < store < barrier < max(place for place, name in enumerate(at) if "ld.shared" in name)
    )


# loops


def test_a_loop_is_a_label_and_a_branch_back() -> None:
    x = empty(3, 1000)
    source = "\n".join(texts(lambda: x.cumsum(1)))
    labels = re.findall(r"^(\$L\d+):$", source, re.M)
    assert labels
    for label in labels:
        assert (
            source.index(f"{label}:") < source.index(f"bra {label};") or f"bra {label};" in source
        )


def test_a_loop_that_may_have_no_turn_is_skipped() -> None:
    program = Program()
    out = program.data(0, 1, INT)
    count = program.add(Ops.DEFINE_VAR, INT, arg=("count", 0, 9))
    total = program.add(Ops.DEFINE_ACC, INT, program.const(0), arg=0)
    loop = program.loop(count)
    step = program.add(Ops.ADD, INT, total, loop)
    done = program.add(Ops.ASSIGN, INT, total, step)
    program.end(loop)
    after = program.add(Ops.AFTER, INT, total, done)
    program.add(Ops.STORE, dtypes.void, out, program.const(0), after)
    lines = body(rendered(program))
    guard = next(line for line in lines if "setp.ge" in line)
    assert lines[lines.index(guard) + 1].startswith("@%p0 bra")
    assert "ld.param.s32 %r0, [r_var0]" in lines


def test_an_accumulator_that_changes_before_its_old_value_is_used_is_copied() -> None:
    program = Program()
    out = program.data(0, 1)
    total = program.add(Ops.DEFINE_ACC, FLOAT, program.const(0.0, FLOAT), arg=0)
    loop = program.loop(4)
    old = program.add(Ops.AFTER, FLOAT, total, loop)
    more = program.add(Ops.ADD, FLOAT, total, program.const(1.0, FLOAT))
    done = program.add(Ops.ASSIGN, FLOAT, total, more)
    both = program.add(Ops.MUL, FLOAT, old, program.add(Ops.AFTER, FLOAT, total, done))
    program.add(Ops.STORE, dtypes.void, out, program.const(0), both)
    program.end(loop)
    lines = body(rendered(program))
    assert "mov.f32 %f1, %f0" in lines  # the old value
    assert any(re.fullmatch(r"mul.rn.f32 %f\d+, %f1, %f0", line) for line in lines)


# arithmetic


def test_every_float_instruction_says_how_it_rounds() -> None:
    """Else ptxas joins a product and a sum."""
    x = empty(64, 64)
    for source in texts(lambda: ((x * 3 + x).sqrt() / (x + 2)).softmax(1)):
        for line in body(source):
            assert not re.match(r"(add|sub|mul|div|sqrt|rcp|fma)\.f", line), line


def test_a_maximum_of_a_reduction_may_be_either_zero() -> None:
    """There it is one instruction; elsewhere it is the first of equal ones, and 0.0 equals -0.0."""
    rows = text(lambda: empty(4096, 256).max(1))
    assert "max.NaN.f32" in rows and "setp.gt" not in rows
    pairs = text(lambda: empty(64).maximum(empty(64)))
    assert "max.NaN.f32" not in pairs and "setp.gt" in pairs
    # What is compared with zero after a reduction, and what a number other than zero limits.
    clipped = text(lambda: empty(4096, 256).max(1).maximum(empty(4096)))
    assert "setp.gt" in clipped
    assert "setp.gt" not in text(lambda: empty(64).maximum(2.0))


@pytest.mark.row("M7.6")
@pytest.mark.parametrize(
    ("arch", "instruction"), [("sm_80", "add.rn.f32"), ("sm_90", "add.rn.bf16")]
)
def test_bfloat16_is_added_natively_where_it_can_be(arch: str, instruction: str) -> None:
    x = empty(64, dtype="bfloat16", arch=arch)
    source = text(lambda: x + x.flip(0))
    assert instruction in source
    assert ("cvt.rn.bf16.f32" in source) == (arch == "sm_80")


@pytest.mark.row("M7.6")
def test_bfloat16_is_its_bits_before_there_are_conversions() -> None:
    x = empty(64, dtype="bfloat16", arch="sm_75")
    assert "bf16" not in text(lambda: x + x.flip(0)).split("{", 1)[1]


def test_a_division_by_what_may_be_zero_chooses() -> None:
    x = empty(64, dtype="int")
    source = text(lambda: x // x.flip(0))
    assert "setp.eq.s32" in source and "div.s32" in source


@pytest.mark.parametrize(
    ("op", "wanted"),
    [(Ops.IDIV, [-(2**31), 0, 0, -3, -7]), (Ops.MOD, [0, 7, -7, -1, 0])],
)
def test_the_quotient_of_a_program_by_hand_has_no_traps(op: Ops, wanted: list[int]) -> None:
    """On the interpreter, which gives what PTX leaves open a value that shows."""
    left, right = [-(2**31), 7, -7, -7, 7], [-1, 0, 0, 2, -1]
    program = Program()
    out, a, b = (program.data(slot, 5, INT) for slot in range(3))
    place = program.special("lidx0", 5)
    values = [program.add(Ops.LOAD, INT, memory, place) for memory in (a, b)]
    program.add(Ops.STORE, dtypes.void, out, place, program.add(op, INT, *values))
    memory = GlobalMemory()
    places = [memory.allocate(20) for _ in range(3)]
    for start, numbers in zip(places[1:], (left, right)):
        memory.window(start, 20)[:] = np.array(numbers, np.int32).view(np.uint8)
    run(parse(rendered(program))["r"], memory, places, (1, 1, 1), (5, 1, 1))
    assert memory.window(places[0], 20).view(np.int32).tolist() == wanted


# LOP3

A, B, C = (UOp(Ops.DEFINE_VAR, INT, (), (name, -(2**31), 2**31 - 1)) for name in "abc")
_NAMED: list[tuple[Any, int]] = [
    (A & B & C, 0x80),
    (A | B | C, 0xFE),
    (A ^ B ^ C, 0x96),
    (A & B, 0xC0),
    ((A & B) | C, 0xEA),
    ((A | B) & C, 0xA8),
    ((A & B) | (A & C) | (B & C), 0xE8),
    ((A & B) | ((A ^ -1) & C), 0xCA),
    (A ^ (B & C), 0x78),
    ((A ^ -1) & (B ^ -1) & (C ^ -1), 0x01),
]


@pytest.mark.row("R11.1")
@pytest.mark.parametrize(("node", "byte"), _NAMED, ids=[f"{byte:#04x}" for _, byte in _NAMED])
def test_the_byte_of_a_tree_is_its_table(node: UOp, byte: int) -> None:
    assert table(node, (A, B, C)) == byte


@pytest.mark.row("R11.1")
def test_all_256_tables_come_out() -> None:
    """Each as a sum of its rows: the byte that is built is the byte that is found."""
    for byte in range(256):
        node: Any = UOp(Ops.CONST, INT, (), 0)
        for row in range(8):
            if byte >> row & 1:
                parts = [
                    each
                    if row >> place & 1
                    else UOp(Ops.XOR, INT, (each, UOp(Ops.CONST, INT, (), -1)))
                    for each, place in ((A, 2), (B, 1), (C, 0))
                ]
                product = UOp(Ops.AND, INT, (UOp(Ops.AND, INT, (parts[0], parts[1])), parts[2]))
                node = UOp(Ops.OR, INT, (node, product))
        assert table(node, (A, B, C)) == byte


@pytest.mark.row("R11.2")
@pytest.mark.parametrize(
    ("combine", "byte"),
    [
        (lambda a, b, c: (a & b) | c, "0xEA"),
        (lambda a, b, c: a ^ b ^ c, "0x96"),
        (lambda a, b, c: (a & b) ^ (~a & c), "0xCA"),
    ],
    ids=["and-or", "parity", "choice"],
)
def test_a_tree_of_bitwise_ops_is_one_lop3(
    combine: Callable[[Tensor, Tensor, Tensor], Tensor], byte: str
) -> None:
    a, b, c = (empty(64, dtype="uint") for _ in range(3))
    lines = body(text(lambda: combine(a, b, c)))
    names = [line.split()[0] for line in lines]
    assert names.count("lop3.b32") == 4  # a vector of four
    assert not {"and.b32", "or.b32", "xor.b32", "not.b32"} & {*names}
    assert all(table_of(line) == byte for line in lines if line.startswith("lop3"))


def table_of(line: str) -> str:
    """The byte, in the order of operands a, b, c as the kernel's parameters have them."""
    return line.split(", ")[-1]


def test_one_op_and_words_of_64_bits_stay_as_they_are() -> None:
    a, b = empty(64, dtype="int"), empty(64, dtype="int")
    assert "lop3" not in text(lambda: a & b)
    c, d = empty(64, dtype="int64"), empty(64, dtype="int64")
    assert "lop3" not in text(lambda: (c & d) | (c ^ d))


# matrix units


@pytest.mark.parametrize(
    ("arch", "dtype", "shape"),
    [
        ("sm_75", "half", "m16n8k8.row.col.f32.f16.f16.f32"),
        ("sm_80", "half", "m16n8k16.row.col.f32.f16.f16.f32"),
        ("sm_80", "bfloat16", "m16n8k16.row.col.f32.bf16.bf16.f32"),
    ],
)
def test_a_product_in_half_precision_is_done_by_the_matrix_unit(
    arch: str, dtype: str, shape: str
) -> None:
    a, b = (empty(64, 64, dtype=dtype, arch=arch) for _ in range(2))
    assert f"mma.sync.aligned.{shape}" in text(lambda: a @ b)


def test_no_matrix_unit_for_float32() -> None:
    a, b = empty(64, 64), empty(64, 64)
    source = text(lambda: a @ b)
    assert "mma" not in source and "fma.rn.f32" in source


# limits


def test_a_position_that_a_launch_has_not_is_refused() -> None:
    program = Program()
    out = program.data(0, 4)
    place = program.special("chunk", 4)
    program.add(Ops.STORE, dtypes.void, out, place, program.const(1.0, FLOAT))
    with pytest.raises(CompileError, match="no position 'chunk'"):
        rendered(program)


def test_an_op_without_an_instruction_is_named() -> None:
    program = Program()
    out, source = program.data(0, 1), program.data(1, 1)
    zero = program.const(0)
    value = program.add(Ops.LOAD, FLOAT, source, zero)
    program.add(Ops.STORE, dtypes.void, out, zero, program.add(Ops.SIN, FLOAT, value))
    with pytest.raises(CompileError, match="NV has no SIN of float32"):
        rendered(program)


def test_the_lanes_of_a_block_are_declared() -> None:
    x = empty(100, 100)
    with Context(DISABLE_COMPILER_CACHE=1), recording() as record:
        (x.T + x).contiguous().realize()
    program = next(each.after for each in record if each.name == "lower.levels")
    source = next(str(each.after) for each in record if each.name == "render")
    x_lanes, y_lanes, z_lanes = launch_dims(program).local_size
    assert f".maxntid {x_lanes * y_lanes * z_lanes}, 1, 1\n" in source
