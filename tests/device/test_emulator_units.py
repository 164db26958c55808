"""Matrix units of the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.device.programs import FLOAT, HALF, INT, Program, blank, elements, filled
from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import InternalError
from tilegrad.device.emulator import TARGET
from tilegrad.hardware import metal_target
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.target import MatrixUnit


def warp_matmul(unit: MatrixUnit, lane_dims: tuple[int, ...]) -> Program:
    """One multiply: each lane gathers its elements from row-major memory and scatters its
    results.
    """
    p = Program()
    out = p.data(0, unit.m * unit.n, unit.dtype_out)
    a, b = p.data(1, unit.m * unit.k, unit.dtype_in), p.data(2, unit.k * unit.n, unit.dtype_in)
    names = [p.special(f"lidx{axis}", extent) for axis, extent in enumerate(lane_dims)]
    lane, step = p.const(0), 1
    for name, extent in zip(names, lane_dims, strict=True):
        lane = p.all(lane + name * step)
        step *= extent

    def places(layout: Any, width: int) -> list[UOp]:
        """A table of the layout in the program itself: which place each lane has for element i."""
        found = []
        for i in range(len(layout[0])):
            value: UOp = UOp.const(INT, 0)
            for number, held in enumerate(layout):
                row, column = held[i]
                value = lane.eq(number).where(UOp.const(INT, row * width + column), value)
            found.append(p.all(value))
        return found

    left = p.all(UOp.stack([a.load(place) for place in places(unit.a_layout, unit.k)]))
    right = p.all(UOp.stack([b.load(place) for place in places(unit.b_layout, unit.n)]))
    kept = places(unit.c_layout, unit.n)
    start = p.const(0.0, unit.dtype_out.vec(len(kept)))
    made = p.add(Ops.WMMA, start.dtype, left, right, start, arg=unit)
    for i, place in enumerate(kept):
        p.all(out.store(place, made.gep(i)))
    return p


def unit_of(dtype_in: DType, dtype_out: DType) -> MatrixUnit:
    """The emulator's matrix unit for these dtypes, 16 x 8 x 16 as on NVIDIA hardware."""
    units = [unit for unit in TARGET.matrix_units if unit.k == 16]
    return next(u for u in units if (u.dtype_in, u.dtype_out) == (dtype_in, dtype_out))


@pytest.mark.row("M9.5")
@pytest.mark.parametrize("dims", [(32,), (8, 2, 2), (2, 4, 4)])
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
def test_the_mma_of_a_warp_is_the_product(dtype: DType, dims: tuple[int, ...]) -> None:
    unit = unit_of(dtype, FLOAT)
    rng = np.random.default_rng(1)
    a, b = rng.integers(-8, 8, (16, 16)), rng.integers(-8, 8, (16, 8))
    result = blank(16 * 8)
    warp_matmul(unit, dims).run(
        result, filled(a.ravel().tolist(), dtype), filled(b.ravel().tolist(), dtype)
    )
    assert elements(result) == (a @ b).ravel().tolist()


@pytest.mark.row("M9.5")
def test_the_mma_layout_is_the_one_of_ptx() -> None:
    """The positions that the feature map derives: g = lane / 4, t = lane % 4."""
    unit = unit_of(HALF, FLOAT)
    for lane in range(32):
        g, t = lane // 4, lane % 4
        rows, columns = [g, g, g + 8, g + 8] * 2, [2 * t, 2 * t + 1] * 2
        columns += [column + 8 for column in columns]
        assert list(unit.a_layout[lane]) == list(zip(rows, columns, strict=True))
        assert list(unit.b_layout[lane]) == [
            (2 * t, g),
            (2 * t + 1, g),
            (2 * t + 8, g),
            (2 * t + 9, g),
        ]
        expected = [(g, 2 * t), (g, 2 * t + 1), (g + 8, 2 * t), (g + 8, 2 * t + 1)]
        assert list(unit.c_layout[lane]) == expected


@pytest.mark.row("M9.8")
@pytest.mark.parametrize("unit", metal_target().matrix_units, ids=lambda unit: unit.name)
def test_an_emulated_simdgroup_multiply_equals_numpy(unit: MatrixUnit) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.integers(-8, 8, (8, 8)), rng.integers(-8, 8, (8, 8))
    assert {len(held) for held in (*unit.a_layout, *unit.b_layout, *unit.c_layout)} == {2}
    result = blank(64, unit.dtype_out)
    given_ = [filled(matrix.ravel().tolist(), unit.dtype_in) for matrix in (a, b)]
    warp_matmul(unit, (32,)).run(result, *given_)
    assert elements(result, unit.dtype_out) == (a @ b).ravel().tolist()


def test_two_warps_of_a_block_multiply_apart() -> None:
    """Each warp of 32 lanes gets its own product; only the first stores, by its gate."""
    unit = unit_of(HALF, FLOAT)
    p = Program()
    out, lane = p.data(0, 64 * 4), p.special("lidx0", 64)
    warp = p.all((lane // 32 + 1).cast(HALF))
    a, b = p.all(warp.broadcast(8)), p.const(1.0, HALF.vec(4))
    made = p.add(Ops.WMMA, FLOAT.vec(4), a, b, p.const(0.5, FLOAT.vec(4)), arg=unit)
    p.all(out.store(lane * 4, made))
    result = blank(256)
    p.run(result)
    assert elements(result) == [16.5] * 128 + [32.5] * 128


def test_a_matrix_unit_needs_whole_warps_that_agree() -> None:
    unit = unit_of(HALF, FLOAT)
    with pytest.raises(InternalError, match="32 lanes exchange values, or use a matrix unit"):
        warp_matmul(unit, (16,)).run(blank(128), blank(256, HALF), blank(128, HALF))
    p = Program()
    lane = p.special("lidx0", 32)
    loop = p.loop(p.all(lane // 31 + 1))
    zero = p.const(0.0, FLOAT.vec(4))
    p.add(
        Ops.WMMA, FLOAT.vec(4), p.const(0.0, HALF.vec(8)), p.const(0.0, HALF.vec(4)), zero, arg=unit
    )
    p.end(loop)
    with pytest.raises(InternalError, match="lanes 0-30 at the end; lane 31 at v"):
        p.run()


def test_lanes_that_hold_one_element_must_agree() -> None:
    unit = MatrixUnit(
        "twice", 1, 1, 1, 2, HALF, HALF, (((0, 0),),) * 2, (((0, 0),),) * 2, (((0, 0),),) * 2
    )
    p = Program()
    lane = p.special("lidx0", 2)
    one, value = p.const(1.0, HALF), p.all(lane.cast(HALF))
    p.add(Ops.WMMA, HALF.vec(2), value, one, one, arg=unit)
    with pytest.raises(InternalError, match=r"twice: lanes disagree on element \(0, 0\) of a"):
        p.run()
