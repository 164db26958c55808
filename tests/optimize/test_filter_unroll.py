"""The row of a filter is unrolled where padding asks about it: as many sums, in the same order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.optimize.kernels import buffer, conv2d, kernel
from tests.schedule.plans import kernel_of
from tilegrad import Tensor, jit
from tilegrad.ir import Axis, Ops
from tilegrad.optimize.generators.heuristic import heuristic, short_shape
from tilegrad.optimize.model.model import estimate
from tilegrad.optimize.opts.opt import Opt, OptOps
from tilegrad.optimize.opts.opts import apply_opts, start
from tilegrad.target import Target

TARGET = Target("rows", vector_bytes=32, threads=8, has_mask=True)
UNROLL = Opt(OptOps.UNROLL, 2, 0)


def opts_of(padding: int, channels: int = 16) -> tuple[list[Opt], float, float]:
    """The Opts of a convolution, and its cycles with and without an unrolled row of the filter."""
    x, w = buffer(0, 3, channels, 16, 16), buffer(1, 16, channels, 3, 3)
    ast = kernel(conv2d(x, w, padding=padding), target=TARGET)
    found = heuristic(ast, TARGET)
    others = [opt for opt in found if opt != UNROLL]
    place = next((n for n, opt in enumerate(others) if opt.op is OptOps.THREAD), len(others))
    cycles = [
        estimate(apply_opts(ast, opts, TARGET), TARGET).cycles
        for opts in ([*others[:place], UNROLL, *others[place:]], others)
    ]
    return found, cycles[0], cycles[1]


def test_the_row_of_a_filter_is_unrolled_where_padding_asks_about_it() -> None:
    found, unrolled, looped = opts_of(padding=1)
    assert UNROLL in found
    assert unrolled < 0.85 * looped
    # Without padding there are no conditions, and a loop reads as well.
    assert UNROLL not in opts_of(padding=0)[0]


def test_the_terms_of_a_sum_keep_their_order() -> None:
    """What is unrolled is the innermost loop of the sum, and all of its loops were loops."""
    x, w = buffer(0, 3, 16, 16, 16), buffer(1, 16, 16, 3, 3)
    ast = kernel(conv2d(x, w, padding=1), target=TARGET)
    (before,) = [node for node in ast.toposort() if node.op is Ops.REDUCE]
    shaped = apply_opts(ast, heuristic(ast, TARGET), TARGET)
    (after,) = [node for node in shaped.toposort() if node.op is Ops.REDUCE]
    assert before.src[-1].vmax == 2
    kinds = [loop.axis for loop in after.src[1:] if loop.op is Ops.RANGE]
    assert sorted(kinds, key=str) == [Axis.REDUCE, Axis.REDUCE, Axis.UNROLL]


@pytest.mark.parametrize("channels", [1, 5])
def test_a_captured_convolution_of_picked_images_rounds_as_the_eager_one(channels: int) -> None:
    """A captured program may compute the positions in the kernel that reads the images."""
    random = np.random.default_rng(5)
    images = Tensor(random.standard_normal((50, channels, 16, 16), np.float32)).realize()
    w = Tensor(random.standard_normal((8, channels, 3, 3), np.float32)).realize()

    def step() -> Tensor:
        picked = Tensor.randint(3, high=50)
        return images[picked].conv2d(w, padding=1).realize()

    Tensor.manual_seed(3)
    expected = [step().numpy() for _ in range(4)]
    Tensor.manual_seed(3)
    captured = jit(step)
    for each in expected:
        np.testing.assert_array_equal(captured().numpy(), each)


@pytest.mark.parametrize("stride", [1, 2])
def test_rows_of_a_filter_are_unrolled_where_results_share_what_they_read(stride: int) -> None:
    """Of a depthwise convolution, whose unrolled results lie below each other: the loop over the
    rows of the filter, in short kernels as well.
    """
    x, w = Tensor.empty(1, 64, 24, 24).realize(), Tensor.empty(64, 1, 7, 7).realize()
    target = replace(TARGET, vector_bytes=64, registers=32)
    ast = kernel_of(x.conv2d(w, stride=stride, padding=3, groups=64), target)
    for found in (heuristic(ast, target), list(short_shape(ast, target)[0].arg.opts)):
        assert Opt(OptOps.UNROLL, 0, 0) in found
        assert Opt(OptOps.UNROLL, 1, 0) not in found


def test_images_that_share_a_filter_are_one_iteration_where_that_takes_less() -> None:
    x, w = Tensor.empty(3, 64, 24, 24).realize(), Tensor.empty(64, 1, 7, 7).realize()
    target = replace(TARGET, vector_bytes=64, registers=32, threads=0)
    ast = kernel_of(x.conv2d(w, stride=2, padding=3, groups=64), target)
    found = heuristic(ast, target)
    assert found[-1] == Opt(OptOps.UPCAST, 0, 0)
    together, apart = (
        estimate(apply_opts(ast, opts, target), target).cycles for opts in (found, found[:-1])
    )
    assert together < 0.85 * apart


def test_values_of_images_that_share_a_filter() -> None:
    random = np.random.default_rng(7)
    x = random.standard_normal((3, 16, 24, 24), np.float32)
    w = random.standard_normal((16, 1, 7, 7), np.float32)
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (3, 3), (3, 3)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (7, 7), axis=(2, 3))[:, :, ::2, ::2]
    expected = np.einsum("ncyxij,cij->ncyx", windows, w[:, 0])
    found = Tensor(x).conv2d(Tensor(w), stride=2, padding=3, groups=16)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("has_fma", "registers"), [(True, 32), (False, 16)])
def test_rows_that_slide_with_a_stride_share_loads_where_registers_hold_them(
    has_fma: bool, registers: int
) -> None:
    """The gradient of a 5x5 depthwise filter with stride 2: of five rows of the filter the next row
    of the image reads three again. Without multiply-adds, 16 registers do not hold them all.
    """
    target = replace(TARGET, threads=0, has_fma=has_fma, registers=registers)
    x, flow = Tensor.empty(4, 63, 28, 24).realize(), Tensor.empty(4, 63, 12, 10).realize()
    w = Tensor.empty(63, 1, 5, 5).realize()
    (gradient,) = x.conv2d(w, groups=63, stride=2).gradient(w, gradient=flow)
    ast = start(kernel_of(gradient, target=target), target)
    shaped = apply_opts(ast, heuristic(ast, target), target)
    (reduction,) = [node for node in shaped.toposort() if node.op is Ops.REDUCE]
    unrolled = [loop.extent.arg for loop in reduction.src[1:] if loop.axis is Axis.UNROLL]
    assert (12 in unrolled) is has_fma
