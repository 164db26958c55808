"""The fuzz itself: programs mean what NumPy says, and a planted bug is found and made small."""

from __future__ import annotations

import ast
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tests.tools.planted import PACKAGE, PAGE, PLANTED, look_for, page, rows_of
from tilegrad.tools.fuzz.case import Programmed, drawn_case
from tilegrad.tools.fuzz.chains import Chain, drawn_chain
from tilegrad.tools.fuzz.changing import plainer, recurring_factor, recurring_integer
from tilegrad.tools.fuzz.draw import draw
from tilegrad.tools.fuzz.drawn_loops import drawn_loop, drawn_short_loop
from tilegrad.tools.fuzz.instructions import INSTRUCTIONS
from tilegrad.tools.fuzz.loop import Child, fuzz
from tilegrad.tools.fuzz.loops import Loop, Read, Statement
from tilegrad.tools.fuzz.meaning import meaning
from tilegrad.tools.fuzz.modes import MODES
from tilegrad.tools.fuzz.program import GIVEN, Program, Step, needed
from tilegrad.tools.fuzz.run import failure
from tilegrad.tools.fuzz.script import MOST_LINES, _array_text, script
from tilegrad.tools.fuzz.shrink import shrink
from tilegrad.tools.fuzz.statements import STATEMENTS
from tilegrad.tools.fuzz.themes import THEMES

SQUARE = Step("input", (), ([1.0, 2.0, 3.0, 4.0], (2, 2), "float32", False))


@pytest.fixture(autouse=True)
def variables_of_its_own() -> Iterator[None]:
    """A program sets the switches of its mode for the whole process."""
    with mock.patch.dict(os.environ):
        yield


def test_a_seed_is_a_program() -> None:
    # By text, as NaN is not itself.
    assert repr(draw(3)) == repr(draw(3))
    assert repr(draw(3)) != repr(draw(4))


def test_what_a_step_does_not_need_is_left_out() -> None:
    steps = (Step("a"), Step("b"), Step("c", (0,)), Step("d", (2, 0)))
    kept = needed(Program(steps, (3,)))
    assert kept == Program((Step("a"), Step("c", (0,)), Step("d", (1, 0))), (2,))


def test_a_write_to_memory_that_is_read_is_needed() -> None:
    steps = (Step("a"), Step("view", (0,)), Step("write", (1,)), Step("b"), Step("write", (3,)))
    kept = needed(Program(steps, (0,)), ["view"], ["write"])
    assert [step.name for step in kept.steps] == ["a", "view", "write"]


def test_a_write_through_a_view_of_a_view_is_seen_by_what_it_views() -> None:
    """And not by what was computed before it."""
    steps = (
        SQUARE,
        Step("scale", (0,), (2,)),
        Step("permute", (0,), ((1, 0),)),
        Step("index", (2,), ("0:1",)),
        Step("fill_", (3,), (9,)),
    )
    whole, doubled, *_ = meaning(Program(steps, (0, 1)))
    assert whole.array.tolist() == [[9, 2], [9, 4]]
    assert doubled.array.tolist() == [[2, 4], [6, 8]]


def test_a_gradient_is_that_of_the_program_by_differences() -> None:
    steps = (SQUARE, Step("square", (0,)), Step("gradient", (1, 0)))
    found = meaning(Program(steps, (2,)))[2].array
    # The sum is weighted with 1, 2, 3, 4.
    assert abs(found - [[2, 8], [18, 32]]).max() < 1e-6


def test_at_a_kink_there_is_no_gradient_to_compare_with() -> None:
    zeros = Step("input", (), ([0.0, 1.0], (2,), "float32", False))
    with pytest.raises(ValueError, match="kink"):
        meaning(Program((zeros, Step("relu", (0,)), Step("gradient", (1, 0))), (2,)))


def test_kinks_that_cancel_each_other_are_kinks() -> None:
    """max(x, 0) + min(x, 0) is x, but the gradient at 0 is what the rules of both say."""
    zeros = Step("input", (), ([0.0, 1.0], (2,), "float32", False))
    steps = (zeros, Step("relu", (0,)), Step("from_number", (0,), (0,)), Step("relu", (2,)))
    with pytest.raises(ValueError, match="kink"):
        meaning(Program((*steps, Step("sub", (1, 3)), Step("gradient", (4, 0))), (5,)))


def test_a_jump_to_both_sides_is_a_kink() -> None:
    zeros = Step("input", (), ([0.0, 1.0], (2,), "float32", False))
    with pytest.raises(ValueError, match="kink"):
        meaning(Program((zeros, Step("sign", (0,)), Step("gradient", (1, 0))), (2,)))


