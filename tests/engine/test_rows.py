"""What `DEBUG` prints: rows of kernels and copies, trees, source, instructions, and the summary at
the end; and the counters behind the rows.
"""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy
import pytest

from tilegrad import Context, Device, GlobalCounters, Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.engine.run import leaf_memory
from tilegrad.engine.run.report import plain
from tilegrad.runtime.buffer import Buffer

ROW = re.compile(
    r"\*\*\* (?P<device>\S+) +(?P<index>\d+) (?P<name>.*?) +arg +(?P<args>\d+) "
    r"mem +(?P<mem>[\d.]+) GB tm +(?P<own>[\d.]+)us/ *(?P<total>[\d.]+)ms "
    r"\( *(?P<gflops>[\d.]+) GFLOPS +(?P<near>[\d.]+)\|(?P<far>[\d.]+) +GB/s\) \[(?P<calls>.*)\]"
)


@dataclass
class Row:
    device: str
    index: int
    name: str
    args: int
    gigabytes: str
    own_us: float
    total_ms: float
    calls: str
    text: str


def rows_of(text: str) -> list[Row]:
    found = []
    for line in text.splitlines():
        if "***" in line:
            match = ROW.fullmatch(plain(line))
            assert match is not None, line
            found.append(
                Row(
                    match["device"],
                    int(match["index"]),
                    match["name"],
                    int(match["args"]),
                    match["mem"],
                    float(match["own"]),
                    float(match["total"]),
                    match["calls"],
                    line,
                )
            )
    return found


def is_named(row: Row, name: str) -> bool:
    """A number follows the name if the process has met another kernel of that name."""
    return re.fullmatch(rf"{name}(n\d+)?", row.name) is not None


