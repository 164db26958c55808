"""Kernels of poolings: lanes along rows of results, rows that share what they load, and values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.schedule.plans import kernel_of, kernels, plan
from tilegrad import Tensor, nn
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp
from tilegrad.optimize.generators.heuristic import shape
from tilegrad.optimize.opts.opt import OptOps, loop_order
from tilegrad.target import Target

RNG = np.random.default_rng(11)
WIDE = Target("CPU", vector_bytes=64, registers=32, threads=1, has_mask=True)


def extents(ast: UOp, axis: Axis) -> list[int]:
    return [loop.vmax + 1 for loop in loop_order(ast) if loop.arg[1] is axis]


def last_kernel(*tensors: Tensor) -> UOp:
    ast = kernels(plan(*tensors, target=WIDE))[-1].ast
    assert ast is not None
    return ast


def gradient(name: str, side: int, kernel: int, stride: int) -> Tensor:
    image = Tensor.empty(2, 24, side, side).realize()
    pooled = getattr(image, name)(kernel, stride)
    return pooled.gradient(image, gradient=Tensor.empty(*pooled.shape).realize())[0]


@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d"])
def test_rows_split_by_a_stride_are_vectors_of_each_remainder(name: str) -> None:
    """Of the stored row, and unrolled rows of each remainder: 16 * 2 elements beside each other."""
    shaped = shape(last_kernel(gradient(name, 53, 5, 2)), WIDE)
    assert sorted(extents(shaped, Axis.UPCAST)) == [2, 2, 16]
    assert extents(shaped, Axis.UNROLL) == [3, 3]


@pytest.mark.parametrize(("side", "rows"), [(20, 16), (17, 13)])
def test_rows_of_overlapping_filter_windows_share_what_they_load(side: int, rows: int) -> None:
    """The rows of the filter window are unrolled, so that one load serves up to five results."""
    shaped = shape(kernel_of(Tensor.empty(2, 24, side, side).realize().max_pool2d(5, 1)), WIDE)
    assert extents(shaped, Axis.UPCAST) == [16, rows]
    assert (extents(shaped, Axis.UNROLL), extents(shaped, Axis.REDUCE)) == ([5], [5])


def test_windows_that_do_not_overlap_are_left_to_others() -> None:
    """No row shares a load: a small filter window is unrolled as a whole."""
    shaped = shape(kernel_of(Tensor.empty(2, 24, 36, 36).realize().max_pool2d(3, 3)), WIDE)
    assert extents(shaped, Axis.REDUCE) == []


@pytest.mark.parametrize("vector_bytes", [32, 64])
@pytest.mark.parametrize("side", [56, 90])
def test_vectors_that_overlap_need_no_mask(vector_bytes: int, side: int) -> None:
    """Rows of 18 and 30 results, and lanes that are in a few vectors of a row that is read."""
    target = replace(WIDE, vector_bytes=vector_bytes)
    shaped = shape(kernel_of(Tensor.empty(2, 24, side, side).realize().avg_pool2d(3, 3)), target)
    assert vector_bytes // 4 in extents(shaped, Axis.UPCAST)
    assert all(opt.op is not OptOps.PADTO for opt in shaped.arg.opts)
    assert not any(node.op is Ops.LOAD and node.is_gated for node in shaped.toposort())
    assert extents(shaped, Axis.UNROLL) == [3, 3]


@pytest.mark.parametrize("vector_bytes", [0, 16, 32])
def test_any_target_shapes_them(vector_bytes: int) -> None:
    target = replace(WIDE, vector_bytes=vector_bytes, registers=16, has_mask=False)
    for name in ("max_pool2d", "avg_pool2d"):
        for item in kernels(plan(gradient(name, 19, 5, 3), target=target)):
            assert item.ast is not None
            lanes = extents(shape(item.ast, target), Axis.UPCAST)
            assert bool(lanes) == bool(vector_bytes)


@pytest.mark.parametrize(
    ("sizes", "kernel", "stride", "padding"),
    [
        ((17, 13), 5, 1, 2),
        ((37, 37), 5, 3, 0),
        ((23, 40), 5, 2, 2),
        ((29, 19), 7, 3, 3),
        ((20, 33), 3, 2, 1),
        ((9, 7), 3, 2, 1),
        ((18, 18), 4, 1, 0),
        ((34, 21), 2, 1, 0),
    ],
)
def test_values(sizes: tuple[int, int], kernel: int, stride: int, padding: int) -> None:
    """Largest elements, their positions, means and gradients by a loop over the windows."""
    x = RNG.permutation(6 * sizes[0] * sizes[1]).reshape(2, 3, *sizes).astype(np.float32)
    given = Tensor(x, requires_grad=True)
    pooled = given.max_pool2d(kernel, stride, padding=padding)
    mean = given.avg_pool2d(kernel, stride, padding=padding)
    g = RNG.standard_normal(mean.shape).astype(np.float32)
    taken, shared = (y.gradient(given, gradient=Tensor(g))[0].numpy() for y in (pooled, mean))
    _, places = nn.functional.max_pool2d(given, kernel, stride, padding, return_indices=True)
    largest, means, positions = pooled.numpy(), mean.numpy(), places.numpy()
    around = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    padded, low = np.pad(x, around), np.pad(x, around, constant_values=-np.inf)
    shares, chosen = np.zeros_like(padded), np.zeros_like(padded)
    for row, column in np.ndindex(*g.shape[2:]):
        top, left = row * stride, column * stride
        at = np.s_[:, :, top : top + kernel, left : left + kernel]
        most, part = low[at].max((2, 3)), g[:, :, row, column, None, None]
        is_most = low[at] == most[:, :, None, None]
        shares[at] += part / kernel**2
        chosen[at] += is_most * part
        _, _, down, right = (each.reshape(2, 3) for each in np.nonzero(is_most))
        place = (down + top - padding) * sizes[1] + right + left - padding
        np.testing.assert_array_equal(positions[:, :, row, column], place)
        np.testing.assert_array_equal(largest[:, :, row, column], most)
        np.testing.assert_allclose(means[:, :, row, column], padded[at].mean((2, 3)), rtol=1e-5)
    inside = np.s_[:, :, padding : padding + sizes[0], padding : padding + sizes[1]]
    np.testing.assert_allclose(taken, chosen[inside], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(shared, shares[inside], rtol=1e-5, atol=1e-5)


def test_padding_that_an_accumulator_meets_first_counts_in_each_iteration() -> None:
    """The first row of the filter window lies in the padding of the first row of results, so that
    the unrolled value is the same in each iteration of the loop over columns.
    """
    x = RNG.standard_normal((1, 1, 9, 7)).astype(np.float32)
    places = nn.functional.max_pool2d(Tensor(x), 3, 2, 1, return_indices=True)[1]
    windows = [x[0, 0, :2, max(0, 2 * at - 1) : 2 * at + 2] for at in range(4)]
    expected = [np.flatnonzero(x.ravel() == window.max())[0] for window in windows]
    assert places.numpy()[0, 0, 0].tolist() == expected
