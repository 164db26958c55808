"""The page of rewrites: what it is told, and what a browser makes of it."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fresh import forget
from tests.viz.browser import browser
from tilegrad import Context, Tensor
from tilegrad.base import trace as tracing
from tilegrad.base.errors import DeviceError
from tilegrad.base.trace import PassRecord, recording
from tilegrad.ir.op import Ops
from tilegrad.ir.rewrite import replayed
from tilegrad.ir.uop import UOp
from tilegrad.viz.pass_states import count_of_states
from tilegrad.viz.sections import Section, sections_of
from tilegrad.viz.server import Page, PageServer

ROOT = Path(__file__).parents[2]
SCRIPT = """
from tilegrad import Tensor
x = Tensor([[1.0, 2.0, 3.0, 4.0]] * 4).realize()
print(x.softmax(1).sum(0).tolist())
"""
PROGRAMS: dict[str, Callable[[], Tensor]] = {
    "softmax": lambda: (Tensor.ones(5, 7).contiguous().realize() + 1).softmax(1),
    "product": lambda: Tensor.ones(33, 18).realize() @ Tensor.ones(18, 9).realize(),
    "convolution": lambda: Tensor.ones(1, 3, 9, 9).conv2d(Tensor.ones(4, 3, 3, 3).realize()),
    "prefix sums": lambda: Tensor.ones(3, 40).contiguous().realize().cumsum(1),
    "padding": lambda: Tensor.ones(6, 5).contiguous().realize().pad((1, 2, 0, 3)).flip(0) * 3,
    "index": lambda: Tensor.ones(6, 5).contiguous().realize()[Tensor([4, 1, 0]).realize()],
}  # fmt: skip


def recorded(program: Callable[[], Tensor], **switches: Any) -> list[PassRecord]:
    # What this process has compiled before would not be compiled again.
    forget()
    with Context(DISABLE_COMPILER_CACHE=1, **switches), recording() as record:
        program().realize()
    return record


def last_kernel(record: list[PassRecord]) -> Section:
    return [each for each in sections_of(record) if each.kind == "kernel"][-1]


def sum_of_four() -> Tensor:
    return Tensor([1.0, 2.0, 3.0, 4.0]).realize().sum()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_recorded_pass_can_be_replayed_to_any_rewrite(name: str) -> None:
    by_rules = [entry for entry in recorded(PROGRAMS[name]) if entry.steps]
    assert by_rules
    for entry in by_rules:
        assert replayed(entry, len(entry.steps)) is entry.after
        if entry.remake is None:
            assert replayed(entry, 0) is entry.before
        # Each rewrite before the last one is a graph on its own, and the last one changes it.
        assert replayed(entry, len(entry.steps) - 1) is not entry.after


@pytest.mark.row("R6.2")
def test_kernels_have_their_passes_and_these_their_rewrites() -> None:
    record = recorded(PROGRAMS["softmax"])
    sections = sections_of(record)
    assert [each.kind for each in sections].count("plan") >= 1
    kernels = [each for each in sections if each.kind == "kernel"]
    assert all(re.fullmatch(r"[rE](_\d+)*(n\d+)?", each.name) for each in kernels)
    names = [row.name for row in kernels[-1].rows if row.depth == 0]
    assert names.index("lower.expand") < names.index("lower.linearize") < names.index("render")
    by_rules = [row for each in sections for row in each.rows if row.is_by_rules]
    for row in by_rules:
        file, line = row.location
        # The line is one that rewrites.
        text = "".join(Path(file).read_text().splitlines()[line - 1 : line + 3])
        assert "simplify" in text or "rewrite" in text, (file, line)
    lowering = [row for row in kernels[-1].rows if row.location[0].endswith("decompose.py")]
    assert max(row.changes for row in lowering) >= 3
    assert "test_page.py" in kernels[-1].calls
    # As JSON: the same, each row with a number of its own.
    listed = Page(sections).answer("/sections")
    numbers = [row["id"] for each in listed for row in each["rows"]]
    assert numbers == list(range(len(numbers)))
    assert {row["location"] for each in listed for row in each["rows"] if row["isByRules"]} == {
        f"{Path(row.location[0]).relative_to(ROOT / 'tilegrad')}:{row.location[1]}"
        for row in by_rules
    }


@pytest.mark.row("R6.3")
def test_a_graph_has_a_node_for_each_op_but_constants() -> None:
    record = recorded(lambda: Tensor.ones(3, 4).contiguous().realize().permute(1, 0).sum(1) * 2)
    plan, kernel = None, None
    page = Page(sections_of(record))
    for number, row in enumerate(page.rows):
        if row.name == "schedule.index":
            plan = page.answer(f"/state/{number}/0")["nodes"]
            kernel = page.answer(f"/state/{number}/1")["nodes"]
    assert plan is not None and kernel is not None
    names = {node["lines"][0]: node for node in plan}
    assert {"SINK", "REDUCE_AXIS", "PERMUTE", "DEFINE_GLOBAL", "MUL"} <= names.keys()
    assert names["PERMUTE"]["kind"] == "movement" and names["REDUCE_AXIS"]["kind"] == "reduction"
    assert names["PERMUTE"]["lines"] == ["PERMUTE", "float", "(1, 0)"]
    found = {node["lines"][0]: node for node in kernel}
    assert {"SINK", "STORE", "LOAD", "REDUCE", "RANGE"} <= found.keys()
    kinds = {name: found[name]["kind"] for name in ("STORE", "LOAD", "REDUCE", "RANGE", "MUL")}
    assert kinds == {
        "STORE": "memory", "LOAD": "memory", "REDUCE": "reduction", "RANGE": "control",
        "MUL": "arithmetic",
    }  # fmt: skip
    # Constants stand in their users.
    assert all("CONST" not in node["lines"] for node in [*plan, *kernel])
    assert "source 1: 2.0" in found["MUL"]["lines"]
    # Edges lead from sources to users.
    ids = {node["id"] for node in kernel}
    assert all(
        source in ids and source < node["id"] for node in kernel for source, _ in node["sources"]
    )


@pytest.mark.row("R6.4")
def test_a_state_has_its_rule_its_difference_and_the_kernels_text() -> None:
    page = Page(sections_of(recorded(lambda: Tensor.ones(4, 4).contiguous().realize().T * 3 + 1)))
    index = max(n for n, row in enumerate(page.rows) if row.name == "schedule.index")
    found = page.answer(f"/state/{index}/1")
    removed = "\n".join(line for line in found["diff"] if line.startswith("-"))
    added = "\n".join(line for line in found["diff"] if line.startswith("+"))
    assert "PERMUTE(" in removed and "PERMUTE(" not in added
    assert "LOAD(" in added and "RANGE(" in added and "LOAD(" not in removed
    number, row = next((n, row) for n, row in enumerate(page.rows) if row.record.steps)
    for state in range(1, count_of_states(row)):
        step = row.record.steps[state - 1]
        found = page.answer(f"/state/{number}/{state}")
        assert found["rule"] == step.rule
        # The rule's own lines, with its name, from where it is written.
        assert f'"{step.rule}"' in found["code"]["text"]
        lines = (ROOT / "tilegrad" / found["code"]["file"]).read_text().splitlines()
        assert found["code"]["text"].splitlines()[0] == lines[found["code"]["line"] - 1]
        assert (
            any(line.startswith("+") for line in found["diff"])
            or step.after in step.before.toposort()
        )
        assert any(line.startswith("-") for line in found["diff"])
    called = page.answer(f"/row/{number}")
    assert "simplify(" in called["code"]["text"] and called["states"] == len(row.record.steps) + 1
    kernels = [each for each in page.answer("/sections") if each["kind"] == "kernel"]
    for each in kernels:
        assert f"@{each['name']}(" in each["source"] and "store " in each["source"]
    for wrong in ("/state/0/99", "/state/-1/0", "/state/9999999/0", "/row/x", "/nothing", "/row"):
        with pytest.raises((KeyError, ValueError, IndexError)):
            page.answer(wrong)


@pytest.mark.row("R6.6")
def test_a_reduction_is_a_loop_or_four_elements_of_one_load() -> None:
    def ops_of(**switches: Any) -> Counter[Ops]:
        record = recorded(sum_of_four, DEVICE="NULL:CUDA:sm_80", **switches)
        return Counter(node.op for node in last_kernel(record).rows[-1].record.before)

    shaped, plain = ops_of(), ops_of(NOOPT=1)
    assert (shaped[Ops.LOAD], shaped[Ops.GEP], shaped[Ops.ADD]) == (1, 4, 3)
    assert Ops.RANGE not in shaped and Ops.DEFINE_ACC not in shaped
    assert (plain[Ops.LOAD], plain[Ops.RANGE], plain[Ops.DEFINE_ACC]) == (1, 1, 1)
    assert Ops.GEP not in plain


@pytest.mark.row("R6.7")
def test_opts_begin_with_one_graph() -> None:
    def start(**switches: Any) -> UOp:
        record = recorded(sum_of_four, **switches)
        return next(entry.before for entry in reversed(record) if entry.name == "kernel")

    assert start() is start(NOOPT=1)
    opts = [row.name for row in last_kernel(recorded(sum_of_four)).rows if row.name[:3] == "Opt"]
    assert opts and not [
        row.name
        for row in last_kernel(recorded(sum_of_four, NOOPT=1)).rows
        if row.name[:3] == "Opt"
    ]


def test_what_is_only_tried_is_not_recorded() -> None:
    record = recorded(PROGRAMS["product"])
    assert sum(entry.name == "lower.linearize" for entry in record) == sum(
        entry.name == "kernel" for entry in record
    )
    first, last = (
        next(at for at, entry in where if entry.name == name)
        for where, name in (
            (list(enumerate(record)), "kernel"),
            (list(enumerate(record)), "lower.memory_accumulators"),
        )
    )
    opts = [entry for entry in record[first:last] if entry.name.startswith("Opt(")]
    # Each Opt is applied once, to what the one before made.
    assert opts and all(a.after is b.before for a, b in itertools.pairwise(opts))


def test_a_record_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    bounded = tracing._Bounded()
    monkeypatch.setattr(tracing._Bounded, "_MOST", 3)
    for number in range(5):
        bounded.append(PassRecord(str(number), None))
    assert [entry.name for entry in bounded] == ["0", "1", "2"] and bounded.left_out == 2


def test_a_port_that_is_taken() -> None:
    page = Page([])
    with PageServer(page, 18_471) as first, PageServer(page, first.server_port) as second:
        assert second.server_port > first.server_port
        assert first.address == f"http://127.0.0.1:{first.server_port}"
    with pytest.raises(DeviceError, match="no port"):
        PageServer(page, 65_536)


def _takes_ctrl_c() -> None:
    """As a terminal starts a program: where the tests run in the background, it is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Served:
    """A script under VIZ that has ended, and serves its page."""

    def __init__(self, folder: Path, text: str):
        self.script = folder / "script.py"
        self.script.write_text(text)
        environment = os.environ | {"VIZ": "18500", "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [sys.executable, str(self.script)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
            preexec_fn=_takes_ctrl_c,
        )  # fmt: skip
        self.said: list[str] = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line.strip())
            if "ready" in line:
                break
        found = re.search(r"http://127\.0\.0\.1:\d+", self.said[-1])
        assert found is not None, self.said
        self.address = found[0]

    def get(self, path: str, **headers: str) -> bytes:
        request = urllib.request.Request(self.address + path, headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 200
            return bytes(answer.read())

    def end(self) -> tuple[int, str]:
        """Ctrl-C: the exit status, and what the script printed."""
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=60)
        self.said += err.splitlines()
        return self.process.returncode, out


