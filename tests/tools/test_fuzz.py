"""The fuzz itself: programs mean what NumPy says, and a planted bug is found and made small."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.tools.planted import PLANTED
from tilegrad.tools.fuzz.loop import Child, fuzz
from tilegrad.tools.fuzz.program import Step, needed
from tilegrad.tools.fuzz.run import draw, meaning, script
from tilegrad.tools.fuzz.shrink import shrink


def test_a_seed_is_a_program() -> None:
    assert draw(3) == draw(3)
    assert draw(3) != draw(4)


def test_what_a_step_does_not_need_is_left_out() -> None:
    steps = [Step("a"), Step("b"), Step("c", (0,)), Step("d", (2, 0))]
    assert needed(steps, 3) == (Step("a"), Step("c", (0,)), Step("d", (1, 0)))


def test_a_program_shrinks_to_what_fails() -> None:
    """Whatever else stands in it, a flip of more than one element is left."""

    def fails(program: tuple[Step, ...]) -> bool:
        return any(step.name == "flip" for step in program)

    program = next(found for found in map(draw, range(500)) if fails(found) and len(found) > 4)
    assert [step.name for step in shrink(program, fails)] == ["input", "flip"]


def test_a_crash_and_a_hang_are_failures() -> None:
    child = Child("eager", patience=5.0)
    try:
        assert child.failure(["import os", "os._exit(3)"]) is not None
        assert child.failure(["while True: pass"]) == "the process hangs"
        assert child.failure(["x = 1"]) is None
    finally:
        child.close()


def test_a_planted_bug_is_found_and_made_small(tmp_path: Path) -> None:
    (file,) = fuzz(
        1.0, 0, tmp_path, modes=["eager"], planted=PLANTED["flip forgets"], first_only=True
    )
    lines = file.read_text().splitlines()
    assert len(lines) <= 10 and any(".flip(" in line for line in lines)
    # Without the bug, the file says that all is well.
    done = subprocess.run([sys.executable, file], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.nightly
def test_five_minutes(tmp_path: Path) -> None:
    seed = int(time.time())
    found = fuzz(5.0, seed, tmp_path)
    assert not found, "\n".join(path.read_text() for path in found)


@pytest.mark.nightly
@pytest.mark.parametrize("name", PLANTED)
def test_every_planted_bug_is_found(name: str, tmp_path: Path) -> None:
    found = fuzz(2.0, 0, tmp_path, modes=["eager"], planted=PLANTED[name], first_only=True)
    assert found
    assert len(found[0].read_text().splitlines()) <= 10
    # It is this bug, and no other.
    assert Child("eager").failure(found[0].read_text().splitlines()) is None


def test_no_program_is_drawn_that_numpy_refuses() -> None:
    for seed in range(30):
        program = draw(seed)
        values, _ = meaning(program)
        assert len(values) == len(program)
        compile("\n".join(script(program, "jit")), "<program>", "exec")
