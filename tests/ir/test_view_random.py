"""Random chains of movement ops: a ShapeTracker's index and mask against the same chain of NumPy
calls on `arange`, with -1 for padding. Nothing of the package says what is right.
"""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.values import evaluate_grid, positions
from tilegrad.ir import Ops, UOp
from tilegrad.ir.shape_tracker import ShapeTracker

Array = np.ndarray[Any, Any]
MOST = 150
KINDS = (
    "permute", "reshape", "reshape", "expand", "expand", "pad", "pad", "shrink", "shrink", "flip",
    "pick", "stride", "none",
)  # fmt: skip


def random_step(
    rng: random.Random, moved: ShapeTracker, array: Array
) -> tuple[ShapeTracker, Array]:
    """One random movement op on both."""
    shape = array.shape
    kind = rng.choice(KINDS)
    if kind == "permute":
        axes = rng.sample(range(len(shape)), len(shape))
        return moved.permute(axes), array.transpose(axes)
    if kind == "none":
        # Rarely, as nothing comes back from it but by padding.
        if rng.random() < 0.8 or not shape:
            return moved, array
        window = [(0, s) for s in shape]
        axis = rng.randrange(len(shape))
        window[axis] = (start := rng.randint(0, shape[axis]), start)
        return moved.shrink(window), array[tuple(slice(*w) for w in window)]
    if kind == "pick":
        return random_pick(rng, moved, array)
    if kind == "stride":
        return random_stride(rng, moved, array)
    if kind == "reshape":
        new = random_factors(rng, array.size)
        return moved.reshape(new), array.reshape(new)
    if kind == "expand":
        room = MOST // max(array.size, 1)
        new = tuple(rng.randint(1, min(3, room)) if s == 1 and room > 1 else s for s in shape)
        return moved.expand(new), np.broadcast_to(array, new)
    if kind == "pad":
        padding = [(rng.choice((0, 0, 1, 2)), rng.choice((0, 0, 1))) for _ in shape]
        if math.prod(s + a + b for s, (a, b) in zip(shape, padding)) > MOST:
            return moved, array
        return moved.pad(padding), np.pad(array, padding, constant_values=-1) if padding else array
    if kind == "shrink":
        window = []
        for size in shape:
            start = rng.randint(0, max(size - 1, 0))
            window.append((start, rng.randint(min(start + 1, size), size)))
        return moved.shrink(window), array[tuple(slice(*w) for w in window)]
    flips = [rng.random() < 0.5 for _ in shape]
    return moved.flip(flips), np.flip(array, tuple(axis for axis, on in enumerate(flips) if on))


def random_pick(
    rng: random.Random, moved: ShapeTracker, array: Array
) -> tuple[ShapeTracker, Array]:
    """One index on some of the axes, or on all of them: then no axis is left."""
    if not array.size:
        return moved, array
    share = rng.choice((0.3, 0.7, 1))
    key = [rng.randrange(s) if rng.random() < share else None for s in array.shape]
    window = [(0, s) if at is None else (at, at + 1) for at, s in zip(key, array.shape)]
    picked = array[tuple(slice(None) if at is None else at for at in key)]
    return moved.shrink(window).reshape(picked.shape), picked