@contextmanager
def served(folder: Path, text: str = SCRIPT) -> Iterator[Served]:
    found = Served(folder, text)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.wait()


@pytest.mark.row("R6.1")
def test_viz_serves_a_page_at_the_programs_end(tmp_path: Path) -> None:
    with served(tmp_path) as page:
        assert re.fullmatch(r"viz: \d+ passes with \d+ rewrites", page.said[0])
        assert re.fullmatch(r"viz: loaded in \d+ ms", page.said[1])
        assert re.fullmatch(r"viz: ready in \d+ ms at http://127.0.0.1:\d+; .*", page.said[2])
        assert b"<title>tilegrad" in page.get("/")
        for file in ("style.css", "page.js", "graph.js", "layout.js", "dagre.min.js"):
            assert len(page.get(f"/{file}")) > 500
        assert b'"kernel"' in page.get("/sections")
        # Another name for this machine, as a page of another site would use it.
        for path, headers in (("/nothing", {}), ("/sections", {"Host": "example.com:8000"})):
            with pytest.raises(urllib.error.HTTPError):
                page.get(path, **headers)
        status, printed = page.end()
        assert status == 0 and page.said[-1] == "viz: ended"
        values = [float(each) for each in printed.strip("[]\n").split(",")]
        assert values == pytest.approx([0.12823441, 0.34857729, 0.94753131, 2.57565729], rel=1e-5)


