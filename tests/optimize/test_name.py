"""Names of kernels, and the colours of their axes."""

from __future__ import annotations

import re

import pytest

from tests.optimize.kernels import (
    CUDA,
    FLOAT,
    HALF,
    INT,
    METAL,
    buffer,
    conv2d,
    half_matmul,
    kernel,
    matmul,
    name,
    opt,
    permute,
    reduce,
    shaped,
)
from tilegrad.base.dtype import dtypes
from tilegrad.ir.args import KernelInfo
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp, Variable
from tilegrad.optimize.analysis.name import kernel_name
from tilegrad.optimize.opts.opt import Opt, OptOps
from tilegrad.render.names import function_name
from tilegrad.target import Target

BLUE, BRIGHT, CYAN, GREEN, RED, WHITE, YELLOW, MAGENTA = 34, 94, 36, 32, 31, 37, 33, 35
ROW_SUM = kernel(reduce(Ops.ADD, buffer(0, 8, 16), 1))


def colours(ast: UOp) -> list[tuple[int, str]]:
    """(colour, extent) of each axis of the coloured name, which is the plain one in colours."""
    plain, coloured = kernel_name(ast)
    assert re.sub(r"\x1b\[\d*m", "", coloured) == plain
    parts = re.findall(r"\x1b\[(\d+)m(.*?)\x1b\[0m", coloured)
    assert [text for _, text in parts] == plain.split("_")[1:]
    return [(int(code), text) for code, text in parts]


@pytest.mark.row("M11.1")
def test_the_letter_says_what_a_kernel_does() -> None:
    x = buffer(0, 4, 4)
    assert name(kernel(reduce(Ops.ADD, x, 1))) == "r_4_4"
    assert name(kernel(x + 1.0)) == "E_16"
    turned = UOp(Ops.CONTIGUOUS, FLOAT, (permute(x, 1, 0),))
    assert name(kernel(turned)) == "C_4_4"


@pytest.mark.row("M11.1")
def test_a_number_of_outputs_follows_the_letter() -> None:
    loop = UOp.range(4, 0, Axis.LOOP)
    outputs = [UOp(Ops.DEFINE_GLOBAL, FLOAT.ptr(4), (), slot) for slot in (0, 1)]
    source = UOp(Ops.DEFINE_GLOBAL, FLOAT.ptr(4), (), 2)
    stores = [pointer.store(loop, source.load(loop) + 1.0) for pointer in outputs]
    assert kernel_name(UOp.sink(*stores, arg=KernelInfo("E", (0,))))[0] == "E2_4"


@pytest.mark.row("M8.1")
def test_a_kernel_without_axes() -> None:
    assert name(kernel(buffer(0, 1, dtype=INT) + buffer(1, 1, dtype=INT))) == "E_"


@pytest.mark.row("R3.4")
def test_a_collapsed_fold_stays_in_the_name() -> None:
    loop = UOp.range(15, 0, Axis.LOOP)
    store = UOp(Ops.DEFINE_GLOBAL, INT.ptr(15), (), 0).store(loop, loop.cast(INT))
    ast = UOp.sink(store, arg=KernelInfo("r:15", (0,)))
    assert colours(shaped(ast)) == [(BRIGHT, "15"), (RED, "15")]
    assert name(ast, [opt(OptOps.UPCAST, 0, 5)]) == "r_3_15_5"


@pytest.mark.row("M11.6")
def test_a_symbolic_extent_is_a_variable_or_the_values_it_may_have() -> None:
    """No expression stands in a name: it would be long, and no identifier."""
    size = Variable("dim", 1, 4)
    loop = UOp.range(size, 0, Axis.LOOP)
    store = UOp(Ops.DEFINE_GLOBAL, FLOAT.ptr(16), (), 0).store(loop, UOp.const(FLOAT, 1.0))
    ast = UOp.sink(store, arg=KernelInfo("E", (0,)))
    assert kernel_name(ast)[0] == "E_dim"
    wider = ast.substitute({loop: UOp.range(size * 2 + 1, 0, Axis.LOOP)})
    plain = kernel_name(wider)[0]
    assert plain == "E_3to9"
    assert function_name(plain) == plain


