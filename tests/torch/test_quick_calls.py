"""Calls that came before skip the layers of PyTorch's rules around a method: what they give stays
what PyTorch gives, whatever else changes between two of them.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as ours
from tilegrad import Context
from tilegrad.ir.uop import node_count
from tilegrad.tensor.handle import waiting

ROUNDS = 6
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: x / y,
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "**": lambda x, y: x**y,
    "==": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
    "@": lambda x, y: x @ y,
    "maximum": lambda x, y: x.maximum(y),
    "sub": lambda x, y: x.sub(y),
}
METHODS: dict[str, Callable[[Any], Any]] = {
    "max": lambda x: x.max(),
    "max of an axis": lambda x: x.max(1)[1],
    "argmax": lambda x: x.argmax(1),
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.float().mean(),
    "neg": lambda x: -x,
    "any": lambda x: (x > 1).any(),
    "float": lambda x: x.float(),
    "to": lambda x: x.to(x.dtype),
    "norm": lambda x: x.float().norm(),
    "softmax": lambda x: x.float().softmax(1),
}
KINDS = ("float32", "float64", "int64", "uint8", "bool")


@pytest.fixture(autouse=True)
def calls_wait() -> Iterator[None]:
    waiting.this_thread.pool.count_hit()
    with Context(TEMPLATES=1, SEGMENTS=1, SIZES=1):
        yield


def operand(lib: Any, kind: str, seed: int) -> Any:
    """A tensor of `lib`, or a number."""
    if kind == "int":
        return seed % 5 + 2
    if kind == "float":
        return seed % 5 * 0.75 + 0.3
    values = np.random.default_rng(seed).integers(1, 5, (4, 4))
    if kind == "no axes":
        return lib.tensor(float(values[0, 0]), dtype=lib.float64)
    return lib.tensor(values > 2 if kind == "bool" else values.astype(kind))


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives: dtype, whether a gradient is required, values; or "refused"."""
    try:
        found = call()
    except (RuntimeError, TypeError, ValueError):
        return "refused"
    values = found.detach().double().numpy()
    return str(found.dtype), found.requires_grad, values


def check(mine: Any, theirs: Any, what: object) -> None:
    if "refused" in (mine if isinstance(mine, str) else "", theirs):
        assert isinstance(mine, str) and isinstance(theirs, str), (what, mine, theirs)
        return
    assert mine[:2] == theirs[:2], what
    np.testing.assert_allclose(mine[2], theirs[2], 1e-3, 1e-5, err_msg=str(what))


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_of_all_kinds_in_turn_are_those_of_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    function = OPERATORS[name]
    pairs = [
        (left, right)
        for left in (*KINDS, "float")
        for right in (*KINDS, "int", "float", "no axes")
        if not (name == "@" or left == right == "float")
    ] + [(kind, kind) for kind in KINDS if name == "@"]
    for number in range(ROUNDS):
        for left, right in pairs:
            if left == "float" and (right in ("int", "float") or name in ("maximum", "sub")):
                continue
            found = []
            for lib in (ours, torch):
                x, y = operand(lib, left, 2 * number), operand(lib, right, 2 * number + 1)
                found.append(outcome(functools.partial(function, x, y)))
            if found[1] == "refused" and not isinstance(found[0], str):
                # More than PyTorch computes, as products of bools.
                continue
            check(*found, (number, left, right))


@pytest.mark.parametrize("name", METHODS)
def test_methods_of_all_kinds_in_turn_are_those_of_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    for number in range(ROUNDS):
        for kind in KINDS:
            mine, theirs = (
                outcome(functools.partial(METHODS[name], operand(lib, kind, number)))
                for lib in (ours, torch)
            )
            if theirs != "refused":
                check(mine, theirs, (number, kind))


def test_what_is_refused_stays_refused_after_calls_that_are_not() -> None:
    bools, numbers = ours.tensor([True, False]), ours.tensor([1, 2])
    for _ in range(ROUNDS):
        assert (numbers - numbers).tolist() == [0, 0]
        assert (numbers**2).tolist() == [1, 4]
        with pytest.raises((RuntimeError, TypeError)):
            _ = bools - bools
        with pytest.raises((RuntimeError, TypeError)):
            _ = -bools
        with pytest.raises((RuntimeError, TypeError)):
            _ = numbers**-2
        with pytest.raises((RuntimeError, TypeError)):
            _ = ours.ones(2, 2) @ ours.ones(2, 2).double()