def test_other_threads_are_recorded_and_child_processes_serve_nothing(tmp_path: Path) -> None:
    text = """
import multiprocessing, os, threading
def work(number):
    from tilegrad import Tensor
    print(Tensor([float(number), 2.0]).exp().sum().item() > 0)
if __name__ == "__main__":
    work(1)
    def of_the_thread():
        from tilegrad import Tensor
        print(Tensor([[2.0] * 9] * 3).realize().log2().sum(1).tolist() == [9.0] * 3)
    thread = threading.Thread(target=of_the_thread)
    thread.start(); thread.join()
    child = multiprocessing.get_context("spawn").Process(target=work, args=(3,))
    child.start(); child.join()
    print(child.exitcode)
    raise SystemExit(4)
"""  # fmt: skip
    with served(tmp_path, text) as page:
        assert b"log2" in page.get("/sections")
        status, printed = page.end()
    assert printed.split() == ["True", "True", "True", "0"] and status == 4
    assert sum("ready" in line for line in page.said) == 1


def test_a_script_that_fails_has_its_page(tmp_path: Path) -> None:
    with served(tmp_path, f"{SCRIPT}\nraise ValueError('of mine')\n") as page:
        assert b"r_4" in page.get("/sections")
        assert page.end()[0] == 1
    assert any("of mine" in line for line in page.said)


