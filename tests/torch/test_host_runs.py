"""Runs and writes that the host does itself, for tensors of a few elements: their values are those
of kernels and of NumPy, whoever looks at the memory meanwhile.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tilegrad import Context, GlobalCounters
from tilegrad.base.errors import TilegradError
from tilegrad.tensor.handle.waiting import this_thread

_random = np.random.default_rng(5)
_X = np.array([1.5, -2.0, 0.0, -0.0, 3.25, 1e-38, 7.0, -1e30], np.float32)
_M = _random.normal(size=(4, 8)).astype(np.float32)
_N = _random.integers(-9, 9, (4, 8))
_B = _random.random((4, 8)) < 0.5


# Whose last bits are the same wherever they are computed: all but sums of floats.
EXACT: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "add": lambda x, m, n, b: x + m, "number": lambda x, m, n, b: m * 0.3 - 1.25,
    "sub": lambda x, m, n, b: 1 - m, "divide": lambda x, m, n, b: m / x,
    "by zero": lambda x, m, n, b: x / 0.0, "less": lambda x, m, n, b: x < m,
    "at least": lambda x, m, n, b: m >= 0.25, "equal": lambda x, m, n, b: n == 3,
    "minimum": lambda x, m, n, b: torch.minimum(x, m),
    "maximum": lambda x, m, n, b: torch.maximum(m[0], x),
    "abs": lambda x, m, n, b: (x * -1).abs(), "root": lambda x, m, n, b: m.abs().sqrt(),
    "of negatives": lambda x, m, n, b: m.sqrt(), "clamp": lambda x, m, n, b: m.clamp(-0.5, 0.5),
    "where": lambda x, m, n, b: torch.where(b, m, x), "any": lambda x, m, n, b: b.any(dim=1),
    "all": lambda x, m, n, b: b.all(), "not": lambda x, m, n, b: ~b & (n > 0) | (m > 1),
    "largest": lambda x, m, n, b: m.max(), "by rows": lambda x, m, n, b: m.max(dim=1)[0],
    "where largest": lambda x, m, n, b: m.max(dim=0)[1], "argmax": lambda x, m, n, b: n.argmax(),
    "integers": lambda x, m, n, b: n.sum(), "columns": lambda x, m, n, b: (n * n).sum(0),
    "floor": lambda x, m, n, b: n // 4, "modulo": lambda x, m, n, b: n % 5,
    "bits": lambda x, m, n, b: (n & 3) ^ 1, "count": lambda x, m, n, b: b.sum(),
    "cast": lambda x, m, n, b: (m * 5).long(), "floats": lambda x, m, n, b: n.float() * 0.5,
    "doubles": lambda x, m, n, b: m.double() * 3.0, "moved": lambda x, m, n, b: m.T[2:5] + 1.0,
    "flipped": lambda x, m, n, b: m.flip(0) * 2.0, "rolled": lambda x, m, n, b: m.roll(3, 1) + 1.0,
    "outer": lambda x, m, n, b: x.unsqueeze(1) * m[0], "bytes": lambda x, m, n, b: n.to(torch.int8),
    "rows": lambda x, m, n, b: m[torch.tensor([2, -1])] * 1.5,
    "small": lambda x, m, n, b: (n.to(torch.int8) * 100) + 3,
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_values_are_those_of_kernels(name: str) -> None:
    found = {}
    for segments in (1, 0):
        with Context(SEGMENTS=segments, TEMPLATES=1, SIZES=1):
            values = []
            for step in range(5):
                x, m = torch.tensor(_X.copy()), torch.tensor(_M + np.float32(step) * 0.125)
                n, b = torch.tensor(_N + step), torch.tensor(_B)
                values.append(EXACT[name](x, m, n, b).numpy())
            found[segments] = values
    for ours, kernels in zip(found[1], found[0], strict=True):
        assert ours.dtype == kernels.dtype and ours.shape == kernels.shape
        # Zeros of largest and smallest values may have either sign.
        np.testing.assert_array_equal(ours, kernels)


def test_sums_are_those_of_numpy() -> None:
    m, x = torch.tensor(_M), torch.tensor(_M[0].copy())
    for step in range(5):
        scaled = m * (1.0 + step)
        wanted = _M * np.float32(1.0 + step)
        np.testing.assert_allclose((scaled @ x).tolist(), wanted @ _M[0], 1e-5)
        np.testing.assert_allclose(scaled.sum(1).tolist(), wanted.sum(1), 1e-4, 1e-5)
        np.testing.assert_allclose(scaled.mean().item(), wanted.mean(), 1e-4, 1e-5)
        np.testing.assert_allclose((x @ x).item(), (_M[0] ** 2).sum(), 1e-5)
        np.testing.assert_allclose(x.norm().item(), np.sqrt((_M[0] ** 2).sum()), 1e-5)


def test_few_steps_launch_nothing() -> None:
    with Context(SEGMENTS=1, TEMPLATES=1, SIZES=1):
        x = torch.tensor(_M[0].copy())
        for step in range(20):
            if step == 8:
                before = GlobalCounters.kernel_count
            if x[step % 7] > x[step % 7 + 1]:
                x[step % 7] = x[step % 7 + 1] * 0.5 + 0.25
            x[step % 5] += 0.125 * x[7]
        assert GlobalCounters.kernel_count == before


def _written(lib: Any, order: Any) -> list[Any]:
    """Writes of all kinds, with readers that wait, views and copies alive meanwhile."""
    x = lib.tensor(_M.copy())
    seen: list[Any] = []
    row, all_of_it, held = x[1], x.view(32), None
    for step in order.integers(0, 12, 80).tolist():
        i, j = (int(each) for each in order.integers(0, 4, 2))
        before = x[i] * 2 + 1 if step % 3 else x + 0.5
        match step:
            case 0:
                x[i, j] = 0.5 + i
            case 1:
                x[i] = x[j]
            case 2:
                x[i, 1:5] = x[j, 2:6] * 0.5
            case 3:
                x[i, j] += 1.25
            case 4:
                x[i] -= x[j] * 0.25
            case 5:
                x[x > 1.5] = 0.75
            case 6:
                row[j] = 2.5
            case 7:
                x[:, j] *= x[i, j].clone()
            case 8:
                x[[0, 2]] = x[[2, 0]]
            case 9:
                x *= 0.5
                x += 0.25
            case 10:
                held = x[j].clone()
                x[i, ::3] = held[2]
            case _:
                x[1:3, 2:4] = x[2:4, 4:6]
        seen += [*before.reshape(-1).tolist(), *row.tolist(), *all_of_it.tolist()]
        if held is not None:
            seen += held.tolist()
        if step == 4:
            # Another tensor from here on.
            x = x + 0.0
            row, all_of_it = x[2], x.view(32)
    return seen


@pytest.mark.parametrize("switches", [{}, {"SEGMENTS": 0}, {"SEGMENTS": 2}, {"TEMPLATES": 0},
                                      {"SIZES": 0}], ids=str)  # fmt: skip
@pytest.mark.parametrize("seed", range(3))
def test_writes_are_seen_by_views_and_no_one_else(seed: int, switches: dict[str, int]) -> None:
    theirs = pytest.importorskip("torch")
    with Context(**switches):
        found = _written(torch, np.random.default_rng(seed))
    wanted = _written(theirs, np.random.default_rng(seed))
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-6)


def test_what_waits_sees_what_was_there() -> None:
    for _ in range(5):
        x = torch.tensor(_M[0].copy())
        x[0] = 1.0
        waits, view, copy = x * 2.0, x[1:3], x.clone()
        array = x.numpy()
        x[1] = 50.0
        assert view[0].item() == 50.0
        for each in (waits / 2.0, copy):
            np.testing.assert_array_equal(each.numpy()[1:], _M[0][1:])
        assert array[1] == _M[0][1]
        x[2] += x[1]
        np.testing.assert_allclose(view.tolist(), [50.0, 50.0 + float(_M[0][2])], 1e-6)


def test_errors_leave_a_tensor_as_it_was() -> None:
    for _ in range(4):
        x, n = torch.tensor(_M.copy()), torch.tensor(_N.copy())
        x[0, 0] = 0.5
        wanted = x.numpy().copy()
        for wrong in (
            lambda x=x: x.__setitem__(4, 1.0),
            lambda x=x: x.__setitem__((0, 9), 1.0),
            lambda x=x: x.__setitem__(0, torch.tensor([1.0, 2.0])),
            lambda x=x: x.__setitem__(x[0] > 0, 1.0),
        ):
            with pytest.raises((TilegradError, IndexError, ValueError)):
                wrong()
            np.testing.assert_array_equal(x.numpy(), wanted)
        x[1] *= 2.0
        wanted[1] *= 2
        np.testing.assert_array_equal(x.numpy(), wanted)
        assert (n + 1)[0, 0].item() == _N[0, 0] + 1


def test_gradients_go_the_way_of_kernels() -> None:
    theirs = pytest.importorskip("torch")

    def loop(lib: Any) -> list[float]:
        w, x = lib.tensor(_M[0].copy(), requires_grad=True), lib.tensor(_M[1].copy())
        found: list[float] = []
        for step in range(8):
            y = w * x + 0.5
            y[step] = 2.0
            if y[0] > 0 or step % 2:
                y = y * y
            y.sum().backward()
            found += [y[0].item(), *w.grad.tolist()]
            with lib.no_grad():
                w -= 0.125 * w.grad
                w.grad = None
                x[step] += w[0] * 0.5
            found += [*w.tolist(), *x.tolist()]
        return found

    for _ in range(3):
        np.testing.assert_allclose(loop(torch), loop(theirs), 1e-4, 1e-5)


def test_a_result_that_was_read_before_the_mark_is_a_constant() -> None:
    for _ in range(6):
        x = torch.tensor(_M[0].copy())
        y = x * 2.0 + 1.0
        assert y[0].item() == _M[0][0] * 2 + 1
        x.requires_grad_()
        (y * x).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), _M[0] * 2 + 1, 1e-5)


def test_loops_of_several_threads() -> None:
    results: dict[int, list[float]] = {}
    shared = torch.tensor(_M[0].copy())
    shared[0] = 4.0

    def loop(number: int) -> None:
        x = torch.tensor(np.arange(6, dtype=np.float32) + number)
        for step in range(60):
            i = step % 5
            if x[i] < x[i + 1]:
                x[i], x[i + 1] = x[i + 1].clone(), x[i].clone()
            x[step % 6] += 0.5 * shared[step % 8]
        results[number] = x.tolist()

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    loop(4)
    given = shared.numpy()
    for number, found in results.items():
        x = np.arange(6, dtype=np.float32) + np.float32(number)
        for step in range(60):
            i = step % 5
            if x[i] < x[i + 1]:
                x[[i, i + 1]] = x[[i + 1, i]]
            x[step % 6] += np.float32(0.5) * given[step % 8]
        np.testing.assert_allclose(found, x, 1e-6)


def test_loops_are_flat_in_memory() -> None:
    x, counts = torch.tensor(_M[0].copy()), torch.zeros(8, dtype=torch.int64)
    unread = torch.zeros(2)

    def loop(steps: int) -> None:
        nonlocal unread
        for step in range(steps):
            i = step % 7
            if x[i] > x[i + 1] * 0.5:
                x[i] = x[i] * 0.5 + 0.1
            counts[i] += 1
            unread = unread + 1.0

    loop(300)
    gc.collect()
    memory, pool = GlobalCounters.mem_used, this_thread.pool
    loop(3000)
    gc.collect()
    assert GlobalCounters.mem_used <= memory + 4096
    assert len(pool.computed) < 256 and pool.count < 16_384
    assert counts.sum().item() == 3300 and unread.tolist() == [3300.0, 3300.0]


@pytest.mark.parametrize("first", [0.0, -0.0])
def test_zeros_of_both_signs_are_two_constants(first: float) -> None:
    values = np.arange(1, 8, dtype=np.float32)
    for _ in range(3):
        for zero in (first, -first):
            found = (torch.tensor(values) * 2 * zero).numpy()
            np.testing.assert_array_equal(np.signbit(found), np.signbit(values * zero))
