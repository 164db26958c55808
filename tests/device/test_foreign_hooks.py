"""Devices that others write, with the mistakes of a first day: each is an error that names the
device and the hook, or a promise that `python -m tilegrad devices` says is not kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fresh import forget
from tilegrad import Context, Device, Tensor
from tilegrad.base.errors import CompileError, DeviceError, OutOfMemoryError, TilegradError
from tilegrad.tools.device_check import broken_promises

# A device in Python, whose copies and launches wait in a list until somebody reads.
BOARD = """
from tilegrad.device.backend import Backend
from tilegrad.ir import Ops
from tilegrad.render.python import render_python
from tilegrad.runtime.protocol import Runtime
from tilegrad.runtime.simt import SimtProgram
from tilegrad.target import Target

TARGET = Target("BOARD", has_fma=False)

class Board(Runtime):
    def __init__(self):
        self.memory, self.queue = {}, []

    def synchronize(self):
        while self.queue:
            self.queue.pop(0)()

    def at(self, handle):
        number, first, count = handle
        return self.memory[number][first : first + count]

    def allocate(self, nbytes):
        number = max(self.memory, default=0) + 1
        self.memory[number] = memoryview(bytearray(nbytes))
        return number, 0, nbytes

    def free(self, handle, nbytes):
        self.queue.append(lambda: self.memory.pop(handle[0]))

    def copy_in(self, handle, data):
        given = bytes(data)
        self.queue.append(lambda: self.write(handle, given))

    def write(self, handle, data):
        self.at(handle)[: len(data)] = data

    def copy_out(self, data, handle):
        self.synchronize()
        data[:] = self.at(handle)[: data.nbytes]

    def view(self, handle, offset, nbytes):
        return handle[0], handle[1] + offset, nbytes

    def load(self, name, binary):
        return SimtProgram(name, binary.decode())

    def launch(self, program, handles, variables, blocks, lanes, wait=False):
        memories = [self.at(each) for each in handles]
        self.queue.append(lambda: program.run(memories, variables, blocks, lanes))
        return 0.0 if wait else None

def compile_text(source):
    return source.encode()

def render(name, program):
    return render_python(name, program)

def backend(name, runtime=None):
    return Backend(name, TARGET, render, compile_text, runtime or Board())
"""
NAME = "BOARD"


@contextmanager
def board(folder: Path, *changes: tuple[str, str]) -> Iterator[None]:
    """The device with some of its text changed is known."""
    text = BOARD
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    # A folder of its own: Python keeps a file's bytecode by the second.
    path = folder / str(len([*folder.iterdir()])) / "board.py"
    path.parent.mkdir()
    path.write_text(text)
    try:
        with Context(DEVICES=str(path), DISABLE_COMPILER_CACHE=1):
            yield
    finally:
        Device.unregister(NAME)
        # Plans of the name, with what was compiled for this board.
        forget()


def use() -> list[list[float]]:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]], device=NAME)
    return (x @ x).maximum(8.0).tolist()


def test_the_device_computes_and_keeps_its_promises(tmp_path: Path) -> None:
    with board(tmp_path):
        assert use() == [[8.0, 10.0], [15.0, 22.0]]
        assert broken_promises(NAME) == []


@pytest.mark.parametrize(
    "hook", ["allocate(self", "copy_in(self", "copy_out(self", "load(self", "launch(self"]
)
def test_a_required_hook_that_is_missing_is_named(tmp_path: Path, hook: str) -> None:
    """Or nothing would be computed, and zeros be the results."""
    name = hook.partition("(")[0]
    with board(tmp_path, (f"def {hook}", f"def not_{hook}")):
        with pytest.raises(DeviceError, match=f"device: BOARD: Board has no {name}") as caught:
            use()
        assert str(caught.value.details["rule"]).startswith(f"{name}(")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("runtime or Board())", "Board)", "the runtime is the class Board, and no object of it"),
        (", wait=False", "", r"Board.launch takes .*lanes\): got an unexpected keyword"),
        ("blocks, lanes, wait=False):", "wait=False):", "Board.launch takes"),
        ("return Backend(", "return str(", "cannot be opened: TypeError"),
        ("has_fma=False", "missing={'EXP2'}", "Target.missing is no set of Ops: 'EXP2' is in it"),
        ("has_fma=False", "missing=[Ops.EXP2]", "Target.missing is a list"),
        ("has_fma=False", "missing_dtypes=frozenset({'half'})", "no set of DType: 'half' is in it"),
        ("has_fma=False", "view_bytes=48", "Target.view_bytes is 48"),
        ("has_fma=False", "threads=-1", "Target.threads is -1"),
        ("has_fma=False", "block_lanes=64", "block_lanes is 64, and has_locals is False"),
    ],
)
def test_a_device_that_cannot_work_is_refused_when_it_is_opened(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    with board(tmp_path, (old, new)), pytest.raises(DeviceError, match=said):
        use()


@pytest.mark.parametrize(
    ("old", "new", "hook", "said"),
    [
        ("return number, 0, nbytes", "return None", "allocate", "gave None, which is no handle"),
        ("number = max(", "number = mix(", "allocate", "raised NameError: name 'mix'"),
        ("given = bytes(data)", "given = data[9999]", "copy_in", "raised IndexError"),
        ("data[:] = self.at", "data[:1] = self.at", "copy_out", "raised ValueError"),
        ("SimtProgram(name,", "SimtProgram(nam,", "load", "raised NameError: name 'nam'"),
        ("return 0.0 if wait else None", "return 1 / 0", "launch", "raised ZeroDivisionError"),
        ("return 0.0 if wait else None", "return 'done'", "launch", "gave str, and no seconds"),
    ],
)
def test_a_hook_that_fails_is_named_with_its_line_and_the_users(
    tmp_path: Path, old: str, new: str, hook: str, said: str
) -> None:
    with board(tmp_path, (old, new)):
        with pytest.raises(DeviceError, match=f"BOARD: {hook} {said}") as caught:
            use()
        found = str(caught.value)
        assert f"{hook}(" in str(caught.value.details["rule"])
        assert "test_foreign_hooks.py" in found
        if "raised" in said:
            assert "board.py:" in found and new in found
    with board(tmp_path):
        assert use() == [[8.0, 10.0], [15.0, 22.0]], "the next device goes on"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("return render_python(", "return {}[Ops.MAX] or (", "render raised KeyError: Ops.MAX"),
        ("return render_python(name, program)", "return None", "render gave NoneType, and no text"),
        ("return source.encode()", "return source", "compile gave str, and no bytes"),
        ("return source.encode()", "raise SyntaxError('line 3')", "compile raised SyntaxError"),
    ],
)
def test_a_renderer_or_compiler_that_fails_is_named(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    with board(tmp_path, (old, new)):
        with pytest.raises(CompileError, match=f"BOARD: {said}") as caught:
            use()
        assert "test_foreign_hooks.py" in str(caught.value)


# The device with a thread that works off the list.
THREADED = (
    ("self.memory, self.queue = {}, []", "self.memory, self.queue = {}, Lane()"),
    ("while self.queue:\n            self.queue.pop(0)()", "self.queue.join()"),
    (
        "class Board(Runtime):",
        """