def script(tmp_path: Path, text: str, **switches: object) -> str:
    """What a script prints in a process of its own."""
    file = tmp_path / "script.py"
    file.write_text("from tilegrad import GlobalCounters, Tensor\n" + text)
    done = subprocess.run(
        [sys.executable, str(file)],
        capture_output=True,
        text=True,
        env=os.environ
        | {"PYTHONPATH": ":".join(sys.path)}
        | {name: str(value) for name, value in switches.items()},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(autouse=True)
def no_garbage() -> None:
    """Memory in use is compared: what other tests left in cycles goes first."""
    gc.collect()


@pytest.mark.row("S0.2")
def test_copy_in_kernel_copy_out(capsys: pytest.CaptureFixture[str]) -> None:
    with Context(DEBUG=2):
        assert (Tensor([1, 2]) + 1).tolist() == [2, 3]
    first, second, third = rows_of(capsys.readouterr().out)
    assert re.fullmatch(r"copy +8, +CPU <- HOST", first.name)
    assert second.device == "CPU"
    assert is_named(second, "E_2")
    assert re.fullmatch(r"copy +8, +HOST <- CPU", third.name)
    assert third.index == second.index + 1 == first.index + 2


@pytest.mark.row("S1.3")
def test_empty_tensors_have_rows(tmp_path: Path) -> None:
    """On the reference device, which has lanes, the kernel is E_4_4."""
    code = "print((Tensor.empty(4, 4) + Tensor.empty(4, 4)).shape)\n"
    code += "a, b = Tensor.empty(4, 4), Tensor.empty(4, 4)\n(a + b).tolist()\n"
    shown = script(tmp_path, code, DEBUG=2, TILEGRAD_DEVICE="EMU")
    rows = rows_of(shown)
    assert [row.name.split()[0] for row in rows] == ["empty", "empty", "E_4_4", "copy"]
    assert re.fullmatch(r"copy +64, +HOST <- EMU", rows[3].name)
    assert [row.args for row in rows] == [1, 1, 3, 2]
    assert shown.index("(4, 4)") < shown.index("***")
    assert len(re.findall(r"^opened device EMU from pid \d+$", shown, re.M)) == 1
    assert not re.search("opened device CPU ", shown)


@pytest.mark.row("S1.4")
def test_the_row_of_a_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    """Three arguments (one out, two in), and the calls that made it at the end."""
    a, b = Tensor([1.0] * 6).realize(), Tensor([2.0] * 6).realize()
    with Context(DEBUG=2):
        (a + b).realize()
        ((a * b).exp() + a).sum().realize()
    first, second = rows_of(capsys.readouterr().out)
    assert (first.args, first.calls) == (3, "'__add__'")
    assert second.name.startswith("r_")
    assert second.calls.split(", ") == ["'__mul__'", "'exp'", "'__add__'", "'sum'"]


@pytest.mark.row("M3.1")
@pytest.mark.parametrize("read", ["numpy", "tolist"])
def test_copies_show_bytes_and_direction(capsys: pytest.CaptureFixture[str], read: str) -> None:
    with Context(DEBUG=2):
        value = Tensor([1, 2]).dot(Tensor([3, 4]))
        assert getattr(value, read)() == 11
    rows = rows_of(capsys.readouterr().out)
    copies = [row.name.split(maxsplit=2) for row in rows if row.name.startswith("copy")]
    assert copies == [
        ["copy", "8,", "CPU <- HOST"],
        ["copy", "8,", "CPU <- HOST"],
        ["copy", "4,", "HOST <- CPU"],
    ]
    assert [row.name.split("_")[0] for row in rows if row.args == 3] == ["r"]


def test_a_large_copy_is_in_megabytes(capsys: pytest.CaptureFixture[str]) -> None:
    with Context(DEBUG=2):
        Tensor(bytes(1_250_000)).realize()
        Tensor(bytes(10)).to("CPU:1").realize()
    first, second, third = [row.name.split() for row in rows_of(capsys.readouterr().out)]
    assert first == ["copy", "1.25M,", "CPU", "<-", "HOST"]
    assert second == ["copy", "10,", "CPU", "<-", "HOST"]
    assert third == ["xfer", "10,", "CPU:1", "<-", "CPU"]


@pytest.mark.row("M3.3")
def test_memory_in_use_now_and_time_so_far(tmp_path: Path) -> None:
    """Of 10 MB each: two inputs, then a sum beside them, then half of it all."""
    code = """
a, b = Tensor.empty(2_500_000), Tensor.empty(2_500_000)
c = (a + b).realize()
del a, b
d = (c * 2).realize()
(d * 2).sum().tolist()
print("now", GlobalCounters.mem_used, GlobalCounters.time_sum_s)
"""
    shown = script(tmp_path, code, DEBUG=2)
    rows = rows_of(shown)
    assert [row.gigabytes for row in rows[:4]] == ["0.01", "0.02", "0.03", "0.02"]
    used, seconds = re.findall(r"now (\d+) ([\d.e-]+)", shown)[0]
    assert int(used) == 20_000_000
    totals = [row.total_ms for row in rows]
    assert totals == sorted(totals)
    assert sum(row.own_us for row in rows) / 1000 == pytest.approx(totals[-1], abs=0.01)
    assert float(seconds) * 1000 == pytest.approx(totals[-1], abs=0.01)
    assert [row.index for row in rows] == list(range(1, len(rows) + 1))


@pytest.mark.usefixtures("nothing_known")
@pytest.mark.row("M3.3")
def test_memory_in_use_is_that_of_the_buffers() -> None:
    def held() -> int:
        return sum(
            buffer.nbytes
            for buffer in leaf_memory.buffers()
            # What is on several devices is held by its shards.
            if isinstance(buffer, Buffer)
            and buffer.is_allocated
            and buffer.owner is None
            and buffer.base is None
        )

    beyond = GlobalCounters.mem_used - held()
    kept = [Tensor([float(number)] * (number + 1)).realize() for number in range(8)]
    kept += [(tensor * 2).sum().realize() for tensor in kept]
    assert GlobalCounters.mem_used - held() == beyond
    before = GlobalCounters.mem_used
    del kept[3]
    assert before - GlobalCounters.mem_used == 4 * 4
    assert GlobalCounters.mem_used - held() == beyond


@pytest.mark.row("M3.4")
def test_the_last_line_is_a_summary(tmp_path: Path) -> None:
    code = """
x = Tensor([1.0] * 1000).realize()
for scale in (2, 3, 4):
    (x * scale + 1).realize()
print("now", GlobalCounters.kernel_count, GlobalCounters.global_ops, GlobalCounters.global_mem)
"""
    lines = script(tmp_path, code, DEBUG=2).splitlines()
    found = re.fullmatch(
        r"avg: +([\d.]+) GFLOPS +([\d.]+) GB/s +total: +(\d+) kernels +"
        r"([\d.]+) GOPS +([\d.]+) GB +([\d.]+) ms",
        lines[-1],
    )
    assert found is not None, lines[-1]
    gflops, rate, kernels, operations, moved, ms = map(float, found.groups())
    assert kernels == 3
    # Counted: a product and a sum for each of 1000 elements, 8 bytes each, and one copy.
    assert lines[-2] == f"now 3 {3 * 2000} {3 * 8000 + 4000}"
    assert (operations, moved) == (0.0, 0.0)
    assert ms == pytest.approx(rows_of("\n".join(lines))[-1].total_ms, abs=0.011)
    assert gflops == pytest.approx(6000 / (ms * 1e-3) / 1e9, abs=0.02, rel=0.2)
    assert rate == pytest.approx(28000 / (ms * 1e-3) / 1e9, abs=0.02, rel=0.2)


def test_of_a_device_that_runs_nothing_the_summary_has_no_rate(tmp_path: Path) -> None:
    code = "Tensor.empty(1000, device='NULL:CUDA').add(1).realize()\n"
    line = script(tmp_path, code, DEBUG=2).splitlines()[-1]
    assert re.match(r"avg: +0\.00 GFLOPS +0\.00 GB/s +total: +1 kernels", line), line


def test_a_quiet_run_has_no_summary(tmp_path: Path) -> None:
    assert script(tmp_path, "print((Tensor([1, 2]) + 1).tolist())\n", DEBUG=0) == "[2, 3]\n"


@pytest.mark.usefixtures("nothing_known")
def test_counters() -> None:
    x = Tensor([1.0] * 100).realize()
    GlobalCounters.reset()
    assert (GlobalCounters.kernel_count, GlobalCounters.time_sum_s) == (0, 0.0)
    used = GlobalCounters.mem_used
    y = (x + 1).realize()
    assert GlobalCounters.kernel_count == 1
    assert GlobalCounters.global_ops == 100
    assert GlobalCounters.global_mem == 800
    assert GlobalCounters.time_sum_s > 0
    assert GlobalCounters.mem_used == used + 400
    y.tolist()
    assert (GlobalCounters.kernel_count, GlobalCounters.global_mem) == (1, 1200)
    del y
    assert GlobalCounters.mem_used == used
    GlobalCounters.reset()
    assert (GlobalCounters.global_ops, GlobalCounters.global_mem) == (0, 0)
    assert GlobalCounters.mem_used == used


# levels


@pytest.mark.row("F1.3")
def test_the_tree_of_a_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    """A store over a sum over a product over two loads, and how each looks at its buffer."""
    a, b = Tensor([1, 2]).realize(), Tensor([3, 4]).realize()
    with Context(DEBUG=3, NOOPT=1, NO_COLOR=1):
        assert a.dot(b).tolist() == 11
    lines = capsys.readouterr().out.splitlines()
    tree = lines[: next(at for at, line in enumerate(lines) if line.startswith("data"))]
    depth: dict[str, list[int]] = {}
    for line in tree:
        for op in ("SINK", "STORE", "REDUCE", "MUL", "LOAD"):
            if f"Ops.{op}," in line:
                depth.setdefault(op, []).append(len(line) - len(line.lstrip()))
    assert depth == {"SINK": [0], "STORE": [2], "REDUCE": [4], "MUL": [6], "LOAD": [8, 8]}
    assert "arg=Ops.ADD" in next(line for line in tree if "Ops.REDUCE" in line)
    views = [line for line in lines if line.startswith("data")]
    assert [view.partition("View(")[2].partition(", offset")[0] for view in views] == [
        "shape=(1,), strides=(0,)",
        "shape=(2,), strides=(1,)",
        "shape=(2,), strides=(1,)",
    ]


def test_masks_and_windows_in_the_tree(capsys: pytest.CaptureFixture[str]) -> None:
    x = Tensor([[1, 2, 3], [4, 5, 6]]).realize()
    with Context(DEBUG=3, NOOPT=1, NO_COLOR=1):
        assert (x.T.flip(0) * 1).pad(((0, 0), (1, 0))).contiguous().tolist() == [
            [0, 3, 6],
            [0, 2, 5],
            [0, 1, 4],
        ]
    view = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("data1"))
    assert "shape=(3, 3), strides=(-1, 3), offset=-1" in view
    assert " where " in view


