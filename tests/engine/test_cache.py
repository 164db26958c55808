"""Plans and binaries on disk: a second process compiles nothing, and no state of the folder makes a
wrong result or an error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tilegrad import Context, Device, Tensor, jit
from tilegrad.base import cache
from tilegrad.base.trace import counters
from tilegrad.engine.build import pipeline
from tilegrad.engine.plans import plans
from tilegrad.engine.realize import bindings
from tilegrad.engine.run import run
from tilegrad.schedule import kernel_items
from tilegrad.tensor.storage import segments

# Two kernels, a copy and a read, with values that no other test computes.
PROGRAM = """
x = Tensor([[float(3 * row + column) for column in range(3)] for row in range(4)])
y = (x.sum(1, keepdim=True) * x + 0.625).contiguous()
print((y.max(0) - x.realize().min()).tolist())
"""
ANSWER = "[270.625, 300.625, 330.625]"
COUNTS = "print('rewrites', counters.rewrites, 'renders', counters.renders, "
COUNTS += "'compiles', counters.compiles)\n"
HEAD = "from tilegrad import Tensor\nfrom tilegrad.base.trace import counters\n"
NOTHING = "rewrites 0 renders 0 compiles 0"


def start(folder: object, code: str = PROGRAM, **switches: str) -> subprocess.Popen[str]:
    """A process with an environment of its own."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("TILEGRAD_")
    }
    environment |= {"PYTHONPATH": ":".join(sys.path), "TILEGRAD_CACHE": str(folder), **switches}
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + code + COUNTS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def finish(child: subprocess.Popen[str]) -> tuple[list[str], str]:
    out, errors = child.communicate(timeout=120)
    assert child.returncode == 0, errors
    return out.splitlines(), errors


def files(folder: Path, table: str = "*") -> list[Path]:
    return sorted(path for path in folder.glob(f"v*/{table}/**/*") if path.is_file())


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with Context(CACHE=str(tmp_path / "cache")):
        yield tmp_path / "cache"


def work() -> tuple[int, ...]:
    return counters.rewrites, counters.schedules, counters.renders, counters.compiles


def compute(device: str = "CPU", scale: float = 1.0) -> tuple[list[float], tuple[int, ...]]:
    """A value, as a process computes it that knows only the disk; and what it cost: rewrites,
    schedules, renders, compiles.
    """
    bindings._bindings.clear()
    segments._known.clear()
    plans._plans.clear()
    pipeline._kernels.clear()
    kernel_items._built.clear()
    run._programs.clear()
    before = work()
    x = Tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    values = ((x * scale).sum(1, keepdim=True).contiguous() * x - 0.3125).sum(0).tolist()
    return values, tuple(now - then for now, then in zip(work(), before))


RIGHT = [3 * 1 + 7 * 3 - 0.625, 3 * 2 + 7 * 4 - 0.625]


# a second process


@pytest.mark.row("F4.8")
def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    first, _ = finish(start(tmp_path))
    assert first[0] == ANSWER
    counts = [int(word) for word in first[1].split()[1::2]]
    assert min(counts) > 0
    second, errors = finish(start(tmp_path))
    assert second == [ANSWER, NOTHING]
    assert errors == ""


def test_a_second_process_loads_no_compiler(tmp_path: Path) -> None:
    code = PROGRAM + "import sys\nloaded = {name.rpartition('.')[0] for name in sys.modules}\n"
    code += "stages = ('schedule', 'optimize', 'lower', 'render', 'compile')\n"
    code += "print(sorted(s for s in stages if f'tilegrad.{s}' in loaded), 'llvmlite' in loaded)\n"
    first, _ = finish(start(tmp_path, code))
    assert first[1].endswith("True")
    second, _ = finish(start(tmp_path, code))
    assert second == [ANSWER, "[] False", NOTHING]


def test_another_line_and_other_memory_find_the_same_plan(folder: Path) -> None:
    assert compute()[0] == RIGHT
    before = work()
    x = Tensor([[10.0, 20.0], [30.0, 40.0]])

    values = ((x * 1.0).sum(1, keepdim=True).contiguous() * x - 0.3125).sum(0).tolist()
    assert values == [30 * 10 + 70 * 30 - 0.625, 30 * 20 + 70 * 40 - 0.625]
    assert work() == before