def random_stride(
    rng: random.Random, moved: ShapeTracker, array: Array
) -> tuple[ShapeTracker, Array]:
    """Every second or third element of an axis, as slices do: pad, reshape, shrink, reshape."""
    shape = array.shape
    if not shape or not array.size or array.size > MOST // 2:
        return moved, array
    axis, step = rng.randrange(len(shape)), rng.choice((2, 3))
    count = -(-shape[axis] // step)
    padding = [(0, count * step - s) if a == axis else (0, 0) for a, s in enumerate(shape)]
    lead, rest = shape[:axis], shape[axis + 1 :]
    groups = moved.pad(padding).reshape((*lead, count, step, *rest))
    window = [(0, 1) if a == axis + 1 else (0, s) for a, s in enumerate(groups.shape)]
    key = (slice(None),) * axis + (slice(None, None, step),)
    return groups.shrink(window).reshape((*lead, count, *rest)), array[key]


def random_factors(rng: random.Random, size: int) -> tuple[int, ...]:
    if size == 1 and rng.random() < 0.4:
        return ()
    if size == 0:
        return tuple(rng.sample((0, rng.randint(1, 3)), 2))
    factors: list[int] = []
    while size > 1 and len(factors) < 4:
        factor = rng.choice([d for d in range(1, size + 1) if size % d == 0])
        factors.append(factor)
        size //= factor
    return (*factors, size) if size > 1 or not factors or rng.random() < 0.3 else tuple(factors)


def random_chain(rng: random.Random, steps: int) -> tuple[ShapeTracker, Array]:
    shape = tuple(rng.randint(1, 4) for _ in range(rng.randint(0, 4)))
    moved, array = ShapeTracker.from_shape(shape), np.arange(math.prod(shape)).reshape(shape)
    for _ in range(steps):
        moved, array = random_step(rng, moved, array)
    return moved, array


def divisions(node: UOp) -> int:
    return sum(part.op in (Ops.FLOORDIV, Ops.FLOORMOD) for part in node.toposort())


@pytest.mark.row("M1.9")
def test_random_chains() -> None:
    """2,000 chains: the lowered index is NumPy's, with few views and few divisions."""
    views, counts = [], []
    for seed in range(2000):
        rng = random.Random(seed)
        moved, array = random_chain(rng, rng.randint(1, 8))
        assert moved.shape == array.shape, seed
        assert positions(moved).tolist() == array.tolist(), seed
        index, valid = moved.to_indexed_uops()
        views.append(len(moved.views))
        counts.append(divisions(UOp.sink(index, valid)))
    assert max(views) <= 4
    assert sum(views) / len(views) < 1.3
    assert max(counts) <= 10
    assert sum(counts) / len(counts) < 0.6


@pytest.mark.nightly
@pytest.mark.row("M1.9")
def test_random_long_chains() -> None:
    for seed in range(10_000):
        moved, array = random_chain(random.Random(seed + 10**6), 12)
        assert positions(moved).tolist() == array.tolist(), seed


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 6))
def test_chains_add_up(seed: int, first: int, second: int) -> None:
    """A chain in two parts is the parts added, and undoing nothing keeps it."""
    rng = random.Random(seed)
    moved, array = random_chain(rng, first)
    rest, again = ShapeTracker.from_shape(array.shape), np.arange(array.size).reshape(array.shape)
    for _ in range(second):
        rest, again = random_step(rng, rest, again)
    flat = np.append(array.reshape(-1), -1)
    assert positions(moved + rest).tolist() == flat[again].tolist()
    assert (moved + rest).simplify() == moved + rest


@given(st.integers(0, 2**32))
def test_real_strides_say_how_far_a_step_goes(seed: int) -> None:
    rng = random.Random(seed)
    moved, array = random_chain(rng, rng.randint(1, 6))
    for axis, stride in enumerate(moved.real_strides()):
        if stride is None:
            continue
        near = np.take(array, range(array.shape[axis] - 1), axis)
        far = np.take(array, range(1, array.shape[axis]), axis)
        both = (near >= 0) & (far >= 0)
        assert ((far - near)[both] == stride).all()


def test_nothing_is_read_from_padding() -> None:
    """One element of a padded axis, picked: data inside, nothing outside."""
    for before in range(3):
        for after in range(3):
            array = np.pad(np.arange(2), (before, after), constant_values=-1)
            moved = ShapeTracker.from_shape((2,)).pad(((before, after),))
            for at, wanted in enumerate(array.tolist()):
                picked = moved.shrink(((at, at + 1),)).reshape(())
                assert positions(picked).tolist() == wanted
                again = picked.reshape((1, 1)).expand((2, 2)).pad(((0, 1), (1, 0)))
                around = np.full((3, 3), -1)
                around[:2, 1:] = wanted
                assert positions(again).tolist() == around.tolist()


def bound_positions(moved: ShapeTracker, size: UOp, value: int) -> Array:
    """As `positions`, of a shape without the variable `size`, which has `value`."""
    shape: Any = moved.shape
    loops = [UOp.range(extent, axis) for axis, extent in enumerate(shape)]
    index, valid = moved.to_indexed_uops(loops)
    grid: dict[UOp, Any] = dict(zip(loops, np.indices(shape, sparse=True)))
    grid[size] = np.array(value)
    found = np.where(evaluate_grid(valid, grid), evaluate_grid(index, grid), -1)
    return np.broadcast_to(found, shape)


@pytest.mark.row("M1.9", "M10.5")
def test_random_chains_over_a_window_that_a_variable_sizes() -> None:
    """The first n rows, padded back to all of them: masks that only a run knows, also of one row
    that may not be there.
    """
    for seed in range(150):
        rows, columns = random.Random(seed).randint(1, 3), random.Random(-seed).randint(1, 3)
        size = UOp.variable("n", 0, rows)
        whole = ShapeTracker.from_shape((rows, columns))
        for value in range(rows + 1):
            rng = random.Random(seed)
            array = np.arange(rows * columns).reshape(rows, columns)
            array = np.where(np.arange(rows)[:, None] < value, array, -1)
            moved = whole.shrink(((0, size), (0, columns))).pad(((0, rows - size), (0, 0)))
            for _ in range(rng.randint(0, 5)):
                moved, array = random_step(rng, moved, array)
            assert moved.shape == array.shape, seed
            assert bound_positions(moved, size, value).tolist() == array.tolist(), (seed, value)