@pytest.mark.row("F1.3", "F1.4", "X.4")
@pytest.mark.parametrize("level", [0, 1, 2, 3, 4, 5])
def test_each_level_shows_more(capsys: pytest.CaptureFixture[str], level: int) -> None:
    """Also of kernels that are in the disk cache by now."""
    x = Tensor([1.0] * (101 + level)).realize()
    for again in range(2):
        with Context(DEBUG=level, NO_COLOR=1):
            (x * 3).realize()
        shown = capsys.readouterr().out
        assert ("*** CPU" in shown) == (level >= 2)
        if again:
            # Nothing is new about it.
            assert len(shown.splitlines()) == (level >= 2)
        else:
            assert ("Ops.SINK, dtypes.void, arg=KernelInfo" in shown) == (level >= 3)
            assert ("data1: ShapeTracker" in shown) == (level >= 3)
            assert ("define void @" in shown) == (level >= 4)
            assert (re.search(r"^ +0 Ops\.DEFINE_GLOBAL ", shown, re.M) is not None) == (level >= 5)


def test_a_kernel_from_disk_is_shown_too(tmp_path: Path) -> None:
    code = "(Tensor([1.0] * 7) + 1).realize()\n"
    cache = {"TILEGRAD_CACHE": tmp_path / "cache"}
    script(tmp_path, code, DEBUG=0, **cache)
    assert "define void @" in script(tmp_path, code, DEBUG=4, **cache)


