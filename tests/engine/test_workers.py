"""Kernels made by several processes: the same ones, whatever becomes of a helper."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fresh import skip_if_edited
from tests.schedule.plans import plan
from tilegrad import Context, Device, Tensor
from tilegrad.base.recent import Recent
from tilegrad.base.trace import counters, recording
from tilegrad.engine.build import pipeline, worker, workers
from tilegrad.engine.build.background import count_of_helpers
from tilegrad.engine.build.kernels import compile_kernels
from tilegrad.engine.build.pipeline import CompiledKernel, Job, kernel_key, make_kernel
from tilegrad.engine.build.worker import answer
from tilegrad.engine.build.workers import Helpers
from tilegrad.engine.plans import plans
from tilegrad.engine.realize import bindings


def jobs() -> list[Job]:
    """Four kernels of different size."""
    x = Tensor.empty(8, 16)
    schedule = plan(x.sum(1), x * 2.5, x.exp().sum(), (x @ x.transpose()).relu())
    found = [item.ast for item in schedule.items if item.ast is not None]
    return [Job(kernel_key(ast, Device["CPU"]), ast, "CPU") for ast in found]


def here(job: Job) -> CompiledKernel:
    return make_kernel(job.ast, Device["CPU"], job.key)


@pytest.fixture
def helpers() -> Iterator[Helpers]:
    """One helper of its own, loaded."""
    skip_if_edited()
    workers.end()
    with workers.taken(1) as found:
        assert found is not None
        wait_for(lambda: found.are_worth(2))
        yield found
    workers.end()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_helper_gives_what_this_process_makes(helpers: Helpers) -> None:
    wanted = {job.key: here(job) for job in jobs()}
    assert len(wanted) == 4
    before = counters.compiles
    made: dict[str, CompiledKernel] = {}
    for job in jobs():
        # The helper is asked alone.
        batch = workers._SharedJobs([job])
        helpers._helpers[0].serve(batch)
        wait_for(lambda batch=batch: len(batch.done) == 1)
        made |= batch.done
    assert made == wanted
    assert all(made[key].binary == kernel.binary for key, kernel in wanted.items())
    assert counters.compiles == before + 4
    assert helpers.make(jobs(), here) == wanted


def test_a_helper_has_a_job_before_this_process_begins_its_own(
    helpers: Helpers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though this thread would keep Python's lock for all four."""
    shared = helpers._shared = workers._SharedJobs()
    begun: list[bool] = []

    def made_here(job: Job) -> CompiledKernel:
        begun.append(shared._outstanding.total() > 0)
        return here(job)

    monkeypatch.setattr(workers, "_HANDOVER_S", 60.0)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60.0)
    try:
        assert len(helpers.make(jobs(), made_here)) == 4
    finally:
        sys.setswitchinterval(interval)
    assert begun[0] and len(begun) < 4


def test_kernels_are_begun_beside_the_schedule(helpers: Helpers) -> None:
    """The first one waits for a second, as a plan of one is made here."""
    plan_jobs = jobs()
    wanted = {job.key: here(job) for job in plan_jobs}
    helpers.begin(plan_jobs[0])
    assert helpers._shared is None
    helpers.begin(plan_jobs[1])
    batch = helpers._shared
    assert batch is not None
    wait_for(lambda: len(batch.done) == 2)
    made_here: list[str] = []

    def noted(job: Job) -> CompiledKernel:
        made_here.append(job.key)
        return here(job)

    assert helpers.make(plan_jobs, noted) == wanted
    assert set(made_here) <= {job.key for job in plan_jobs[2:]}


def test_what_was_begun_in_vain_is_left(helpers: Helpers) -> None:
    """An error in the schedule: the next plan has the helper for itself."""
    helpers.begin(jobs()[0])
    helpers.begin(jobs()[1])
    helpers.close()
    batch = workers._SharedJobs(jobs())
    helpers._helpers[0].serve(batch)
    wait_for(lambda: len(batch.done) == 4)


def test_helpers_are_kept_and_lent_to_one_plan_at_a_time(helpers: Helpers) -> None:
    (helper,) = helpers._helpers
    with workers.taken(1) as others:
        assert others is None
    helpers.make(jobs(), here)
    workers.begin(1)
    assert workers._helpers == [helper]
    assert not helpers.are_worth(1)


def test_a_job_is_made_by_the_switches_of_its_plan(helpers: Helpers) -> None:
    """Not by those of the helper's start, nor of an earlier plan."""
    for plain in (0, 1, 0):
        with Context(NOOPT=plain):
            plan_jobs = jobs()
            wanted = {job.key: here(job) for job in plan_jobs}
            batch = workers._SharedJobs(plan_jobs)
            helpers._helpers[0].serve(batch)
            wait_for(lambda batch=batch: len(batch.done) == 4)
            assert {key: kernel.binary for key, kernel in batch.done.items()} == {
                key: kernel.binary for key, kernel in wanted.items()
            }


def test_what_a_dead_helper_had_is_made_here(helpers: Helpers) -> None:
    wanted = {job.key: here(job) for job in jobs()}
    (helper,) = helpers._helpers
    helper.process.kill()
    made = helpers.make(jobs(), here)
    kernels = compile_kernels([(job.ast, Device["CPU"]) for job in jobs()], helpers)
    assert set(made) <= set(wanted)
    assert [kernel.key for kernel in kernels] == list(wanted)
    wait_for(lambda: helper.has_ended)
    workers.begin(1)
    assert helper not in workers._helpers and len(workers._helpers) == 1


