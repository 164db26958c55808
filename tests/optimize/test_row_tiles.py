"""Reductions of a row one after another: some rows at once, and the estimate of what one waits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.optimize.test_stage import WIDE, kernel_of
from tests.schedule.plans import kernels, plan
from tilegrad import Tensor
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import stride_of
from tilegrad.optimize.generators.heuristic import shape
from tilegrad.optimize.generators.row_tiles import tiled_rows
from tilegrad.optimize.generators.shaper import Shaper
from tilegrad.optimize.model.model import estimate
from tilegrad.optimize.opts.opt import Opt, OptOps
from tilegrad.optimize.opts.opts import apply_opts
from tilegrad.target import Target

ONE = replace(WIDE, threads=0)
NARROW = replace(ONE, vector_bytes=16, registers=16, has_mask=False)


def unrolled(value: Tensor, target: Target = ONE) -> dict[Axis, set[int]]:
    """The unrolled extents of the kernel of `value`, by kind of axis."""
    found: dict[Axis, set[int]] = {}
    for node in shape(kernel_of(value), target).toposort():
        if node.arg and isinstance(node.arg, tuple) and node.arg[-1] in (Axis.UPCAST, Axis.UNROLL):
            found.setdefault(node.axis, set()).add(node.extent.arg)
    return found


@pytest.mark.parametrize("columns", [96, 100, 202, 256])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_four_rows_have_a_vector_each_in_every_nest(name: str, columns: int) -> None:
    found = unrolled(getattr(Tensor.empty(640, columns), name)(1))
    assert found == {Axis.UPCAST: {4, 16}, Axis.UNROLL: {16}}


@pytest.mark.parametrize(
    ("rows", "columns", "count"),
    [(1600, 334, 4), (1088, 542, 2), (96, 848, 4), (800, 848, 2), (800, 1024, 1), (96, 2256, 1)],
)
def test_rows_at_once_are_less_than_a_page_each(rows: int, columns: int, count: int) -> None:
    """From memory, as many as lie on two pages; else as many as half of the nearest cache holds."""
    unroll = unrolled(Tensor.empty(rows, columns).softmax(1))[Axis.UPCAST]
    assert {2, 4} & unroll == {count} - {1}


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "var"])
@pytest.mark.parametrize(("rows", "distance"), [(4000, 1000), (40, 1)])
def test_rows_from_memory_are_an_equal_share_apart(name: str, rows: int, distance: int) -> None:
    """Each of them is a stream; in the second cache they are neighbours."""
    shaped = shape(kernel_of(getattr(Tensor.empty(rows, 300), name)(1)), ONE)
    loads = [node for node in shaped.toposort() if node.op is Ops.LOAD and node.index.ranges]
    beside = {loop for load in loads for loop in load.ranges if loop.axis is Axis.UPCAST}
    (row,) = [loop for loop in beside if loop.extent.arg == 4]
    read = [load for load in loads if load.src[0].op is Ops.DEFINE_GLOBAL]
    assert {stride_of(load.index, row) for load in read} == {300 * distance}


def test_rows_across_memory_are_lanes_and_no_rows_beside_each_other() -> None:
    assert unrolled(Tensor.empty(40, 640).softmax(0)).get(Axis.UNROLL, set()) == set()


def test_padding_is_not_read_lane_by_lane() -> None:
    """Without masks rows are tiled that are whole vectors, or long enough to peel the last one."""
    for columns, is_tiled in ((96, True), (50, True), (7, False)):
        ast = kernel_of(Tensor.empty(640, columns).softmax(1))
        reductions = [node for node in ast.toposort() if node.op is Ops.REDUCE]
        assert bool(tiled_rows(Shaper(ast, NARROW), reductions, 4)) is is_tiled


@pytest.mark.parametrize("columns", [201, 202])
def test_rows_without_masks_are_padded_where_their_last_vector_is_peeled(columns: int) -> None:
    """Reductions are padded to whole vectors, and nests overlap at the end of a row."""
    opts: list[Opt] = list(shape(kernel_of(Tensor.empty(640, columns).softmax(1)), NARROW).arg.opts)
    assert {opt.arg for opt in opts if opt.op is OptOps.UNROLL} == {4}
    assert sum(opt.op is OptOps.PADTO for opt in opts) == 2
    assert sum(opt.op is OptOps.OVERLAP for opt in opts) >= 1


def test_a_row_waits_for_its_lanes_where_the_processor_sees_no_further() -> None:
    """A load, four sums one after another, and a tree of shuffles and sums over 16 lanes; with rows
    side by side, all of it once for four of them.
    """
    blind = replace(ONE, timing=replace(ONE.timing, window=1))
    ast, latency = kernel_of(Tensor.empty(1024, 64).sum(1)), ONE.timing.latency
    chain = ONE.timing.first_byte[0] + 4 * latency + 2 * 4 * latency
    whole = [Opt(OptOps.UNROLL, 0, 64)]
    assert estimate(apply_opts(ast, whole, blind), blind).latency == 1024 * chain
    tiled = apply_opts(ast, [*whole, Opt(OptOps.UPCAST, 0, 4)], blind)
    assert estimate(tiled, blind).latency == 256 * chain
    far = replace(ONE, timing=replace(ONE.timing, window=1 << 20))
    assert estimate(apply_opts(ast, whole, far), far).latency == 0


def test_a_few_long_rows_are_one_kernel() -> None:
    """Each core has four items of work: eight rows keep two of them busy."""
    eight = replace(WIDE, threads=8)
    assert len(kernels(plan(Tensor.empty(16, 2256).softmax(1), target=eight))) == 1
    assert len(kernels(plan(Tensor.empty(4, 9000).softmax(1), target=eight))) > 1


@pytest.mark.parametrize(
    "size", [(64, 100), (9, 334), (5, 31), (17, 2256), (23, 16), (1103, 300), (601, 600)]
)
def test_values(size: tuple[int, int]) -> None:
    x = np.random.default_rng(1).standard_normal(size).astype(np.float32)
    power = np.exp(x.astype(np.float64))
    wanted = power / power.sum(1, keepdims=True)
    np.testing.assert_allclose(Tensor(x).softmax(1).numpy(), wanted, rtol=2e-6)
    np.testing.assert_allclose(
        Tensor(x).log_softmax(1).numpy(), np.log(wanted), rtol=4e-6, atol=4e-6
    )
    wide = x.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(Tensor(x).layernorm().numpy(), normal, rtol=1e-5, atol=1e-5)
