"""The demo trains, ends cleanly when interrupted, and resumes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEMO = [sys.executable, str(ROOT / "examples" / "demo.py"), "--data", "digits", "--batch", "64"]


def run(*arguments: str) -> str:
    done = subprocess.run(
        [*DEMO, *arguments], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.row("M3.6", "M4.14")
def test_demo_learns_saves_and_resumes(tmp_path: Path) -> None:
    first = run("--steps", "60", "--out", str(tmp_path))
    assert "test accuracy 9" in first
    assert (tmp_path / "demo.png").stat().st_size > 10_000
    again = run("--steps", "1", "--out", str(tmp_path), "--resume")
    assert "resumed from" in again and "9" in again.split("resumed from")[1].split("%")[0]


def test_an_interrupt_still_gives_the_picture(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [*DEMO, "--steps", "100000", "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert child.stdout is not None
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and "50/100000" not in child.stdout.readline():
        pass
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=200)
    assert child.returncode == 0, err
    assert "interrupted" in out and "test accuracy" in out
    assert (tmp_path / "demo.png").exists()
