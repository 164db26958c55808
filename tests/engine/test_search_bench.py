"""bench/search.py: its kernels are the same in every run, and its stored figures are whole."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tilegrad.ir.op import Ops

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    yield import_module("search")
    # Its name, and that of what it shares with the others, are not ours alone.
    for name in ("search", "common"):
        sys.modules.pop(name, None)


def test_the_kernels_repeat_and_are_of_every_kind(module: Any) -> None:
    drawn = module.cases(40)
    assert [case.ast.key for case in module.cases(8)] == [case.ast.key for case in drawn[:8]]
    assert len({case.ast.key for case in drawn}) == 40
    assert module.cases(3, seed=1)[0].ast is not drawn[0].ast
    for kind in ("matmul", "conv", "permute"):
        assert sum(case.name.startswith(kind) for case in drawn) == 8
    folds = [any(node.op is Ops.REDUCE for node in case.ast.toposort()) for case in drawn]
    assert 20 <= sum(folds) <= 30


def test_the_stored_figures_are_whole_and_no_search_lost() -> None:
    record = json.loads((BENCH / "results" / "search.json").read_text())
    figures = record["figures"]
    ratios = [row["ratio"] for row in figures["kernels"]]
    assert len(ratios) >= 30 and figures["width"] == 8
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    assert figures["geometric_mean"] == pytest.approx(mean, abs=1e-3) and mean >= 1.0


@pytest.mark.nightly
def test_it_runs() -> None:
    command = [sys.executable, str(BENCH / "search.py"), "--count", "2", "--width", "2"]
    done = subprocess.run(
        [*command, "--seconds", "1", "--print"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"geometric mean of 2: \d\.\d+", done.stdout)
    assert len(re.findall(r"^ +\d\.\d\d  \S.* us +\d+ timed$", done.stdout, re.M)) == 2
