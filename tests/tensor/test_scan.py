"""Running folds: values, derivatives, and that each is one pass over memory."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from tests.schedule.plans import kernels, plan
from tilegrad import Context, GlobalCounters, Tensor, Variable
from tilegrad.ir.op import Ops

SHAPES = [(1,), (5,), (16,), (100,), (3, 7), (8, 64), (33, 129), (77, 1), (5, 4, 33), (9, 64, 32)]
FUNCTIONS: dict[str, Any] = {
    "cumsum": np.add, "cumprod": np.multiply, "cummax": np.maximum, "cummin": np.minimum,
}  # fmt: skip


def scanned(x: Tensor, name: str, *args: int) -> Tensor:
    """The running reduction; of an extreme its values."""
    found = getattr(x, name)(*args)
    made: Tensor = found.values if isinstance(found, tuple) else found
    return made


def draw(*shape: int) -> Any:
    return np.random.default_rng(3).uniform(0.8, 1.2, shape)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_axis_of_odd_sizes(name: str, shape: tuple[int, ...]) -> None:
    array = draw(*shape).astype(np.float32)
    x = Tensor(array).realize()
    for axis in range(len(shape)):
        exact = FUNCTIONS[name].accumulate(array.astype(np.float64), axis=axis)
        np.testing.assert_allclose(scanned(x, name, axis).numpy(), exact, rtol=3e-6)


@pytest.mark.parametrize("axis", [0, 1])
def test_on_the_emulator(axis: int) -> None:
    array = draw(5, 20).astype(np.float32)
    with Context(DEVICE="EMU"):
        np.testing.assert_allclose(
            Tensor(array).cumsum(axis).numpy(), array.cumsum(axis), rtol=1e-6
        )


@pytest.mark.parametrize("shape", [(64, 64), (300, 70)], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_the_work_around_it_is_one_kernel(shape: tuple[int, int], axis: int) -> None:
    """Each element is read once and written once."""
    x = Tensor.empty(*shape, dtype="half")
    (kernel,) = kernels(plan((x * 2 + 1).cumsum(axis)))
    assert kernel.ast is not None
    ops = [node.op for node in kernel.ast.toposort()]
    assert ops.count(Ops.LOAD) == ops.count(Ops.STORE) == ops.count(Ops.PREFIX) == 1


def test_sums_before_it_are_shared_by_threads() -> None:
    """A running fold goes in order; what it folds need not be made in that order."""
    x = Tensor.empty(1 << 12, 64)
    assert len(kernels(plan(x.sum(1).cumsum(0)))) == 2


def test_two_at_once_along_different_axes() -> None:
    array = draw(20, 33)
    x = Tensor(array)
    found = (x.cumsum(0) + x.cumsum(1) * x.cumsum(0)).numpy()
    np.testing.assert_allclose(found, array.cumsum(0) * (1 + array.cumsum(1)), rtol=1e-12)


def test_moved_afterwards_and_before() -> None:
    array = draw(6, 20)
    x = Tensor(array)
    found = (x.T.cumsum(0).flip(0)[3:17:2] + x.sum()).numpy()
    np.testing.assert_allclose(found, array.T.cumsum(0)[::-1][3:17:2] + array.sum(), rtol=1e-12)
    np.testing.assert_allclose(x.cumsum(1).sum(1).numpy(), array.cumsum(1).sum(1), rtol=1e-12)
    np.testing.assert_allclose(x.cumsum(1)[:, -1].numpy(), array.sum(1), rtol=1e-12)


def test_in_place() -> None:
    array = draw(6, 40)
    x = Tensor(array).realize()
    x.assign(x.cumsum(1)).realize()
    np.testing.assert_allclose(x.numpy(), array.cumsum(1), rtol=1e-12)


def test_symbolic_size() -> None:
    array = draw(4, 10)
    x = Tensor(array).realize()
    for size in (3, 10):
        found = x.shrink(((0, 4), (0, Variable("n", 1, 10).bind(size)))).cumsum(1)
        total = found.sum().item()
        assert abs(total - array[:, :size].cumsum(1).sum()) < 1e-9


def _slopes(function: Any, array: Any, weights: Any) -> Any:
    """Central differences of sum(function(array) * weights)."""
    found = np.zeros_like(array)
    for place in itertools.product(*map(range, array.shape)):
        step = np.zeros_like(array)
        step[place] = 1e-6
        found[place] = ((function(array + step) - function(array - step)) * weights).sum() / 2e-6
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("axis", [0, 1])
def test_gradients(name: str, axis: int) -> None:
    array, weights = draw(6, 7) * np.where(np.arange(7) % 3, 1, -1), draw(6, 7)
    x = Tensor(array)
    (found,) = (scanned(x, name, axis) * Tensor(weights)).sum().gradient(x)
    wanted = _slopes(lambda a: FUNCTIONS[name].accumulate(a, axis=axis), array, weights)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6, atol=1e-8)


def test_gradient_of_products_with_zeros() -> None:
    array = np.array([2.0, 0.0, 3.0, 0.0, 5.0])
    x = Tensor(array)
    (found,) = x.cumprod(0).sum().gradient(x)
    assert found.tolist() == [1.0, 2 + 6, 0.0, 0.0, 0.0]


def test_equal_largest_elements_share_a_gradient() -> None:
    x = Tensor([1.0, 3.0, 3.0, 2.0])
    (found,) = x.cummax(0).values.sum().gradient(x)
    assert found.tolist() == [1.0, 2.0, 1.0, 0.0]


@pytest.mark.parametrize("device", ["CPU", "EMU"])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax"])
def test_few_long_rows_go_in_parts(device: str, name: str) -> None:
    """On processors from a quarter of a million elements on, on lanes always: the sums of parts,
    those before each part, unless the parts are so few that each element adds them, and the rest.
    """
    array = 1 + draw(2, 1 << 17 if device == "CPU" else 150) * 1e-6
    exact = FUNCTIONS[name].accumulate(array, axis=1)
    with Context(DEVICE=device):
        x = Tensor(array).realize()
        before = GlobalCounters.kernel_count
        found = scanned(x, name, 1).realize()
        assert GlobalCounters.kernel_count - before == (3 if device == "CPU" else 2)
        np.testing.assert_allclose(found.numpy(), exact, rtol=1e-12)


def test_parts_are_a_fixed_number() -> None:
    folds, before, whole = kernels(plan(Tensor.empty(1 << 18).cumsum(0)))
    for kernel in (folds, before, whole):
        assert kernel.ast is not None
        extents = [node.src[0].arg for node in kernel.ast.toposort() if node.op is Ops.RANGE]
        assert 8 in extents
    # Nothing divides the length of the second.
    assert len(kernels(plan(Tensor.empty((1 << 18) + 1).cumsum(0)))) == 1
    assert len(kernels(plan(Tensor.empty(64, 1 << 14).cumsum(1)))) == 1


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("stretched", [0, 1, 2, (0, 2), (1, 2)], ids=str)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_running_folds_of_stretched_tensors(axis: int, stretched: Any, plain: bool) -> None:
    """A row that all rows share begins anew in each; one that all turns share counts in each."""
    shape, axes = (3, 4, 5), stretched if isinstance(stretched, tuple) else (stretched,)
    given = tuple(1 if place in axes else size for place, size in enumerate(shape))
    a = np.arange(1.0, math.prod(given) + 1, dtype=np.float32).reshape(given)
    w = np.arange(60, dtype=np.float32).reshape(shape) % 7
    x, weight = Tensor(a).realize().expand(shape), Tensor(w).realize()
    sums = np.broadcast_to(a, shape).cumsum(axis)
    with Context(NOOPT=int(plain)):
        np.testing.assert_array_equal(x.cumsum(axis).numpy(), sums)
        np.testing.assert_array_equal((x.cumsum(axis) * weight).sum(axis).numpy(),
                                      (sums * w).sum(axis))  # fmt: skip
        np.testing.assert_array_equal((weight >= x.cumsum(axis)).sum().numpy(), (w >= sums).sum())
