"""Parts of results that are in no memory yet are written to: the values are NumPy's, whoever looked
at the result before, and equal steps make no nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tilegrad import Context, Tensor
from tilegrad.tensor.handle import waiting

STEPS = 24
_random = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def calls_wait() -> Iterator[None]:
    waiting.this_thread.pool.count_hit()
    with Context(TEMPLATES=1, SEGMENTS=1, SIZES=1):
        yield


def array(*shape: int) -> Any:
    return _random.normal(size=shape).astype(np.float32)


def tensor(values: Any) -> Any:
    return torch.tensor(values.copy())


# Each writes to a result of `x` (12,) and `m` (6, 6), in step `i`; `lib` is NumPy or ours.
Program = Callable[[Any, Any, Any, int], Any]


def _number(lib: Any, x: Any, m: Any, i: int) -> Any:
    v = lib.sin(x) * 2
    v[i % 12] = 3.0
    return v.sum()


def _numbers(lib: Any, x: Any, m: Any, i: int) -> Any:
    v = m @ m
    v[i % 6, 3] = 3.0
    v[2] = 0.0
    v[:, -1] = 0.25 * i
    return v.sum() + v[1, 1]


def _slices(lib: Any, x: Any, m: Any, i: int) -> Any:
    v = lib.sin(x)
    v[i % 9 : i % 9 + 3] = x[:3] * 2
    v[1:-1] = v[2:] + v[:-2]
    return v.sum()


def _inside(lib: Any, x: Any, m: Any, i: int) -> Any:
    u = lib.copy(m) if lib is np else m.clone()
    u[1:-1, 1:-1] = (m[:-2, 1:-1] + m[2:, 1:-1]) * 0.5
    return u.sum(0)


def _before(lib: Any, x: Any, m: Any, i: int) -> Any:
    v = lib.exp(x * 0.1)
    old = v * 2.0
    v[i % 12] = -1.0
    return old + v


def _added(lib: Any, x: Any, m: Any, i: int) -> Any:
    v = lib.copy(x) if lib is np else x.clone()
    v[i % 12] += 1.5
    v[3] -= 0.5
    return v * 2


def _view(lib: Any, x: Any, m: Any, i: int) -> Any:
    v = lib.tanh(m)
    row = v[i % 6]
    v[i % 6, 2] = 9.0
    row[0] = 4.0
    return v.sum() + row.sum()


def _turned(lib: Any, x: Any, m: Any, i: int) -> Any:
    v = (m * 2.0).T
    v[i % 6, 1] = 5.0
    return v.sum(0)


def _many(lib: Any, x: Any, m: Any, i: int) -> Any:
    v = lib.sin(x)
    for k in range(12):
        v[(i + k) % 12] = float(k) + 0.5
        if k % 5 == 4:
            v[k] = v[k - 1] * 2.0
    return v.sum()


PROGRAMS: list[Program] = [
    _number, _numbers, _slices, _inside, _before, _added, _view, _turned, _many,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_written_to_a_result(program: Program) -> None:
    for i in range(STEPS):
        x, m = array(12), array(6, 6)
        given, table = tensor(x), tensor(m)
        found = program(torch, given, table, i)
        wanted = program(np, x.copy(), m.copy(), i)
        np.testing.assert_allclose(found.numpy(), wanted, 1e-4, 1e-4)
        np.testing.assert_array_equal(given.numpy(), x)
        np.testing.assert_array_equal(table.numpy(), m)


@pytest.mark.parametrize("program", [_number, _numbers, _slices, _inside, _before, _added, _many])
def test_equal_steps_make_no_nodes(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0
    every = waiting.Pool.expand

    def expand(pool: Any) -> None:
        nonlocal made
        made += pool.has_new
        every(pool)

    monkeypatch.setattr(waiting.Pool, "expand", expand)
    x, m = tensor(array(12)), tensor(array(6, 6))
    for i in range(3 * STEPS):
        if i == 2 * STEPS:
            made = 0
        found = program(torch, x, m, i)
        (found.sum() if found.ndim else found).item()
    assert made == 0


def test_gradients_go_around_what_was_written() -> None:
    for i in range(STEPS):
        x = array(8)
        leaf = tensor(x).requires_grad_()
        v = torch.exp(leaf)
        v[i % 8] = 3.0
        (v * v).sum().backward()
        wanted = 2 * np.exp(2 * x.astype(np.float64))
        wanted[i % 8] = 0
        np.testing.assert_allclose(leaf.grad.numpy(), wanted, 1e-4)


def test_a_value_with_a_gradient_is_written_to_a_result_without() -> None:
    for _ in range(STEPS):
        x, y = array(8), array(3)
        leaf = tensor(y).requires_grad_()
        v = torch.sin(tensor(x))
        v[2:5] = leaf * 2.0
        assert v.requires_grad
        (v * v).sum().backward()
        np.testing.assert_allclose(leaf.grad.numpy(), 8 * y, 1e-4)


def test_a_chain_of_writes_that_nobody_reads_stays_short() -> None:
    x = array(16)
    v, wanted = torch.sin(tensor(x)), np.sin(x)
    start = time.perf_counter()
    for i in range(300):
        v[i % 16] = 0.25 * i
        wanted[i % 16] = 0.25 * i
        assert v._call is None or v._call.pool.count < 2000
    np.testing.assert_allclose(v.numpy(), wanted, 1e-5)
    assert time.perf_counter() - start < 60


def test_errors_are_those_of_any_write() -> None:
    v = torch.sin(tensor(array(6)))
    with pytest.raises(IndexError):
        v[6] = 1.0
    with pytest.raises((RuntimeError, ValueError)):
        v[1:3] = tensor(array(4))
    wide = torch.sin(tensor(array(1))).expand(4)
    with pytest.raises(RuntimeError):
        wide[1:3] = 2.0


@pytest.mark.parametrize("kind", ["torch", "tilegrad"])
@pytest.mark.parametrize("part", ["a slice", "a row", "an element", "all"])
@pytest.mark.parametrize("write", ["takes another value", "a number"])
def test_a_view_of_a_result_has_the_value_that_was_not_written_yet(
    write: str, part: str, kind: str
) -> None:
    """Made of the result before that took another value, and looked at after it; nothing has run
    in between.
    """
    parts: dict[str, Callable[[Any], Any]] = {
        "a slice": lambda y: y.reshape(-1)[1:5],
        "a row": lambda y: y[1],
        "an element": lambda y: y[1, 2],
        "all": lambda y: y.reshape(-1),
    }
    for step in range(8):
        values = array(2, 3)
        given = tensor(values) if kind == "torch" else Tensor(values.copy())
        x = given * 1.5
        y = x.flip(0)
        with torch.no_grad():
            if write == "a number":
                x.fill_(-7.0)
            elif kind == "torch":
                x.copy_(tensor(np.full((2, 3), -7.0, np.float32)))
            else:
                x.assign(given * 0 - 7)
        expected = parts[part]((values * 1.5)[::-1])
        np.testing.assert_array_equal(parts[part](y).numpy(), expected, err_msg=str(step))
        np.testing.assert_array_equal(x.numpy(), np.full((2, 3), -7.0))