def test_a_write_rounds_what_all_values_of_that_memory_are() -> None:
    """5 more and 5 less leave fewer digits than there were."""
    steps = (
        SQUARE, Step("tanh", (0,)), Step("permute", (1,), ((1, 0),)),
        Step("add_", (2,), (5,)), Step("add_", (3,), (-5,)),
    )  # fmt: skip
    before = meaning(Program(steps[:2], (1,)))[1]
    after = meaning(Program(steps, (1,)))
    assert after[1].error == after[4].error > 4 * before.error


def test_a_zero_of_an_input_keeps_its_sign() -> None:
    """Whether the program is a function or not."""
    zero = Step("input", (), ([-0.0, 1.0], (2,), "float32", True))
    ones = Step("input", (), ([1.0, 1.0], (2,), "float32", False))
    program = Program((zero, ones, Step("plain_div", (1, 0))), (2,))
    assert meaning(program)[2].array.tolist() == [-math.inf, 1]
    for calls in (1, 3):
        assert failure(script(replace(program, calls=calls), "eager")) is None


def test_the_parts_of_a_logsumexp_that_cancel_are_rounded() -> None:
    """-0.25 and log(1 + exp(-1.25)) leave 0.0019, and the errors of both."""
    terms = np.array([-1.5, -0.25], "float32")
    given = Step("input", (), (terms.tolist(), (2,), "float32", False))
    steps = (given, Step("logsumexp", (0,), (0,)))
    found = meaning(Program(steps, (1,)))[1]
    top = terms.max()
    rounded = np.log(np.exp(terms - top).sum()) + top
    assert 1e-8 < abs(rounded - found.array) <= found.error < 1e-6


def test_a_kink_that_the_target_does_not_need_is_none() -> None:
    zeros = Step("input", (), ([0.0, 1.0], (2,), "float32", False))
    steps = (zeros, Step("relu", (0,)), Step("square", (0,)), Step("gradient", (2, 0)))
    assert abs(meaning(Program(steps, (3,)))[3].array - [0, 4]).max() < 1e-6


def test_the_sign_of_a_zero_that_was_summed_is_never_looked_at() -> None:
    """A sum that begins with 0 and one that begins with its first term differ in it."""
    zeros = Step("input", (), ([0.0, 0.0], (2,), "float32", False))
    ones = Step("input", (), ([1.0, -1.0], (2,), "float32", False))
    assert meaning(Program((zeros, ones, Step("plain_div", (1, 0))), (2,)))[2].is_wild
    steps = (zeros, ones, Step("cumsum", (0,), (0,)), Step("plain_div", (1, 2)))
    with pytest.raises(ValueError, match="either sign"):
        meaning(Program(steps, (3,)))


def test_a_rounded_value_is_never_compared_or_made_an_integer() -> None:
    steps = (SQUARE, Step("tanh", (0,)), Step("floor", (1,)))
    with pytest.raises(ValueError, match="exact"):
        meaning(Program(steps, (2,)))


def test_calls_have_other_data_and_other_sizes() -> None:
    steps = (SQUARE, Step("bound", (0,), (2, 0)))
    program = Program(steps, (1,), calls=2)
    assert meaning(program, 0)[1].array.tolist() == [[1, 2]]
    assert meaning(program, 1)[1].array.tolist() == [[0, 1], [2, 3]]


def test_axes_of_one_size_are_longer_at_later_calls() -> None:
    steps = (SQUARE, Step("sum", (0,), (1,)))
    program = Program(steps, (1,), calls=3, growing=2)
    assert [meaning(program, call)[1].array.tolist() for call in range(3)] == [
        [3, 7],
        # 1 to 4 and 1 to 4 and 1, less one each.
        [0 + 1 + 2, 3 + 0 + 1, 2 + 3 + 0],
        [-1 + 0 + 1 + 2, -1 + 0 + 1 + 2, -1 + 0 + 1 + 2, -1 + 0 + 1 + 2],
    ]


def test_a_program_of_many_calls_is_warm() -> None:
    drawn = [draw(seed, mode) for seed in range(30) for mode in ("warm", "torch names")]
    assert all(program.calls >= 6 and not program.threads for program in drawn)
    assert any(program.growing for program in drawn)
    assert any(program.with_gradients for program in drawn)


