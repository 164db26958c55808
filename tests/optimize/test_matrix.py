"""TC: products on matrix units, in text and, on the emulator, in values."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.optimize.kernels import (
    CUDA,
    FLOAT,
    HALF,
    METAL,
    buffer,
    conv2d,
    good_opts,
    half_matmul,
    kernel,
    matmul,
    name,
    opt,
    permute,
    program,
    run,
    schedule,
    shaped,
    text,
)
from tilegrad.base.config import Context
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import InternalError, OptError
from tilegrad.hardware import cuda_target
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp
from tilegrad.optimize.opts.matrix import find_products
from tilegrad.optimize.opts.opt import Opt, OptOps, axes_of
from tilegrad.runtime.protocol import launch_dims
from tilegrad.target import MatrixUnit, Target

MMA = CUDA.matrix_units[0]
TC, UPCAST, UNROLL, LOCAL, PADTO = (
    OptOps.TC,
    OptOps.UPCAST,
    OptOps.UNROLL,
    OptOps.LOCAL,
    OptOps.PADTO,
)


def halves(*shape: int, seed: int = 0) -> Any:
    """Small integers, whose products and sums are exact in half and float."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float16)


def check(
    value: UOp, wanted: Any, inputs: dict[int, Any], opts: list[Opt] | None, target: Target = CUDA
) -> None:
    found = run(value, inputs, opts, target)
    assert np.array_equal(found.astype(np.float64), np.ravel(wanted).astype(np.float64))


def unit_calls(ast: UOp, opts: list[Opt], target: Target = CUDA) -> list[UOp]:
    return [node for node in program(ast, opts, target) if node.op is Ops.WMMA]


# the note's kernels


@pytest.mark.row("M9.1")
def test_without_opts_a_half_matmul_is_plain() -> None:
    value = half_matmul(16, 16, 16)
    assert name(kernel(value)) == "r_16_16_16"
    source = text(kernel(value))
    assert "float acc0 = 0.0f;" in source
    assert "acc0 = (acc0+(float)((val0*val1)));" in source
    assert re.search(r"= \(half\)\(acc0\);", source)
    assert name(kernel(buffer(0, 16, 16).cast(HALF))) == "E_256"
    a, b = np.random.default_rng(0).standard_normal((2, 16, 16)).astype(np.float16)
    found = run(value, {0: a, 1: b}, ()).reshape(16, 16)
    assert np.allclose(found, a.astype(np.float64) @ b.astype(np.float64), atol=1e-2)


@pytest.mark.row("M9.2")
def test_the_shape_alone() -> None:
    ast = kernel(half_matmul(16, 16, 16))
    with Context(TC=2):
        opts = good_opts(ast)
    assert opts == [opt(TC, 0, (0, 2)), opt(UPCAST, 0, 2)]
    assert name(ast, opts) == "r_2_2_2_2_2_16_4_2"
    found = program(ast, opts)
    assert launch_dims(found).local_size == (2, 2, 8)
    assert launch_dims(found).global_size == (1, 1, 1)
    source = text(ast, opts)
    assert "__launch_bounds__(32)" in source
    assert "WMMA" not in source and "for" not in source
    # 32 lanes with 8 results each write the 256 outputs once: the emulator refuses two writers.
    assert sum(node.src[2].dtype.lanes for node in found if node.op is Ops.STORE) == 8
    a, b = halves(16, 16), halves(16, 16, seed=1)
    check(half_matmul(16, 16, 16), a @ b, {0: a, 1: b}, opts)


@pytest.mark.row("M9.3")
def test_several_products_per_step() -> None:
    ast = kernel(half_matmul(32, 32, 32))
    with Context(TC=1):
        opts = good_opts(ast)
    assert opts == [opt(TC, 0, (0, 1)), opt(UPCAST, 0, 2), opt(UPCAST, 0, 4)]
    assert name(ast, opts) == "r_2_2_2_2_2_2_16_4_2_4"
    source = text(ast, opts)
    assert "__launch_bounds__(32)" in source
    assert "for (int ridx0 = 0; ridx0 < 2; ridx0++)" in source
    assert source.count(" = __WMMA_8_16_16_half_float(") == 8
    gathered = [node for node in program(ast, opts) if node.op is Ops.DEFINE_ACC]
    assert sum(node.dtype.lanes for node in gathered) == 32
    # Two tiles of a and four of b serve eight products.
    units = unit_calls(ast, opts)
    assert [len({node.src[place] for node in units}) for place in (0, 1)] == [2, 4]
    a, b = halves(32, 32), halves(32, 32, seed=1)
    check(half_matmul(32, 32, 32), a @ b, {0: a, 1: b}, opts)


