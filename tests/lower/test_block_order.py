"""The order of a launch's blocks: those that run together read few strips of a product."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.optimize.kernels import (
    CUDA,
    FLOAT,
    HALF,
    buffer,
    kernel,
    matmul,
    program,
    run,
    schedule,
)
from tilegrad.device.nv import nv_target
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.runtime.protocol import launch_dims
from tilegrad.target import Target
from tilegrad.tools.gpu_counts import Counts
from tilegrad.tools.gpu_report import count
from tilegrad.tools.gpu_time import RATES, predicted

NV = nv_target("sm_80")
# A device whose cache holds next to nothing.
SMALL = replace(CUDA, cache_bytes=(1 << 10, 1 << 10), busy_blocks=64)


def product(size: int) -> UOp:
    sides = buffer(0, size, size, dtype=HALF), buffer(1, size, size, dtype=HALF)
    return kernel(matmul(*sides, total=FLOAT), target=NV)


def strips(found: list[UOp], together: int) -> int:
    """How many strips of 128 rows or columns the first `together` blocks read."""
    x, y, _ = launch_dims(found).global_size
    loads = {}
    for node in UOp.sink(*found).toposort():
        if node.op is Ops.LOAD and node.src[0].op is Ops.DEFINE_GLOBAL:
            names = {each.arg[0] for each in node.index.toposort() if each.op is Ops.SPECIAL}
            loads[node.src[0]] = [axis for axis in range(3) if f"gidx{axis}" in names]
    assert len(loads) == 2
    places = [(at % x, at // x % y, at // x // y) for at in range(together)]
    return sum(len({tuple(at[axis] for axis in axes) for at in places}) for axes in loads.values())


@pytest.mark.row("S1.5")
def test_blocks_of_a_large_product_run_in_groups() -> None:
    """Of 64 x 64 tiles, 216 blocks are 4 columns of 64 and 24 rows of the fifth at worst; in groups
    of 16 rows they are 13 columns and a half.
    """
    found = program(product(8192), None, NV)
    assert launch_dims(found).global_size == (16, 64, 4)
    assert strips(found, 216) == 16 + 14
    plain = program(product(8192), None, replace(NV, cache_bytes=(128 << 10, 1 << 40)))
    assert launch_dims(plain).global_size == (64, 64, 1)
    assert strips(plain, 216) == 64 + 4


def test_what_fits_the_cache_keeps_its_order() -> None:
    assert launch_dims(program(product(1024), None, NV)).global_size == (8, 16, 1)


def test_matrices_of_a_batch_follow_each_other() -> None:
    """Blocks of one matrix run together: those of others read nothing that it reads."""
    sides = (buffer(slot, 512, 1024, 64, dtype=HALF) for slot in (0, 1))
    left, right = sides
    turned = UOp(Ops.PERMUTE, HALF, (right,), (0, 2, 1))
    found = program(kernel(matmul(left, turned, total=FLOAT), target=NV), None, NV)
    x, y, z = launch_dims(found).global_size
    assert (x * y, z) == (8 * 8, 512) or z * y * x == 512 * 64
    assert strips(found, 64) <= 16


def test_the_model_counts_what_blocks_that_run_together_share() -> None:
    """By hand: two strips of 2 MiB for each row and column of tiles that a wave of 216 has."""
    rows = frozenset({0})
    plain = Counts((1, 4096), grid=(64, 64, 1), strips={"a": (rows, 1), "b": (frozenset({1}), 1)})
    # Waves of 216 begin and end within columns of 64.
    waves = [(first, min(first + 216, 4096)) for first in range(0, 4096, 216)]
    expected = sum(
        len({at % 64 for at in range(*wave)}) + len({at // 64 for at in range(*wave)})
        for wave in waves
    )
    assert plain.distinct_bytes(216) == expected
    # All of a launch at a time: each strip once.
    assert plain.distinct_bytes(4096) == 128


def test_memory_of_a_launch_that_no_cache_holds_is_what_its_waves_read() -> None:
    """A product with a short sum, whose buffers are larger than the cache all the same."""
    sides = buffer(0, 4096, 32, dtype=HALF), buffer(1, 32, 4096, dtype=HALF)
    found = count(program(kernel(matmul(*sides, total=FLOAT), target=NV), None, NV), 1)
    rates = RATES["sm_80"]
    assert found.buffer_bytes > rates.cache_bytes
    seconds = predicted(found, "sm_80").limits["memory"]
    assert seconds == pytest.approx(found.distinct_bytes(216) / rates.bandwidth)


# values


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("target", [SMALL, CUDA], ids=["grouped", "plain"])
def test_values(batch: tuple[int, ...], target: Target) -> None:
    """Each block's tile is computed once, whatever its number."""
    rng = np.random.default_rng(0)
    a: Any = rng.integers(-3, 4, (*batch, 512, 4)).astype(np.float32)
    b: Any = rng.integers(-3, 4, (*batch, 4, 96)).astype(np.float32)
    value = matmul(buffer(0, *a.shape), buffer(1, *b.shape))
    found = run(schedule(value, target=target), {0: a, 1: b}, None, target)
    assert found.tolist() == (a @ b).ravel().tolist()


def test_the_sample_is_grouped() -> None:
    value = matmul(buffer(0, 512, 4), buffer(1, 4, 96))
    grids = [
        launch_dims(program(kernel(value, target=target), None, target)).global_size
        for target in (SMALL, CUDA)
    ]
    assert grids[0] != grids[1] and np.prod(grids[0]) == np.prod(grids[1])
