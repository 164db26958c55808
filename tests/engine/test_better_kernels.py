"""Kernels in short shapes, and the better ones that take their place while a program runs."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.fresh import forget, forget_others, skip_if_edited
from tests.schedule.plans import kernel_of
from tilegrad import Context, Device, Tensor, jit
from tilegrad.base.recent import Recent
from tilegrad.engine.build import background, pipeline, workers
from tilegrad.engine.plans import plans
from tilegrad.engine.plans.plan import Plan
from tilegrad.engine.realize import bindings
from tilegrad.engine.run import better_kernels

ROOT = Path(__file__).parents[2]
a = np.random.default_rng(1).normal(size=(128, 96)).astype(np.float32)
b = np.random.default_rng(2).normal(size=(96, 160)).astype(np.float32)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A process that has planned nothing yet, with one helper that it may start."""
    skip_if_edited()
    forget()
    forget_others(monkeypatch)
    # A helper that another test has left may have been started as that one had it.
    workers.end()
    for module in (background, plans):
        monkeypatch.setattr(module, "count_of_helpers", lambda: 1)
    monkeypatch.setattr(plans, "_plans", Recent(lambda: 4096))
    monkeypatch.setattr(pipeline, "_kernels", Recent(lambda: 4096))
    monkeypatch.setattr(bindings, "_bindings", {})
    # A thread that another test has left may be about its plan.
    monkeypatch.setattr(better_kernels, "_one_plan", threading.Lock())
    with Context(CACHE=str(tmp_path), TEMPLATES=1, SEGMENTS=1, SIZES=1, SHORT=1):
        yield
    workers.end()


class Ended(threading.Event):
    """Set when the plan has better kernels."""

    def renew(self) -> None:
        self.set()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def all_plans() -> list[Plan]:
    return list(plans._plans._entries.values())


def last_plan() -> Plan:
    """The last plan with kernels in short shapes: that for all numbers, if there were several."""
    return [each for each in all_plans() if each.short_kernels()][-1]


def short() -> int:
    """Kernels in short shapes of all plans."""
    return sum(len(plan.short_kernels()) for plan in all_plans())


def steps(count: int) -> Iterator[np.ndarray]:
    """Products of memory, each from a graph of its own."""
    left, right = Tensor(a).realize(), Tensor(b).realize()
    for number in range(count):
        yield ((left + (number + 3.5)) @ right).relu().numpy()


def check(found: list[np.ndarray]) -> None:
    for number, each in enumerate(found):
        wanted = np.maximum((a.astype(float) + number + 3.5) @ b, 0)
        assert np.allclose(each, wanted, rtol=1e-4, atol=1e-3)


def test_better_kernels_come_when_the_plan_has_run_long(monkeypatch: pytest.MonkeyPatch) -> None:
    found = list(steps(4))
    plan = last_plan()
    known = set(plan.short_kernels())
    monkeypatch.setattr(better_kernels, "_LINE_S", 1e-9)
    plan.ready[0].renew()
    found += list(steps(4))
    wait_for(lambda: not plan.short_kernels())
    assert known <= {step.kernel.key for step in plan.steps if step.kernel}
    wait_for(lambda: plan.ready[0]._patience_s == math.inf)
    after = list(steps(30))
    check(after)
    # A function was written for them, too.
    assert plan.ready[0]._run != plan.ready[0]._run_at_first
    for each in (found[:4], found[4:]):
        assert all(np.array_equal(one, other) for one, other in zip(each, after))


def test_short_ones_are_compiled_sooner() -> None:
    """Their text has a longer way to the same code."""
    backend = Device["CPU"]
    ast = kernel_of(Tensor.empty(128, 96) @ Tensor.empty(96, 160), backend.target)
    short, best = [
        pipeline.render_ast(ast, backend, "key", is_short=is_short) for is_short in (True, False)
    ]
    assert short.kernel.lines and not best.kernel.lines
    assert "freeze" in short.source and "freeze" not in best.source


