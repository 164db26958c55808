"""Kernels made by several processes: the same ones, whatever becomes of a helper."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.schedule.plans import plan
from tilegrad import Context, Device, Tensor
from tilegrad.base.recent import Recent
from tilegrad.base.trace import counters, recording
from tilegrad.engine.build import pipeline, workers
from tilegrad.engine.build.background import count_of_helpers
from tilegrad.engine.build.kernels import compile_kernels
from tilegrad.engine.build.pipeline import CompiledKernel, Job, kernel_key, make_kernel
from tilegrad.engine.build.worker import answer
from tilegrad.engine.build.workers import Helpers, graph_bytes
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


def test_a_helper_gives_what_this_process_makes() -> None:
    wanted = {job.key: here(job) for job in jobs()}
    assert len(wanted) == 4
    with Helpers(1, ["CPU"]) as helpers:
        before = counters.compiles
        made: dict[str, CompiledKernel] = {}
        for job in jobs():
            # The helper is asked alone, by a first job that this process leaves to it.
            asked = workers.deque([job])
            workers._feed(helpers._children[0], asked, made)
        assert made == wanted
        assert all(made[key].binary == kernel.binary for key, kernel in wanted.items())
        assert counters.compiles == before + 4
        assert helpers.make(jobs(), here) == wanted


def test_what_a_dead_helper_had_is_made_here() -> None:
    wanted = {job.key: here(job) for job in jobs()}
    with Helpers(1, ["CPU"]) as helpers:
        (child,) = helpers._children
        child.kill()
        child.wait()
        made = helpers.make(jobs(), here)
        kernels = compile_kernels([(job.ast, Device["CPU"]) for job in jobs()], helpers)
    assert set(made) <= set(wanted)
    assert [kernel.key for kernel in kernels] == list(wanted)


def test_an_interrupt_ends_the_helpers() -> None:
    def interrupted(job: Job) -> CompiledKernel:
        raise KeyboardInterrupt

    helpers = Helpers(1, ["CPU"])
    (child,) = helpers._children
    with helpers, pytest.raises(KeyboardInterrupt):
        helpers.make(jobs(), interrupted)
    assert child.poll() is not None
    assert len(helpers) == 0


def test_a_helper_makes_nothing_for_a_device_that_it_knows_otherwise() -> None:
    job = jobs()[0]
    graph, fields = graph_bytes(job.ast), {"key": job.key, "device": "CPU"}
    assert answer(fields, graph, {}) == ({}, b"")
    assert answer({**fields, "key": "another"}, graph, {"CPU": Device["CPU"]}) == ({}, b"")
    found, binary = answer(fields, graph, {"CPU": Device["CPU"]})
    assert binary == here(job).binary
    assert found["work"]["compiles"] == 1


def test_where_there_are_no_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
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
