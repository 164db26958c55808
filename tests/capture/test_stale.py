"""A captured function never gives what an uncaptured one would not: every way of reading state.

Each case makes a function and a change of what it reads. It is made twice: one is called as it is,
the other captured, both after the same changes, and all values are compared. A capture may be
refused with an error; it may not be wrong.
"""

from __future__ import annotations

import os
import random
import secrets
import time
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.capture.helpers import full
from tests.capture.stale import (
    attributes,
    classes,
    containers,
    functions,
    generators,
    surroundings,
    text,
)
from tests.capture.stale.registry import CASES
from tilegrad import Tensor, jit
from tilegrad.base.errors import CaptureError

FILES = (attributes, classes, containers, functions, generators, surroundings, text)


@pytest.fixture(autouse=True)
def _environment_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a case sets is not there for the tests, and their processes, that follow."""
    for name in ("STALE_TEST_K", "STALE_TEST_L"):
        monkeypatch.setenv(name, "1")
        monkeypatch.delenv(name)


def test_each_file_has_cases() -> None:
    assert {make.__module__ for make in CASES.values()} == {file.__name__ for file in FILES}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", sorted(CASES))
def test_never_stale(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The values of eight calls are those of a function that nobody captures."""
    monkeypatch.chdir(tmp_path)
    function, change = CASES[name]()
    expected = []
    for n in range(8):
        change(n)
        expected.append(function(full(1, 2)).tolist())
    function, change = CASES[name]()
    captured = jit(function)
    found, refused = [], "remedy"
    for n in range(8):
        change(n)
        try:
            found.append(captured(full(1, 2)).tolist())
        except CaptureError as error:
            refused = str(error)
            break
    assert found == expected[: len(found)]
    assert "remedy" in refused


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "read",
    [
        time.time_ns, time.perf_counter_ns, time.monotonic_ns, lambda: os.urandom(8),
        lambda: secrets.token_hex(8), lambda: uuid.uuid4().hex, random.SystemRandom().random,
        lambda: next(tuple(secrets.token_bytes(8) for _ in range(1)).__iter__()), object,
    ],
)  # fmt: skip
def test_what_is_never_the_same_is_read_at_each_call(read: Callable[[], Any]) -> None:
    """Clocks and the system's random numbers: no value comes twice."""
    seen = []

    @jit
    def function(x: Tensor) -> tuple[Tensor, int]:
        value = read()
        return x + 1, value if isinstance(value, int) else int.from_bytes(str(value).encode())

    for _ in range(8):
        try:
            seen.append(function(full(1, 2))[1])
        except CaptureError:
            break
        time.sleep(0.001)
    assert len(set(seen)) == len(seen) or read is object


def test_a_function_that_runs_anew_says_so_once_with_the_line() -> None:
    rng = np.random.default_rng(3)

    @jit
    def function(x: Tensor) -> Tensor:
        return x * float(rng.random())  # the line

    with pytest.warns(RuntimeWarning, match="runs anew at each call") as caught:
        [function(full(1, 2)) for _ in range(8)]
    assert len(caught) == 1
    text = str(caught[0].message)
    assert "rng.random())  # the line   test_stale.py:" in text and "remedy" in text
    assert "Generator.random" in text
    assert "Generator.random" in function.explain()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        function(full(1, 2))
