"""What all tests share: random cases that repeat, and a cache folder of their own.

Hypothesis draws the same cases in every run; `make nightly` draws new ones, and more. With
`GUARD_PAGES=after` or `before` all memory lies beside pages that nobody may touch
(tests/guarded/guard_pages.py).
"""

from __future__ import annotations

import atexit
import gc
import os
import random
import shutil
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Generator, Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.guarded import guard_pages

# Of the streams of random numbers that a test begins with: no test asks for it.
_SEED = 20011

# Folders of few tests for their time.
_LONG = {"bench", "device", "docs", "examples", "scale", "tools", "typing"}

# Before tilegrad is imported, which reads its switches once. `TILEGRAD_CACHE=... pytest` keeps a
# cache from run to run.
if "TILEGRAD_CACHE" not in os.environ:
    os.environ["TILEGRAD_CACHE"] = tempfile.mkdtemp(prefix="tilegrad-tests-")
    atexit.register(shutil.rmtree, os.environ["TILEGRAD_CACHE"], ignore_errors=True)

# Each core has a process of tests: these, and those that they start, take no other core for
# helpers that compile. The tests of helpers ask for them.
os.environ.setdefault("TILEGRAD_PARALLEL", "0")

# Hundreds of processes that tests start import the package: none compiles its sources anew, even
# where the surroundings ask for no files of bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Processes that tests start find it on their path.
if kind := guard_pages.from_environment():
    os.environ |= guard_pages.environment(kind)

# A process of thousands of tests has much to look through, and looks for garbage less often than a
# program. Tests that count what is alive collect it themselves.
gc.set_threshold(5_000, 10, 20)

settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "nightly", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow]
)
# Where it counts that a test fails, and not how.
settings.register_profile(
    "marks",
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("default")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is made meanwhile stays: to look through it for garbage takes a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of several processes, none is left without work while another has a long file: files whose
    tests run whole programs come first, then those of many tests.
    """
    if not hasattr(config, "workerinput"):
        return
    sizes = Counter(item.path for item in items)

    def rank(item: pytest.Item) -> tuple[bool, int]:
        return item.nodeid.split("/")[1] not in _LONG, -sizes[item.path]

    # The sort is stable: a file's tests stay together, in their order, where sizes are equal too.
    items.sort(key=rank)


def pytest_collection_finish() -> None:
    """Leave what exists now, thousands of tests, out of every later collection of garbage: some
    tests count what is alive, collect often, and would look at all of it each time.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _older_objects_are_left_alone() -> None:
    """The same of what the tests of other modules keep in caches."""
    gc.collect()
    gc.freeze()
    # For what the module's own fixtures draw.
    _seed_everything()


@pytest.fixture(autouse=True, scope="module")
def _devices_of_a_module_go_with_it() -> Iterator[None]:
    """Other modules' tests print which kinds of device there are."""
    from tilegrad.device.registry import Device

    before = set(Device._factories)
    yield
    for kind in set(Device._factories) - before:
        Device.unregister(kind)


def _surroundings() -> dict[str, object]:
    """What a program sets for the whole process."""
    from tilegrad.base.config import config
    from tilegrad.base.dtype import dtypes

    return {
        "default dtypes": (dtypes.default_float, dtypes.default_int),
        "switches": config.current(),
        "variables": {k: v for k, v in os.environ.items() if k.startswith("TILEGRAD_")},
        "folder": os.getcwd(),
        "limit of recursion": sys.getrecursionlimit(),
        "collection of garbage": gc.isenabled(),
        "errors of NumPy": np.geterr(),
    }


@pytest.fixture(autouse=True, scope="module")
def _a_module_leaves_things_as_they_were() -> Iterator[None]:
    """Or a test of another fails that runs after it, and passes alone."""
    before = _surroundings()
    yield
    after = _surroundings()
    assert {name: after[name] for name in after if after[name] != before[name]} == {}


@pytest.fixture(autouse=True)
def _calls_wait_anew() -> None:
    """Reads of an earlier test that were in vain do not decide whether calls wait in this one."""
    from tilegrad.tensor.handle import threads, waiting
    from tilegrad.tensor.handle.living import pools

    pool = waiting.this_thread.pool
    pool.end()
    pool.count_hit()
    pool.trains = True
    # Threads that earlier tests left do nothing any more.
    threads._older_threads.update(threading.enumerate())
    for each in pools:
        each.thread = pool.thread


@pytest.fixture(autouse=True)
def _no_sizes_have_come_before() -> None:
    """Graphs of earlier tests that differ from this one's in their sizes do not decide whether it
    gets a plan for a range of sizes. SIZES=2 checks such plans, as many as there are.
    """
    from tilegrad.base.config import config
    from tilegrad.engine.realize import size_ranges

    if config.SIZES < 2:
        size_ranges._families.clear()
        size_ranges._explained_last.clear()


@pytest.fixture(autouse=True)
def _random_numbers_repeat() -> None:
    """What a test draws depends neither on the tests before it nor on the run: the package's own
    stream begins at a seed of the system.
    """
    _seed_everything()


def _seed_everything() -> None:
    from tilegrad.tensor.indexing.generator import generator

    generator.restart(_SEED)
    random.seed(_SEED)
    np.random.seed(_SEED)
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.manual_seed(_SEED)


@pytest.fixture
def nothing_known() -> None:
    """No graph or call has come before, and memory is in use only for what is alive: for who counts
    either. Plans and kernels may still be on disk.
    """
    from tests.fresh import forget

    forget()


@pytest.fixture
def by_nodes() -> Iterator[None]:
    """Assignments are nodes of the graph, and memory is written in place. Those of small tensors
    wait otherwise, and their tensors take other memory at the next run.
    """
    from tilegrad import Context

    with Context(SEGMENTS=0):
        yield