@pytest.mark.row("M9.3")
def test_both_modes_have_one_shape() -> None:
    ast = kernel(half_matmul(32, 32, 32))
    moves = [opt(UPCAST, 0, 2), opt(UPCAST, 0, 4)]
    names = [name(ast, [opt(TC, 0, (0, mode)), *moves]) for mode in (1, 2)]
    assert names[0] == names[1]


@pytest.mark.row("M9.4", "M9.6")
def test_the_helper_stands_once_and_types_only_where_used() -> None:
    ast = kernel(half_matmul(32, 32, 32))
    source = text(ast, [opt(TC, 0, (0, 1)), opt(UPCAST, 0, 2)])
    head = "__device__ inline float4 __WMMA_8_16_16_half_float(half8 a, half4 b, float4 c) {"
    assert source.count(head) == 1
    assert source.count("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32") == 1
    assert "make_half8" in source and "make_half4" in source
    assert source.count("#include <cuda_fp16.h>") == 1
    plain = text(ast)
    assert "half8" not in plain and "half4" not in plain
    assert "cuda_fp16" not in text(kernel(buffer(0, 16) + 1.0))


@pytest.mark.row("M9.5")
def test_the_layout_is_that_of_the_instruction() -> None:
    """Lane = x + 2*y + 4*z holds what PTX says of it."""
    for lane in range(32):
        g, t = divmod(lane, 4)
        rows = [(g, 2 * t), (g, 2 * t + 1), (g + 8, 2 * t), (g + 8, 2 * t + 1)]
        assert MMA.a_layout[lane] == (*rows, *((row, column + 8) for row, column in rows))
        assert MMA.b_layout[lane] == tuple((2 * t + k, g) for k in (0, 1, 8, 9))
        assert MMA.c_layout[lane] == tuple(rows)


