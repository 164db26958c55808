"""Loops over the tiles of shared memory, unrolled: a barrier and known addresses for each tile."""

from __future__ import annotations

import numpy as np
import pytest

from tests.optimize.kernels import FLOAT, HALF, buffer, kernel, matmul, program
from tilegrad.device.emulator import execute
from tilegrad.device.nv import nv_target
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp

NV = nv_target("sm_80")


def half_product(depth: int) -> list[UOp]:
    left, right = buffer(0, 32, depth, dtype=HALF), buffer(1, depth, 32, dtype=HALF)
    return program(kernel(matmul(left, right, total=FLOAT), target=NV), None, NV)


@pytest.mark.row("M9.1")
@pytest.mark.parametrize(
    ("depth", "trips", "barriers"),
    [(64, [], 2), (96, [3], 1), (128, [2], 2), (192, [2], 3), (256, [2], 4), (512, [4], 4)],
)
def test_iterations_over_all_tiles_are_one_where_they_divide(
    depth: int, trips: list[int], barriers: int
) -> None:
    """A chunk has 32 terms of the sum, and two to four chunks are in shared memory; the values
    are those of NumPy.
    """
    found = half_product(depth)
    loops = [node for node in found if node.op is Ops.RANGE and node.axis is Axis.REDUCE]
    assert [loop.extent.arg for loop in loops] == trips
    assert [node.op for node in found].count(Ops.BARRIER) == barriers
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((32, depth), (depth, 32)))
    out = np.full((32, 32), np.nan, np.float32)
    execute(found, [memoryview(each).cast("B") for each in (out, a, b)])
    assert np.array_equal(out, a.astype(np.float32) @ b.astype(np.float32))


def test_tiles_are_known_in_each_copy() -> None:
    """No address of shared memory is computed from the number of the iteration."""
    found = half_product(256)
    (loop,) = [node for node in found if node.op is Ops.RANGE and node.axis is Axis.REDUCE]
    rows = [node.src[0].index for node in found if node.op is Ops.FRAGMENT]
    copies = [node.index for node in found if node.op is Ops.COPY_ASYNC]
    assert rows and copies
    assert not any(loop in index.ranges for index in (*rows, *copies))


@pytest.mark.parametrize("depth", [64, 128, 256])
def test_a_result_that_is_used_twice_in_one_operation_stays_so(depth: int) -> None:
    """The square of a product: both factors come behind the loop."""
    left, right = buffer(0, 32, depth, dtype=HALF), buffer(1, depth, 32, dtype=HALF)
    product = matmul(left, right, total=FLOAT)
    found = program(kernel(product * product, target=NV), None, NV)
    assert [node.op for node in found].count(Ops.BARRIER) == (4 if depth == 256 else 2)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((32, depth), (depth, 32)))
    out = np.full((32, 32), np.nan, np.float32)
    execute(found, [memoryview(each).cast("B") for each in (out, a, b)])
    assert np.array_equal(out, (a.astype(np.float32) @ b.astype(np.float32)) ** 2)
