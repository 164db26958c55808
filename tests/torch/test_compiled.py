"""Functions of tilegrad.torch under `jit` and `torch.compile`: captured, and never stale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tilegrad import jit
from tilegrad.base.errors import CaptureError

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: torch.cat([x, x]) * 2, np.concatenate([X, X]) * 2),
        (lambda x: torch.stack([x, -x], 1), np.stack([X, -X], 1)),
        (lambda x: torch.einsum("ij,kj->ik", x, x), X @ X.T),
        (lambda x: torch.where(x > 0, x, torch.zeros(3)), np.maximum(X, 0)),
        (lambda x: torch.flip(x, [1]) + x, X[:, ::-1] + X),
    ],
    ids=["cat", "stack", "einsum", "where", "flip"],
)
def test_functions_of_torch_are_captured(function: Callable[..., Any], expected: Any) -> None:
    captured: Any = jit(lambda x: function(x).contiguous())
    for _ in range(4):
        np.testing.assert_allclose(captured(torch.tensor(X)).numpy(), expected, rtol=1e-6)
    assert captured.captures == 1


def test_a_capture_is_of_one_autocast_mode() -> None:
    captured: Any = jit(lambda x: torch.mm(x, x.T))
    x = torch.tensor(X)
    for _ in range(3):
        assert captured(x).dtype is torch.float32
    with torch.autocast("cpu"):
        for _ in range(3):
            assert captured(x).dtype is torch.bfloat16
    assert captured(x).dtype is torch.float32


def test_a_capture_is_of_one_default_dtype() -> None:
    captured: Any = jit(lambda x: torch.zeros(2) + x)
    for _ in range(3):
        assert captured(torch.ones(2, dtype=torch.int32)).dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert captured(torch.ones(2, dtype=torch.int32)).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_function_that_leaves_another_mode_behind_runs_anew() -> None:
    def function(x: Any) -> Any:
        torch.set_grad_enabled(not torch.is_grad_enabled())
        return x * 2

    captured: Any = jit(function)
    try:
        modes = []
        for _ in range(8):
            captured(torch.tensor(X))
            modes.append(torch.is_grad_enabled())
        assert modes == [False, True] * 4
    finally:
        torch.set_grad_enabled(True)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_draws_of_a_generator_move_it_on() -> None:
    plain, other = (torch.Generator().manual_seed(3) for _ in range(2))
    compiled: Any = torch.compile(lambda x: x + torch.rand(3, generator=plain))
    for _ in range(6):
        expected = torch.tensor(X) + torch.rand(3, generator=other)
        np.testing.assert_allclose(compiled(torch.tensor(X)).numpy(), expected.numpy())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_seed_inside_is_set_at_each_call_or_refused() -> None:
    def function(x: Any) -> Any:
        torch.manual_seed(5)
        return x + torch.rand(3)

    compiled: Any = torch.compile(function)
    first, *others = [compiled(torch.tensor(X)).tolist() for _ in range(6)]
    assert all(each == first for each in others)
    captured: Any = jit(function)
    captured(torch.tensor(X))
    with pytest.raises(CaptureError, match="manual_seed"):
        captured(torch.tensor(X))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_function_that_reads_a_value_runs_once_a_call() -> None:
    calls: list[float] = []

    def function(x: Any) -> Any:
        calls.append(1.0)
        y = x * 2
        if y.sum().item() > 0:
            calls.append(2.0)
        return y + 1

    compiled: Any = torch.compile(function)
    for number in range(7):
        found = compiled(torch.tensor(X) + number)
        np.testing.assert_array_equal(found.numpy(), (X + number) * 2 + 1)
    assert calls == [1.0, 2.0] * 7