@pytest.mark.parametrize("mode", ["warm", "templates", "segments", "torch names"])
def test_many_calls_with_sizes_that_change_and_without_gradients(mode: str) -> None:
    steps = (SQUARE, Step("tanh", (0,)), Step("sum", (1,), (0,)))
    warm = Program(steps, (2,), calls=7, growing=2, with_gradients=mode != "torch names")
    lines = script(warm, mode)
    assert failure(lines) is None
    assert failure([line.replace("f(v0): ", "f(v0): v0 = v0 * 1.5; ") for line in lines])


def test_a_rounded_value_is_never_beside_numbers_of_any_size() -> None:
    """Their bound of an error would be that of one rounding."""
    wild = Step("input", (), ([math.inf, 1.0, 0.0, 1.0], (2, 2), "float32", True))
    steps = (SQUARE, Step("log", (0,)), wild, Step("sub", (1, 2)))
    with pytest.raises(ValueError, match="rounded"):
        meaning(Program(steps, (3,)))


def test_every_instruction_is_drawn() -> None:
    found: set[str] = set()
    for seed in range(3000):
        found.update(step.name for step in draw(seed).steps)
        if len(found) == len(INSTRUCTIONS):
            break
    assert found == set(INSTRUCTIONS)


def test_files_of_all_modes_are_python_of_at_most_ten_lines() -> None:
    for seed in range(60):
        mode = list(MODES)[seed % len(MODES)]
        lines = drawn_case(seed, mode).lines(mode)
        assert len(lines) <= MOST_LINES == 10
        compile("\n".join(lines), "<program>", "exec")


