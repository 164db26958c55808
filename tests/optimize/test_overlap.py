"""Sizes that parts do not divide: the last part of an axis lies over the one before, the last chunk
is shorter. No value changes, and nothing is masked.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.optimize.test_stage import SEED, WIDE, kernel_of, run
from tests.schedule import plans
from tilegrad import Tensor, dtypes
from tilegrad.base.errors import InternalError, OptError
from tilegrad.device.emulator import execute
from tilegrad.hardware import cuda_target
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp
from tilegrad.lower.lower import lower
from tilegrad.optimize.generators.heuristic import heuristic
from tilegrad.optimize.opts.opt import Opt, OptOps, axes_of, loop_order
from tilegrad.optimize.opts.opts import apply_opts
from tilegrad.target import Target

OVERLAP, UPCAST, THREAD, TILE, STAGE = (
    OptOps.OVERLAP,
    OptOps.UPCAST,
    OptOps.THREAD,
    OptOps.TILE,
    OptOps.STAGE,
)
COLUMNS = [Opt(OVERLAP, 1, 16), Opt(UPCAST, 2, 0)]
BOTH = [Opt(OVERLAP, 1, 16), Opt(OVERLAP, 0, 9), Opt(UPCAST, 1, 0), Opt(UPCAST, 2, 0)]


def product() -> tuple[UOp, Any, Any]:
    a, b = SEED.standard_normal((53, 32), np.float32), SEED.standard_normal((32, 87), np.float32)
    return kernel_of(Tensor.empty(53, 32) @ Tensor.empty(32, 87)), a, b


@pytest.mark.parametrize(
    "opts",
    [
        COLUMNS,
        BOTH,
        [*COLUMNS, Opt(UPCAST, 1, 0)],
        [*BOTH, Opt(THREAD, 0, 4)],
        [*BOTH, Opt(THREAD, 1, 0)],
        [*COLUMNS, Opt(STAGE, -1, 2), Opt(THREAD, 0, 3)],
        [Opt(THREAD, 0, 5)],
        [Opt(THREAD, 0, 52)],
    ],
    ids=[
        "columns",
        "both",
        "parts written out",
        "both in chunks",
        "chunks that meet",
        "packed",
        "chunks",
        "many",
    ],
)
def test_no_value_changes(opts: list[Opt]) -> None:
    ast, a, b = product()
    found = run(ast, opts, (53, 87), a, b)
    np.testing.assert_allclose(found, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)


def test_nothing_is_masked() -> None:
    ast, _, _ = product()
    nodes = apply_opts(ast, BOTH, WIDE).toposort()
    assert all(len(node.src) == 2 for node in nodes if node.op is Ops.LOAD)
    assert all(len(node.src) == 3 for node in nodes if node.op is Ops.STORE)


def test_a_fold_over_windows() -> None:
    x, w = SEED.standard_normal((2, 3, 31, 29), np.float32), SEED.standard_normal((3, 1, 3, 3))
    w = w.astype(np.float32)
    found = Tensor(x).conv2d(Tensor(w), groups=3, padding=1).numpy()
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    wanted = sum(
        wide[:, :, i : i + 31, j : j + 29] * w[None, :, 0, i, j, None, None]
        for i in range(3)
        for j in range(3)
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(53, 131), (17, 23), (35, 16), (16, 35), (100, 19)])
def test_matrices_of_odd_sizes_are_turned_in_registers(shape: tuple[int, int]) -> None:
    ast = kernel_of(Tensor.empty(*shape).T.contiguous())
    shaped = apply_opts(ast, heuristic(ast, WIDE), WIDE)
    assert all(len(node.src) < 4 for node in shaped.toposort() if node.op is Ops.STORE)
    a = SEED.standard_normal(shape, np.float32)
    np.testing.assert_array_equal(Tensor(a).T.contiguous().numpy(), a.T)
    ast = kernel_of(Tensor.empty(*shape).T.flip(0).contiguous())
    shaped = apply_opts(ast, heuristic(ast, WIDE), WIDE)
    assert sum(part.arg[1] is Axis.UPCAST for part in axes_of(shaped)) == 2
    np.testing.assert_array_equal(Tensor(a).T.flip(0).contiguous().numpy(), np.rot90(a))


@pytest.mark.usefixtures("by_nodes")
def test_what_a_kernel_writes_twice_it_must_not_read() -> None:
    x = Tensor(np.arange(33, dtype=np.float32)).realize()
    x.assign(x + 1)
    targets = kernel_of(x)
    with pytest.raises(OptError, match="reads what it writes"):
        apply_opts(targets, [Opt(OVERLAP, 0, 16)], WIDE)
    np.testing.assert_array_equal(x.numpy(), np.arange(1, 34))


@pytest.mark.parametrize("vector_bytes", [32, 64])
def test_rows_beside_a_panel_have_no_gates(vector_bytes: int) -> None:
    """Six or seven rows do not divide these: what they move is read where it lies."""
    registers = vector_bytes // 2
    target = replace(WIDE, vector_bytes=vector_bytes, registers=registers)
    ast = kernel_of(Tensor.empty(509, 512) @ Tensor.empty(512, 512))
    opts = heuristic(ast, target)
    assert {STAGE, OVERLAP} <= {opt.op for opt in opts}
    nodes = apply_opts(ast, opts, target).toposort()
    assert all(len(node.src) == 2 for node in nodes if node.op is Ops.LOAD)


def test_chunks_that_meet_store_the_same() -> None:
    """The emulator, which tells chunks that touch one element, holds what the Opt promises."""
    target = Target("chunks", threads=3)
    x = np.arange(37, dtype=np.float32)
    ast = plans.kernel_of(Tensor(x).realize() * 2 + 1, target)
    shaped = apply_opts(ast, [Opt(OVERLAP, 0, 16), Opt(THREAD, 0, 3)], target)
    found = np.zeros_like(x)
    execute(lower(shaped, target), [memoryview(found).cast("B"), memoryview(x).cast("B")])
    np.testing.assert_array_equal(found, x * 2 + 1)
    # The number of the chunk is not the same in two of them.
    number = next(part for part in axes_of(shaped) if part.arg[1] is Axis.THREAD)
    (store,) = [node for node in shaped.toposort() if node.op is Ops.STORE]
    other = store.replace(src=(*store.src[:2], store.src[2] + number.cast(dtypes.float)))
    with pytest.raises(InternalError, match="which another chunk wrote"):
        execute(
            lower(shaped.substitute({store: other}), target),
            [memoryview(found).cast("B"), memoryview(x).cast("B")],
        )


@pytest.mark.parametrize(
    ("opts", "target", "text"),
    [
        ([Opt(OVERLAP, 1, 29)], WIDE, "divides"),
        ([Opt(OVERLAP, 1, 88)], WIDE, "no chunks"),
        ([Opt(OVERLAP, 2, 16)], WIDE, "reduce axis"),
        ([Opt(TILE, 2, 8), Opt(OVERLAP, 1, 16)], WIDE, "accumulates"),
        ([Opt(OVERLAP, 1, 16), Opt(TILE, 3, 1)], WIDE, "accumulate twice"),
        ([Opt(OVERLAP, 0, 16)], cuda_target("sm_80"), "two blocks"),
    ],
)
def test_refused(opts: list[Opt], target: Target, text: str) -> None:
    ast, _, _ = product()
    with pytest.raises(OptError, match=text):
        apply_opts(ast, opts, target)


@pytest.mark.parametrize("order", [(2, 1, 0), (2, 0, 1), (1, 2, 0), (0, 2, 1)])
def test_any_order_of_odd_axes(order: tuple[int, ...]) -> None:
    a = SEED.standard_normal((11, 23, 37), np.float32)
    ast = kernel_of(Tensor.empty(11, 23, 37).permute(order).contiguous())
    shaped = apply_opts(ast, heuristic(ast, WIDE), WIDE)
    assert {node.op for node in shaped.toposort() if len(node.src) == 4} == set()
    np.testing.assert_array_equal(Tensor(a).permute(order).contiguous().numpy(), a.transpose(order))


def loops_of(value: Tensor) -> list[int]:
    """The loops of one thread, outermost first."""
    ast = kernel_of(value)
    opts = [opt for opt in heuristic(ast, WIDE) if opt.op is not THREAD]
    shaped = apply_opts(ast, opts, WIDE)
    return [part.src[0].arg for part in loop_order(shaped) if part.arg[1] is Axis.LOOP]


def test_loops_over_tiles_nest_by_what_they_fetch() -> None:
    """With every turn of the loop along 176, tiles go on in memory where they were."""
    outside = loops_of(Tensor.empty(32, 176, 336).permute(2, 1, 0).contiguous())
    assert outside[0] != 176 and sorted(outside) == [2, 21, 176]
    # Rows that are stored lie a large power of two apart: few of their lines are kept at once.
    assert loops_of(Tensor.empty(16, 96, 48).permute(2, 0, 1).contiguous()) == [3, 96]
    # The parts of a row that is stored share lines; what is loaded begins at whole ones.
    assert loops_of(Tensor.empty(16, 279, 480).permute(0, 2, 1).contiguous()) == [16, 30, 18]


@pytest.mark.parametrize("length", [17, 100, 121, 200, 700])
def test_a_fold_over_a_row_of_any_length(length: int) -> None:
    a = SEED.standard_normal((9, length), np.float32)
    np.testing.assert_allclose(Tensor(a).sum(1).numpy(), a.sum(1, np.float64), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(Tensor(a).max(1).numpy(), a.max(1))


def test_few_channels_are_folded_beside_rows_of_another_axis() -> None:
    """Three accumulators would wait for each other: rows of the image are written out too."""
    x, w = Tensor.empty(1, 48, 14, 14), Tensor.empty(3, 48, 5, 5)
    ast = kernel_of(x.conv2d(w, padding=2))
    shaped = apply_opts(ast, heuristic(ast, WIDE), WIDE)
    written = [part.src[0].arg for part in loop_order(shaped) if part.arg[1] is Axis.UPCAST]
    assert math.prod(written) >= 8 * 16


def test_chunks_leave_deep_folds_to_all_threads() -> None:
    """What few elements share a line does not matter where each takes long."""
    ast = kernel_of(Tensor.empty(8, 1 << 16).sum(1))
    (threads,) = [opt for opt in heuristic(ast, replace(WIDE, threads=8)) if opt.op is THREAD]
    assert threads.arg in (2, 4, 8)
    assert not [opt for opt in heuristic(ast, replace(WIDE, threads=0)) if opt.op is THREAD]


def test_filters_of_a_small_convolution_are_packed() -> None:
    """Channels as lanes lie apart: however little there is to do, none is loaded by itself."""
    ast = kernel_of(Tensor.empty(1, 16, 7, 7).conv2d(Tensor.empty(32, 16, 3, 3), padding=1))
    assert [opt for opt in heuristic(ast, WIDE) if opt.op is STAGE]
