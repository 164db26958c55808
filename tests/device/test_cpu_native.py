"""The thread pool and the graph runner."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tilegrad.base.errors import ConfigError
from tilegrad.compile.llvm import assembly, compile_ir, host_target
from tilegrad.device import cpu_native
from tilegrad.device.cpu_native import NODE, NativePool, this_system
from tilegrad.device.cpu_native_ir import MAX_WORKERS, source
from tilegrad.runtime import elf

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX threads")

KERNELS = """
; args: a table of int64. Adds one, without a lock, to the chunk's own cell.
define void @count(ptr %args, i64 %chunk) nounwind {
  %table = load ptr, ptr %args
  %cell = getelementptr i64, ptr %table, i64 %chunk
  %old = load i64, ptr %cell
  %new = add i64 %old, 1
  store i64 %new, ptr %cell
  ret void
}

; args: a counter and a size. Ends when as many chunks as the size have begun: only if as many
; threads take part.
define void @meet(ptr %args, i64 %chunk) nounwind {
  %counter = load ptr, ptr %args
  %place = getelementptr i64, ptr %args, i64 1
  %size = load i64, ptr %place
  %before = atomicrmw add ptr %counter, i64 1 seq_cst
  %rest = urem i64 %before, %size
  %first = sub i64 %before, %rest
  %goal = add i64 %first, %size
  br label %wait
wait:
  %now = load atomic i64, ptr %counter seq_cst, align 8
  %come = icmp uge i64 %now, %goal
  br i1 %come, label %end, label %wait
end:
  ret void
}

; args: a table. Doubles cell 0 and adds the chunk: the result shows in which order kernels ran.
define void @double(ptr %args, i64 %chunk) nounwind {
  %table = load ptr, ptr %args
  %old = load i64, ptr %table
  %twice = mul i64 %old, 2
  store i64 %twice, ptr %table
  ret void
}

; args: a table. cell[chunk] of the second half becomes the sum of all cells of the first half.
define void @gather(ptr %args, i64 %chunk) nounwind {
entry:
  %table = load ptr, ptr %args
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %sum = phi i64 [0, %entry], [%more, %loop]
  %cell = getelementptr i64, ptr %table, i64 %i
  %value = load i64, ptr %cell
  %more = add i64 %sum, %value
  %next = add i64 %i, 1
  %on = icmp ult i64 %next, 8
  br i1 %on, label %loop, label %end
end:
  %number = add i64 %chunk, 8
  %target = getelementptr i64, ptr %table, i64 %number
  store i64 %more, ptr %target
  ret void
}