def test_a_file_imports_nothing_but_tilegrad_and_numpy() -> None:
    for seed in range(40):
        tree = ast.parse("\n".join(drawn_case(seed, "jit").lines("jit")))
        modules = [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        for node in ast.walk(tree):
            modules += [each.name for each in node.names] if isinstance(node, ast.Import) else []
        assert {str(name).split(".")[0] for name in modules} <= {"concurrent", "numpy", "tilegrad"}


def test_a_program_shrinks_to_what_fails() -> None:
    """Whatever else stands in it, a flip of more than one element is left."""

    def fails(case: Programmed) -> bool:
        return any(step.name == "flip" for step in case.program.steps)

    cases = (Programmed(draw(seed)) for seed in range(2000))
    case = next(case for case in cases if fails(case) and len(case.program.steps) > 4)
    small = shrink(case, "eager", fails)
    assert [step.name for step in small.program.steps] == ["input", "flip"]
    assert small.program.steps[0].params[1] in [(1,) * n for n in range(1, 4)]


def test_a_crash_and_a_hang_are_failures() -> None:
    child = Child("eager", patience=1.5)
    try:
        assert child.failure(["import os", "os._exit(3)"]) == "the process crashes with status 3"
        assert child.failure(["while True: pass"]) == "the process hangs"
        assert child.failure(["x = 1"]) is None
    finally:
        child.close()


_WATCHER = """
import sys
import tempfile
from tilegrad.tools.fuzz.loop import Child
beat = "import time, pathlib; path = pathlib.Path({path!r})"
loop = "while True: path.write_text(str(time.time())); time.sleep(0.01)"
Child("eager").failure([beat, loop])
"""


def test_a_program_that_hangs_ends_with_the_fuzz(tmp_path: Path) -> None:
    path = tmp_path / "beat"
    watcher = subprocess.Popen([sys.executable, "-c", _WATCHER.format(path=str(path))])
    try:
        assert _comes(path.exists)
        # As nothing can be done about: the watcher gets no chance to end its child.
        watcher.kill()
        watcher.wait()

        def is_still() -> bool:
            before = path.read_text()
            time.sleep(0.5)
            return path.read_text() == before

        assert _comes(is_still)
    finally:
        watcher.kill()


def _comes(is_so: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether something becomes so before the time is up."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if is_so():
            return True
        time.sleep(0.05)
    return False


def test_a_nan_keeps_its_sign_in_a_file() -> None:
    steps = (Step("input", (), ([1.0, -math.nan], (2,), "float32", True)), Step("neg", (0,)))
    lines = script(Program(steps, (1,)), "eager")
    assert "np.array([1.0, -nan], 'float32')" in "\n".join(lines)


@pytest.mark.parametrize("given", GIVEN)
def test_inputs_are_given_in_several_ways(given: str) -> None:
    steps = (SQUARE, Step("scale", (0,), (3,)))
    for mode, calls in (("eager", 1), ("jit", 5)):
        lines = script(Program(steps, (1,), calls=calls, given=given), mode)
        assert failure(lines) is None
        assert failure([line.replace("[3.0", "[3.5") for line in lines]) is not None


def test_a_chain_of_views_is_what_numpy_says() -> None:
    chance = random.Random(1)
    for _ in range(20):
        assert failure(drawn_chain(chance).lines("eager")) is None
    wrong = Chain((2,), (("pad", ((1, 0),)), ("flip", (True,)))).lines("eager")
    assert failure([line.replace(", 0])", ", 1])") for line in wrong]) is not None


LOOP = Loop(
    (
        Statement("new_of_one_size", (), ("n0", "n0", "3"), "v0"),
        Statement("row", ("m0",), ("n1",), "v1"),
        Statement("product", ("v0", "v1"), (), "v2"),
        Statement("sum", ("v2",), ("1",), "v3"),
        Statement("set_row", ("s0", "v1"), ("n2",), "s0"),
    ),
    (("n0", "2 + k % 5"), ("n1", "k * 7 % 70"), ("n2", "(0, 3)[k % 2]")),
    (Read("v3"), Read("s0", 0)),
    12,
)


@pytest.mark.parametrize("within", ["", "function", "threads", "interleaved"])
def test_each_step_of_a_loop_is_compared_with_numpys(within: str) -> None:
    lines = replace(LOOP, within=within).lines("loops")
    assert len(lines) <= MOST_LINES
    assert failure(lines) is None
    # Another position, now and then, and another row of what is read after the loop.
    for text, other in (
        ("V1 = M0[n1, ...]", "V1 = M0[n1 - (k == 9)]"),
        ("S0[n2] =", "S0[n2 + k // 11] ="),
    ):
        wrong = [line.replace(text, other) for line in lines]
        assert wrong != lines and "differs" in str(failure(wrong))


def test_a_captured_body_is_compared_with_numpys() -> None:
    """What it computes with is made before; a state that it makes anew is its result."""
    statements = (*LOOP.statements[:4], Statement("average", ("s1", "v1"), (), "s1"))
    reads = (Read("v3"), Read("s1"))
    captured = replace(LOOP, statements=statements, reads=reads, captured_from=2)
    lines = captured.lines("short loops")
    assert "def f(v0, v1, s1): v2 = v0 * v1; v3 = v2.sum(1); s1 = s1 * 0.5 + v1" in lines[2]
    assert failure(lines) is None
    for text, other in (
        ("V1 = M0[n1, ...]", "V1 = M0[n1 - (k == 9)]"),
        ("S1 * 0.5", "S1 * (0.5 + (k == 9))"),
    ):
        wrong = [line.replace(text, other) for line in lines]
        assert wrong != lines and "differs" in str(failure(wrong))
    # What is left out in front of the function is not part of it.
    parts = [each for each in captured.smaller() if len(each.statements) == 4]
    assert {each.captured_from for each in parts} == {1, 2}
    with pytest.raises(ValueError, match="takes something"):
        replace(captured, reads=(Read("v1"),)).lines("short loops")


def test_a_short_loop_is_of_few_statements_and_numbers_that_come_back() -> None:
    loops = [drawn_short_loop(random.Random(seed)) for seed in (5, 5, *range(6, 40))]
    assert loops[0] == loops[1] != loops[2]
    assert all(2 <= len(loop.statements) <= 8 and loop.steps <= 40 for loop in loops)
    assert not any(loop.is_still() for loop in loops)
    assert {loop.within for loop in loops} >= {"", "function", "interleaved"}
    assert any(loop.captured_from is not None for loop in loops)


def test_statements_of_every_theme_meet_in_short_loops() -> None:
    """A theme is of statements that there are, and two of it stand in some loop."""
    assert all(name in STATEMENTS for names in THEMES.values() for name in names)
    missing = {theme: set(names) for theme, names in THEMES.items()}
    for seed in range(150):
        kinds = {each.kind for each in drawn_short_loop(random.Random(seed)).statements}
        missing = {theme: names for theme, names in missing.items() if len(kinds & names) < 2}
        if not missing:
            break
    assert not missing


@pytest.mark.parametrize("draw_number", [recurring_integer, recurring_factor])
def test_a_number_comes_back(draw_number: Any) -> None:
    """More than half take few values, and each of these again and again."""
    chance = random.Random(1)
    given = (1, 8) if draw_number is recurring_integer else (["n0"],)
    few = 0
    for _ in range(100):
        text = draw_number(chance, *given)
        found = [eval(text, {"k": k, "n0": 3}) for k in range(40)]
        assert all(1 <= each <= 8 for each in found) or draw_number is recurring_factor
        few += len({repr(each) for each in found}) <= 4
    assert few > 60


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7 if k < 3 else 5", ["7", "5"]),
        ("n0 if k < 6 else k % 2", ["k % 2", "n0"]),
        ("(2, 1 / n1)[k // 2 % 2]", ["n1"]),
    ],
)
def test_a_number_is_made_plainer(text: str, expected: list[str]) -> None:
    found = list(plainer(text))
    assert list(dict.fromkeys(found)) == expected
    for each in found:
        eval(each, {"k": 3, "n0": 1, "n1": 2})