@pytest.mark.row("F4.8")
def test_the_cache_can_be_switched_off(folder: Path) -> None:
    with Context(DISABLE_COMPILER_CACHE=1):
        assert compute()[0] == RIGHT
        again = compute()
    assert again[0] == RIGHT and again[1][3] > 0
    assert files(folder) == []


# twins


@pytest.mark.row("M4.12")
def test_a_twin_device_reuses_the_binary(folder: Path) -> None:
    """Another plan, as it names another device, and no new kernel."""
    a, b = (Tensor([1.0, 2.0, 3.0], device=device).realize() for device in ("CPU", "CPU:1"))
    before = counters.compiles
    assert (a * 7.5).tolist() == [7.5, 15, 22.5]
    assert counters.compiles == before + 1
    assert (b * 7.5).tolist() == [7.5, 15, 22.5]
    assert counters.compiles == before + 1
    assert (Tensor([4.0, 5.0, 6.0], device="CPU:2").realize() * 7.5).tolist() == [30, 37.5, 45]
    assert counters.compiles == before + 1


@pytest.mark.row("M4.12")
def test_a_kernel_is_kept_by_all_that_shapes_it(folder: Path) -> None:
    from tilegrad.base.dtype import dtypes
    from tilegrad.ir import Axis, UOp
    from tilegrad.ir.op import Ops

    loop = UOp.range(UOp.const(dtypes.index, 4), 0, Axis.LOOP)
    pointer = UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(4), (), 0)
    ast = UOp.sink(pointer.store(loop, UOp.const(dtypes.float, 1.0)))
    backend = Device["CPU"]
    key = pipeline.kernel_key(ast, backend)
    assert pipeline.kernel_key(ast, Device["CPU:1"]) == key
    assert pipeline.kernel_key(ast, replace(backend, compiler="another")) != key
    narrow = replace(backend.target, vector_bytes=16)
    assert pipeline.kernel_key(ast, replace(backend, target=narrow)) != key
    for switches in ({"NOOPT": 1}, {"BEAM": 2}, {"TC": 0}):
        with Context(**switches):
            assert pipeline.kernel_key(ast, backend) != key
    for switches in ({"DEBUG": 2}, {"JIT": 0}, {"THREADS": 1}):
        with Context(**switches):
            assert pipeline.kernel_key(ast, backend) == key


def test_another_processor_does_not_take_the_binary(tmp_path: Path) -> None:
    finish(start(tmp_path))
    kept = set(files(tmp_path, "kernels"))
    scalar, _ = finish(start(tmp_path, TILEGRAD_CPU_TARGET="scalar"))
    assert scalar[0] == ANSWER and not scalar[1].endswith("compiles 0")
    assert kept < set(files(tmp_path, "kernels"))
    assert finish(start(tmp_path, TILEGRAD_CPU_TARGET="scalar"))[0] == [ANSWER, NOTHING]
    assert finish(start(tmp_path))[0] == [ANSWER, NOTHING]


# damage


def emptied(path: Path, other: Path) -> None:
    path.write_bytes(b"")


