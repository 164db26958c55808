"""Lanes that meet within a warp: where exchanges take the place of shared memory, and values."""

from __future__ import annotations

import numpy as np
import pytest

from tests.optimize.kernels import CUDA, METAL, buffer, kernel, opt, program, reduce, run, text
from tilegrad.base.dtype import AddressSpace, Pointer, dtypes
from tilegrad.base.errors import InternalError
from tilegrad.device.emulator import execute
from tilegrad.hardware import opencl_target
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.optimize.opts.opt import OptOps
from tilegrad.render.python import render_python
from tilegrad.runtime.simt import SimtProgram

SUM = reduce(Ops.ADD, buffer(0, 3, 1024), 1)
X = np.random.default_rng(0).standard_normal((3, 1024)).astype(np.float32)


def shared_elements(found: list[UOp]) -> int:
    arrays = [node.dtype for node in found if node.op is Ops.DEFINE_LOCAL]
    return sum(
        array.size
        for array in arrays
        if isinstance(array, Pointer) and array.space is AddressSpace.SHARED
    )


@pytest.mark.parametrize(
    ("lanes", "shuffles", "shared"), [(32, 5, 0), (64, 5, 2), (256, 5, 8), (1024, 5, 32)]
)
def test_only_one_result_of_a_warp_goes_through_shared_memory(
    lanes: int, shuffles: int, shared: int
) -> None:
    found = program(kernel(SUM), [opt(OptOps.GROUP, 0, lanes)])
    assert sum(node.op is Ops.SHUFFLE for node in found) == shuffles
    assert shared_elements(found) == shared
    assert any(node.op is Ops.BARRIER for node in found) is (shared > 0)
    wanted = X.astype(np.float64).sum(1)
    assert np.allclose(run(SUM, {0: X}, [opt(OptOps.GROUP, 0, lanes)]), wanted, atol=1e-4)


def test_a_block_that_is_no_whole_warp_meets_in_shared_memory() -> None:
    found = program(kernel(SUM), [opt(OptOps.GROUP, 0, 16)])
    assert not any(node.op is Ops.SHUFFLE for node in found)
    assert shared_elements(found) == 16


def test_rows_of_half_a_warp_each_exchange() -> None:
    value = reduce(Ops.ADD, buffer(0, 8, 64), 1)
    opts = [opt(OptOps.GROUP, 0, 16), opt(OptOps.LOCAL, 0, 4)]
    found = program(kernel(value), opts)
    assert [node.arg for node in found if node.op is Ops.SHUFFLE] == [8, 4, 2, 1]
    x = X[0, :512].reshape(8, 64)
    assert np.allclose(run(value, {0: x}, opts), x.astype(np.float64).sum(1), atol=1e-5)


def test_lanes_that_are_no_neighbours_meet_in_shared_memory() -> None:
    value = reduce(Ops.ADD, buffer(0, 64, 64), 0)
    opts = [opt(OptOps.LOCAL, 0, 32), opt(OptOps.GROUPTOP, 0, 8)]
    assert not any(node.op is Ops.SHUFFLE for node in program(kernel(value), opts))


def test_a_wider_dtype_meets_in_shared_memory() -> None:
    value = reduce(Ops.ADD, buffer(0, 2, 64, dtype=dtypes.int64), 1)
    found = program(kernel(value), [opt(OptOps.GROUP, 0, 32)])
    assert not any(node.op is Ops.SHUFFLE for node in found)


def test_a_target_without_exchanges_has_none() -> None:
    target = opencl_target()
    found = program(kernel(SUM, target=target), [opt(OptOps.GROUP, 0, 256)], target)
    assert not any(node.op is Ops.SHUFFLE for node in found)


def test_the_largest_of_a_row_with_nan_is_nan() -> None:
    value = reduce(Ops.MAX, buffer(0, 3, 1024), 1)
    x = X.copy()
    x[1, 700] = np.nan
    found = run(value, {0: x}, [opt(OptOps.GROUP, 0, 256)])
    assert np.array_equal(found, x.max(1), equal_nan=True)


def test_the_texts_of_an_exchange() -> None:
    opts = [opt(OptOps.GROUP, 0, 32)]
    assert "__shfl_xor_sync(0xffffffffu, acc0, 16)" in text(kernel(SUM), opts, CUDA)
    assert "simd_shuffle_xor(acc0, (ushort)16)" in text(kernel(SUM), opts, METAL)


def test_lanes_that_do_not_come_to_an_exchange_are_reported() -> None:
    found = program(kernel(SUM), [opt(OptOps.GROUP, 0, 32)])
    source = render_python("kernel", found)
    line = next(each for each in source.splitlines() if "yield" in each)
    name = line.strip().split(" = ")[0]
    indent = line[: len(line) - len(line.lstrip())]
    gated = f"{indent}{name} = 0.0\n{indent}if lidx0 != 3: {line.strip()}"
    broken = source.replace(line, gated, 1)
    memories = [memoryview(np.zeros(3, np.float32)).cast("B"), memoryview(X).cast("B")]
    with pytest.raises(InternalError, match="do not meet"):
        SimtProgram("kernel", broken).run(memories, [], (3, 1, 1), (32, 1, 1))


def test_every_lane_has_the_same_bits() -> None:
    """An exchange adds the same two numbers in both lanes."""
    found = program(kernel(SUM), [opt(OptOps.GROUP, 0, 32)])
    first = np.zeros(3, np.float32)
    execute(found, [memoryview(first).cast("B"), memoryview(X).cast("B")])
    # By hand: lane i holds every 32nd element, then halves are added.
    lanes = X.reshape(3, 32, 32)
    total = np.zeros((3, 32), np.float32)
    for step in range(32):
        total += lanes[:, step]
    for mask in (16, 8, 4, 2, 1):
        total = total + total[:, np.arange(32) ^ mask]
    assert (total == total[:, :1]).all()
    assert first.tolist() == total[:, 0].tolist()
