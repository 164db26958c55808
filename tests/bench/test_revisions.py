"""Times of rows of the benchmark with two trees, whose processes take turns."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "bench"))
import revisions
from common import ROOT
from rows import Row

COPY = Row("moved", "copy", "copy", {"rows": 64, "columns": 64}, 1.0, (), flops=0.0, nbytes=32768.0)


def test_each_tree_runs_its_own_package(tmp_path: Path) -> None:
    """The other tree is a copy that takes a fiftieth of a second longer for each call."""
    for folder in ("tilegrad", "bench", "examples"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT.parent / folder, tmp_path / folder, ignore=ignored)
    worker = tmp_path / "bench" / "worker.py"
    text = worker.read_text()
    assert text.count("    run()\n") == 1
    worker.write_text(text.replace("    run()\n", "    time.sleep(0.02)\n        run()\n"))
    assert all(ratio > 2 for ratio in revisions.ratios(COPY, ROOT.parent, tmp_path, 2))
