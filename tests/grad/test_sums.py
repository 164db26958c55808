"""Sums of moved sums are one sum, with the same value."""

from __future__ import annotations

import numpy as np
import pytest

from tests.grad.numeric import evaluate, leaf
from tilegrad import Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.grad.summed_gradients import is_zero, sum_axes
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

MOVES: list[tuple[Ops, object]] = [
    (Ops.RESHAPE, (3, 4, 1)),
    (Ops.PERMUTE, (2, 0, 1)),
    (Ops.PAD, ((0, 0), (0, 1), (1, 0))),
    (Ops.SHRINK, ((0, 3), (0, 1), (1, 4))),
    (Ops.FLIP, (True, False, True)),
]


def inner_sum(x: UOp, *axes: int) -> UOp:
    return UOp(Ops.REDUCE_AXIS, x.dtype, (x,), (Ops.ADD, axes))


def sums(root: UOp) -> list[UOp]:
    return [node for node in root.toposort() if node.op is Ops.REDUCE_AXIS]


@pytest.mark.parametrize("moves", [[], *[[move] for move in MOVES], [MOVES[0], MOVES[4], MOVES[1]]])
@pytest.mark.parametrize("axes", [(0,), (1, 2)])
def test_one_sum(moves: list[tuple[Ops, object]], axes: tuple[int, ...]) -> None:
    x = leaf(3, 5, 4)
    y = inner_sum(x, 1)
    for op, arg in moves:
        y = UOp(op, y.dtype, (y,), arg)
    found = sum_axes(y, axes)
    assert len(sums(found)) == 1
    values = {x: np.random.default_rng(0).normal(size=(3, 5, 4))}
    wanted = evaluate(y, values).sum(axes, keepdims=True)
    np.testing.assert_allclose(evaluate(found, values), wanted, rtol=1e-12)


def test_three_sums_are_one() -> None:
    x = leaf(2, 3, 4)
    found = sum_axes(sum_axes(sum_axes(x, (2,)), (1,)), (0,))
    assert len(sums(found)) == 1
    assert found.shape == (1, 1, 1)


def test_a_sum_is_not_taken_among_many_zeros() -> None:
    """One row of many: its 300 terms are summed before zeros surround it."""
    x = leaf(1, 300)
    padded = UOp(Ops.PAD, x.dtype, (inner_sum(x, 1),), ((3, 996), (0, 0)))
    assert [node.src[0].shape for node in sums(sum_axes(padded, (0,)))] == [(1, 300), (1000, 1)]


def test_a_product_is_summed_before_an_axis_along_which_a_factor_repeats() -> None:
    """The rows of a matrix product are summed once they are there; those of a batch, whose elements
    both factors have of their own, at once.
    """
    rng = np.random.default_rng(0)
    a, w = Tensor.empty(2, 3, 4, dtype="float64"), Tensor.empty(2, 4, 5, dtype="float64")
    values = {each.uop: rng.normal(size=each.shape).reshape(-1) for each in (a, w)}
    values = {node.src[0] if node.op is Ops.RESHAPE else node: x for node, x in values.items()}
    wanted = None
    for moved in (a @ w, (a @ w).permute(1, 0, 2).reshape(3, 1, 2, 5).permute(2, 1, 0, 3)[:, 0]):
        product = moved.uop
        wanted = evaluate(product, values) if wanted is None else wanted
        for axes, count in (((0,), 1), ((1,), 2), ((0, 1), 2), ((2,), 2)):
            found = sum_axes(product, axes)
            assert len(sums(found)) == count, axes
            np.testing.assert_allclose(
                evaluate(found, values), wanted.sum(axes, keepdims=True), rtol=1e-12
            )


def test_other_folds_and_other_ops_stay_apart() -> None:
    x = leaf(3, 4)
    largest = UOp(Ops.REDUCE_AXIS, x.dtype, (x,), (Ops.MAX, (1,)))
    assert len(sums(sum_axes(largest, (0,)))) == 2
    assert len(sums(sum_axes(inner_sum(x, 1) + 2.0, (0,)))) == 2


def test_factors_that_repeat_stand_before_the_sum() -> None:
    """The terms of a sum keep what varies; a normalisation's three gradients share their sums."""
    x, y, scale, shift = leaf(3, 4), leaf(3, 4), leaf(3, 1), leaf(1, 4)
    values = {each: np.random.default_rng(place).normal(size=each.shape)
              for place, each in enumerate((x, y, scale, shift))}  # fmt: skip
    whole = [UOp(Ops.EXPAND, each.dtype, (each,), (3, 4)) for each in (scale, shift)]
    terms = x * whole[0] * 2.0 * y.alu(Ops.FDIV, whole[0] + 3.0)
    found = sum_axes(terms, (1,))
    (total,) = sums(found)
    assert total is sum_axes(x * y, (1,))
    a, b, c, _ = values.values()
    wanted = (a * c * 2 * b / (c + 3)).sum(1, keepdims=True)
    np.testing.assert_allclose(evaluate(found, values), wanted, rtol=1e-12)
    # Each but the number varies along this axis, or nothing else does.
    assert sums(sum_axes(terms, (0,)))[0].src[0].op is Ops.MUL
    assert sums(sum_axes(whole[1], (0,)))[0].src[0] is whole[1]


def test_distances_from_a_mean_have_no_sum() -> None:
    x = leaf(3, 4)
    mean = UOp(Ops.EXPAND, x.dtype, (sum_axes(x, (1,)) * 0.25,), (3, 4))
    distance = x + mean * -1.0
    assert is_zero(sum_axes(distance + distance, (1,)))
    assert sum_axes(distance, (1,)).shape == (3, 1)
    assert not is_zero(sum_axes(distance, (0,)))
    assert not is_zero(sum_axes(x + mean * -0.5, (1,)))


def test_half_stays_wide_between_two_sums() -> None:
    x = leaf(2, 2048, dtype=dtypes.half)
    found = sum_axes(sum_axes(x, (1,)), (0,))
    assert found.dtype is dtypes.half
    (only,) = sums(found)
    assert only.dtype is dtypes.float32
    assert evaluate(found, {x: np.full((2, 2048), 1.0)}).item() == 4096.0


def test_no_axes_is_no_sum() -> None:
    x = leaf(3)
    assert sum_axes(x, ()) is x


def windows_of(x: Tensor, k: int, stride: int, dilation: int) -> Tensor:
    """By a convolution whose filters pick one place each: (1, k, positions)."""
    return x.reshape(1, 1, -1).conv2d(
        Tensor.eye(k, dtype="float64").reshape(k, 1, k), stride=stride, dilation=dilation
    )


@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("stride", [1, 2, 3, 5])
@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("n", [13, 16])
def test_windows_undone(n: int, k: int, stride: int, dilation: int) -> None:
    """Each element has the sum of the gradients of the windows that hold it: one sum of rows."""
    x = Tensor.empty(n, dtype="float64")
    y = windows_of(x, k, stride, dilation)
    positions = y.shape[2]
    assert isinstance(positions, int)
    given = np.random.default_rng(0).normal(size=(1, k, positions))
    g = Tensor.empty(1, k, positions, dtype="float64")
    (found,) = y.gradient(x, gradient=g)
    wanted = np.zeros(n)
    for place in range(k):
        for position in range(positions):
            wanted[position * stride + place * dilation] += given[0, place, position]
    np.testing.assert_allclose(evaluate(found.uop, {g.uop: given}), wanted, rtol=1e-12)
    if k > 1 and (stride < k or dilation > 1):
        assert any(node.op is Ops.FLIP for node in found.uop.toposort())
