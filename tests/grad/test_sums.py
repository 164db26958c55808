"""Sums of moved sums are one sum, with the same value."""

from __future__ import annotations

import numpy as np
import pytest

from tests.grad.numeric import evaluate, leaf
from tilegrad.base.dtype import dtypes
from tilegrad.grad.sums import sum_axes
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


def test_other_folds_and_other_ops_stay_apart() -> None:
    x = leaf(3, 4)
    largest = UOp(Ops.REDUCE_AXIS, x.dtype, (x,), (Ops.MAX, (1,)))
    assert len(sums(sum_axes(largest, (0,)))) == 2
    assert len(sums(sum_axes(inner_sum(x, 1) * 2.0, (0,)))) == 2


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
