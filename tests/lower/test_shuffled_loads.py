"""Lanes that are close together are shuffled from whole vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.optimize.test_stage import WIDE
from tests.schedule.plans import kernel_of
from tilegrad import Context, Device, Tensor
from tilegrad.engine.program.stages import to_program
from tilegrad.ir import Ops
from tilegrad.optimize.opts.opt import Opt, OptOps

X = np.arange(3 * 40 * 48, dtype=np.float32).reshape(3, 40, 48)
Both = tuple[Callable[[Tensor], Tensor], Callable[[Any], Any]]


def twice(x: Any) -> Any:
    """Each column twice, as the gradient of pooling has it."""
    return x.reshape(3, 40, 48, 1).expand(3, 40, 48, 2).reshape(3, 40, 96)


CASES: dict[str, Both] = {
    "every second": (lambda x: x[:, :, ::2] * 2, lambda x: x[:, :, ::2] * 2),
    "every second, from the second": (lambda x: x[:, :, 1::2] * 2, lambda x: x[:, :, 1::2] * 2),
    "every third": (lambda x: x[:, :, ::3] * 2, lambda x: x[:, :, ::3] * 2),
    "every fourth": (lambda x: x[:, :, ::4] * 2, lambda x: x[:, :, ::4] * 2),
    "every fifth": (lambda x: x[:, :, ::5] * 2, lambda x: x[:, :, ::5] * 2),
    "backwards": (lambda x: x.flip(2) * 2, lambda x: x[:, :, ::-1] * 2),
    "backwards by two": (lambda x: x.flip(2)[:, :, ::2] * 2, lambda x: x[:, :, ::-2] * 2),
    "each twice": (lambda x: twice(x) * 2, lambda x: np.repeat(x, 2, 2) * 2),
    "each twice, padded": (
        lambda x: twice(x).pad((1, 2, 0, 0, 0, 0)) * 2,
        lambda x: np.pad(np.repeat(x, 2, 2), ((0, 0), (0, 0), (1, 2))) * 2,
    ),
    "padded, every second": (
        lambda x: x.pad((3, 4, 0, 0, 0, 0))[:, :, ::2] * 2,
        lambda x: np.pad(x, ((0, 0), (0, 0), (3, 4)))[:, :, ::2] * 2,
    ),
    "backwards, padded": (
        lambda x: x.flip(2).pad((3, 5, 0, 0, 0, 0)) * 2,
        lambda x: np.pad(x[:, :, ::-1], ((0, 0), (0, 0), (3, 5))) * 2,
    ),
    "pooled": (
        lambda x: x.reshape(3, 40, 24, 2).max(3),
        lambda x: x.reshape(3, 40, 24, 2).max(3),
    ),
    "pooled by two rows": (
        lambda x: x.reshape(3, 20, 2, 24, 2).max((2, 4)),
        lambda x: x.reshape(3, 20, 2, 24, 2).max((2, 4)),
    ),
    "pooled by three": (
        lambda x: x.reshape(3, 40, 16, 3).sum(3),
        lambda x: x.reshape(3, 40, 16, 3).sum(3),
    ),
    "the last columns alone": (lambda x: x[:, :, 1:48:2] + 1, lambda x: x[:, :, 1:48:2] + 1),
}


@pytest.mark.parametrize("is_plain", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, is_plain: bool) -> None:
    compute, expected = CASES[name]
    with Context(NOOPT=int(is_plain)):
        np.testing.assert_array_equal(compute(Tensor(X)).numpy(), expected(X))


def test_integers_and_bytes() -> None:
    for dtype in (np.int8, np.int16, np.int32, np.float64):
        x = (X % 100).astype(dtype)
        np.testing.assert_array_equal((Tensor(x).flip(2) * 2)[:, :, ::2].numpy(), x[:, :, ::-2] * 2)


@pytest.mark.parametrize(("columns", "window"), [(32, 2), (48, 3)])
def test_columns_of_a_window_share_vectors(columns: int, window: int) -> None:
    """Each element of the input is loaded once, in vectors without gaps."""
    target = replace(WIDE, threads=0)
    x = Tensor.empty(3, 8, columns).realize()
    value = x.reshape(3, 8, columns // window, window).max(3)
    opts = [Opt(OptOps.UNROLL, 0, 0), Opt(OptOps.UPCAST, 0, 16)]
    program = to_program(kernel_of(value, target), target, opts)[1]
    loads = [node for node in program if node.op is Ops.LOAD]
    assert [load.dtype.lanes for load in loads] == [16] * window


@pytest.mark.parametrize("name", ["every second", "backwards", "each twice", "each twice, padded"])
def test_no_single_elements_are_loaded(name: str) -> None:
    target = Device["CPU"].target
    if not target.has_mask:
        pytest.skip("vectors of this processor take no gate per lane")
    x = Tensor.empty(3, 40, 48).realize()
    program = to_program(kernel_of(CASES[name][0](x), target), target)[1]
    loads = [node for node in program if node.op is Ops.LOAD]
    assert loads
    assert all(load.dtype.lanes > 1 for load in loads)


def test_rows_added_at_wild_indices_are_left_out() -> None:
    """Whatever a computed index holds, nothing outside the table is read or written."""
    table = Tensor(np.zeros((300, 8), np.float32)).realize()
    index = np.array([3, -(2**31), 2**31 - 1, 299, 10**9, 3], np.int32)
    rows = np.arange(48, dtype=np.float32).reshape(6, 8)
    picked = (table.embedding(Tensor(index) * 1) * Tensor(rows).realize()).sum()
    (found,) = picked.gradient(table)
    expected = np.zeros((300, 8), np.float32)
    for place, row in zip(index, rows, strict=True):
        if 0 <= place < 300:
            expected[place] += row
    np.testing.assert_array_equal(found.numpy(), expected)


def test_loads_that_no_lane_needs_are_left_out() -> None:
    """The maxima are two rows apart: some loads between would serve no lane."""
    x = np.random.default_rng(1).permutation(96).astype(np.float64).reshape(1, 2, 6, 8)
    values, places = Tensor(x).max_pool2d(2, return_indices=True)
    kept = x.reshape(1, 2, 3, 2, 4, 2).max((3, 5)).repeat(2, 2).repeat(2, 3)
    found = values.max_unpool2d(places, 2).numpy()
    np.testing.assert_array_equal(found, np.where(x == kept, x, 0))


def test_what_is_known_to_be_closed_needs_no_mask() -> None:
    """Ten pooled columns in a vector of sixteen lanes: between the first and the last of the twenty
    that they are made from, all memory is there.
    """
    x = Tensor.empty(64, 20, 20).realize()
    _, program = to_program(kernel_of(x.max_pool2d(), WIDE), WIDE)
    loads = [node for node in program if node.op is Ops.LOAD]
    assert loads
    assert all(len(node.src) == 2 and node.dtype.lanes > 1 for node in loads)


def test_pooled_rows_of_any_width() -> None:
    for width in (6, 14, 20, 22, 26, 38):
        x = np.random.default_rng(width).standard_normal((3, 8, width), np.float32)
        expected = x.reshape(3, 4, 2, width // 2, 2).max((2, 4))
        np.testing.assert_array_equal(Tensor(x).max_pool2d().numpy(), expected)


def test_one_element_for_the_lanes_that_are_open() -> None:
    """As the gradient of a padded sum has it."""
    x = Tensor(X[0, :3, :7]).realize()
    total = x.pad(((0, 0), (1, 0))).shrink(((0, 3), (0, 7))).sum()
    (found,) = (total * total.detach()).gradient(x)
    expected = np.full((3, 7), X[0, :3, :6].sum())
    expected[:, 6] = 0
    np.testing.assert_allclose(found.numpy(), expected)