@pytest.mark.row("M9.5")
def test_a_kernel_loads_what_the_layout_says() -> None:
    """Each lane's loads, by its position in the launch, read the elements of its table, where
    neighbours exchange nothing.
    """
    target = replace(CUDA, shuffle_lanes=0)
    ast = kernel(half_matmul(16, 16, 8), target=target)
    found = program(ast, [opt(TC, 0, (0, 1))], target)
    (unit,) = (node for node in found if node.op is Ops.WMMA)
    for lane in range(32):
        place = {"lidx0": lane % 2, "lidx1": lane // 2 % 2, "lidx2": lane // 4}
        for source, layout, width in (
            (unit.src[0], MMA.a_layout, 16),
            (unit.src[1], MMA.b_layout, 8),
        ):
            read = [_element(part, place) for part in source.src]
            assert read == [row * width + column for row, column in layout[lane]]


def _element(value: UOp, place: dict[str, int]) -> int:
    """Which element of its buffer `value` is for the lane at `place`."""
    offset = 0
    if value.op is Ops.GEP:
        (offset,) = value.arg
        (value,) = value.src
    assert value.op is Ops.LOAD
    lanes = {node: node for node in value.src[1].toposort() if node.op is Ops.SPECIAL}
    index = value.src[1].substitute(
        {node: UOp.const(node.dtype, place[node.arg[0]]) for node in lanes}
    )
    done: dict[UOp, int] = {}
    for node in index.toposort():
        if node.op is Ops.CONST:
            done[node] = node.arg
        else:
            assert node.op.evaluate is not None
            done[node] = node.op.evaluate(*(done[source] for source in node.src))
    return done[index] + offset


@pytest.mark.row("M9.8")
def test_simdgroups_of_metal() -> None:
    value = matmul(buffer(0, 16, 24), buffer(1, 24, 16))
    opts = good_opts(kernel(value, target=METAL), METAL)
    assert opts[0] == opt(TC, 0, (0, 1))
    source = text(kernel(value, target=METAL), opts, METAL)
    assert "simdgroup_multiply_accumulate" in source
    assert source.count("static float2 __WMMA_8_8_8_float_float(float2 a, float2 b, float2 c)") == 1
    unit = unit_calls(kernel(value, target=METAL), opts, METAL)[0]
    assert [part.dtype for part in unit.src] == [FLOAT.vec(2)] * 3
    a = halves(16, 24).astype(np.float32)
    b = halves(24, 16, seed=1).astype(np.float32)
    check(value, a @ b, {0: a, 1: b}, opts, METAL)
    old = replace(METAL, matrix_units=())
    assert all(move.op is not TC for move in good_opts(kernel(value, target=old), old))


# operands and axes


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("a_turned", [False, True])
@pytest.mark.parametrize("b_turned", [False, True])
def test_transposed_operands(mode: int, a_turned: bool, b_turned: bool) -> None:
    left = (
        permute(buffer(0, 16, 32, dtype=HALF), 1, 0) if a_turned else buffer(0, 32, 16, dtype=HALF)
    )
    right = (
        permute(buffer(1, 8, 16, dtype=HALF), 1, 0) if b_turned else buffer(1, 16, 8, dtype=HALF)
    )
    value = matmul(left, right, total=FLOAT)
    a = halves(16, 32).T if a_turned else halves(32, 16)
    b = halves(8, 16, seed=1).T if b_turned else halves(16, 8, seed=1)
    inputs = {0: a.T if a_turned else a, 1: b.T if b_turned else b}
    check(value, a @ b, inputs, [opt(TC, 0, (0, mode))])


@pytest.mark.parametrize("mode", [1, 2])
def test_a_batch_and_a_shared_operand(mode: int) -> None:
    a, b = halves(2, 16, 16), halves(2, 16, 8, seed=1)
    batch = matmul(buffer(0, 2, 16, 16, dtype=HALF), buffer(1, 2, 16, 8, dtype=HALF), total=FLOAT)
    check(batch, a @ b, {0: a, 1: b}, [opt(TC, 0, (0, mode))])
    # Two of the axes of the left side can be the rows.
    wide = matmul(
        permute(buffer(0, 16, 16, 16, dtype=HALF), 1, 0, 2),
        buffer(1, 16, 16, 8, dtype=HALF),
        total=FLOAT,
    )
    assert len(find_products(kernel(wide), MMA)) == 2
    a, b = halves(16, 16, 16), halves(16, 16, 8, seed=1)
    check(wide, a.transpose(1, 0, 2) @ b, {0: a, 1: b}, [opt(TC, 0, (0, mode))])


@pytest.mark.parametrize("choice", range(4))
def test_every_choice_of_axes_is_right(choice: int) -> None:
    """Rows and columns may change places, as either operand may be the left one."""
    value = half_matmul(16, 32, 16)
    products = find_products(kernel(value), MMA)
    assert len(products) == 2
    if choice >= len(products):
        with pytest.raises(OptError, match="2 products fit"):
            shaped(kernel(value), [opt(TC, choice, (0, 1))])
        return
    a, b = halves(16, 32), halves(32, 16, seed=1)
    check(value, a @ b, {0: a, 1: b}, [opt(TC, choice, (0, 1))])


@pytest.mark.parametrize("mode", [1, 2])
def test_sizes_that_are_no_multiple_are_padded(mode: int) -> None:
    m, k, n = 13, 21, 9
    value = matmul(buffer(0, m, k, dtype=HALF), buffer(1, k, n, dtype=HALF), total=FLOAT)
    rows, columns, depth = find_products(kernel(value), MMA)[0]
    axes = axes_of(shaped(kernel(value)))
    assert [rows.src[0].arg, columns.src[0].arg, depth.src[0].arg] == [m, n, k]
    pads = [opt(PADTO, axis, size) for axis, size in enumerate((16, 8, 16))]
    assert [axis.src[0].arg for axis in axes] == [m, n, k]
    a, b = halves(m, k), halves(k, n, seed=1)
    check(value, a @ b, {0: a, 1: b}, [*pads, opt(TC, 0, (0, mode)), opt(UPCAST, 0, 2)])
    with pytest.raises(OptError, match=r"takes 16 at a time, the axis has 13") as caught:
        shaped(kernel(value), [opt(TC, 0, (0, mode))])
    assert "PADTO(0, 16) first" in str(caught.value)


@pytest.mark.parametrize("mode", [1, 2])
def test_a_convolution_runs_on_the_unit(mode: int) -> None:
    """Rows are a row of the image, columns the output channels, depth the input channels."""
    x, w = halves(1, 16, 4, 18), halves(8, 16, 3, 3, seed=1)
    value = conv2d(
        buffer(0, 1, 16, 4, 18, dtype=HALF), buffer(1, 8, 16, 3, 3, dtype=HALF), total=FLOAT
    )
    view = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), axis=(2, 3))
    wanted = np.einsum("bchwij,ocij->bohw", view, w.astype(np.float64))
    products = find_products(kernel(value), MMA)
    fitting = [
        choice
        for choice, parts in enumerate(products)
        if all(part.src[0].arg % size == 0 for part, size in zip(parts, (16, 8, 16)))
    ]
    assert fitting
    for choice in fitting:
        ast = kernel(value)
        source = text(ast, [opt(TC, choice, (0, mode))])
        assert ("WMMA" in source) == (mode == 1)
        check(value, wanted, {0: x, 1: w}, [opt(TC, choice, (0, mode))])