def cut_short(path: Path, other: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def a_changed_bit(path: Path, other: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def of_another_program(path: Path, other: Path) -> None:
    path.write_bytes(b"\x7fELF" + bytes(500))


def another_entry(path: Path, other: Path) -> None:
    path.write_bytes(other.read_bytes())


def gone(path: Path, other: Path) -> None:
    path.unlink()


DAMAGE = [emptied, cut_short, a_changed_bit, of_another_program, another_entry, gone]


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda function: function.__name__)
@pytest.mark.parametrize("table", ["plans", "kernels"])
def test_damage_is_a_miss_and_is_mended(
    folder: Path, table: str, damage: Callable[[Path, Path], None]
) -> None:
    assert compute()[0] == RIGHT
    ours = files(folder, table)
    assert ours
    assert compute(scale=2.0)[0] != RIGHT
    other = next(path for path in files(folder, table) if path not in ours)
    assert compute() == (RIGHT, (0, 0, 0, 0))
    for path in ours:
        damage(path, other)
    values, cost = compute()
    assert values == RIGHT
    # A plan that is gone is made again, of kernels that are there; a kernel costs a compilation.
    assert cost[0] > 0 and (cost[3] > 0) == (table == "kernels")
    assert compute() == (RIGHT, (0, 0, 0, 0))
    assert set(ours) <= set(files(folder, table))


def test_damage_in_a_folder_that_cannot_be_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compute()[0] == RIGHT
    for path in files(folder):
        cut_short(path, path)

    def refuse(*args: object, **rest: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(cache, "_warned", False)
    monkeypatch.setattr(Path, "unlink", refuse)
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.warns(RuntimeWarning, match="cannot be written .Permission denied.") as caught:
        assert compute()[0] == RIGHT
    assert len(caught) == 1


# a folder that does not serve


def test_an_unwritable_folder_warns_once(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    (first, *_), errors = finish(start(blocked / "cache"))
    assert first == ANSWER
    assert errors.count("RuntimeWarning") == 1
    assert f"the cache folder {blocked / 'cache'} cannot be written" in errors
    assert "set TILEGRAD_CACHE to a writable folder" in errors
    assert blocked.read_text() == "not a folder"


@pytest.mark.skipif(sys.platform == "win32", reason="limits are those of POSIX")
@pytest.mark.parametrize("room", [pytest.param(0, marks=pytest.mark.nightly), 100])
def test_a_full_disk_leaves_no_part_of_a_file(tmp_path: Path, room: int) -> None:
    """The system lets files grow to `room` bytes and no further, as a disk does that fills up."""
    limit = f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))\n"
    (first, counts), errors = finish(start(tmp_path / "cache", limit + PROGRAM))
    assert first == ANSWER and not counts.endswith("compiles 0")
    assert errors.count("RuntimeWarning") == 1 and "cannot be written" in errors
    assert files(tmp_path / "cache") == []
    again, errors = finish(start(tmp_path / "cache"))
    assert again[0] == ANSWER and errors == ""
    assert finish(start(tmp_path / "cache"))[0] == [ANSWER, NOTHING]


def test_a_disk_that_fills_up_while_an_entry_is_replaced(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old entry stays as it was."""
    key = cache.digest("entry")
    cache.put("kernels", key, b"old")

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "_warned", False)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.warns(RuntimeWarning, match="No space left on device"):
            cache.put("kernels", key, b"new" * 1000)
    assert cache.get("kernels", key) == b"old"
    assert len(files(folder)) == 1


# several processes


def test_processes_that_start_together(tmp_path: Path) -> None:
    """All find an empty folder, and write the same entries."""
    children = [start(tmp_path) for _ in range(3)]
    for child in children:
        (first, *_), errors = finish(child)
        assert first == ANSWER and errors == ""
    assert finish(start(tmp_path))[0] == [ANSWER, NOTHING]
    assert not [path for path in files(tmp_path) if path.name.startswith(".part-")]


# duplicates within a schedule


def test_equal_layers_are_compiled_once(folder: Path) -> None:
    """Three layers of a network with its gradients, then nine: no kernel more, and a layer costs
    the scheduler's work alone.
    """
    works = []
    # With TEMPLATES=2 the nodes of templates are compared, which walks more.
    with Context(TEMPLATES=1):
        for layers in (3, 9):
            weights = [Tensor.empty(12, 12, requires_grad=True).realize() for _ in range(layers)]
            before = *work(), counters.visits
            x = Tensor.empty(5, 12).realize()
            for weight in weights:
                x = (x.layernorm() @ weight).relu()
            x.sum().backward()
            updates = [
                each.assign(each - each.grad * 0.125) for each in weights if each.grad is not None
            ]
            Tensor.realize(x, *updates)
            works.append([now - then for now, then in zip((*work(), counters.visits), before)])
    few, many = works
    assert few[3] > 5
    assert many[3] <= 2
    assert many[4] < 2 * few[4]


# entries with a right checksum that are not what they say


def entries_of(folder: Path, table: str) -> list[tuple[str, bytes]]:
    found = []
    for path in files(folder, table):
        key = path.parent.name + path.name
        found.append((key, cache.get(table, key) or b""))
    return found


@pytest.mark.parametrize(
    "change",
    [
        lambda text: b"",
        lambda text: b"[]",
        lambda text: b"[" * 100_000,
        lambda text: b"\xff\xfe" + text,
        lambda text: text.replace(b'"buffers"', b'"bufers"', 1),
        lambda text: text.replace(b'"float32"', b'"float33"', 1),
        lambda text: text.replace(b"[1, 0]", b"[-1, 0]", 1),
        lambda text: text.replace(b"[1, 0]", b"[9999, 0]", 1),
        lambda text: text.replace(b"null", b"true", 1),
        lambda text: text.replace(b'"CPU"', b"7", 1),
        lambda text: json.dumps({**json.loads(text), "outputs": [77]}).encode(),
        lambda text: json.dumps({**json.loads(text), "blocks": {"CPU": -8}}).encode(),
        lambda text: json.dumps({**json.loads(text), "steps": [[]]}).encode(),
    ],
)
def test_a_plan_that_says_something_else_is_a_miss(
    folder: Path, change: Callable[[bytes], bytes]
) -> None:
    assert compute()[0] == RIGHT
    for key, text in entries_of(folder, "plans"):
        assert change(text) != text
        cache.put("plans", key, change(text))
    values, (_, schedules, *_) = compute()
    assert values == RIGHT and schedules > 0


@pytest.mark.parametrize(
    "change",
    [
        lambda kept: b"",
        lambda kept: b"{}\n" + kept.partition(b"\n")[2],
        lambda kept: kept.replace(b'"global_size": [', b'"global_size": ["', 1),
        lambda kept: kept.replace(b'"ops": ', b'"ops": -', 1),
        lambda kept: kept.replace(b'"variables": []', b'"variables": [3]', 1),
        lambda kept: kept.replace(b'"key": "', b'"key": "0', 1),
        lambda kept: kept.replace(b'"name": ', b'"nome": ', 1),
    ],
)
def test_a_kernel_that_says_something_else_is_a_miss(
    folder: Path, change: Callable[[bytes], bytes]
) -> None:
    assert compute()[0] == RIGHT
    for key, kept in entries_of(folder, "kernels"):
        assert change(kept) != kept
        cache.put("kernels", key, change(kept))
    values, (*_, compiles) = compute()
    assert values == RIGHT and compiles > 0


def test_nothing_on_disk_is_code_of_python(tmp_path: Path) -> None:
    """All entries of a process are JSON, or a line of it and an object file."""
    finish(start(tmp_path))
    tables = {path.parent.parent.name for path in files(tmp_path)}
    assert tables == {"kernels", "native", "plans"}
    for path in files(tmp_path):
        content = path.read_bytes()[16:]
        head, _, rest = content.partition(b"\n")
        if path.parent.parent.name == "native":
            head, rest = b"{}", content
        json.loads(head)
        assert rest[:4] in (b"", b"\x7fELF")


# how much a process keeps


def test_a_process_keeps_the_kernels_that_were_used_last(folder: Path) -> None:
    with Context(KEEP_KERNELS=8, DISABLE_COMPILER_CACHE=1):
        x = Tensor.arange(64).realize()
        for size in range(1, 31):
            assert (x[:size] * 3 + size).tolist() == [3 * n + size for n in range(size)]
            assert len(plans._plans) <= 8 and len(pipeline._kernels) <= 8
            assert len(run._programs) <= 8 and len(bindings._bindings) <= 8
        # What was forgotten is made again.
        assert (x[:2] * 3 + 2).tolist() == [2, 5]


def test_a_capture_runs_though_its_kernels_were_forgotten(folder: Path) -> None:
    @jit
    def step(x: Tensor) -> Tensor:
        return ((x * 2).sum(1, keepdim=True) + x).realize()

    x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    for _ in range(3):
        assert step(x).tolist() == [[7.0, 8.0], [17.0, 18.0]]
    with Context(KEEP_KERNELS=2, DISABLE_COMPILER_CACHE=1):
        for size in range(1, 12):
            (Tensor.arange(size) * 7 - size).realize()
    assert step(x + 1).tolist() == [[12.0, 13.0], [22.0, 23.0]]
