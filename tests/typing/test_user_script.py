"""A typed script of a user runs, and type checkers see the types of what it uses."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.typing import second_script, user_script

SCRIPTS = (user_script, second_script)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__.rpartition(".")[2])
def test_the_script_runs(script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.main(tmp_path)
    assert capsys.readouterr().out.startswith("CPU: ")


@pytest.mark.parametrize(
    ("tool", "options"),
    [("mypy", ["-m", "mypy", "--strict", "--no-incremental"]), ("pyright", ["-m", "pyright"])],
)
@pytest.mark.nightly
def test_the_script_has_types(tool: str, options: list[str]) -> None:
    """`make lint` asks mypy as well."""
    if importlib.util.find_spec(tool) is None:
        pytest.skip(f"{tool} is not installed: make lint")
    found = subprocess.run(
        [sys.executable, *options, *[str(script.__file__) for script in SCRIPTS]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout
