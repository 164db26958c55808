"""Results of 16 bits that lanes of a warp exchange, so that stores fill whole sectors of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.device.ptx.device import simulated
from tests.device.shim.device import SHIMS, shimmed
from tests.optimize.kernels import (
    CUDA,
    FLOAT,
    HALF,
    METAL,
    buffer,
    kernel,
    matmul,
    program,
    run,
)
from tilegrad import Context, Tensor
from tilegrad.base.dtype import DType, dtypes
from tilegrad.device.nv import nv_target
from tilegrad.hardware import amd_target
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.target import Target
from tilegrad.tools.gpu_report import count

nightly = pytest.mark.nightly


def product(rows: int, terms: int, columns: int, dtype: DType = HALF, result: DType = HALF) -> UOp:
    sides = buffer(0, rows, terms, dtype=dtype), buffer(1, terms, columns, dtype=dtype)
    return matmul(*sides, total=FLOAT, result=result)


def shuffles(found: list[UOp]) -> int:
    return sum(node.op is Ops.SHUFFLE for node in found)


def integers(*shape: int, seed: int) -> Any:
    """Whole numbers so small that half precision has each of their products' sums."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float16)


# Units whose results lanes of a warp hold: `mma`, `wgmma`, `tcgen05`, and simdgroups of 8x8.
CASES = [
    pytest.param(nv_target("sm_80"), "mma", (1024, 64, 1024), id="sm_80"),
    pytest.param(CUDA, "mma", (1024, 64, 1024), id="CUDA"),
    pytest.param(METAL, "simdgroup", (512, 64, 512), id="METAL"),
    pytest.param(nv_target("sm_90a"), "wgmma", (2048, 128, 2048), id="sm_90a", marks=nightly),
    pytest.param(nv_target("sm_100a"), "tcgen05", (2048, 128, 2048), id="sm_100a", marks=nightly),
]


@pytest.mark.parametrize(
    "dtype", [HALF, pytest.param(dtypes.bfloat16, marks=nightly)], ids=lambda dtype: dtype.name
)
@pytest.mark.parametrize(("target", "unit", "sizes"), CASES)
def test_a_warp_stores_whole_sectors(
    target: Target, unit: str, sizes: tuple[int, int, int], dtype: DType
) -> None:
    """Stores of 16 bits filled half of each before. Those of float32 need no exchange."""
    if dtype not in target.short_products:
        pytest.skip("no such unit")
    found = program(kernel(product(*sizes, dtype, dtype), target=target), None, target)
    assert any(node.op is Ops.WMMA and node.arg.name.startswith(unit) for node in found)
    # One exchange for each two stores that become one.
    stores = [
        node for node in found if node.op is Ops.STORE and node.src[0].op is Ops.DEFINE_GLOBAL
    ]
    assert len(stores) == shuffles(found) > 0
    counts = count(found, 1)
    assert counts.sector_use == 1.0 and counts.conflicts == 0
    wide = kernel(product(*sizes, dtype, FLOAT), target=target)
    assert not shuffles(program(wide, None, target))


@pytest.mark.row("S1.5")
@nightly
def test_a_block_moves_what_its_tile_needs_of_half_results_too() -> None:
    """Of 4096x256 by 256x4096: 83% of what moved was asked for, and 1.2 of what is needed moved."""
    target = nv_target("sm_80")
    found = count(program(kernel(product(4096, 256, 4096), target=target), None, target), 1)
    assert found.touched_bytes == 2 * 128 * 256 * 2 + 128 * 128 * 2
    assert found.sector_use == 1.0 and found.moved_bytes == found.touched_bytes


