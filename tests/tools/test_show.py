"""Kernels between the passes: of a script, and from a saved graph."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tilegrad.__main__ import main
from tilegrad.base.config import Context
from tilegrad.base.errors import ConfigError, DeviceError, InternalError
from tilegrad.device.registry import Device
from tilegrad.engine.realize import bindings
from tilegrad.ir.op import Ops
from tilegrad.ir.text import parse, parse_program
from tilegrad.ir.uop import UOp
from tilegrad.tools.show import STATES, TracedKernel, replay, run_recorded, run_scheduled

# The states that are lists of instructions.
LISTS = STATES[STATES.index("lower.linearize") : -2]

SCRIPT = """
import sys
from tilegrad import Tensor
x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
print("says", (x @ x).maximum(-NUMBER).tolist(), sys.argv[1:])
if __name__ == "__main__":
    print((x.sum(1) + NUMBER).tolist())
    sys.exit(3)
"""
# Within a process nothing is compiled twice, so each test has kernels of its own.
NUMBERS = itertools.count(1)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    # A number that changes becomes a variable of the kernel that is there, by its signature.
    monkeypatch.setattr(bindings, "_bindings", {})
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.replace("NUMBER", f"{next(NUMBERS)}.0"))
    return str(path)


@pytest.fixture
def kernels(script: str, capsys: pytest.CaptureFixture[str]) -> list[TracedKernel]:
    found = run_recorded(script, ["a", "b"])
    assert "says [[7.0, 10.0], [15.0, 22.0]] ['a', 'b']" in capsys.readouterr().out
    return found


@pytest.mark.row("P.14")
def test_a_script_runs_and_its_kernels_are_kept(kernels: list[TracedKernel]) -> None:
    assert len(kernels) == 2
    assert all(kernel.name.startswith("r_") for kernel in kernels)
    assert "script" not in sys.argv[0]


@pytest.mark.parametrize("state", STATES[: STATES.index("lower.linearize")])
def test_graphs_parse_back(kernels: list[TracedKernel], state: str) -> None:
    for kernel in kernels:
        assert parse(kernel.after(state)) is kernel.graphs[state]


def test_the_end_is_text_of_the_program(kernels: list[TracedKernel]) -> None:
    kernel = kernels[0]
    assert parse_program(kernel.after("linearize")) == kernel.graphs["lower.linearize"]
    for state in LISTS:
        assert parse_program(kernel.after(state)) == kernel.graphs[state]
    assert kernel.graphs[LISTS[-1]] == kernel.program
    assert f"define void @{kernel.name}" in kernel.after("render")
    assert kernel.name in kernel.after("assembly")
    with pytest.raises(DeviceError, match="EMU has no assembly"):
        dataclasses.replace(kernel, device="EMU").after("assembly")


def test_what_is_shown_is_what_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 197 have a last iteration of their own, which only the pipeline's program had."""
    path = tmp_path / "rows.py"
    path.write_text(
        "from tilegrad import Tensor\n"
        "Tensor.ones(64, 197).contiguous().realize().softmax(1).realize()\n"
    )
    sources: list[str] = []
    backend = Device["CPU"]
    render = backend.render

    def kept(name: str, program: Sequence[UOp]) -> str:
        sources.append(render(name, program))
        return sources[-1]

    monkeypatch.setitem(vars(backend), "render", kept)
    with Context(DEVICE="CPU", THREADS=1):
        kernels = run_recorded(str(path))
        # Without masks nothing stands apart.
        peeled = any("lower.peel" not in kernel.unchanged for kernel in kernels)
        assert peeled or not backend.target.has_mask
        body = [source.partition("{")[2] for source in sources]
        assert [kernel.after("render").partition("{")[2] for kernel in kernels] == body


def test_a_pass_that_did_nothing_is_known(kernels: list[TracedKernel]) -> None:
    for kernel in kernels:
        states = list(kernel.graphs)
        for before, state in itertools.pairwise(states):
            same = kernel.graphs[before] == kernel.graphs[state]
            assert same == (state in kernel.unchanged)
    assert "lower.integers" not in kernels[0].unchanged


def rows_script(folder: Path, length: int) -> str:
    """A script with graphs of one kind, for which the process has no plan."""
    path = folder / "script.py"
    path.write_text(
        "from tilegrad import Tensor\n"
        f"(Tensor.empty({length}, 8).softmax(1) + {'1 + ' * length}1).realize()\n"
    )
    return str(path)