def test_devices_are_shown_as_they_open(tmp_path: Path) -> None:
    switches = {"DEBUG": 1, "TILEGRAD_SEGMENTS": 1}
    shown = script(tmp_path, "Tensor([1, 2], device='CPU:1').realize()\n", **switches)
    assert re.findall(r"opened device (\S+) from pid \d+", shown) == ["HOST", "CPU:1"]
    assert "***" not in shown


# colours


def test_names_have_a_colour_for_each_kind_of_axis(capsys: pytest.CaptureFixture[str]) -> None:
    """Without the colours a row has the kernel's own name."""
    x = Tensor([[1.0] * 3] * 5).realize()
    with Context(DEBUG=2, NOOPT=1):
        x.sum(1).realize()
    coloured = capsys.readouterr().out
    assert "r_\x1b[94m5\x1b[0m_\x1b[31m3\x1b[0m" in coloured
    assert is_named(rows_of(coloured)[0], "r_5_3")


def test_columns_stand_under_each_other_whatever_the_colours(
    capsys: pytest.CaptureFixture[str],
) -> None:
    x = Tensor([[1.0] * 3] * 5).realize()
    with Context(DEBUG=2):
        x.sum(1).realize()
        (x + 1).tolist()
    places = {plain(row.text).index(" arg ") for row in rows_of(capsys.readouterr().out)}
    assert len(places) == 1


def test_no_color(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    x = Tensor([[1.0] * 3] * 7).realize()
    with Context(DEBUG=2, NO_COLOR=1):
        x.sum(1).realize()
    shown = capsys.readouterr().out
    assert len(rows_of(shown)) == 1
    assert "\x1b" not in shown
    code = "(Tensor([1, 2]) + 1).tolist()\n"
    assert "\x1b" in script(tmp_path, code, DEBUG=2)
    assert "\x1b" not in script(tmp_path, code, DEBUG=2, NO_COLOR="yes")


@pytest.mark.row("M3.5")
def test_the_first_run_of_a_kernel_is_green(capsys: pytest.CaptureFixture[str]) -> None:
    x = Tensor([1.0] * 77).realize()
    # A plan for any size would have its kernel already.
    with Context(DEBUG=2, SIZES=0):
        for scale in (1.5, 1.5, 2.5):
            y = (x * scale).realize()
            del y
    first, again, other = rows_of(capsys.readouterr().out)
    assert first.text.startswith("\x1b[32m*** CPU")
    assert again.text.startswith("*** CPU")
    assert other.text.startswith("\x1b[32m*** CPU")


# buffers by hand


@pytest.mark.row("F4.7")
@pytest.mark.parametrize("device", ["CPU", "EMU"])
def test_a_copy_by_hand(device: str) -> None:
    """Memory of NumPy's, wrapped, copied to the device and read back; without the copy, zeros."""
    array = numpy.array([1, 2], dtype=numpy.int32)
    source = leaf_memory.buffer_of(
        leaf_memory.buffer_from_host("HOST", dtypes.int32, array.data, 2)
    )
    assert (source.size, source.dtype, source.device) == (2, dtypes.int32, "HOST")
    view = source.host_view()
    assert view is not None
    assert numpy.shares_memory(numpy.frombuffer(view, numpy.int32), array)
    target = Device[device].buffer(2, dtypes.int32)
    assert not target.is_allocated
    target.copy_in(bytes(8))
    assert target.copy_out().cast("i").tolist() == [0, 0]
    target.copy_in(view)
    assert target.copy_out().cast("i").tolist() == [1, 2]
    array[0] = 7
    assert target.copy_out().cast("i").tolist() == [1, 2]
    assert source.copy_out().cast("i").tolist() == [7, 2]