def test_the_command(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.argv[1:])" + SCRIPT)
    process = subprocess.Popen(
        [sys.executable, "-m", "tilegrad", "viz", "--port", "18600", str(script), "--", "one"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        preexec_fn=_takes_ctrl_c,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        assert any("ready" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[0].startswith("['one']")
    finally:
        process.kill()
        process.wait()
    missing = subprocess.run(
        [sys.executable, "-m", "tilegrad", "viz", str(tmp_path / "no.py")],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert missing.returncode == 1 and "there is no such file" in missing.stderr


@pytest.mark.row("R6.3", "R6.4", "R6.5")
def test_keys_go_through_rewrites_and_matches_and_panes_resize() -> None:
    page = Page(sections_of(recorded(PROGRAMS["softmax"])))
    with PageServer(page, 18_700) as server, browser() as seen:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            _walk(page, server.address, seen)
        finally:
            server.shutdown()
            thread.join()


def _walk(page: Page, address: str, seen: Any) -> None:
    state = "document.body?.dataset.state"
    changed = [number for number, row in enumerate(page.rows) if row.changes]
    seen.open(address)
    seen.wait_for(f"{state} === '{changed[0]}/1'")
    # Down and up: to the next row with a change, at its last state.
    for number in [*changed[1:8], changed[6], changed[5]]:
        at = changed.index(int(seen.value(state).split("/")[0]))
        seen.press("ArrowDown" if changed.index(number) > at else "ArrowUp")
        seen.wait_for(f"{state} === '{number}/{count_of_states(page.rows[number]) - 1}'")
    # Left and right: to the match before and the next one, no further than there are some.
    many = next(number for number in changed if count_of_states(page.rows[number]) > 3)
    seen.value(f"choose({many})")
    last = count_of_states(page.rows[many]) - 1
    for key, expected in (
        ("ArrowRight", last), ("ArrowLeft", last - 1), ("ArrowLeft", last - 2),
        ("ArrowRight", last - 1),
    ):  # fmt: skip
        seen.wait_for(f"{state}?.startsWith('{many}/')")
        seen.press(key)
        seen.wait_for(f"{state} === '{many}/{expected}'")
    assert page.rows[many].record.steps[last - 2].rule in seen.value(
        "document.getElementById('position').textContent"
    )
    assert seen.value("document.querySelectorAll('#diff .removed').length") > 0
    # The graph of a pass: a box for each node, those in another frame that are new.
    number = next(n for n, row in enumerate(page.rows) if row.name == "schedule.index")
    seen.value(f"choose({number})")
    nodes = page.answer(f"/state/{number}/1")["nodes"]
    seen.wait_for(f"document.querySelectorAll('#graph .node').length === {len(nodes)}")
    assert seen.value("document.querySelectorAll('#diff .added').length") > 0
    fresh = sum(node["isNew"] for node in nodes)
    assert seen.value("document.querySelectorAll('#graph .node.fresh').length") == fresh > 0
    edges = sum(len(node["sources"]) for node in nodes)
    assert seen.value("document.querySelectorAll('#graph .edge').length") == edges
    kernel = next(n for n, row in enumerate(page.rows) if row.name == "lower.expand")
    seen.value(f"choose({kernel})")
    seen.wait_for("document.getElementById('source')?.textContent.includes('define void')")
    # `t` shows the text in place of the graph.
    seen.press("t")
    seen.wait_for("!document.getElementById('text').hidden")
    assert "SINK(" in seen.value("document.getElementById('text').textContent")
    for pane, by in (("list", 80), ("details", -90)):
        width = seen.value(f"document.getElementById('{pane}').offsetWidth")
        box = f"document.querySelector('.splitter[data-before={pane}]').getBoundingClientRect()"
        x, y = seen.value(f"{box}.x") + 2, seen.value(f"{box}.y") + 200
        seen.drag(x, y, x + by)
        seen.wait_for(f"document.getElementById('{pane}').offsetWidth === {width + abs(by)}")
    assert not seen.errors