def test_a_loop_is_drawn_from_a_seed() -> None:
    loops = [drawn_loop(random.Random(seed)) for seed in (3, 3, 4)]
    assert loops[0] == loops[1] != loops[2]
    assert all(len(loop.statements) >= 3 and loop.steps >= 30 for loop in loops)


def test_a_loop_shrinks_to_what_fails() -> None:
    def fails(loop: Loop) -> bool:
        return any(each.kind == "row" for each in loop.statements)

    small = shrink(replace(LOOP, within="function"), "loops", fails)
    assert [each.kind for each in small.statements] == ["row"]
    assert small.steps == 3 and not small.within and small.reads == (Read("v1"),)


def test_where_rounding_decides_there_is_no_loop_to_compare_with() -> None:
    """A tenth is no float32, so what is taken away and added again is hardly the same number."""
    statements = (
        Statement("row", ("m0",), ("0",), "v0"),
        Statement("times", ("v0",), ("0.1",), "v1"),
        Statement("plus", ("v1",), ("-0.0625",), "v2"),
        Statement("greater", ("v1", "v2"), (), "v3"),
    )
    with pytest.raises(ValueError, match="digits"):
        Loop(statements, (), (Read("v3"),), 3).lines("loops")


def test_a_planted_bug_is_found_and_made_small(tmp_path: Path) -> None:
    plant = replace(PLANTED["the gate of padding is dropped"], modes=("eager",))
    found = look_for(plant, tmp_path, programs=400)
    assert found is not None
    lines = found.path.read_text().splitlines()
    assert len(lines) <= 10 and "tilegrad" in "".join(lines)
    # Without the bug, the file says that all is well.
    done = subprocess.run([sys.executable, found.path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_plant_fits_the_package() -> None:
    for name, plant in PLANTED.items():
        source = (PACKAGE / plant.file).read_text(encoding="utf-8")
        assert source.count(plant.text) == 1, name
        compile(source.replace(plant.text, plant.instead), plant.file, "exec")


def test_the_page_of_planted_bugs_has_a_row_for_each() -> None:
    rows = [line.split(" | ")[0] for line in PAGE.read_text().splitlines() if ".py`" in line]
    assert rows == [f"| {name}" for name in PLANTED]


def test_a_run_of_some_planted_bugs_keeps_the_rows_of_the_others() -> None:
    first, second, third, *_ = PLANTED
    rows = {first: (12, 8), second: None}
    text = page(rows)
    assert f"1 of {len(PLANTED)} bugs" in text and rows_of(text) == rows
    assert f"| {third} | `{PLANTED[third].file}` | eager, NOOPT, jit | not run yet |  |" in text


@pytest.mark.nightly
def test_five_minutes(tmp_path: Path) -> None:
    seed = int(time.time()) * 1000
    found = fuzz(5.0, seed, tmp_path)
    assert not found, "\n".join(each.path.read_text() for each in found)


@pytest.mark.nightly
@pytest.mark.parametrize("name", PLANTED)
def test_every_planted_bug_is_found(name: str, tmp_path: Path) -> None:
    found = look_for(PLANTED[name], tmp_path)
    assert found is not None
    assert len(found.path.read_text().splitlines()) <= 10


def test_the_folders_of_killed_runs_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for name in (f"{ended.pid}-left", f"{os.getpid()}-used", "other"):
        (tmp_path / f"tilegrad-fuzz-{name}").mkdir()
    fuzz(0, 0, tmp_path / "found", programs=0, jobs=1)
    assert sorted(path.name for path in tmp_path.glob("tilegrad-*")) == [
        f"tilegrad-fuzz-{os.getpid()}-used",
        "tilegrad-fuzz-other",
    ]


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (1, 1)])
def test_the_text_of_an_array_is_the_array(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    found = eval(_array_text(array.ravel().tolist(), shape, "float32"), {"np": np})
    np.testing.assert_array_equal(found.reshape(shape), array)
    assert found.dtype == array.dtype and found.size == array.size