def test_work_before_and_after_the_product_stays_in_the_kernel() -> None:
    left = buffer(0, 16, 16, dtype=HALF).maximum(UOp.const(HALF, 0.0))
    value = matmul(left, buffer(1, 16, 8, dtype=HALF), total=FLOAT) * 0.5 + buffer(2, 16, 8)
    a, b, c = halves(16, 16), halves(16, 8, seed=1), halves(16, 8, seed=2).astype(np.float32)
    wanted = np.maximum(a, 0) @ b * 0.5 + c
    check(value, wanted, {0: a, 1: b, 2: c}, [opt(TC, 0, (0, 1))])


@pytest.mark.parametrize(
    ("unit", "dtype", "total"),
    [(0, HALF, FLOAT), (1, HALF, None), (2, dtypes.bfloat16, FLOAT)],
)
def test_a_unit_for_each_pair_of_dtypes(unit: int, dtype: Any, total: Any) -> None:
    a, b = buffer(0, 16, 16, dtype=dtype), buffer(1, 16, 8, dtype=dtype)
    ast = kernel(matmul(a, b, total=total))
    (call,) = unit_calls(ast, [opt(TC, 0, (unit, 1))])
    assert call.arg is CUDA.matrix_units[unit]
    for other in range(3):
        if other != unit:
            with pytest.raises(OptError, match="0 products fit"):
                shaped(ast, [opt(TC, 0, (other, 1))])


def test_products_widened_before_they_are_taken() -> None:
    wide = [buffer(slot, 16, 16, dtype=HALF).cast(FLOAT) for slot in (0, 1)]
    value = matmul(*wide)
    a, b = halves(16, 16), halves(16, 16, seed=1)
    assert len(unit_calls(kernel(value), [opt(TC, 0, (0, 1))])) == 1
    check(value, a @ b, {0: a, 1: b}, [opt(TC, 0, (0, 1))])


def test_a_smaller_unit_of_an_older_architecture() -> None:
    turing = cuda_target("sm_75")
    value = half_matmul(16, 16, 16)
    opts = good_opts(kernel(value, target=turing), turing)
    a, b = halves(16, 16), halves(16, 16, seed=1)
    check(value, a @ b, {0: a, 1: b}, opts, turing)
    (call, *_) = unit_calls(kernel(value, target=turing), opts, turing)
    assert call.arg.k == 8


# with other Opts


@pytest.mark.parametrize(
    "moves",
    [
        [opt(UNROLL, 0, 2)],
        [opt(UPCAST, 1, 2), opt(UNROLL, 0, 0)],
        [opt(LOCAL, 0, 2)],
        [opt(LOCAL, 1, 2), opt(LOCAL, 0, 2), opt(UNROLL, 0, 2)],
        [opt(UPCAST, 0, 2), opt(LOCAL, 0, 2)],
    ],
)
@pytest.mark.parametrize("mode", [1, 2])
def test_further_moves(mode: int, moves: list[Opt]) -> None:
    value = matmul(buffer(0, 32, 64, dtype=HALF), buffer(1, 64, 16, dtype=HALF), total=FLOAT)
    a, b = halves(32, 64), halves(64, 16, seed=1)
    check(value, a @ b, {0: a, 1: b}, [opt(TC, 0, (0, mode)), *moves])


