"""Where a run, a plan or a recording that fails is tried in another way, only the errors expected
there lead to that. Any other is a failure of tilegrad, and is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tensor.helpers import close, numbers
from tilegrad import Context, Tensor
from tilegrad.base.errors import (
    CompileError,
    DeviceError,
    InternalError,
    MissingDTypeError,
    OutOfMemoryError,
    ShapeError,
)
from tilegrad.engine.realize import bindings, size_ranges
from tilegrad.engine.run import ready
from tilegrad.engine.run.leaf_memory import OverwrittenError
from tilegrad.tensor.calls.joins import _FEWEST_NODES
from tilegrad.tensor.calls.recorded import recorded
from tilegrad.tensor.handle.waiting import this_thread
from tilegrad.tensor.results import computing
from tilegrad.tensor.storage import segments, writes

FOREIGN = [KeyError, AssertionError, RecursionError, CompileError, InternalError]
OF_VALUES = [OutOfMemoryError, OverwrittenError, DeviceError, MissingDTypeError]


def _sums_of_sizes(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """Read sums of several sizes, where no plan for a range of them can be made."""

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise kind("planted")

    bindings._bindings.clear()
    size_ranges._families.clear()
    monkeypatch.setattr(size_ranges, "binding_among", fail)
    with Context(SIZES=1, SEGMENTS=0, DISABLE_COMPILER_CACHE=1):
        for size in (5, 6, 7, 9, 11):
            a = numbers(size, 3, seed=size)
            close((Tensor(a) * 3 + 1).sum(0), (a * 3 + 1).sum(0))


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_failure_in_a_plan_for_all_sizes_is_told(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(kind, match="planted"):
        _sums_of_sizes(kind, monkeypatch)


@pytest.mark.parametrize("kind", OF_VALUES)
def test_sizes_have_plans_of_their_own_where_one_for_all_finds_no_room(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    _sums_of_sizes(kind, monkeypatch)


def _segments_fail(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """Let all runs of segments fail whose nodes are made, and none of one result alone; what they
    have raised.
    """
    raised: list[Exception] = []

    def fail(*args: Any) -> Any:
        raised.append(kind("planted"))
        raise raised[-1]

    monkeypatch.setattr(segments, "_run_plain", fail)
    segments._known.clear()
    segments._written.clear()
    segments._sized.clear()
    return raised


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_failure_in_a_run_of_several_waiting_results_is_told(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked for may compile alone, without the other results that are alive."""
    x, y = Tensor(numbers(5)).realize(), Tensor(numbers(5, seed=1)).realize()
    with Context(TEMPLATES=1, SEGMENTS=1, VERIFY=0):
        for _ in range(4):
            (x * 2.0 - y).sum().item()
        _segments_fail(kind, monkeypatch)
        with pytest.raises(kind, match="planted"):
            (x * 2.0 - y).sum().item()


@pytest.mark.parametrize("kind", OF_VALUES)
def test_the_error_of_another_result_is_not_that_of_the_one_asked_for(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = Tensor(numbers(5)).realize(), Tensor(numbers(5, seed=1)).realize()
    with Context(TEMPLATES=1, SEGMENTS=1):
        for _ in range(4):
            (x * 2.0 - y).sum().item()
        raised = _segments_fail(kind, monkeypatch)
        close((x * 2.0 - y).sum(), (numbers(5) * 2 - numbers(5, seed=1)).sum())
    assert len(raised) == 1


def _read_beside_a_write(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """Read two values, where a run that computes what another tensor takes as well fails."""
    other = Tensor(numbers(4)).realize() * 5
    compute = computing._compute

    def fail(pending: Sequence[Any]) -> None:
        if any(each is other for each in pending):
            raise kind("planted")
        compute(pending)

    monkeypatch.setattr(computing, "_compute", fail)
    monkeypatch.setattr(writes, "run_with", lambda asked: [other])
    a, b = numbers(5), numbers(5, seed=1)
    # As nodes: a run for calls that wait computes no more than these.
    with Context(TEMPLATES=0):
        x, y = Tensor(a).realize() * 2, Tensor(b).realize() - 1
        x.realize(y)
    close(x, a * 2)
    close(y, b - 1)


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_failure_in_a_run_with_another_tensor_is_told(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(kind, match="planted"):
        _read_beside_a_write(kind, monkeypatch)


@pytest.mark.parametrize("kind", OF_VALUES)
def test_the_error_of_another_tensor_is_not_that_of_the_one_read(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    _read_beside_a_write(kind, monkeypatch)


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("segments", [0, 1])
def test_a_failure_of_a_run_that_is_known_is_told(
    segments: int, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A KeyError may also say that a variable is not bound, which the steps one by one tell."""
    a = numbers(5)
    x = Tensor(a).realize()
    with Context(SEGMENTS=segments):
        for _ in range(4):
            close((x * 3 - 1).sum(), (a * 3 - 1).sum())

        def fail(*args: Any, **kwargs: Any) -> Any:
            raise kind("planted")

        monkeypatch.setattr(ready.Ready, "run", fail)
        with pytest.raises(kind, match="planted"):
            (x * 3 - 1).sum().item()


@pytest.mark.parametrize("kind", [KeyError, AssertionError, RecursionError, InternalError])
def test_a_failure_in_a_method_that_is_recorded_is_told(kind: type[Exception]) -> None:
    def method(x: Tensor) -> Tensor:
        raise kind("planted")

    with pytest.raises(kind, match="planted"):
        recorded(method, [Tensor(numbers(3)).realize()], (), {})
    assert not this_thread.stand_ins


def test_a_method_that_refuses_its_operands_is_not_recorded() -> None:
    def method(x: Tensor) -> Tensor:
        raise ShapeError("refused")

    assert recorded(method, [Tensor(numbers(3)).realize()], (), {}) is None
    assert not this_thread.stand_ins


@pytest.mark.parametrize("segments", [0, 1])
def test_a_method_that_reads_values_is_not_recorded(
    segments: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A stand-in has none. A value that has nothing to do with it is computed."""
    monkeypatch.setenv("TILEGRAD_CACHE", str(tmp_path))
    read = []

    def of_the_operand(x: Tensor) -> Tensor:
        return x * (x + 1).sum().item()

    def of_another(x: Tensor) -> Tensor:
        read.append((Tensor([1.0, 2.0]) * 3).sum().item())
        return x + 1

    with Context(SEGMENTS=segments):
        assert recorded(of_the_operand, [Tensor(numbers(3)).realize()], (), {}) is None
        made = recorded(of_another, [Tensor(numbers(3)).realize()], (), {})
    assert made is not None
    assert read == [9.0]
    assert not list(tmp_path.rglob("failed.ir"))


def test_a_method_that_joins_is_recorded_while_much_waits() -> None:
    """A loop that comes to one line with `cat` again computes what waits before it, but no stand-in
    of a method that is recorded.
    """

    def lengthened(x: Tensor) -> Tensor:
        for _ in range(3):
            x = x.cat(x[:1] * 2, dim=0)
        return x

    a = numbers(4)
    with Context(TEMPLATES=1, SEGMENTS=1):
        x = Tensor(a).realize()
        waiting = [x]
        for _ in range(_FEWEST_NODES):
            waiting.append(waiting[-1] * 0.5 + x)
        assert recorded(lengthened, [x], (), {}) is not None
        close(lengthened(x), np.concatenate([a, [a[0] * 2] * 3]))
    assert len(waiting) > _FEWEST_NODES
