"""Several results of a fold at once, where its lanes run along the fold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tilegrad import Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.ir import Axis, Ops, UOp
from tilegrad.optimize.generators.amounts import rows_of_reduction
from tilegrad.target import Target

# Accumulators are 24 vectors, and 33; rows a multiple of 4096 bytes apart share a set of 8 lines.
TARGET = Target("example", vector_bytes=64, registers=32)
ROOMY = replace(TARGET, registers=44)


def loop(extent: int, number: int, kind: Axis = Axis.LOOP) -> UOp:
    return UOp.range(UOp.const(dtypes.index, extent), number, kind)


def fold_of(*indices: UOp, over: UOp) -> UOp:
    """The sum over `over` of the product of one element of each buffer."""
    value: UOp | None = None
    for slot, index in enumerate(indices, 1):
        buffer = UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(1 << 20), (), slot)
        load = UOp(Ops.LOAD, dtypes.float, (buffer, index))
        value = load if value is None else value * load
    assert value is not None
    return UOp(Ops.REDUCE, dtypes.float, (value, over), Ops.ADD)


def test_a_square_tile_loads_least() -> None:
    i, j, k = loop(64, 0), loop(64, 1), loop(256, 2, Axis.REDUCE)
    fold = fold_of(i * 256 + k, j * 256 + k, over=k)
    # 4 by 4: 8 loads for 16 results; 8 by 2 takes 10, and 8 by 4 more registers than there are.
    assert dict(rows_of_reduction(fold, [i, j], TARGET)) == {i: 4, j: 4}
    assert dict(rows_of_reduction(fold, [i, j], ROOMY)) in ({i: 8, j: 4}, {i: 4, j: 8})


def test_only_divisors() -> None:
    i, j, k = loop(9, 0), loop(7, 1), loop(256, 2, Axis.REDUCE)
    fold = fold_of(i * 256 + k, j * 256 + k, over=k)
    assert dict(rows_of_reduction(fold, [i, j], TARGET)) == {i: 3, j: 7}


def test_a_vector_serves_many_rows() -> None:
    i, k = loop(64, 0), loop(256, 2, Axis.REDUCE)
    assert rows_of_reduction(fold_of(i * 256 + k, k, over=k), [i], TARGET) == [(i, 8)]


@pytest.mark.parametrize(("length", "rows"), [(3072, 4), (3080, 8), (1024, 8)])
def test_rows_that_crowd_each_other_out_of_a_cache(length: int, rows: int) -> None:
    """Fewer of them, where each is read once: 12 KiB apart, not a little more, nor short ones."""
    i, j, k = loop(64, 0), loop(64, 1), loop(length, 2, Axis.REDUCE)
    assert rows_of_reduction(fold_of(i * length + k, k, over=k), [i], TARGET) == [(i, rows)]
    fold = fold_of(i * length + k, j * length + k, over=k)
    assert dict(rows_of_reduction(fold, [i, j], ROOMY)) in ({i: 8, j: 4}, {i: 4, j: 8})


def test_nothing_is_shared() -> None:
    i, k = loop(64, 0), loop(256, 2, Axis.REDUCE)
    assert rows_of_reduction(fold_of(i * 256 + k, over=k), [i], TARGET) == []
    assert rows_of_reduction(fold_of(i * 256 + k, i * 256 + k, over=k), [i], TARGET) == []


@pytest.mark.parametrize("channels", [(1, 32), (3, 8), (5, 7)])
def test_the_gradient_of_a_weight(channels: tuple[int, int]) -> None:
    numbers = np.random.RandomState(0)
    inner, outer = channels
    x = numbers.randn(16, inner, 20, 20).astype(np.float32)
    g = numbers.randn(16, outer, 20, 20).astype(np.float32)
    weight = Tensor.zeros(outer, inner, 3, 3).contiguous()
    (found,) = Tensor(x).conv2d(weight, padding=1).gradient(weight, gradient=Tensor(g))
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))).astype("d")
    expected = np.empty((outer, inner, 3, 3))
    for row in range(3):
        for column in range(3):
            window = padded[:, :, row : row + 20, column : column + 20]
            expected[:, :, row, column] = np.einsum("bihw,bohw->oi", window, g)
    np.testing.assert_allclose(found.numpy(), expected, rtol=2e-4, atol=2e-3)
