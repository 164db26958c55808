"""BEAM: children that may die, findings that are kept, and one search from end to end."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from tests.conformance.drawn import programs
from tests.conformance.programs import Program
from tests.conformance.test_programs import agree, computed
from tests.optimize.kernels import buffer, kernel, matmul, permute, schedule, softmax
from tilegrad import Tensor, TinyJit
from tilegrad.base.config import Context
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import ConfigError, DataError, InternalError, TilegradError
from tilegrad.base.trace import counters
from tilegrad.compile.llvm import assembly, compile_ir, host_target, inner_spills
from tilegrad.device.registry import Device
from tilegrad.engine.program.stages import to_program
from tilegrad.engine.run.run import recording
from tilegrad.engine.search import kernel_search
from tilegrad.engine.search.children import Child, ChildError, Children
from tilegrad.engine.search.kernel_search import InChildren, search_kernel
from tilegrad.ir import UOp
from tilegrad.optimize.generators.heuristic import heuristic
from tilegrad.optimize.opts.opt import Opt, OptOps
from tilegrad.optimize.opts.opts import start
from tilegrad.optimize.search.findings import Finding, line_of, parse_findings
from tilegrad.optimize.search.search import Built, Found, Shapes, Task

UPCAST = OptOps.UPCAST
CPU = Device["CPU"]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with Context(CACHE=str(tmp_path / "cache")):
        yield tmp_path


def graph_of(size: int) -> UOp:
    """The kernel of a doubled vector, before any Opt."""
    return kernel(buffer(0, size) * 2.0, target=CPU.target)


# children


@pytest.fixture(scope="module")
def measure() -> Iterator[InChildren]:
    children = Children(1)
    ast = graph_of(272)
    made = InChildren(ast, CPU, heuristic(ast, CPU.target), children)
    yield made
    made.close()
    children.close()


def candidate(measure: InChildren, body: str) -> Built:
    """A candidate that is written by hand; `%out` and `%in` are its parameters."""
    (good,) = measure.build([()])
    assert good is not None
    text = f"""
    define void @candidate(ptr %args, i64 %chunk) {{
      %out = load ptr, ptr %args
      %second = getelementptr i64, ptr %args, i64 1
      %in = load ptr, ptr %second
      {body}
    }}"""
    triple, cpu, features = host_target()
    number, facts, _ = good.handle
    binary = compile_ir(text, cpu=cpu, features=features, triple=triple)
    return Built((), "", 0, (number, facts, binary))


@pytest.mark.row("R4.11")
def test_candidates_that_crash_hang_or_compute_other_values_are_left_out(
    measure: InChildren, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the next one runs all the same."""
    good, refused = measure.build([(Opt(UPCAST, 0, 16),), (Opt(UPCAST, 0, 7),)])
    assert good is not None and refused is None
    before = counters.timings
    assert min(measure.seconds(good, None) or (0.0,)) > 0
    crash = candidate(measure, "store i32 1, ptr null\n ret void")
    assert measure.seconds(crash, good) is None
    nothing = candidate(measure, "ret void")
    assert measure.seconds(nothing, good) is None
    monkeypatch.setattr(kernel_search, "_RUN_SECONDS", 0.3)
    monkeypatch.setattr(kernel_search, "_RUN_TIMES", 1.0)
    hang = candidate(measure, "br label %again\nagain:\n fence seq_cst\n br label %again")
    assert measure.seconds(hang, good) is None
    monkeypatch.setattr(kernel_search, "_RUN_SECONDS", 20.0)
    assert min(measure.seconds(good, good) or (0.0,)) > 0
    assert counters.timings == before + 5
    base, other = measure.rounds([good, good], 3)
    assert len(base) == len(other) == 3 and min(*base, *other) > 0


def test_a_default_that_differs_from_the_plain_kernel_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No search can be made then: the kernel's own default is not to be trusted."""

    def answer(self: Child, request: Any, data: bytes = b"", *, seconds: float) -> Any:
        return {"wrong": "data0[3] is 1.0 and not 2.0"}, b""

    monkeypatch.setattr(Child, "call", answer)
    with pytest.raises(ChildError, match=r"differs from the plain kernel: data0\[3\]"):
        InChildren(graph_of(272), CPU, (), Children(1))