; args: a flag and a second one. Sets the first, waits for the second.
define void @hold(ptr %args, i64 %chunk) nounwind {
  %began = load ptr, ptr %args
  %place = getelementptr ptr, ptr %args, i64 1
  %go = load ptr, ptr %place
  atomicrmw add ptr %began, i64 1 seq_cst
  br label %wait
wait:
  %now = load atomic i64, ptr %go seq_cst, align 8
  %come = icmp ne i64 %now, 0
  br i1 %come, label %end, label %wait
end:
  ret void
}
"""
SYSTEM = this_system()
SYSTEMS = {"native": SYSTEM, "portable": replace(SYSTEM, futex=0)}


@pytest.fixture(scope="module")
def kernels() -> elf.LoadedObject:
    _, cpu, features = host_target()
    return elf.load(compile_ir(KERNELS, cpu=cpu, features=features))


@pytest.fixture(scope="module")
def codes() -> dict[str, bytes]:
    return {
        name: compile_ir(source(system), cpu="generic", features="")
        for name, system in SYSTEMS.items()
    }


@pytest.fixture(params=SYSTEMS)
def pool(request: pytest.FixtureRequest, codes: dict[str, bytes]) -> Iterator[NativePool]:
    made = NativePool(codes[request.param], workers=2)
    yield made
    assert made.close()


class Table:
    """`count` int64 cells, and an argument block that holds their address."""

    def __init__(self, count: int):
        self.cells = (ctypes.c_int64 * count)()
        self.block = (ctypes.c_void_p * 2)(ctypes.addressof(self.cells))
        self.args = ctypes.addressof(self.block)


def graph(*nodes: tuple[int, int, int]) -> tuple[bytearray, int]:
    memory = bytearray(b"".join(NODE.pack(*node) for node in nodes))
    return memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("chunks", [0, 1, 2, 3, 7, 1000])
def test_each_chunk_runs_once(
    pool: NativePool, kernels: elf.LoadedObject, workers: int, chunks: int
) -> None:
    pool.set_workers(workers)
    table = Table(1001)
    for _ in range(20):
        pool.launch(kernels.address("count"), table.args, chunks)
    assert list(table.cells) == [20] * chunks + [0] * (1001 - chunks)


def test_threads_take_part(pool: NativePool, kernels: elf.LoadedObject) -> None:
    pool.set_workers(3)
    table = Table(1)
    table.block[1] = 3
    for _ in range(30):
        pool.launch(kernels.address("meet"), table.args, 3)
    assert table.cells[0] == 90


def test_a_node_runs(pool: NativePool, kernels: elf.LoadedObject) -> None:
    table = Table(8)
    _memory, at = graph((kernels.address("count"), table.args, 8))
    pool.run_node(at)
    assert list(table.cells) == [1] * 8


def test_a_graph_runs_in_order(pool: NativePool, kernels: elf.LoadedObject) -> None:
    """Each node sees what all chunks of the one before have written, whichever thread ran them."""
    table = Table(16)
    count, double, gather = (kernels.address(name) for name in ("count", "double", "gather"))
    _memory, at = graph(
        (count, table.args, 8),
        (double, table.args, 1),
        (gather, table.args, 8),
        (count, table.args, 0),
        (double, table.args, 1),
        (count, table.args, 1),
    )
    for _ in range(300):
        ctypes.memset(table.cells, 0, 128)
        pool.run_graph(at, 6)
        assert list(table.cells) == [5] + [1] * 7 + [9] * 8


def test_a_graph_is_timed(pool: NativePool, kernels: elf.LoadedObject) -> None:
    table, times = Table(100_000), (ctypes.c_int64 * 3)(-1, -1, -1)
    count = kernels.address("count")
    _memory, at = graph(
        (count, table.args, 1), (count, table.args, 100_000), (count, table.args, 2)
    )
    start = time.perf_counter_ns()
    pool.run_graph_timed(at, 3, ctypes.addressof(times))
    spent = time.perf_counter_ns() - start
    assert min(times) >= 0
    assert times[1] > 0
    assert sum(times) <= spent
    assert list(table.cells[:3]) == [3, 2, 1]


def test_a_busy_pool_makes_others_run_alone(pool: NativePool, kernels: elf.LoadedObject) -> None:
    flags = (ctypes.c_int64 * 2)()
    block = (ctypes.c_void_p * 2)(ctypes.addressof(flags), ctypes.addressof(flags) + 8)
    holder = threading.Thread(
        target=pool.launch, args=(kernels.address("hold"), ctypes.addressof(block), 2)
    )
    holder.start()
    while flags[0] != 2:
        time.sleep(0.001)
    table = Table(100)
    pool.launch(kernels.address("count"), table.args, 100)
    _memory, at = graph((kernels.address("count"), table.args, 100))
    pool.run_graph(at, 1)
    assert list(table.cells) == [2] * 100
    assert not pool._resize(0, 10)
    flags[1] = 1
    holder.join()


def test_two_threads_launch_at_once(pool: NativePool, kernels: elf.LoadedObject) -> None:
    tables = [Table(9), Table(9)]

    def work(table: Table) -> None:
        for _ in range(3000):
            pool.launch(kernels.address("count"), table.args, 9)

    threads = [threading.Thread(target=work, args=(table,)) for table in tables]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [list(table.cells) for table in tables] == [[3000] * 9] * 2


def test_no_wake_up_is_lost(pool: NativePool, kernels: elf.LoadedObject) -> None:
    """Workers sleep at once, so that every launch meets them going to sleep; a lost one would hang
    in `meet`.
    """
    pool.set_workers(3)
    pool.set_spin(0)
    meeting, table = Table(1), Table(64)
    meeting.block[1] = 3
    end = time.monotonic() + 0.3
    rounds = 0
    while time.monotonic() < end:
        pool.launch(kernels.address("meet"), meeting.args, 3)
        for _ in range(20):
            pool.launch(kernels.address("count"), table.args, 2 + rounds % 60)
        rounds += 1
    assert meeting.cells[0] == 3 * rounds
    assert list(table.cells[:2]) == [20 * rounds] * 2


def test_the_number_of_threads_changes_under_load(
    pool: NativePool, kernels: elf.LoadedObject
) -> None:
    table, stop = Table(9), threading.Event()
    launches = 0

    def work() -> None:
        nonlocal launches
        while not stop.is_set():
            pool.launch(kernels.address("count"), table.args, 9)
            launches += 1

    thread = threading.Thread(target=work)
    thread.start()
    for i in range(60):
        pool.set_workers(1 + i % 4)
        pool.set_spin(i % 3 * 50)
    stop.set()
    thread.join()
    assert list(table.cells) == [launches] * 9


def test_an_idle_pool_sleeps(pool: NativePool, kernels: elf.LoadedObject) -> None:
    pool.set_spin(1000)
    table = Table(2)
    pool.launch(kernels.address("count"), table.args, 2)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.1


def test_an_unknown_number_of_threads_is_refused(pool: NativePool) -> None:
    with pytest.raises(
        ConfigError, match=rf"^THREADS: unknown value -1\n  allowed: +0 to {MAX_WORKERS}"
    ):
        pool.set_workers(-1)


def test_a_closed_pool_runs_in_the_caller(pool: NativePool, kernels: elf.LoadedObject) -> None:
    table = Table(4)
    assert pool.close()
    pool.launch(kernels.address("count"), table.args, 4)
    assert list(table.cells) == [1] * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("is_busy", [False, True])
def test_a_forked_child_has_a_pool_of_its_own(
    pool: NativePool, kernels: elf.LoadedObject, is_busy: bool
) -> None:
    table, meeting = Table(100), Table(1)
    meeting.block[1] = 2
    pool.launch(kernels.address("count"), table.args, 100)
    flags = (ctypes.c_int64 * 2)()
    block = (ctypes.c_void_p * 2)(ctypes.addressof(flags), ctypes.addressof(flags) + 8)
    holder = threading.Thread(
        target=pool.launch, args=(kernels.address("hold"), ctypes.addressof(block), 2)
    )
    if is_busy:
        holder.start()
        while flags[0] != 2:
            time.sleep(0.001)
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        pool.launch(kernels.address("count"), table.args, 100)
        pool.launch(kernels.address("meet"), meeting.args, 2)  # hangs unless a second thread comes
        pool.set_workers(3)
        pool.launch(kernels.address("count"), table.args, 100)
        os._exit(0 if list(table.cells) == [3] * 100 and meeting.cells[0] == 2 else 1)
    _, status = os.waitpid(child, 0)
    flags[1] = 1
    if is_busy:
        holder.join()
    assert status == 0
    pool.launch(kernels.address("count"), table.args, 100)
    assert list(table.cells) == [2] * 100


EXIT = """
import ctypes, threading, time
from tilegrad.compile.llvm import compile_ir
from tilegrad.device.cpu_native import native
from tilegrad.runtime import elf
pool = native(lambda text: compile_ir(text, cpu="generic", features=""))
pool.set_workers(4)
pool.set_spin({spin})
text = "define void @k(ptr %a, i64 %c) nounwind {{ ret void }}"
kernel = elf.load(compile_ir(text, cpu="generic", features=""))
address = kernel.address("k")
def forever():
    while True:
        pool.launch(address, 0, 100)
