"""A run that a failure of the compiler or of a kernel ends is not tried again by later reads: its
tensors tell of the failure, and all else goes on.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from tests.tensor.helpers import close, numbers
from tilegrad import Context, Tensor, no_grad
from tilegrad.base.errors import CompileError, InternalError, OutOfMemoryError
from tilegrad.engine.run import ready
from tilegrad.tensor.handle.waiting import this_thread
from tilegrad.tensor.storage import failed_runs, segments

RATE = 0.25


@pytest.fixture(autouse=True)
def _waiting() -> Iterator[None]:
    """Let calls wait whatever the tests before did, and be found by no code that was written."""
    this_thread.pool.end()
    this_thread.pool.count_hit()
    with Context(TEMPLATES=1, SEGMENTS=1, VERIFY=0):
        yield


class _Steps:
    """Steps that train a weight of many elements, more than the host computes."""

    def __init__(self) -> None:
        self.weight = Tensor(numbers(48, 48), requires_grad=True).realize()
        self.data = Tensor(numbers(32, 48, seed=1)).realize()

    def step(self) -> Tensor:
        """A step that waits; its loss."""
        loss = ((self.data @ self.weight).tanh() ** 2.0).mean()
        self.weight.grad = None
        loss.backward()
        with no_grad():
            assert self.weight.grad is not None
            self.weight -= self.weight.grad * RATE
        return loss


def _fail(monkeypatch: pytest.MonkeyPatch, kind: type[Exception]) -> list[int]:
    """Let runs of segments and of their nodes fail; the list counts the attempts."""
    tried: list[int] = []

    def fail(*args: Any, **kwargs: Any) -> Any:
        tried.append(1)
        raise kind("planted")

    monkeypatch.setattr(ready.Ready, "run", fail)
    monkeypatch.setattr(segments, "_run_plain", fail)
    segments._written.clear()
    return tried


@pytest.mark.parametrize("kind", [CompileError, InternalError, KeyError])
def test_the_tensors_of_a_run_that_failed_tell_and_others_go_on(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, other = _Steps(), Tensor(numbers(48, 48, seed=2)).realize()
    for _ in range(4):
        (steps.step() * 3.0).item()
        (steps.weight.detach() + 1).numpy()
        (other @ other).sum().item()
    with monkeypatch.context() as patched:
        tried = _fail(patched, kind)
        loss = steps.step()
        with pytest.raises(kind, match="planted"):
            loss.item()
    assert tried
    for _ in range(3):
        # Before, each of these met the failure again, as an assignment is part of every run.
        close((other @ other).sum(), (numbers(48, 48, seed=2) @ numbers(48, 48, seed=2)).sum())
        close(other * 2 + 1, numbers(48, 48, seed=2) * 2 + 1)
        for lost in (loss, loss * 3.0, steps.weight, steps.weight.detach() + 1):
            with pytest.raises(kind, match="planted") as told:
                lost.numpy()
            assert any("test_failed_runs.py" in note for note in told.value.__notes__)


def test_what_failed_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = _Steps()
    for _ in range(4):
        steps.step().item()
    tried = _fail(monkeypatch, CompileError)
    loss = steps.step()
    with pytest.raises(CompileError):
        loss.item()
    count = len(tried)
    for _ in range(3):
        with pytest.raises(CompileError):
            loss.item()
    assert len(tried) == count


def test_a_tensor_that_takes_another_value_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = _Steps()
    expected = [steps.step().item() for _ in range(6)]
    steps.weight.detach().assign(Tensor(numbers(48, 48))).realize()
    steps.step().item()
    with monkeypatch.context() as patched:
        _fail(patched, CompileError)
        with pytest.raises(CompileError):
            steps.step().item()
    with no_grad():
        steps.weight.assign(Tensor(numbers(48, 48)))
    assert [steps.step().item() for _ in range(6)] == pytest.approx(expected, rel=1e-5)


def test_a_machine_that_was_full_may_have_room_later(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = _Steps()
    for _ in range(4):
        steps.step().item()
    with monkeypatch.context() as patched:
        patched.setattr("tilegrad.tensor.results.computing._compute", _no_room)
        _fail(patched, OutOfMemoryError)
        loss = steps.step()
        with pytest.raises(OutOfMemoryError):
            loss.item()
    assert 0 < loss.item() < 1


def _no_room(pending: Any) -> None:
    raise OutOfMemoryError("planted")


def test_a_failure_holds_nothing_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = _Steps()
    for _ in range(4):
        steps.step().item()
    gc.collect()
    before = len(failed_runs._failed)
    with monkeypatch.context() as patched:
        _fail(patched, CompileError)
        with pytest.raises(CompileError):
            steps.step().item()
    assert len(failed_runs._failed) > before
    del steps
    gc.collect()
    assert len(failed_runs._failed) == before
