"""What masks pick, and what is written there, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.tensor.helpers import close
from tilegrad import Context, Tensor
from tilegrad.base.errors import IndexBoundsError, ShapeError
from tilegrad.base.trace import counters

_SHAPES = [(7,), (4, 5), (3, 2, 4), (1, 6), (70_000,)]
# Masks of values, made in every way.
_MASKS: dict[str, Callable[[Tensor, Any], tuple[Tensor, Any]]] = {
    "computed": lambda x, a: (x > 0.3, a > 0.3),
    "in memory": lambda x, a: ((x > 0).realize(), a > 0),
    "from the host": lambda x, a: (Tensor(np.abs(a) > 0.5), np.abs(a) > 0.5),
    "turned": lambda x, a: ((x > 0).flip(0), (a > 0)[::-1]),
    "all": lambda x, a: (x.isfinite(), np.ones(a.shape, bool)),
    "none": lambda x, a: (x.isnan(), np.zeros(a.shape, bool)),
    "constant": lambda x, a: (Tensor.full(x.shape, True), np.ones(a.shape, bool)),
    "of rows": lambda x, a: (
        (x > 0).any(-1) if x.ndim > 1 else x > 0,
        (a > 0).any(-1) if a.ndim > 1 else a > 0,
    ),
}


@pytest.mark.parametrize("shape", _SHAPES, ids=str)
@pytest.mark.parametrize("kind", _MASKS)
def test_read_and_written(shape: tuple[int, ...], kind: str) -> None:
    random = np.random.default_rng(len(kind) * len(shape))
    array = random.normal(size=shape).astype(np.float32)
    x = Tensor(array).realize()
    mask, expected = _MASKS[kind](x, array)
    close(x[mask], array[expected])
    close(mask.nonzero(), np.stack(np.nonzero(expected), 1).astype(np.int32))
    if expected.ndim == array.ndim:
        close(x.masked_select(mask), array[expected])
    rows = random.normal(size=array[expected].shape).astype(np.float32)
    written, target = array.copy(), Tensor(array).realize()
    mask, _ = _MASKS[kind](target, array)
    written[expected] = rows
    target[mask] = Tensor(rows)
    close(target, written)
    written[expected] = 3
    target[mask] = 3
    close(target, written)
    if len(rows):
        written[expected] = rows[:1]
        target[mask] = Tensor(rows[:1])
        close(target, written)


def test_a_mask_beside_other_keys() -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    expected = np.array([True, False, True])
    x, mask = Tensor(array).realize(), Tensor(expected)
    close(x[:, mask], array[:, expected])
    close(x[1, mask, 2], array[1, expected, 2])
    close(x[..., 1:][:, mask], array[..., 1:][:, expected])
    x[:, mask] = Tensor(np.full((2, 2, 4), -1, np.float32))
    array[:, expected] = -1
    close(x, array)


def test_through_views() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = Tensor(array).realize()
    turned, part = x.T, x[1:]
    turned[turned > 6] = Tensor(np.arange(5, dtype=np.float32))
    array.T[array.T > 6] = np.arange(5)
    part[part < 2] = Tensor(np.full(int((array[1:] < 2).sum()), 50.0, np.float32))
    array[1:][array[1:] < 2] = 50
    for ours, theirs in ((x, array), (turned, array.T), (part, array[1:])):
        close(ours, theirs)


def test_gradients() -> None:
    array, rows = np.arange(6, dtype=np.float32), np.array([2.0, 3.0, 4.0], np.float32)
    base, value = Tensor(array, requires_grad=True), Tensor(rows, requires_grad=True)
    x = base * 1
    mask = x > 2
    x[mask] = value
    (x * x).sum().backward()
    assert base.grad is not None and value.grad is not None
    close(base.grad, np.array([0.0, 2, 4, 0, 0, 0]))
    close(value.grad, 2 * rows)
    picked = Tensor(array, requires_grad=True)
    (picked[picked > 2] ** 2).sum().backward()
    assert picked.grad is not None
    close(picked.grad, np.array([0.0, 0, 0, 6, 8, 10]))


def test_what_does_not_fit() -> None:
    x = Tensor(np.arange(4, dtype=np.float32)).realize()
    with pytest.raises(ShapeError):
        x[x > 0] = Tensor([1.0, 2.0])
    with pytest.raises(IndexBoundsError, match="a mask of size 3 does not fit axis 0 of size 4"):
        x[Tensor([True, False, True])]
    with pytest.raises(IndexBoundsError, match="a mask of size 3 does not fit axis 0 of size 4"):
        x[Tensor([True, False, True])] = Tensor([1.0])
    close(x, np.arange(4.0))


def test_masks_of_another_count_compile_nothing() -> None:
    size, steps = 1499, 40
    random = np.random.default_rng(5)
    weight = Tensor(random.normal(size=size).astype(np.float32)).realize()
    counts: set[int] = set()
    with Context(TEMPLATES=1, SEGMENTS=1):
        for step in range(steps):
            if step == 5:
                before = counters.compiles
                counts.clear()
            array = random.normal(size=size).astype(np.float32)
            counts.add(int((array > 0).sum()))
            x = Tensor(array)
            target = Tensor.zeros(size)
            mask = x > 0
            target[mask] = x[mask] * 2
            wanted = np.where(array > 0, 2 * array, 0) * weight.numpy()
            close((target * weight).sum(), wanted.sum(), 1e-4)
    assert len(counts) > 20
    # What is of one size alone gets a kernel of its own at some time, if other tests made a plan
    # for a range of sizes.
    assert counters.compiles - before <= 2