@pytest.mark.row("M11.2")
@pytest.mark.parametrize(
    ("opts", "wanted"),
    [
        ([], [(BRIGHT, "8"), (RED, "16")]),
        ([opt(OptOps.LOCAL, 0, 4)], [(BLUE, "2"), (CYAN, "4"), (RED, "16")]),
        ([opt(OptOps.GROUP, 0, 4)], [(BLUE, "8"), (GREEN, "4"), (RED, "4")]),
        ([opt(OptOps.UPCAST, 0, 4)], [(BRIGHT, "2"), (RED, "16"), (YELLOW, "4")]),
        ([opt(OptOps.UNROLL, 0, 4)], [(BRIGHT, "8"), (RED, "4"), (MAGENTA, "4")]),
        (
            [opt(OptOps.GROUP, 0, 8), opt(OptOps.UNROLL, 0, 4)],
            [(BLUE, "8"), (GREEN, "2"), (RED, "2"), (WHITE, "4")],
        ),
    ],
)
def test_a_colour_for_each_kind_of_axis(opts: list[Opt], wanted: list[tuple[int, str]]) -> None:
    assert colours(shaped(ROW_SUM, opts)) == wanted


@pytest.mark.row("M11.2")
def test_loops_and_chunks_of_a_processor_count_as_a_grid() -> None:
    target = Target("cpu", vector_bytes=32, threads=2)
    ast = shaped(kernel(buffer(0, 8, 8) + 1.0), [opt(OptOps.THREAD, 0, 4)], target)
    assert colours(ast) == [(BRIGHT, "4"), (BRIGHT, "16")]


@pytest.mark.row("M11.3")
def test_a_small_matmul_is_one_block() -> None:
    ast = kernel(matmul(buffer(0, 4, 4), buffer(1, 4, 4)))
    for target in (CUDA, METAL):
        assert colours(shaped(ast, None, target)) == [(CYAN, "4"), (CYAN, "4"), (MAGENTA, "4")]


@pytest.mark.row("M9.9")
def test_lanes_of_a_matrix_unit_stand_nearest_the_fold() -> None:
    ast = kernel(half_matmul(64, 32, 64))
    found = colours(shaped(ast, [opt(OptOps.TC, 0, (0, 1)), opt(OptOps.UPCAST, 0, 2)]))
    assert found == [
        (BLUE, "2"),
        (BLUE, "8"),
        *[(CYAN, "2")] * 5,
        (RED, "2"),
        (MAGENTA, "16"),
        (YELLOW, "4"),
        (YELLOW, "2"),
    ]


@pytest.mark.row("M11.4")
def test_a_convolution_without_and_with_opts() -> None:
    ast = kernel(conv2d(buffer(0, 1, 12, 128, 256), buffer(1, 32, 12, 3, 3), stride=2, padding=1))
    plain = shaped(ast)
    assert kernel_name(plain)[0] == "r_32_64_128_12_3_3"
    assert [code for code, _ in colours(plain)] == [BRIGHT] * 3 + [RED] * 3
    parts = colours(shaped(ast, None))
    extents = {code: 1 for code, _ in parts}
    for code, extent in parts:
        extents[code] *= int(extent)
    assert extents[RED] * extents[MAGENTA] == 12 * 3 * 3
    assert extents[BLUE] * extents[CYAN] * extents[YELLOW] == 262_144
    assert [part for part in parts if part[0] in (RED, MAGENTA, YELLOW)] == [
        (RED, "12"),
        (YELLOW, "4"),
        (YELLOW, "4"),
        (MAGENTA, "3"),
        (MAGENTA, "3"),
    ]


@pytest.mark.row("M9.7")
def test_a_cast_moves_four_elements_per_lane() -> None:
    assert name(kernel(buffer(0, 32, 32).cast(HALF)), None) == "E_8_32_4"


def test_dtypes_do_not_show() -> None:
    assert name(kernel(buffer(0, 4, dtype=dtypes.int) + 1)) == "E_4"
