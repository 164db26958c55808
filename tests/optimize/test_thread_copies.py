"""Chunks for threads beside copies: each chunk makes what its loop does not move for itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.optimize.test_stage import WIDE, kernel_of
from tilegrad import Context, Device, Tensor, dtypes
from tilegrad.engine.program.stages import to_program
from tilegrad.ir.op import Axis, Ops
from tilegrad.optimize.generators.heuristic import heuristic, shape
from tilegrad.optimize.model.model import estimate
from tilegrad.optimize.opts.opt import Opt, OptOps
from tilegrad.optimize.opts.opts import apply_opts

ONE, TWO = replace(WIDE, threads=0), replace(WIDE, threads=8)


def convolution(channels: int, side: int, to: int, size: int, stride: int, padding: int) -> Tensor:
    x, w = Tensor.empty(1, channels, side, side), Tensor.empty(to, channels, size, size)
    return x.conv2d(w, stride=stride, padding=padding)


def test_chunks_share_the_loop_that_moves_a_copy() -> None:
    """Strips of columns are copied: chunks of rows would copy each strip as a whole again."""
    shaped = shape(kernel_of(convolution(48, 33, 96, 3, 2, 1)), TWO)
    (chunks,) = [
        loop for loop in shaped.toposort() if loop.op is Ops.RANGE and loop.axis is Axis.THREAD
    ]
    strips = [
        node.src[0]
        for node in shaped.toposort()
        if node.op is Ops.END and node.src[0].op is Ops.STORE and chunks in node.ranges
    ]
    assert strips


def test_a_copy_that_is_half_of_the_work_is_made_once() -> None:
    """131,712 weights are packed for 25 pixels."""
    opts = heuristic(kernel_of(convolution(64, 16, 42, 7, 2, 0)), TWO)
    assert OptOps.STAGE in [opt.op for opt in opts]
    assert OptOps.THREAD not in [opt.op for opt in opts]


def test_the_estimate_counts_a_copy_for_each_chunk() -> None:
    product = Tensor.empty(96, 64) @ Tensor.empty(64, 128)
    ast = kernel_of(product)
    staged = [Opt(OptOps.UPCAST, 1, 16), Opt(OptOps.STAGE, -1, 2)]
    found = [
        estimate(apply_opts(ast, [*staged, *chunks], TWO), TWO).issue
        for chunks in ([], [Opt(OptOps.THREAD, 0, 2)], [Opt(OptOps.THREAD, 0, 6)])
    ]
    once = found[1] - found[0]
    assert once > 0 and found[2] - found[0] == pytest.approx(5 * once, rel=0.02)


def test_the_estimate_counts_a_copy_in_each_iteration_of_a_loop_around_it() -> None:
    """A panel of the right side is copied for each of 96 rows, which do not move it."""
    ast = kernel_of(Tensor.empty(96, 64) @ Tensor.empty(64, 128))
    lanes = Opt(OptOps.UPCAST, 1, 16)
    plain, around, outside = (
        estimate(apply_opts(ast, [lanes, *opts], ONE), ONE).instructions
        for opts in (
            [],
            [Opt(OptOps.STAGE, 1, 2)],
            [Opt(OptOps.SWAP, 0, 1), Opt(OptOps.STAGE, 0, 2)],
        )
    )
    assert around - plain == pytest.approx(96 * (outside - plain), rel=0.1)


def test_padded_channels_are_transposed_as_they_are_packed() -> None:
    """Of five times 32 channels the last ones are padding: whole rows of each are loaded, and no
    element of the weights by itself.
    """
    if not Device["CPU"].target.has_mask:
        pytest.skip("this processor has no masks")
    ast = kernel_of(convolution(16, 51, 149, 3, 1, 1))
    _, program = to_program(ast, Device["CPU"].target)
    weights = [node for node in program if node.op is Ops.LOAD and node.src[0].arg == 2]
    assert weights and all(node.dtype.lanes > 1 for node in weights)


@pytest.mark.parametrize(("channels", "to", "size"), [(16, 37, 1), (64, 5, 1), (16, 21, 3)])
def test_values(channels: int, to: int, size: int) -> None:
    draw = np.random.default_rng(3)
    x = draw.standard_normal((2, channels, 9, 8), np.float32)
    w = draw.standard_normal((to, channels, size, size), np.float32)
    side = size // 2
    wide = np.pad(x, ((0, 0), (0, 0), (side, side), (side, side))).astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(wide, (size, size), (2, 3))
    wanted = np.einsum("ncyxij,ocij->noyx", windows, w)
    for noopt in (0, 1):
        with Context(NOOPT=noopt):
            found = Tensor(x).conv2d(Tensor(w), padding=side).numpy()
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_chunks_of_a_row_that_overlap_are_known_to_share_lines() -> None:
    """A last chunk that begins earlier has no constant step: chunks of rows are the better ones."""
    x, ids = Tensor.empty(1843, 748), Tensor.empty(1843, 374, dtype=dtypes.int64)
    opts = heuristic(kernel_of(x.gather(1, ids)), TWO)
    assert OptOps.OVERLAP in [opt.op for opt in opts]
    assert opts[-1] == Opt(OptOps.THREAD, 0, 8)


def test_the_gate_of_a_row_is_no_branch_for_each_lane() -> None:
    """34 rows, seven at once: a test for each of the seven loads of an iteration."""
    ast = kernel_of(Tensor.empty(64, 34).transpose(0, 1) @ Tensor.empty(64, 128))
    tile = [Opt(OptOps.UPCAST, 1, 16), Opt(OptOps.PADTO, 0, 7), Opt(OptOps.UPCAST, 0, 7)]
    free = [Opt(OptOps.UPCAST, 1, 16), Opt(OptOps.PADTO, 0, 7)]
    gated, plain = (estimate(apply_opts(ast, opts, ONE), ONE) for opts in (tile, free))
    # An addition with its product and a test for each row; alone, a row has a test as well.
    assert gated.issue < plain.issue
    assert gated.issue == pytest.approx(8 * 5 * 64 * (14 / 2 + 1), rel=0.1)