@pytest.mark.parametrize("state", ["schedule.inline", "inline"])
def test_what_is_stored_is_shown(
    state: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = rows_script(tmp_path, len(state))
    assert main(["show", script, "--after", state]) == 0
    title, *stored = capsys.readouterr().out.strip().splitlines()
    assert title == "# graph 0, after schedule.inline"
    assert [line.partition(" (")[0] for line in stored] == ["ADD"]


def test_graphs_between_the_passes_parse_back(tmp_path: Path) -> None:
    (text,) = run_scheduled(rows_script(tmp_path, 29), "schedule.split")
    root = parse(text)
    assert [node.op for node in root.toposort()].count(Ops.REDUCE_AXIS) == 2


def test_an_unknown_state_is_refused(kernels: list[TracedKernel]) -> None:
    with pytest.raises(ConfigError, match=r"no state 'lower\.none'"):
        kernels[0].after("lower.none")


@pytest.mark.parametrize("state", STATES[:-2])
def test_replay_comes_to_the_same_end(kernels: list[TracedKernel], state: str) -> None:
    kernel = kernels[0]
    (again,) = replay(kernel.after(state), state)
    assert again.program == kernel.program


def test_replay_of_a_program_keeps_its_order(kernels: list[TracedKernel]) -> None:
    (again,) = replay(kernels[0].after("lower.levels"), "lower")
    assert again.program == kernels[0].program


def test_replay_from_the_tensor_graph() -> None:
    graph = """
    %0 = BUFFER : float arg=BufferArg(0, 'CPU', 8)
    %1 = ADD(%0, %0) : float
    %2 = SINK(%1) : void
    """
    (kernel,) = replay(graph, "tensor")
    assert kernel.name.startswith("E_") and "fadd" in kernel.after("render")
    with Context(NOOPT=1):
        (plain,) = replay(graph, "tensor")
    assert not plain.graphs["optimize"].arg.opts
    (shaped,) = replay(plain.after("optimize"), "schedule.index")
    assert shaped.program == kernel.program


def test_replay_names_what_is_wrong() -> None:
    graph = """
    %0 = DEFINE_GLOBAL : float.ptr(16) arg=0
    %1 = CONST : index arg=16
    %2 = CONST : float arg=1.0
    %3 = STORE(%0, %1, %2) : void
    %4 = SINK(%3) : void arg=KernelInfo('E', (), ())
    """
    with pytest.raises(InternalError, match=r"schedule\.index left a store in a KERNEL graph"):
        replay(graph, "schedule.index")
    with pytest.raises(ConfigError, match="no pass 'render'"):
        replay(graph, "render")


# the command line


def run(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    assert main(arguments) == status
    out, error = capsys.readouterr()
    return out if status == 0 else error


def test_devices(capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each kind, under it what to do about one that is not here."""
    out = run(capsys, "devices")
    table = out.partition("\n\n")[0].splitlines()
    rows = {line[2:9].strip(): line[10:] for line in table if line[2:3].strip()}
    assert list(rows) == list(Device)
    assert out.startswith("* CPU     usable    cpu ")
    assert rows["DISK"].startswith("usable") and rows["METAL"].startswith("not here")
    assert "NULL:METAL compiles for it" in out


def test_devices_names_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without pyopencl and without a C compiler."""
    for kind in ("CL", "CLANG"):
        Device.unregister(kind)
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    monkeypatch.setenv("PATH", "")
    out = run(capsys, "devices")
    assert "CLANG   not here  there is no C compiler on the path" in out
    assert "apt-get install gcc" in out
    assert "CL      not here  pyopencl cannot be imported" in out
    assert "pip install 'tilegrad[opencl]'" in out


def test_nothing_of_a_vendor_is_imported_until_its_device_is_opened() -> None:
    code = "import sys, tilegrad; tilegrad.Tensor([1.0]).add(1).tolist(); "
    code += "print('pyopencl' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_show_lists_kernels_and_their_opts(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Context(NOOPT=1):
        rows = run(capsys, "show", script).splitlines()
    assert [row for row in rows if row.startswith("kernel")] == [
        "kernel 0: r_2_2_2",
        "kernel 1: r_2_2",
    ]


def test_show_one_state_of_one_kernel(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "show", script, "--after", "linearize", "--kernel", "1")
    assert out.count("# kernel") == 1 and "# kernel 1" in out and "SINK" in out


def test_show_every_state(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "show", script, "--every", "--kernel", "0")
    for state in STATES[:-1]:
        assert f", after {state}\n" in out
    assert "(unchanged)" in out


def test_replay_prints_source(
    kernels: list[TracedKernel], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "failed.ir"
    saved.write_text(kernels[0].after("lower.join_accesses"))
    assert "define void @kernel" in run(
        capsys, "replay", str(saved), "--from", "lower.join_accesses"
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["show", "absent.py"], "DataError: show: there is no such file\n  file: absent.py"),
        (["show", "SCRIPT", "--after", "x"], "ConfigError: show: there is no state 'x'"),
        (["show", "SCRIPT", "--kernel", "2"], "there is no kernel 2\n  known: 0 to 1"),
        (["replay", "absent.ir", "--from", "lower"], "DataError: replay: cannot read the file"),
        (["replay", "SCRIPT", "--from", "lower"], "DataError: parse:"),
    ],
)
def test_errors_are_in_words(
    arguments: list[str], says: str, script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [script if word == "SCRIPT" else word for word in arguments]
    assert says in run(capsys, *arguments, status=1)
