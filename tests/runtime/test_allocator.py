"""Memory that nobody uses goes back to the system after a while."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.runtime.test_buffer import Small
from tilegrad import Context
from tilegrad.base.errors import DeviceError
from tilegrad.runtime.allocator import LRUAllocator, reaper, size_class

LARGE = 1 << 24


class Roomy(Small):
    """Counts what is held, and takes none of the machine's memory."""

    def allocate(self, nbytes: int) -> int:
        self.made = getattr(self, "made", 0) + 1
        self.held[self.made] = nbytes
        return self.made

    def free(self, handle: int, nbytes: int) -> None:
        assert self.held.pop(handle) == nbytes


def waits_for(condition: object, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return False


def test_idle_blocks_are_given_back_and_the_others_stay() -> None:
    runtime = Roomy()
    allocator = LRUAllocator("ROOMY", runtime)
    held, freed = allocator.allocate(128), [allocator.allocate(64) for _ in range(3)]
    for handle in freed:
        allocator.take_back((size_class(64), handle))
    assert allocator.free_idle(60.0) == 128 + 3 * 64
    assert len(runtime.held) == 4
    assert allocator.free_idle(0.0) == 128
    assert list(runtime.held) == [held]
    assert allocator.cached_bytes == 0
    assert allocator.allocate(64) not in freed


def test_a_large_block_goes_back_while_the_program_does_nothing() -> None:
    runtime = Roomy()
    allocator = LRUAllocator("ROOMY", runtime)
    with Context(KEEP_SECONDS=1):
        handle = allocator.allocate(LARGE)
    allocator.take_back((size_class(LARGE), handle))
    assert waits_for(lambda: not runtime.held)
    assert (allocator.used_bytes, allocator.cached_bytes) == (0, 0)


def test_memory_goes_back_beside_a_device_that_is_lost() -> None:
    """Nobody can wait for the lost one, whose blocks come first."""

    class Lost(Roomy):
        asked = 0

        def synchronize(self) -> None:
            self.asked += 1
            raise DeviceError("the device is lost")

    lost, runtime = Lost(), Roomy()
    allocators = [LRUAllocator("LOST", lost), LRUAllocator("ROOMY", runtime)]
    with Context(KEEP_SECONDS=1):
        allocators[0].take_back((size_class(LARGE), allocators[0].allocate(LARGE)))
        assert waits_for(lambda: lost.asked > 1)
        allocators[1].take_back((size_class(LARGE), allocators[1].allocate(LARGE)))
        assert waits_for(lambda: not runtime.held)
    assert allocators[0].cached_bytes == size_class(LARGE)
    # The thread ends without anything to look after.
    lost.synchronize = lambda: None  # type: ignore[method-assign]
    assert waits_for(lambda: not lost.held)


def test_zero_seconds_keep_all() -> None:
    runtime = Roomy()
    allocator = LRUAllocator("ROOMY", runtime)
    with Context(KEEP_SECONDS=0):
        allocator.take_back((size_class(LARGE), allocator.allocate(LARGE)))
        assert allocator.allocate(LARGE) in runtime.held
    assert len(runtime.held) == 1


MEMORY = """
import time, os, threading
from tilegrad import Tensor
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
(Tensor.ones(8) + 1).realize()
before = resident()
x = (Tensor.empty(1 << 25) + 1).realize()
full = resident()
del x
end = time.monotonic() + 60
while resident() > before + 30 and time.monotonic() < end:
    time.sleep(0.05)
time.sleep(0.6)
names = [thread.name for thread in threading.enumerate()]
print(full - before, resident() - before, names)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_that_waits_is_small_and_has_no_thread_left(tmp_path: Path) -> None:
    # With an empty cache the first kernel, too, loads LLVM, which stays: 70 MB.
    switches = {"TILEGRAD_KEEP_SECONDS": "1", "TILEGRAD_CACHE": str(tmp_path)}
    found = subprocess.run(
        [sys.executable, "-c", MEMORY],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env=os.environ | switches,
    )
    full, after, names = found.stdout.split(maxsplit=2)
    assert int(full) > 120
    assert int(after) < 40
    assert names.strip() == "['MainThread']"


@pytest.mark.skipif(sys.platform == "win32", reason="this system does not fork")
def test_a_fork_waits_for_the_thread() -> None:
    code = (
        "import os, time\nos.environ['TILEGRAD_KEEP_SECONDS'] = '1'\n"
        "from tilegrad import Tensor\nfrom tilegrad.runtime.allocator import reaper\n"
        "x = (Tensor.empty(1 << 23) + 1).realize()\n"
        "held = reaper.work.acquire()\n"
        "import threading\nthreading.Timer(0.3, reaper.work.release).start()\n"
        "start = time.monotonic()\n"
        "if os.fork() == 0:\n"
        "    y = (Tensor.ones(1 << 23) + 1).sum().item()\n"
        "    print(y, flush=True)\n    os._exit(0)\n"
        "print(time.monotonic() - start > 0.2, os.wait()[1])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert sorted(found.stdout.split()) == sorted([str(float(1 << 24)), "True", "0"])


def test_one_thread_serves_all_allocators() -> None:
    with Context(KEEP_SECONDS=30):
        allocators = [LRUAllocator(f"ROOMY:{number}", Roomy()) for number in range(3)]
        for allocator in allocators:
            allocator.allocate(LARGE)
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("tilegrad memory") == 1
    assert reaper.work.acquire(timeout=5)
    reaper.work.release()