import queue, threading

class Lane(queue.Queue):
    def __init__(self):
        super().__init__()
        threading.Thread(target=self.work, name="lane", daemon=True).start()

    append = queue.Queue.put

    def work(self):
        while True:
            command = self.get()
            command()
            self.task_done()

class Board(Runtime):""",
    ),
)
RUNS = "self.queue.append(lambda: program.run(memories, variables, blocks, lanes))"


def test_a_device_with_a_thread_of_its_own_computes(tmp_path: Path) -> None:
    with board(tmp_path, *THREADED):
        assert use() == [[8.0, 10.0], [15.0, 22.0]]
        assert broken_promises(NAME) == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (RUNS, "self.queue.append(lambda: {}['power'])", "'lane' ended with KeyError: 'power'"),
        ("command()\n            self.task_done()", "return", "no thread of the device runs"),
    ],
)
def test_a_read_does_not_wait_for_a_thread_that_has_ended(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    with board(tmp_path, *THREADED, (old, new)):
        began = time.monotonic()
        errors = []
        for _ in range(2):
            with pytest.raises(DeviceError, match="BOARD: copy_out") as caught:
                use()
            errors.append(str(caught.value))
        assert said in errors[0]
        assert new in errors[0] or "KeyError" not in said
        assert "copy_out waits, and no thread of the device runs any more" in errors[1]
        assert all("test_foreign_hooks.py" in each for each in errors)
        assert time.monotonic() - began < 60


def test_memory_that_is_full_is_no_defect_of_the_hook(tmp_path: Path) -> None:
    full = "raise MemoryError\n        number = max("
    is_said = pytest.raises(OutOfMemoryError, match="bytes do not fit on BOARD")
    with board(tmp_path, ("number = max(", full)), is_said:
        use()


def test_an_error_of_the_device_itself_stays_as_it_is(tmp_path: Path) -> None:
    own = "from tilegrad.base.errors import DeviceError; raise DeviceError('BOARD: no power')"
    is_said = pytest.raises(TilegradError, match="BOARD: no power")
    with board(tmp_path, ("return 0.0 if wait else None", own)), is_said:
        use()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([("self.synchronize()", "pass")], "copy_out does not wait for the launches before it"),
        ([("given = bytes(data)", "given = data")], "reads data after it has returned"),
        ([("data[:] = self", "data = self")], "copy_out(data, handle) writes nothing into data"),
        ([("handle[1] + offset, nbytes", "0, nbytes")], "view(64, 64) is not the bytes from 64 on"),
        ([("self.queue.append(lambda: program", "(lambda: program")], "add 1 to 0 give 0.0"),
        ([("[: data.nbytes]", "")], "copy_out raised ValueError"),
    ],
)
def test_a_promise_that_is_not_kept_is_told(
    tmp_path: Path, changes: list[tuple[str, str]], said: str
) -> None:
    """These raise nothing where tensors are computed: only results are wrong."""
    with board(tmp_path, *changes):
        assert any(said in each for each in broken_promises(NAME)), broken_promises(NAME)
