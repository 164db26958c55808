"""Reductions in two stages on targets with blocks: matrix products of few results and long sums,
and sums of columns; how many blocks they have, and what they compute.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.device.ptx.device import simulated
from tests.optimize.kernels import program
from tests.schedule.plans import plan
from tilegrad import Tensor
from tilegrad.base.config import Context
from tilegrad.base.dtype import dtypes
from tilegrad.device.nv import nv_target
from tilegrad.hardware import metal_target, opencl_target
from tilegrad.ir.op import Ops
from tilegrad.runtime.protocol import launch_dims
from tilegrad.schedule.items import Schedule
from tilegrad.target import Target
from tilegrad.tools.gpu_report import count
from tilegrad.tools.gpu_time import predicted

NV = nv_target("sm_80")


def product(rows: int, terms: int, columns: int, dtype: str = "half") -> Tensor:
    return Tensor.empty(rows, terms, dtype=dtype) @ Tensor.empty(terms, columns, dtype=dtype)


def blocks(schedule: Schedule, position: int = 0) -> int:
    return math.prod(launch_dims(program(schedule.items[position].ast, None, NV)).global_size)


# how many blocks


@pytest.mark.row("S1.5")
@pytest.mark.parametrize("dtype", ["half", "float"])
@pytest.mark.parametrize("sizes", [(128, 65536, 128), (512, 4096, 512), (256, 16384, 64)])
def test_a_product_of_few_results_has_a_block_for_each_multiprocessor(
    dtype: str, sizes: tuple[int, int, int]
) -> None:
    schedule = plan(product(*sizes, dtype=dtype), target=NV)
    assert len(schedule.items) == 2 and blocks(schedule) >= NV.multiprocessors
    first, second = (program(item.ast, None, NV) for item in schedule.items)
    # Tiles pass through shared memory, and in half precision through matrix units, as without.
    assert any(node.op is Ops.COPY_ASYNC for node in first)
    assert any(node.op is Ops.WMMA for node in first) == (dtype == "half")
    assert not any(node.op is Ops.BARRIER for node in second)


@pytest.mark.parametrize(
    ("sizes", "target"),
    [
        # Tiles enough, or too short a sum.
        ((4096, 4096, 4096), NV),
        ((1024, 1024, 1024), NV),
        ((64, 1023, 64), NV),
        # Few enough multiprocessors.
        ((512, 4096, 512), metal_target()),
        ((512, 4096, 512), opencl_target()),
        # A processor.
        ((128, 65536, 128), Target("none")),
    ],
)
def test_other_products_are_one_kernel(sizes: tuple[int, int, int], target: Target) -> None:
    assert len(plan(product(*sizes), target=target).items) == 1


def test_partial_sums_are_float32_and_the_rest_follows_the_last() -> None:
    """A bias and an activation are in the second kernel."""
    value = product(128, 65536, 128) + Tensor.empty(128, dtype="half")
    schedule = plan(value.relu(), target=NV)
    partial = schedule.buffers[schedule.items[0].buffers[0]]
    assert len(schedule.items) == 2 and partial.dtype is dtypes.float


def test_a_weights_gradient_is_split_along_rows_of_the_image() -> None:
    """Not along the batch, which tiles of both operands follow."""
    weight = Tensor.empty(128, 128, 3, 3, dtype="half").requires_grad_()
    image = Tensor.empty(32, 128, 28, 28, dtype="half")
    image.conv2d(weight, padding=1).backward(Tensor.empty(32, 128, 28, 28, dtype="half"))
    schedule = plan(weight.grad, target=NV)
    assert len(schedule.items) == 4 and blocks(schedule, 2) >= NV.multiprocessors
    assert any(node.op is Ops.COPY_ASYNC for node in program(schedule.items[2].ast, None, NV))


@pytest.mark.row("S1.5")
def test_attention_of_one_query_reads_keys_and_values_with_the_whole_device() -> None:
    """Scores, their softmax, and the sum of values in slices: none of the first three has fewer
    blocks than rows or multiprocessors.
    """
    q, k, v = (Tensor.empty(32, size, 128, dtype="half") for size in (1, 4096, 4096))
    schedule = plan(q.scaled_dot_product_attention(k, v), target=NV)
    assert len(schedule.items) == 4
    assert [blocks(schedule, each) >= NV.multiprocessors for each in (0, 2, 3)] == [True] * 3
    assert blocks(schedule, 1) == 32


def test_attention_with_blocks_enough_stays_one_kernel() -> None:
    q, k, v = (Tensor.empty(12, 512, 64, dtype="half") for _ in range(3))
    assert len(plan(q.scaled_dot_product_attention(k, v), target=NV).items) == 1


def test_few_long_rows_of_a_softmax_are_one_kernel() -> None:
    assert len(plan(Tensor.empty(32, 4096).softmax(), target=NV).items) == 1
    assert len(plan(Tensor.empty(4, 1 << 20).softmax(), target=NV).items) > 1


# few rows


def thin(rows: int, terms: int, columns: int, dtype: str, *, transposed: bool) -> Tensor:
    """A product as a layer has it for `rows` tokens; with weights as PyTorch stores them if
    `transposed`.
    """
    weights = (columns, terms) if transposed else (terms, columns)
    x, w = Tensor.empty(rows, terms, dtype=dtype), Tensor.empty(*weights, dtype=dtype)
    return x @ (w.T if transposed else w)


@pytest.mark.row("S1.5")
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("rows", "dtype"),
    [
        # Units are chosen between 4 and 8 rows.
        (rows, dtype)
        if (rows, dtype) in {(4, "half"), (8, "half"), (8, "bfloat16"), (2, "float"), (15, "float")}
        else pytest.param(rows, dtype, marks=pytest.mark.nightly)
        for rows in (2, 4, 8, 15)
        for dtype in ("half", "bfloat16", "float")
    ],
)
def test_a_product_of_few_rows_does_not_wait_for_memory(
    rows: int, dtype: str, transposed: bool
) -> None:
    """All kernels by the model of `gpu-report`. Memory gives the weights in 5.4 microseconds, and
    in 10.8 as float32; 185 and 174 were counted before where the sum ran across memory.
    """
    schedule = plan(thin(rows, 1024, 4096, dtype, transposed=transposed), target=NV)
    programs = [program(item.ast, None, NV) for item in schedule.items]
    limits = [predicted(count(each, 1), "sm_80").limits for each in programs]
    assert sum(max(each.values()) for each in limits) < 30e-6
    has_unit = any(node.op is Ops.WMMA for node in programs[0])
    assert has_unit == (dtype != "float" and (not transposed or rows > 4))


@pytest.mark.parametrize(
    ("rows", "columns"),
    [(64, 3072), pytest.param(64, 2304, marks=pytest.mark.nightly), (200, 1000)],
)
def test_a_product_of_many_rows_along_the_sum_has_tiles(rows: int, columns: int) -> None:
    """In float32, with weights as PyTorch stores them: with a warp for each result, both operands
    would come from the cache for each, in 169 microseconds of the first product.
    """
    schedule = plan(thin(rows, 768, columns, "float", transposed=True), target=NV)
    programs = [program(item.ast, None, NV) for item in schedule.items]
    assert any(node.op is Ops.BARRIER for node in programs[0])
    limits = [predicted(count(each, 1), "sm_80").limits for each in programs]
    assert sum(max(each.values()) for each in limits) < 30e-6


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(
    "rows", [3, 8, 15, *(pytest.param(rows, marks=pytest.mark.nightly) for rows in (2, 7))]
)
def test_a_product_of_few_rows_is_that_of_its_definition(
    rows: int, dtype: str, transposed: bool
) -> None:
    left, right = integers(0, rows, 1024), integers(1, 1024, 128)
    device = simulated("NVSIM80")
    x = Tensor(left.astype(dtype), device=device)
    w = Tensor((right.T if transposed else right).astype(dtype).copy(), device=device)
    with Context(VERIFY=2):
        found = (x @ (w.T if transposed else w) + 1).numpy()
    np.testing.assert_array_equal(found, left @ right + 1)


@pytest.mark.parametrize(
    ("device", "transposed"),
    [
        ("EMU:CL", False),
        ("EMU:METAL", True),
        ("EMU:AMD:gfx942", True),
        ("EMU:WEBGPU", False),
        pytest.param("EMU:CL", True, marks=pytest.mark.nightly),
        pytest.param("EMU:METAL", False, marks=pytest.mark.nightly),
        pytest.param("EMU:AMD:gfx942", False, marks=pytest.mark.nightly),
        pytest.param("EMU:WEBGPU", True, marks=pytest.mark.nightly),
    ],
)
def test_few_rows_on_other_targets(device: str, transposed: bool) -> None:
    left, right = integers(0, 8, 256), integers(1, 256, 132)
    x = Tensor(left.astype(np.float32), device=device)
    w = Tensor((right.T if transposed else right).astype(np.float32).copy(), device=device)
    found = (x @ (w.T if transposed else w)).numpy()
    np.testing.assert_array_equal(found, left @ right)


# values


def integers(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).integers(-2, 3, shape)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("sizes", [(32, 2048, 32), (40, 2047, 33)])
def test_a_split_product_is_that_of_its_definition(dtype: str, sizes: tuple[int, int, int]) -> None:
    """Also where slices do not divide the sum."""
    rows, terms, columns = sizes
    left, right = integers(0, rows, terms), integers(1, terms, columns)
    device = simulated("NVSIM80")
    a, b = (Tensor(each.astype(dtype), device=device) for each in (left, right))
    with Context(VERIFY=2):
        found = (a @ b + 1).numpy()
    assert len(plan(product(*sizes), target=NV).items) == 2
    np.testing.assert_array_equal(found, left @ right + 1)


def test_attention_of_one_query_is_that_of_its_definition() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, n, 32)).astype(np.float16) for n in (1, 4100, 4100))
    device = simulated("NVSIM80")
    x, y, z = (Tensor(each, device=device) for each in (q, k, v))
    found = x.scaled_dot_product_attention(y, z).numpy()
    wide = [each.astype(np.float64) for each in (q, k, v)]
    scores = wide[0] @ wide[1].transpose(0, 2, 1) / np.sqrt(32)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ wide[2]
    np.testing.assert_allclose(found, expected, atol=2e-3)


# a vector by a matrix, and columns


@pytest.mark.row("S1.5")
@pytest.mark.parametrize(("terms", "columns"), [(768, 3072), (3072, 768)])
def test_a_vector_by_a_matrix_is_one_kernel_whose_lanes_meet_in_no_bank(
    terms: int, columns: int
) -> None:
    """Memory gives the matrix in 6.1 microseconds; two kernels took 14 beside their launches."""
    schedule = plan(thin(1, terms, columns, "float", transposed=False), target=NV)
    (found,) = [count(program(item.ast, None, NV), 1) for item in schedule.items]
    limits = predicted(found, "sm_80").limits
    assert found.conflicts == 0
    assert max(limits.values()) < 8.5e-6


@pytest.mark.parametrize("device", ["NVSIM80", "EMU:CL", "EMU:METAL"])
def test_columns_shared_by_many_lanes_are_summed(device: str) -> None:
    left, right = integers(0, 1, 768), integers(1, 768, 96)
    name = simulated(device) if device == "NVSIM80" else device
    x, w = (Tensor(each.astype(np.float32), device=name) for each in (left, right))
    np.testing.assert_array_equal((x @ w).numpy(), left @ right)
    np.testing.assert_array_equal(w.sum(0).numpy(), right.sum(0))


def test_a_scan_of_columns_keeps_the_device_busy() -> None:
    """Memory gives what is read twice and written once in 130 microseconds; scans of four slices
    took 2,048.
    """
    schedule = plan(Tensor.empty(16384, 1024).cumsum(0), target=NV)
    limits = [
        predicted(count(program(item.ast, None, NV), 1), "sm_80").limits for item in schedule.items
    ]
    assert sum(max(each.values()) for each in limits) < 150e-6


def test_rows_of_a_table_that_are_named_often_are_found_by_many_lanes() -> None:
    """One lane counted 1, 2, 3, ... and how often each row is named, in 18 milliseconds."""
    table = Tensor.empty(50257, 64).requires_grad_()
    table[Tensor.empty(8192, dtype="int32")].backward(Tensor.empty(8192, 64))
    schedule = plan(table.grad, target=NV)
    programs = [program(item.ast, None, NV) for item in schedule.items]
    for each in programs:
        dims = launch_dims(each)
        depths = [node.vmax + 1 for node in each if node.op is Ops.RANGE]
        lanes = math.prod(dims.global_size) * math.prod(dims.local_size)
        assert lanes > 1 or math.prod(depths) < 64
