"""Where the cache is empty, the compiler is made ready beside the script."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PASSES = ("tilegrad.schedule.", "tilegrad.optimize.", "tilegrad.lower.", "llvmlite.binding.")

READ = """
import sys
from tilegrad import Tensor
from tilegrad.base.trace import counters
from tilegrad.engine.build import preload
"""
# The result of a first read, and what it had to load.
SHOW = f"""
before = set(sys.modules)
print((Tensor([1.0, 2.0, 3.0]) * 2 + 1).sum().item(), counters.schedules, counters.compiles)
print([name for name in sys.modules if name not in before and name.startswith({PASSES!r})])
"""
WAIT = """
if preload._thread is not None:
    preload._thread.join()
"""


def lines(code: str, cache: Path, **switches: object) -> list[str]:
    """What a process prints that runs `code`; it ends by itself and reports nothing."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={
            "PYTHONPATH": ":".join(sys.path),
            "TILEGRAD_CACHE": str(cache),
            **{f"TILEGRAD_{name}": str(value) for name, value in switches.items()},
        },
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_a_first_read_loads_nothing_more(tmp_path: Path) -> None:
    assert lines(READ + WAIT + SHOW, tmp_path) == ["15.0 1 1", "[]"]


def test_a_filled_cache_is_enough(tmp_path: Path) -> None:
    """Neither the compiler nor a thread is started where kernels may be found."""
    lines(READ + SHOW, tmp_path, PARALLEL=0)
    again = READ + "print(preload._thread, 'llvmlite' in sys.modules)\n" + SHOW
    assert lines(again, tmp_path) == ["None False", "15.0 0 0", "[]"]


def test_a_script_that_computes_at_once(tmp_path: Path) -> None:
    """It waits for the module that is being loaded, and loads the others itself."""
    first, _ = lines(READ + SHOW, tmp_path)
    assert first == "15.0 1 1"


def test_a_script_that_ends_at_once(tmp_path: Path) -> None:
    assert lines(READ + "print('end')", tmp_path) == ["end"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_while_the_compiler_is_loaded(tmp_path: Path) -> None:
    """The child finds no module that is half loaded."""
    code = """
import os
for delay in range(12):
    child = os.fork()
    if not child:
        value = (Tensor([1.0, 2.0, 3.0]) * (delay + 1)).sum().item()
        os._exit(0 if value == 6.0 * (delay + 1) else 1)
    assert os.waitpid(child, 0)[1] == 0
"""
    assert lines(READ + code + SHOW, tmp_path)[0].startswith("15.0 ")


def test_without_a_compiler_the_read_says_so(tmp_path: Path) -> None:
    code = f"""
import sys
sys.modules["llvmlite"] = None
{READ}
{WAIT}
try:
    (Tensor([1.0, 2.0, 3.0]) * 2).sum().item()
except Exception as error:
    print(type(error).__name__, "llvmlite" in str(error) or str(error))
"""
    assert lines(code, tmp_path) == ["ModuleNotFoundError True"]


def test_two_threads_that_find_no_compiler(tmp_path: Path) -> None:
    """The pool's code is compiled beside the first kernel: both loads fail, and both say why."""
    code = """
import sys
import time


class Slow:
    def find_spec(self, name, path, target=None):
        if name == "llvmlite":
            time.sleep(0.3)
            raise ModuleNotFoundError("no llvmlite here", name=name)


from tilegrad.device.registry import Device

cpu = Device["CPU"]
sys.meta_path.insert(0, Slow())
from concurrent.futures import ThreadPoolExecutor


def compile_pool():
    from tilegrad.device.cpu import prepare

    prepare()


def compile_kernel():
    time.sleep(0.1)
    cpu.compile("")


with ThreadPoolExecutor(2) as threads:
    for done in [threads.submit(compile_pool), threads.submit(compile_kernel)]:
        print(type(done.exception()).__name__, done.exception())
"""
    assert lines(code, tmp_path) == ["ModuleNotFoundError no llvmlite here"] * 2