# Rows of 200 elements begin inside of a sector, of 100 at 8 bytes: neighbours in fours there;
# of 75 they begin anywhere.
SIZES = [(64, 48, 64), (40, 32, 200), (70, 32, 100), (33, 20, 75), (16, 16, 24)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("target", [nv_target("sm_80"), METAL], ids=["sm_80", "METAL"])
def test_values_are_those_of_the_product(sizes: tuple[int, int, int], target: Target) -> None:
    rows, terms, columns = sizes
    a, b = integers(rows, terms, seed=0), integers(terms, columns, seed=1)
    found = run(product(*sizes), {0: a, 1: b}, None, target).reshape(rows, columns)
    assert np.array_equal(found, a.astype(int) @ b.astype(int))


def test_an_epilogue_is_exchanged_and_rows_may_be_gated() -> None:
    target = nv_target("sm_80")
    a, b, c = integers(72, 32, seed=0), integers(32, 64, seed=1), integers(64, seed=2)
    value = Tensor(a, device=simulated("NVSIM80")).realize()
    weight, bias = (Tensor(each, device=value.device).realize() for each in (b, c))
    found = ((value @ weight + bias).relu() + value.sum(1, keepdim=True)).numpy()
    sums = a.astype(int).sum(1, keepdims=True)
    wanted = np.maximum(a.astype(int) @ b.astype(int) + c.astype(int), 0) + sums
    assert np.array_equal(found, wanted)
    assert shuffles(program(kernel(product(72, 32, 64), target=target), None, target))


# What is loaded behind a product: a matrix that is added to the results.


def with_residual(rows: int, terms: int, columns: int, dtype: DType = HALF) -> UOp:
    return product(rows, terms, columns, dtype, dtype) + buffer(2, rows, columns, dtype=dtype)


@pytest.mark.parametrize(("target", "unit", "sizes"), CASES)
def test_a_warp_loads_whole_sectors_of_a_residual(
    target: Target, unit: str, sizes: tuple[int, int, int]
) -> None:
    """Loads of 16 bits asked for half of each, and for the other half by the next load."""
    found = program(kernel(with_residual(*sizes), target=target), None, target)
    loads = [
        node
        for node in found
        if node.op is Ops.LOAD and node.src[0].op is Ops.DEFINE_GLOBAL and node.src[0].arg == 3
    ]
    assert loads and all(node.dtype.lanes == 4 for node in loads)
    assert count(found, 1).sector_use == 1.0


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("target", [nv_target("sm_80"), METAL], ids=["sm_80", "METAL"])
def test_a_residual_is_added_where_it_belongs(sizes: tuple[int, int, int], target: Target) -> None:
    rows, terms, columns = sizes
    a, b = integers(rows, terms, seed=0), integers(terms, columns, seed=1)
    c = integers(rows, columns, seed=2)
    found = run(with_residual(*sizes), {0: a, 1: b, 2: c}, None, target).reshape(rows, columns)
    assert np.array_equal(found, a.astype(int) @ b.astype(int) + c.astype(int))


@pytest.mark.parametrize("kind", ["NVSIM80", "CUDA", "METAL"])
def test_texts_add_a_residual_where_it_belongs(kind: str) -> None:
    """PTX by the tests' interpreter, the others as C++."""
    if kind in SHIMS and not SHIMS[kind].is_here:
        pytest.skip("no C++ compiler is here")
    a, b, c = integers(64, 32, seed=3), integers(32, 64, seed=4), integers(64, 64, seed=5)
    with shimmed(kind) if kind in SHIMS else Context(DEVICE=simulated(kind)):
        found = (Tensor(a).realize() @ Tensor(b).realize() + Tensor(c).realize()).numpy()
    assert np.array_equal(found, a.astype(int) @ b.astype(int) + c.astype(int))


@pytest.mark.parametrize("dtype", ["half", "bfloat16"])
def test_the_text_of_ptx_has_these_values(dtype: str) -> None:
    device = simulated("NVSIM90" if dtype == "bfloat16" else "NVSIM80")
    a, b = integers(64, 32, seed=3), integers(32, 64, seed=4)
    left, right = (Tensor(each, device=device).cast(dtype).realize() for each in (a, b))
    assert np.array_equal((left @ right).float().numpy(), a.astype(int) @ b.astype(int))


@pytest.mark.parametrize("kind", ["CUDA", "METAL"])
def test_the_texts_in_cpp_have_these_values(kind: str) -> None:
    if not SHIMS[kind].is_here:
        pytest.skip("no C++ compiler is here")
    a, b = integers(64, 32, seed=5), integers(32, 64, seed=6)
    with shimmed(kind):
        found = (Tensor(a).realize() @ Tensor(b).realize()).numpy()
    assert np.array_equal(found, a.astype(int) @ b.astype(int))


def test_where_lanes_cannot_exchange_stores_stay() -> None:
    target = amd_target("gfx942")
    assert not target.shuffle_lanes
    assert not shuffles(program(kernel(product(64, 32, 64), target=target), None, target))