def test_a_plan_waits_as_long_as_its_kernels_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run takes is told; it is made ready anew with no patience left."""
    begun: list[Plan] = []
    monkeypatch.setattr(better_kernels, "begin", lambda plan, runner: begun.append(plan))
    list(steps(4))
    plan = last_plan()
    made = plan.ready[0]
    assert 0 < made._patience_s < math.inf and not begun
    made._patience_s = 1e-9
    list(steps(3))
    assert begun == [plan] and made._patience_s == math.inf
    list(steps(3))
    assert begun == [plan]


def test_no_short_shapes_where_nobody_can_make_better_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plans, "count_of_helpers", lambda: 0)
    check(list(steps(2)))
    assert all_plans() and short() == 0


def test_none_where_the_switch_says_so() -> None:
    with Context(SHORT=0):
        check(list(steps(2)))
    assert all_plans() and short() == 0


def test_the_switch_brings_a_known_plan_to_its_best(monkeypatch: pytest.MonkeyPatch) -> None:
    first = list(steps(1))
    assert short() > 0
    with Context(SHORT=0):
        second = list(steps(1))
    assert short() == 0
    assert all(np.array_equal(one, other) for one, other in zip(first, second))


def test_a_capture_has_the_best_from_its_first_call_on() -> None:
    @jit
    def product(x: Tensor, y: Tensor) -> Tensor:
        return (x @ y).relu().realize()

    left, right = Tensor(a).realize(), Tensor(b).realize()
    for _ in range(3):
        found = product(left, right).numpy()
        assert short() == 0
    assert np.allclose(found, np.maximum(a.astype(float) @ b, 0), rtol=1e-4, atol=1e-3)


def test_a_capture_of_what_ran_before_has_the_best() -> None:
    left, right = Tensor(a).realize(), Tensor(b).realize()
    before = (left @ right).relu().numpy()
    assert short() > 0

    @jit
    def product(x: Tensor, y: Tensor) -> Tensor:
        return (x @ y).relu().realize()

    after = [product(left, right).numpy() for _ in range(3)]
    assert short() == 0
    assert all(np.array_equal(each, before) for each in after)


def test_a_helper_that_dies_leaves_the_plan_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    first = list(steps(4))
    plan = last_plan()
    ended = Ended()
    workers.end()

    class Dead(workers.Helper):
        def __init__(self, rehearses: bool, *, is_behind: bool = False) -> None:
            super().__init__(rehearses, is_behind=is_behind)
            self.process.kill()

    monkeypatch.setattr(workers, "Helper", Dead)
    before = plan.steps
    better_kernels._improve(weakref.ref(plan), ended)
    assert not ended.is_set()
    assert plan.steps == before
    assert all(np.array_equal(one, other) for one, other in zip(first, steps(4)))


def test_a_plan_that_is_given_up_gets_no_better_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(workers, "behind", lambda: asked.append(1))
    list(steps(4))
    plan = last_plan()
    ended, others = Ended(), threading.enumerate()
    with better_kernels._one_plan:
        better_kernels.begin(plan, ended)
        (thread,) = [
            each
            for each in threading.enumerate()
            if each.name == "tilegrad better kernels" and each not in others
        ]
        known = weakref.ref(plan)
        del plan
        plans._plans.clear()
        bindings._bindings.clear()
        forget()
        assert known() is None
    thread.join(60)
    assert not thread.is_alive() and not asked and not ended.is_set()


@pytest.mark.skipif(os.name != "posix", reason="no priorities")
def test_they_are_made_behind_what_waits() -> None:
    """They stay in the process's own session, as Linux may heed a priority only there, but beyond
    the reach of Ctrl-C.
    """
    (behind,) = workers.behind()._helpers
    workers.begin(1)
    (usual,) = workers._helpers
    wait_for(lambda: behind.is_loaded and usual.is_loaded)
    priorities = [os.getpriority(os.PRIO_PROCESS, each.process.pid) for each in (behind, usual)]
    assert priorities[0] > priorities[1] or priorities == [19, 19]
    assert os.getsid(behind.process.pid) == os.getsid(0)
    assert os.getpgid(behind.process.pid) == behind.process.pid
    assert (*workers.behind()._helpers,) == (behind,)


def test_several_threads_run_a_plan_whose_kernels_are_replaced() -> None:
    list(steps(4))
    plan = last_plan()
    made, failed = plan.ready[0], []

    def work() -> None:
        try:
            check(list(steps(40)))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    better_kernels.begin(plan, made)
    for thread in threads:
        thread.join()
    assert not failed
    wait_for(lambda: not plan.short_kernels())


_PROGRAM = """
import json, sys
from tilegrad import Tensor
from tilegrad.base.trace import counters
from tilegrad.engine.plans import plans
from tilegrad.engine.run import better_kernels
import numpy as np
rng = np.random.default_rng(1)
x, y = [Tensor(rng.normal(size=size).astype("f")) for size in ((128, 96), (96, 160))]
z = (x.realize() @ y.realize()).relu().numpy()
every = list(plans._plans._entries.values())
short = sum(len(plan.short_kernels()) for plan in every)
if len(sys.argv) > 1:
    import threading
    class Done(threading.Event):
        renew = threading.Event.set
    for plan in [each for each in every if each.short_kernels()]:
        done = Done()
        better_kernels.begin(plan, done)
        done.wait()
print(json.dumps([short, counters.compiles, float(z.sum())]))
"""


def test_the_next_process_finds_the_better_kernels(tmp_path: Path) -> None:
    def run(*words: str) -> list[float]:
        variables = {
            **os.environ,
            "TILEGRAD_CACHE": str(tmp_path / "cache"),
            "TILEGRAD_PARALLEL": "1",
            "PYTHONPATH": str(ROOT),
        }
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, *words],
            capture_output=True, text=True, env=variables, check=True,
        )  # fmt: skip
        found: list[float] = eval(done.stdout)
        return found

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if (cores or 1) < 2:
        pytest.skip("a helper takes a second core")
    short_count, compiles, total = run()
    assert short_count > 0 and compiles > 0
    assert run("better") == [short_count, pytest.approx(short_count, abs=5), total]
    assert run() == [0, 0, total]
