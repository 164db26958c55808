"""What two revisions make of the same programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def kernels(*options: str) -> str:
    command = [sys.executable, str(ROOT / "bench" / "kernels.py"), "--scale", "8", *options]
    switches = {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=120, env=os.environ | switches
    ).stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks")
def test_what_differs_is_told_apart(tmp_path: Path) -> None:
    """Other Opts of one kernel, other text with the same Opts, and kernels that have no pair."""
    kept = tmp_path / "kernels.json"
    rows = "--rows", "MLP"
    kernels("--keep", str(kept), *rows)
    (name, row), *none = json.loads(kept.read_text()).items()
    made = row["kernels"]
    assert not none
    assert len(made) > 3
    made[0]["opts"], made[1]["text"] = ["UPCAST(0, 2)"], "another"
    made[2]["graph"], made[2]["name"] = "another", "E_7"
    kept.write_text(json.dumps({name: row}))
    head, *lines = kernels("--with", str(kept), *rows).splitlines()
    assert head.startswith(f"{name}: {row['call kernels']} kernels, ")
    assert [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "] == [
        "opts",
        "text",
        "new",
        "gone",
    ]
    assert lines[1].split() == ["UPCAST(0,", "2)"]
    assert lines[-2].split()[:2] == ["gone", "E_7"]
    assert lines[-1] == "1 of 1 rows differ"
