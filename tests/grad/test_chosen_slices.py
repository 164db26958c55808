"""The gradient of what was joined is one slice of the gradient of the whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.grad.numeric import evaluate, leaf
from tilegrad import Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.grad.backward import gradients
from tilegrad.grad.chosen_slices import chosen_slice
from tilegrad.ir.movement import fill, shrink
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp


@pytest.mark.parametrize("count", [2, 3, 20, 50])
@pytest.mark.parametrize("dim", [0, 1])
def test_one_node_for_each_operand(count: int, dim: int) -> None:
    leaves = [Tensor(np.full((2, 3), 1.0 + n), requires_grad=True) for n in range(count)]
    whole = Tensor.cat(leaves, dim=dim)
    seed = leaf(*whole.shape)
    found = gradients(whole.uop, seed, [each.uop for each in leaves])
    size = (2, 3)[dim]
    for number, each in enumerate(found):
        assert each is not None and each.op is Ops.SHRINK
        below = each.src[0]
        while below is not seed:
            # Of many, groups are memory of their own.
            assert below.op in (Ops.CONTIGUOUS, Ops.SHRINK)
            below = below.src[0]
        values = np.arange(float(np.prod(whole.shape))).reshape(whole.shape)
        wanted = np.split(values, count, axis=dim)[number]
        assert wanted.shape[dim] == size
        np.testing.assert_array_equal(evaluate(each, {seed: values}), wanted)


def mask(size: int, before: int, after: int, rows: int) -> UOp:
    """True in `size` columns of `rows` rows, false before and after them."""
    ones = fill((1, size), True, dtypes.bool)
    inside = UOp(Ops.PAD, dtypes.bool, (ones,), ((0, 0), (before, after)))
    return UOp(Ops.EXPAND, dtypes.bool, (inside,), (rows, before + size + after))


@given(data=st.data())
def test_a_slice_of_choices_has_their_values(data: st.DataObject) -> None:
    """Choices among choices, whole slices in one and across edges, and slices of slices."""
    rows, columns = 3, 12
    first, second = leaf(rows, columns), leaf(rows, columns)
    values = {first: np.arange(36.0).reshape(3, 12), second: -np.arange(36.0).reshape(3, 12)}
    x = first
    for _ in range(data.draw(st.integers(1, 3))):
        width = x.shape[1]
        size = data.draw(st.integers(1, width))
        before = data.draw(st.integers(0, width - size))
        chosen = mask(size, before, width - size - before, rows)
        other = data.draw(st.sampled_from([UOp.const(dtypes.float64, 0.0), None]))
        if other is None:
            other = shrink(second, ((0, rows), (0, width)))
        pair = (x, other) if data.draw(st.booleans()) else (other, x)
        x = chosen.where(*pair)
        if data.draw(st.booleans()):
            start = data.draw(st.integers(0, width - 1))
            x = shrink(x, ((0, rows), (start, data.draw(st.integers(start + 1, width)))))
    width = x.shape[1]
    start = data.draw(st.integers(0, width - 1))
    bounds = ((1, 3), (start, data.draw(st.integers(start + 1, width))))
    found = chosen_slice(x, bounds)
    wanted = evaluate(shrink(x, bounds), values)
    assert found.shape == wanted.shape
    np.testing.assert_array_equal(evaluate(found, values), wanted)