def test_a_helper_that_dies_with_jobs_gives_them_back(helpers: Helpers) -> None:
    """It is stopped while it has two, and killed while this process waits for them."""
    (helper,) = helpers._helpers
    os.kill(helper.process.pid, signal.SIGSTOP)
    killer = threading.Timer(0.3, helper.process.kill)

    batch = workers._SharedJobs(jobs())
    helper.serve(batch)
    wait_for(lambda: batch._outstanding[helper] == 2)
    killer.start()
    while (job := batch.take()) is not None:
        batch.give(job.key, here(job))
    assert batch.late() == []
    assert len(batch.done) == 2


def test_after_an_error_nothing_is_left_to_do(helpers: Helpers) -> None:
    def interrupted(job: Job) -> CompiledKernel:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        helpers.make(jobs(), interrupted)
    wanted = {job.key: here(job) for job in jobs()}
    assert helpers.make(jobs(), here) == wanted


def test_a_helper_makes_nothing_for_a_device_that_it_knows_otherwise() -> None:
    job = jobs()[0]
    graph = pickle.dumps(job.ast)
    fields = {"key": job.key, "device": "CPU", "is_short": False}
    assert answer(fields, graph, None) == ({}, b"")
    assert answer({**fields, "key": "another"}, graph, Device["CPU"]) == ({}, b"")
    found, binary = answer(fields, graph, Device["CPU"])
    assert binary == here(job).binary
    assert found["work"]["compiles"] == 1


def test_a_helper_without_work_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_IDLE_S", 0.05)
    source, sink = os.pipe()
    with os.fdopen(source, "rb") as read, os.fdopen(sink, "wb"), open(os.devnull, "wb") as answers:
        waiting = worker._Worker(read)
        waiting.run(answers)
        assert waiting.messages.empty()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_of_a_fork_leaves_the_helpers_to_its_parent(helpers: Helpers) -> None:
    child = os.fork()
    if not child:
        # Nothing of the test runner may run in it.
        os._exit(0 if not workers._helpers and workers._in_use.acquire(blocking=False) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(workers._helpers) == 1
    wanted = {job.key: here(job) for job in jobs()}
    assert helpers.make(jobs(), here) == wanted


def test_where_there_are_no_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    with Context(PARALLEL=1):
        assert count_of_helpers() == 3
        for switches in ({"PARALLEL": 0}, {"DEBUG": 3}):
            with Context(**switches):
                assert count_of_helpers() == 0
        with recording():
            assert count_of_helpers() == 0
        monkeypatch.setattr(sys, "frozen", True, raising=False)
        assert count_of_helpers() == 0


# Twelve kernels, none like another, and no guard around the whole.
SCRIPT = """
import sys
print("begun")
from tilegrad import Context, Tensor
from tilegrad.base.trace import counters
from tilegrad.engine.plans import plans
plans._LARGE = 10
started = []
plans.count_of_helpers = lambda: started.append(1) or 1
x = Tensor([float(n) for n in range(24)])
parts = [(x[: 2 * n] * n).reshape(2, n).sum(0) for n in range(1, 13)]
Tensor.realize(*parts)
print([part.tolist()[0] for part in parts] == [float(n * n) for n in range(1, 13)])
print(len(started) > 0, counters.compiles)
"""


def test_an_unguarded_script_runs_once(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PYTHONPATH": ":".join(sys.path), "TILEGRAD_CACHE": str(tmp_path)},
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["begun", "True", "True 12"]


def test_a_schedule_has_the_same_kernels_with_helpers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Names and counts too, whoever made them."""
    monkeypatch.setattr(plans, "_LARGE", 1)
    found = []
    for count in (0, 1):
        monkeypatch.setattr(plans, "count_of_helpers", lambda count=count: count)
        monkeypatch.setattr(bindings, "_bindings", {})
        monkeypatch.setattr(plans, "_plans", Recent(lambda: 100))
        for table in ("_kernels", "_named"):
            monkeypatch.setattr(pipeline, table, Recent(lambda: 100))
        before = counters.compiles, counters.renders
        with Context(CACHE=str(tmp_path / str(count))):
            x = Tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).realize()
            Tensor.realize(*[x[:n] * scale for n in range(2, 6) for scale in (1.5, 2.5)])
        names = [(kernel.name, kernel.ops) for kernel in pipeline._kernels.values()]
        found.append((sorted(names), counters.compiles - before[0], counters.renders - before[1]))
    assert found[0] == found[1]
    assert found[0][1] == 8


def test_names_are_unique_whatever_the_disk_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A process that meets other kernels first numbers them in its own order."""
    found = []
    for kinds in (("abs", "neg", "square"), ("square", "sqrt", "neg"), ("square", "sqrt", "neg")):
        monkeypatch.setattr(bindings, "_bindings", {})
        monkeypatch.setattr(plans, "_plans", {})
        for table in ("_kernels", "_named"):
            monkeypatch.setattr(pipeline, table, {})
        # Segments that other tests left know their kernels.
        with Context(CACHE=str(tmp_path), SEGMENTS=0):
            x = Tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]).realize()
            for kind in kinds:
                getattr(x, kind)().realize()
        found.append([kernel.name for kernel in pipeline._kernels.values()])
    first = found[0][0]
    assert found == [[first, f"{first}n1", f"{first}n2"]] * 3


def test_the_largest_kernel_is_made_first() -> None:
    first, *rest = jobs()
    shared = workers._SharedJobs([first])
    shared.add([*rest, first])
    taken = [job for _ in range(4) if (job := shared.take()) is not None]
    sizes = [len(job.ast.toposort()) for job in taken]
    assert sizes == sorted(sizes, reverse=True) and len({job.key for job in taken}) == 4
    assert shared.take() is None
