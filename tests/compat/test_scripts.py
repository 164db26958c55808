"""Scripts written for tinygrad run as they are. Each asserts its values against NumPy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilegrad.compat.tinygrad import run

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_runs(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = run(str(script))
    assert names["checked"] > 0


def test_there_are_enough() -> None:
    assert len(SCRIPTS) >= 40
