"""Reductions that lanes share: counts of the kernels for rows and for whole values, and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.optimize.kernels import (
    CUDA,
    METAL,
    buffer,
    expand,
    kernel,
    matmul,
    program,
    reduce,
    run,
    schedule,
    softmax,
)
from tilegrad.hardware import opencl_target, webgpu_target
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tools.gpu_counts import Counts
from tilegrad.tools.gpu_report import count


def layernorm(x: UOp) -> UOp:
    rows, size = x.shape
    distance = x - expand(reduce(Ops.ADD, x, 1) * (1 / size), rows, size)
    variance = expand(reduce(Ops.ADD, distance * distance, 1) * (1 / size), rows, size)
    return distance * (variance + 1e-5).alu(Ops.SQRT).alu(Ops.RECIP)


def counted(value: UOp, blocks: int = 1) -> Counts:
    """The counts of the first blocks of a graph's one kernel."""
    return count(program(kernel(value), None), blocks)


def sample(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


ROWWISE = [softmax, layernorm]


@pytest.mark.parametrize("function", ROWWISE)
@pytest.mark.parametrize(("rows", "size"), [(4096, 768), (4096, 64), (513, 1000), (64, 8192)])
def test_a_row_is_read_once(function: Any, rows: int, size: int) -> None:
    """One kernel moves each byte once and uses every sector: the row stays in registers."""
    found = counted(function(buffer(0, rows, size)))
    assert found.moved_bytes == found.touched_bytes
    assert found.sector_use == 1.0
    assert found.conflicts == 0


def test_a_warp_of_a_row_needs_no_barrier() -> None:
    found = counted(softmax(buffer(0, 4096, 768)))
    assert "barrier" not in found.instructions
    assert "load shared" not in found.instructions
    # Two reductions of five exchanges each.
    assert found.instructions["shuffle"] == 10


def test_a_row_of_a_block_has_one_barrier_for_each_reduction() -> None:
    found = counted(softmax(buffer(0, 64, 8192)))
    assert found.instructions["barrier"] == 2
    # A lane reads the results of the eight warps, not those of 256 lanes.
    assert found.instructions["load shared"] == 4


def test_a_sum_of_rows_uses_whole_sectors_of_what_it_reads() -> None:
    found = counted(reduce(Ops.ADD, buffer(0, 4096, 1024), 1))
    # Eight rows of a block, and a sector for each of their sums.
    assert found.sectors == 8 * 1024 * 4 // 32 + 8


@pytest.mark.parametrize("target", [CUDA, METAL, opencl_target(), webgpu_target()])
@pytest.mark.parametrize(("rows", "size"), [(5, 37), (70, 100), (2, 515)])
def test_values(target: Any, rows: int, size: int) -> None:
    x = sample(rows, size)
    wide = x.astype(np.float64)
    power = np.exp(wide - wide.max(1, keepdims=True))
    wanted = (power / power.sum(1, keepdims=True)).ravel()
    found = run(schedule(softmax(buffer(0, rows, size)), target=target), {0: x}, None, target)
    assert np.allclose(found, wanted, rtol=2e-6, atol=1e-9)
    total = run(schedule(reduce(Ops.ADD, buffer(0, rows, size), 1), target=target), {0: x}, None,
                target)  # fmt: skip
    assert np.allclose(total, wide.sum(1), rtol=1e-5, atol=1e-5)


def test_layernorm_values() -> None:
    x = sample(66, 300)
    wide = x.astype(np.float64)
    distance = wide - wide.mean(1, keepdims=True)
    wanted = distance / np.sqrt((distance**2).mean(1, keepdims=True) + 1e-5)
    found = run(schedule(layernorm(buffer(0, 66, 300))), {0: x})
    assert np.allclose(found, wanted.ravel(), rtol=1e-5, atol=1e-5)


def test_rows_of_a_product_stay_tiles() -> None:
    """Both operands are contiguous along the depth, but each element serves many results."""
    transposed = UOp(Ops.PERMUTE, buffer(1, 256, 64).dtype, (buffer(1, 256, 64),), (1, 0))
    found = program(kernel(matmul(buffer(0, 256, 64), transposed)), None)
    assert not any(node.op is Ops.SHUFFLE for node in found)


# whole values


@pytest.mark.parametrize(
    ("shape", "axes", "least"),
    [
        ((1 << 24,), (0,), 512),
        ((4096, 4096), (0, 1), 512),
        ((1000003,), (0,), 100),
        ((4, 1 << 20), (1,), 512),
        ((1 << 16, 256), (0,), 512),
        ((64, 1 << 18), (0,), 512),
    ],
)
def test_a_large_reduction_has_blocks_for_the_whole_device(
    shape: tuple[int, ...], axes: tuple[int, ...], least: int
) -> None:
    items = schedule(reduce(Ops.ADD, buffer(0, *shape), *axes)).items
    first = count(program(items[0].ast, None), 1)
    assert len(items) <= 2
    assert first.blocks[1] >= least
    # No lane goes through more than a few hundred vectors by itself.
    assert first.instructions["load global"] <= 256


def test_a_split_sum_of_an_odd_size_is_right() -> None:
    size = (1 << 18) + 3
    x = sample(size)
    plan = schedule(reduce(Ops.ADD, buffer(0, size), 0))
    assert len(plan.items) == 2
    exact = float(x.astype(np.float64).sum())
    assert abs(float(run(plan, {0: x})[0]) - exact) < 1e-3


@pytest.mark.nightly
def test_a_split_maximum_of_negative_numbers_is_right() -> None:
    """What pads the last slice is no candidate."""
    x = -1.0 - np.abs(sample(3, 100003))
    found = run(schedule(reduce(Ops.MAX, buffer(0, 3, 100003), 1)), {0: x})
    assert found.tolist() == x.max(1).tolist()