forever_thread = threading.Thread(target=forever, daemon=True)
if {busy}:
    forever_thread.start()
    time.sleep(0.05)
for _ in range(1000):
    pool.launch(address, 0, 100)
print("end", flush=True)
"""


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("spin", [0, 1_000_000])
def test_a_process_ends_cleanly(busy: bool, spin: int) -> None:
    """Whether its threads sleep, spin, or are at work for a thread that Python abandons."""
    program = EXIT.format(busy=busy, spin=spin)
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "end\n", "")


def test_signals_stay_with_the_main_thread(pool: NativePool, kernels: elf.LoadedObject) -> None:
    """A worker never takes a signal, so that a blocking call of the main thread is interrupted."""
    pool.set_workers(4)
    table = Table(4)
    pool.launch(kernels.address("count"), table.args, 4)
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(threading.current_thread()))
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.01)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [threading.main_thread()]


def test_the_pool_of_the_process_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def build(text: str) -> bytes:
        asked.append(text)
        return compile_ir(text, cpu="generic", features="")

    monkeypatch.setattr(cpu_native, "_native", None)
    monkeypatch.setattr(cpu_native, "this_system", lambda: replace(SYSTEM, clock=1, faults=()))
    first = cpu_native.native(build)
    assert cpu_native.native(build) is first
    monkeypatch.setattr(cpu_native, "_native", None)
    assert cpu_native.native(build) is not first
    assert len(asked) == 1


def test_a_warm_start_needs_no_compiler() -> None:
    program = "import sys, tilegrad.device.cpu_native; print('llvmlite' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "False\n"


@pytest.mark.parametrize("futex", [98, 0])
def test_the_text_is_good_for_aarch64(futex: int) -> None:
    text = source(replace(SYSTEM, futex=futex, pause="llvm.aarch64.hint(i32 1)"))
    lines = assembly(text, cpu="generic", features="", triple="aarch64-unknown-linux-gnu")
    assert "yield" in lines
    assert "stlr" in lines
    assert "ldaxr" in lines
