"""SCAN: the lanes of a warp share a scan along a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.optimize.kernels import (
    CUDA,
    INT,
    METAL,
    buffer,
    good_opts,
    kernel,
    opt,
    program,
    run,
    running,
    schedule,
)
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import OptError
from tilegrad.hardware import opencl_target
from tilegrad.ir.op import Ops
from tilegrad.optimize.opts.opt import OptOps
from tilegrad.optimize.opts.opts import apply_opt, start
from tilegrad.tools.gpu_report import count

SCANS = {Ops.ADD: np.cumsum, Ops.MUL: np.cumprod, Ops.MAX: np.maximum.accumulate}


def sample(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(3, 512), (5, 37), (2, 1003), (4, 100), (70, 20)])
@pytest.mark.parametrize("function", SCANS)
def test_values(function: Ops, shape: tuple[int, int]) -> None:
    x = sample(*shape) * (0.01 if function is Ops.MUL else 1) + (function is Ops.MUL)
    found = run(schedule(running(function, buffer(0, *shape), 1)), {0: x})
    wanted = SCANS[function](x.astype(np.float64), axis=1)
    assert np.allclose(found, wanted.ravel(), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("target", [CUDA, METAL], ids=["CUDA", "METAL"])
@pytest.mark.parametrize("size", [1024, 1000, 4096])
def test_no_lane_goes_through_a_whole_row(size: int, target: Any) -> None:
    """A lane stores its share of a row; neighbours use whole sectors, and each is moved once."""
    ast = kernel(running(Ops.ADD, buffer(0, 2048, size), 1), target=target)
    found = count(program(ast, None, target), 1)
    assert found.instructions["store global"] <= -(-size // 128)
    assert found.sector_use == 1.0
    assert found.moved_bytes == found.touched_bytes
    assert found.instructions["shuffle"] == 5 * -(-size // 128)


def test_one_long_row_is_a_scan_of_slices_that_warps_share() -> None:
    """The totals of slices, what comes before each, and the scan of each slice: three kernels."""
    items = schedule(running(Ops.ADD, buffer(0, 1 << 20), 0)).items
    assert len(items) == 3
    blocks = []
    for item in items:
        assert item.ast is not None
        found = count(program(item.ast, None), 1)
        # A lane moves a few dozen vectors, not a row.
        assert found.instructions["load global"] <= 64
        blocks.append(found.blocks[1])
    assert blocks[0] >= 128 and blocks[2] >= 128


def test_a_long_row_of_an_odd_size_is_right() -> None:
    x = sample(4101)
    plan = schedule(running(Ops.ADD, buffer(0, 4101), 0))
    assert len(plan.items) == 3
    assert np.allclose(run(plan, {0: x}), np.cumsum(x.astype(np.float64)), atol=1e-4)


def test_whole_numbers_are_exact() -> None:
    x = np.arange(300, dtype=np.int32).reshape(2, 150) * 7919
    found = run(schedule(running(Ops.ADD, buffer(0, 2, 150, dtype=INT), 1)), {0: x})
    assert found.tolist() == np.cumsum(x, axis=1, dtype=np.int32).ravel().tolist()


def test_the_prefixes_behind_nan_are_nan() -> None:
    x = sample(2, 300)
    x[0, 170] = np.nan
    for function, exact in ((Ops.ADD, np.cumsum), (Ops.MAX, np.maximum.accumulate)):
        found = run(schedule(running(function, buffer(0, 2, 300), 1)), {0: x}).reshape(2, 300)
        assert np.array_equal(np.isnan(found), np.isnan(exact(x, axis=1)))


def test_columns_have_a_lane_each() -> None:
    ast = kernel(running(Ops.ADD, buffer(0, 64, 8192), 0))
    assert OptOps.SCAN not in {each.op for each in good_opts(ast)}


def test_what_is_refused() -> None:
    row = start(kernel(running(Ops.ADD, buffer(0, 3, 512), 1)), CUDA)
    axis = 1
    with pytest.raises(OptError, match="exchange no values"):
        apply_opt(row, opt(OptOps.SCAN, axis, 4), opencl_target())
    with pytest.raises(OptError, match="32 lanes with 5 each do not divide 512"):
        apply_opt(row, opt(OptOps.SCAN, axis, 5), CUDA)
    other = start(kernel(buffer(0, 3, 512) + 1.0), CUDA)
    with pytest.raises(OptError, match="is a global axis"):
        apply_opt(other, opt(OptOps.SCAN, 0, 4), CUDA)
    wide = running(Ops.ADD, buffer(0, 3000, 512, dtype=dtypes.int64), 1)
    with pytest.raises(OptError, match="exchange 32 bits"):
        apply_opt(start(kernel(wide), CUDA), opt(OptOps.SCAN, axis, 4), CUDA)