def test_a_child_that_answers_nonsense_is_replaced() -> None:
    child = Child()
    try:
        # What no child should be asked is a defect, and says where.
        with pytest.raises(InternalError, match=r"KeyError: 'nothing'[\s\S]*candidate\.py"):
            child.call({"do": "nothing"}, seconds=30)
        first = child.pid
        with pytest.raises(ChildError, match="too long"):
            child.call({"do": "close"}, seconds=0)
        assert child.pid is None
        assert child.call({"do": "close"}, seconds=30) == ({}, b"")
        assert child.pid not in (None, first)
    finally:
        child.kill()


def test_spills_are_counted_in_the_innermost_loops_only() -> None:
    """A register tile of 16 rows by 4 vectors does not fit; 8 by 2 does; outside of the loop it
    does not count.
    """
    ast = kernel(matmul(buffer(0, 64, 64), buffer(1, 64, 64)), target=CPU.target)
    width = CPU.target.lanes_of(dtypes.float)
    if CPU.spills is None or width < 4:
        pytest.skip("no vectors here")
    counts = []
    for rows, vectors in ((4, 1), (16, 64 // width)):
        opts = [Opt(UPCAST, 1, vectors * width), Opt(UPCAST, 0, rows)]
        source = CPU.render("f", to_program(ast, CPU.target, opts)[1])
        counts.append(CPU.spills(source))
    assert counts[0] == 0 < counts[1]
    triple, cpu, features = host_target()
    text = assembly(source, cpu=cpu, features=features, triple=triple)
    assert inner_spills(text.replace("This Inner Loop", "This Loop")) == 0


# findings


class Asked:
    """Stands in for the search: gives a list and counts."""

    def __init__(self, *opts: Opt):
        self.opts, self.count = opts, 0

    def __call__(self, ast: UOp, backend: Any, **options: Any) -> Found:
        self.count += 1
        self.options = options
        return Found(self.opts, 3e-6, 2e-6)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    made = Asked(Opt(UPCAST, 0, 4))
    monkeypatch.setattr(kernel_search, "search_kernel", made)
    return made


def name_of(size: int) -> str:
    """The name of the kernel that doubles a vector of `size`, as it runs now."""
    x = Tensor.ones(size).contiguous().realize()
    with recording() as launches:
        (x * 2.0).realize()
    (launch,) = launches
    assert launch.kernel is not None
    return launch.kernel.name.split("n")[0]


@pytest.mark.row("R4.11")
def test_the_opts_found_shape_the_kernel_and_are_kept(folder: Path, asked: Asked) -> None:
    with Context(BEAM=3, BEAM_SECONDS=7):
        assert name_of(288) == "E_72_4" and asked.count >= 1
        assert asked.options["width"] == 3 and asked.options["seconds"] == 7
        count = asked.count
        assert name_of(288) == "E_72_4" and asked.count == count
        # Compiled code is gone, findings stay: no search is made again.
        assert kernel_search.best_opts(graph_of(288), CPU) == (Opt(UPCAST, 0, 4),)
        assert asked.count == count
    with Context(BEAM=4):
        kernel_search.best_opts(graph_of(288), CPU)
    assert asked.count == count + 1
    with Context(BEAM=3, IGNORE_BEAM_CACHE=1):
        kernel_search.best_opts(graph_of(288), CPU)
        kernel_search.best_opts(graph_of(288), CPU)
    assert asked.count == count + 3
    assert name_of(288) != "E_72_4"


def test_nothing_is_searched_without_beam_and_with_noopt(folder: Path, asked: Asked) -> None:
    ast = graph_of(304)
    for switches in ({}, {"BEAM": 2, "NOOPT": 1}):
        with Context(**switches):
            assert kernel_search.best_opts(ast, CPU) is None
    with Context(BEAM=2):
        assert kernel_search.best_opts(ast, Device["NULL"]) is None
        assert kernel_search.best_opts(ast, Device["EMU:CPU"]) is None
    assert asked.count == 0


@pytest.mark.row("R4.11")
def test_a_capture_runs_searched_kernels(
    folder: Path, asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    double = TinyJit(lambda x: (x * 2.0).realize())
    with Context(BEAM=2, NO_COLOR=1):
        for value in (1.0, 2.0, 3.0):
            x = (Tensor.ones(320) * value).contiguous().realize()
            capsys.readouterr()
            with Context(DEBUG=2):
                assert double(x).tolist() == [2 * value] * 320
            assert " E_80_4" in capsys.readouterr().out
    count = asked.count
    assert count >= 1
    double(x)
    assert asked.count == count


@pytest.mark.row("R4.11")
def test_a_file_of_findings_is_written_read_and_shipped(folder: Path, asked: Asked) -> None:
    path = folder / "found.txt"
    with Context(BEAM=2, BEAM_FILE=str(path)):
        kernel_search.best_opts(graph_of(336), CPU)
    text = path.read_text()
    assert text.startswith("# ") and text.count("\n") == 2
    (finding,) = parse_findings(text.splitlines()).values()
    assert finding.opts == (Opt(UPCAST, 0, 4),) and finding.name == "E_84_4"
    assert (finding.default_seconds, finding.seconds) == (3e-6, 2e-6)
    # As another program would find it, in another cache, without BEAM.
    shipped = folder / "shipped.txt"
    shipped.write_text(text.replace("arg=4", "arg=16"))
    with Context(BEAM_FILE=str(shipped), CACHE=str(folder / "other")):
        assert name_of(336) == "E_21_16"
    assert asked.count == 1
    # What is in the file comes before a search.
    with Context(BEAM=5, BEAM_FILE=str(shipped)):
        assert kernel_search.best_opts(graph_of(336), CPU) == (Opt(UPCAST, 0, 16),)
    assert asked.count == 1


def test_findings_that_are_not_legal_any_more_are_left_out(folder: Path, asked: Asked) -> None:
    ast, path = graph_of(352), folder / "old.txt"
    path.write_text(
        line_of(Finding(kernel_search._shared_key(ast, CPU), "E", (Opt(UPCAST, 0, 7),), 1, 1))
    )
    with (
        Context(BEAM_FILE=str(path)),
        pytest.warns(RuntimeWarning, match=r"E are not legal any more \(upcast: 7 does not"),
    ):
        assert kernel_search.best_opts(ast, CPU) is None
    broken = folder / "broken.txt"
    broken.write_text("no finding\n")
    with (
        Context(BEAM_FILE=str(broken)),
        pytest.raises(DataError, match="line 1 does not read"),
    ):
        kernel_search.best_opts(ast, CPU)


def test_a_file_that_cannot_be_written_costs_the_line_only(folder: Path, asked: Asked) -> None:
    (folder / "file").write_text("")
    with (
        Context(BEAM=2, BEAM_FILE=str(folder / "none" / "found.txt")),
        pytest.warns(RuntimeWarning, match="cannot be written"),
    ):
        assert kernel_search.best_opts(graph_of(368), CPU) == (Opt(UPCAST, 0, 4),)


def test_a_search_that_cannot_be_made_leaves_the_default(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "")
    monkeypatch.setattr(kernel_search, "_children", None)
    with (
        Context(BEAM=2),
        pytest.warns(RuntimeWarning, match="no Python interpreter to start"),
    ):
        assert kernel_search.best_opts(graph_of(384), CPU) is None


def test_an_unknown_strategy_is_refused(folder: Path) -> None:
    with (
        Context(BEAM=2, SEARCH="guess"),
        pytest.raises(ConfigError, match="unknown strategy 'guess'"),
    ):
        kernel_search.best_opts(graph_of(400), CPU)


# from end to end

SCRIPT = """
print("this script runs")
from tilegrad import Tensor
from tilegrad.base.trace import counters
x = Tensor([[float((i * j) % 7) for j in range(20)] for i in range(12)]).realize()
y = (x @ x.T).relu().sum(1)
print([int(value) for value in y.tolist()], counters.searches, counters.timings)
"""


@pytest.mark.row("R4.11")
def test_a_script_without_a_guard_is_searched_once(tmp_path: Path) -> None:
    """It runs once a process, its values are right, and the second run times nothing."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    rows = [[(i * j) % 7 for j in range(20)] for i in range(12)]
    right = [sum(sum(a * b for a, b in zip(row, other)) for other in rows) for row in rows]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("TILEGRAD")
    }
    environment |= {
        "BEAM": "2",
        "DEBUG": "2",
        "TILEGRAD_BEAM_SECONDS": "1",
        "TILEGRAD_CACHE": str(tmp_path / "cache"),
        "PYTHONPATH": str(ROOT),
    }
    found = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(script)], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("this script runs") == 1
        values = re.search(r"(\[.*\]) (\d+) (\d+)\n", done.stdout)
        assert values is not None and values[1] == str(right)
        found.append((int(values[2]), int(values[3])))
        assert done.stdout.count("\nsearch ") == found[-1][0]
    assert found[0][0] >= 1 <= found[0][1] and found[1] == (0, 0)


@pytest.mark.nightly
def test_a_search_can_be_interrupted(tmp_path: Path) -> None:
    """Ctrl-C ends it at once, and leaves no process behind."""
    script = tmp_path / "script.py"
    script.write_text(
        "import atexit, os, signal, threading, time\n"
        # A shell starts what runs in the background without it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from tilegrad import Context, Tensor\n"
        "from tilegrad.engine.search import search\n"
        "x = Tensor.ones(256, 256).contiguous().realize()\n"
        "def running():\n"
        "    children = kernel_search._children._children if kernel_search._children else ()\n"
        "    return sum(child.pid is not None for child in children)\n"
        "def interrupt():\n"
        "    while not running(): time.sleep(0.01)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "atexit.register(lambda: print('left', running()))\n"
        "threading.Thread(target=interrupt, daemon=True).start()\n"
        "with Context(BEAM=8):\n"
        "    (x @ x).realize()\n"
    )
    environment = {**os.environ, "TILEGRAD_CACHE": str(tmp_path / "cache")}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=60
    )
    assert "KeyboardInterrupt" in done.stderr and done.stdout == "left 0\n"


@pytest.mark.nightly
@pytest.mark.row("R4.11")
def test_a_strategy_of_ones_own_is_taken_and_every_list_it_tries_is_right() -> None:
    """Random walks over legal moves: what was timed had the plain kernel's values."""
    choice = random.Random(7)

    def walk(task: Task) -> None:
        for _ in range(4):
            near = task.neighbours(task.best(8))
            task.evaluate(choice.sample(near, min(12, len(near))))

    x = buffer(0, 40, 24)
    plan = schedule(softmax(matmul(x, permute(x, 1, 0))), target=CPU.target)
    seen = [item.ast for item in plan.items if item.ast is not None]
    for ast in dict.fromkeys(seen):
        found = search_kernel(ast, CPU, strategy=walk, seconds=8)
        assert found.timed >= 2 and found.gain >= 1.0


def walked(ast: UOp, backend: Any, **options: Any) -> Found:
    """Stands in for the search: some list of Opts that the compiler takes, drawn from the graph."""
    choice = random.Random(ast.key)
    shapes = Shapes(start(ast, backend.target), backend.target)
    opts = tuple(heuristic(shapes.kernel, backend.target)) if choice.random() < 0.5 else ()
    for _ in range(choice.randint(1, 2)):
        near = shapes.expand(opts)
        choice.shuffle(near)
        for option in near[:5]:
            try:
                to_program(ast, backend.target, option.opts)
            except (TilegradError, KeyError):
                continue
            opts = option.opts
            break
    return Found(opts, 3e-6, 2e-6)


@pytest.mark.nightly
@pytest.mark.row("R4.10")
@given(programs())
@settings(max_examples=12)
def test_random_programs_are_right_under_random_opts(program: Program) -> None:
    """Every list that a search may come to keeps the values within the bounds of conformance."""
    with (
        pytest.MonkeyPatch.context() as patch,
        Context(BEAM=1, IGNORE_BEAM_CACHE=1, DISABLE_COMPILER_CACHE=1),
    ):
        patch.setattr(kernel_search, "search_kernel", walked)
        for array, expected in zip(computed(program), program.results, strict=True):
            agree(array, expected, "with random Opts")