def test_lanes_taken_before_are_further_groups() -> None:
    value = matmul(buffer(0, 32, 16, dtype=HALF), buffer(1, 16, 8, dtype=HALF), total=FLOAT)
    a, b = halves(32, 16), halves(16, 8, seed=1)
    check(value, a @ b, {0: a, 1: b}, [opt(LOCAL, 0, 2), opt(TC, 0, (0, 1))])


@pytest.mark.parametrize("shape", [(16, 16, 16), (64, 32, 64), (48, 80, 40), (31, 47, 63)])
@pytest.mark.parametrize("mode", [1, 2])
def test_the_heuristic_is_right(shape: tuple[int, int, int], mode: int) -> None:
    m, k, n = shape
    value = matmul(buffer(0, m, k, dtype=HALF), buffer(1, k, n, dtype=HALF), total=FLOAT)
    a, b = halves(m, k), halves(k, n, seed=1)
    with Context(TC=mode):
        opts = good_opts(kernel(value))
        assert any(move.op is TC for move in opts)
        check(value, a @ b, {0: a, 1: b}, opts)
    with Context(TC=0):
        assert all(move.op is not TC for move in good_opts(kernel(value)))


# refusals


def test_what_has_no_unit_is_refused() -> None:
    floats = kernel(matmul(buffer(0, 16, 16), buffer(1, 16, 16)))
    with pytest.raises(OptError, match="0 products fit"):
        shaped(floats, [opt(TC, 0, (0, 1))])
    ast = kernel(half_matmul(16, 16, 16))
    with pytest.raises(OptError, match="has 3 matrix units, not number 3"):
        shaped(ast, [opt(TC, 0, (3, 1))])
    with pytest.raises(OptError, match="mode 1 or 2"):
        shaped(ast, [opt(TC, 0, (0, 3))])
    with pytest.raises(OptError, match="lanes share the reduction"):
        shaped(ast, [opt(OptOps.GROUP, 0, 4), opt(TC, 0, (0, 1))])
    small = replace(CUDA, block_lanes=16)
    with pytest.raises(OptError, match="a block of 32 lanes"):
        shaped(ast, [opt(TC, 0, (0, 1))], small)


def test_lanes_of_a_unit_stay_lanes() -> None:
    ast = kernel(half_matmul(32, 32, 32))
    opts = [opt(TC, 0, (0, 1))]
    kinds = [axis.arg[1] for axis in axes_of(shaped(ast, opts))]
    assert Counter(kinds)[Axis.LOCAL] == 5
    with pytest.raises(OptError, match="the lanes of a matrix unit stay lanes"):
        shaped(ast, [*opts, opt(UPCAST, kinds.index(Axis.LOCAL), 2)])
    with pytest.raises(OptError, match="no reduction that lanes can share"):
        shaped(ast, [*opts, opt(OptOps.GROUP, 0, 2)])


def test_a_layout_that_is_no_sum_over_bits_is_refused() -> None:
    crooked = list(MMA.a_layout)
    crooked[3], crooked[5] = crooked[5], crooked[3]
    unit: MatrixUnit = replace(MMA, a_layout=tuple(crooked))
    target = replace(CUDA, matrix_units=(unit,))
    with pytest.raises(InternalError, match="no sum over bits"):
        shaped(kernel(half_matmul(16, 16, 16)), [opt(TC, 0, (0, 1))], target)


def test_a_sum_of_one_operand_has_no_products() -> None:
    (item,) = schedule(half_matmul(16, 16, 16)).items
    assert item.ast is not None
    assert find_products(kernel(buffer(0, 16, dtype=HALF) + 1.0), MMA) == []
    square = matmul(
        buffer(0, 16, 16, dtype=HALF), permute(buffer(0, 16, 16, dtype=HALF), 1, 0), total=FLOAT
    )
    a = halves(16, 16)
    check(square, a @ a.T, {0: a}, [opt(TC, 0, (0, 1))])
