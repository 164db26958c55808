"""The loops of bench/loops.py, at every step beside PyTorch, with each of the mechanisms switched
off.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegrad.torch
from tilegrad import Context

_FOLDER = Path(__file__).parents[2] / "bench"
_NAMES = (
    "q_learning", "bfs", "edit_distance", "floyd", "floyd_rows", "life", "gauss_seidel", "viterbi",
    "bubble_sort", "gram_schmidt", "union", "running", "simplex", "perceptron", "sieve", "prefix",
)  # fmt: skip


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(_FOLDER), *sys.path])
    return importlib.import_module("loops")


def test_these_are_all_loops(loops: Any) -> None:
    assert set(loops.PROGRAMS) == set(_NAMES)


@pytest.mark.parametrize("switches", [{}, {"SEGMENTS": 0}, {"SEGMENTS": 2}, {"TEMPLATES": 0},
                                      {"SIZES": 0}], ids=str)  # fmt: skip
@pytest.mark.parametrize("name", _NAMES)
def test_each_step_is_that_of_pytorch(loops: Any, name: str, switches: dict[str, int]) -> None:
    theirs = pytest.importorskip("torch")
    steps = 24 if not switches else 8
    with Context(**switches):
        ours = loops.PROGRAMS[name](tilegrad.torch, steps)
        for found, wanted in zip(ours, loops.PROGRAMS[name](theirs, steps), strict=True):
            np.testing.assert_allclose(found, wanted, 2e-3, 1e-4)