def test_modes_are_looked_at_in_each_call() -> None:
    """A product is in the dtype of autocast inside it only, and a gradient is required only where
    they are recorded; the step of each result is that of its operation.
    """
    torch = pytest.importorskip("torch")
    for number in range(ROUNDS):
        found = []
        for lib in (ours, torch):
            x, w = lib.ones(3, 3), lib.ones(3, 3).requires_grad_()
            with lib.autocast("cpu", dtype=lib.bfloat16):
                cast = str((x @ x).dtype)
            with lib.no_grad():
                plain = (x * w).requires_grad
            y = x * w + number
            steps = [type(each.grad_fn).__name__ for each in (y, y.max(), y @ w, 2 - y)]
            below = [type(each).__name__ for each, _ in y.grad_fn.next_functions if each]
            y.sum().backward()
            found.append((cast, str((x @ x).dtype), plain, steps, below, w.grad.tolist()))
        assert found[0] == found[1]


def test_a_call_that_came_calls_fewer_functions() -> None:
    x, y = (ours.tensor(np.arange(4, dtype=np.float32)) for _ in range(2))

    def calls() -> int:
        count = 0

        def seen(frame: Any, event: str, arg: Any) -> None:
            nonlocal count
            count += event == "call"

        before = sys.getprofile()
        sys.setprofile(seen)
        try:
            _ = 0.5 * x + y
        finally:
            sys.setprofile(before)
        return count

    counts = [calls() for _ in range(12)]
    assert counts[-1] <= 10 < counts[0]


def _slices(lib: Any, step: int) -> list[Any]:
    """Of what waits: the same at each step, and at positions that change."""
    far = lib.tensor(np.random.default_rng(step).random((6, 6)))
    found = []
    for k in range(6):
        far = lib.minimum(far, far[:, k : k + 1] + far[k : k + 1, :])
        row = (far * 2)[k]
        found.append(row[1:4])
    best = (far + 1)[step % 5]
    flipped = far.T * 1
    return [*found, best, flipped[step % 3 :][0], flipped.T[2, 1:], far]


def _masks(lib: Any, step: int) -> list[Any]:
    """Picked by masks in memory and computed ones, of tables of several dtypes."""
    random = np.random.default_rng(step)
    table, mask = random.integers(0, 9, (5, 4)), random.random((5, 4)) < 0.5
    found = []
    for dtype in ("float32", "int64", "bool"):
        x = lib.tensor(table.astype(dtype))
        found += [x[lib.tensor(mask)], x[lib.tensor(mask[:, 0])], x[x > 0], x.T[lib.tensor(mask.T)]]
        found += [x[lib.tensor(mask[0] & False)[None].repeat(5, 1)]]
    return found


def _choices(lib: Any, step: int) -> list[Any]:
    random = np.random.default_rng(step)
    x, y = lib.tensor(random.random((3, 4))), lib.tensor(random.random(4).astype("f4"))
    whole = lib.tensor(random.integers(0, 3, (3, 4)))
    least, where = x.max(dim=1), (x * 2).min(0)
    return [
        lib.where(x > 0.5, x, y), lib.where(whole > 1, whole, y), lib.where(whole == 0, x, whole),
        *least, *where, whole.argmax(), x.argmin(0), whole.max(), lib.where(x > 2, x, x * 3),
    ]  # fmt: skip


def _constants(lib: Any, step: int) -> list[Any]:
    left = lib.ones(step % 3 + 2, dtype=lib.bool)
    count = lib.arange(step % 3 + 2).sum().item()
    return [
        lib.tensor(left.any().item()), lib.tensor(left.all().item()), lib.tensor(count),
        lib.tensor(lib.zeros(3).sum().item()), lib.tensor((lib.ones(2) * 3).max().item()),
    ]  # fmt: skip


def _updates(lib: Any, step: int) -> list[Any]:
    """Of all of a tensor, with others that look at it, and that were computed from it before."""
    x = lib.tensor(np.random.default_rng(step).random(6).astype("f4"))
    y, row, before = x * 2, x[1:4], x[2] + 1
    x -= (y @ x) * y
    after = row * 2
    x += 1
    row *= 2
    return [x, y, row, before, after, x.sum()]


@pytest.mark.parametrize("kind", [_slices, _masks, _choices, _constants, _updates])
def test_loops_over_small_tensors_are_those_of_pytorch(kind: Callable[[Any, int], Any]) -> None:
    torch = pytest.importorskip("torch")
    for step in range(14):
        mine, theirs = kind(ours, step), kind(torch, step)
        for number, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            assert str(one.dtype) == str(other.dtype) and one.shape == other.shape, number
            np.testing.assert_allclose(
                one.numpy(), other.numpy(), 1e-5, 1e-6, err_msg=f"{step} {number}"
            )


def test_a_loop_that_nobody_reads_holds_a_bounded_number_of_nodes() -> None:
    x, y = ours.ones(4) * 2, ours.tensor([1.0, 2.0, 3.0, 4.0])
    before = node_count()
    for _ in range(34_000):
        x = x * 0.5 + y
    assert node_count() - before < 50_000
    np.testing.assert_allclose(x.numpy(), [2.0, 4.0, 6.0, 8.0], 1e-6)
