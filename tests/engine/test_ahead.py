"""Kernels of a loss made before the plan of its step: the same ones, and none too many."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fresh import skip_if_edited
from tests.schedule.plans import plan
from tilegrad import Device, Tensor
from tilegrad.engine.build import worker, workers
from tilegrad.engine.build.background import count_of_helpers
from tilegrad.engine.build.pipeline import Job, kernel_key, make_kernel
from tilegrad.engine.child import read_message, write_message
from tilegrad.engine.realize import ahead
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp


def weights() -> list[Tensor]:
    """Memory that is there, of two products."""
    return [Tensor.ones(24, 48).realize(), Tensor.ones(48, 32).realize()]


def loss_of(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    return ((x @ first).relu() @ second).square().mean()


def kernels(value: Tensor) -> dict[str, UOp]:
    """The kernels of a plan, by key."""
    asts = [item.ast for item in plan(value).items if item.ast is not None]
    return {kernel_key(ast, Device["CPU"]): ast for ast in asts}


def of_pipe() -> tuple[worker._Worker, Any]:
    """A worker in this process, and the pipe of its messages."""
    source, sink = os.pipe()
    return worker._Worker(os.fdopen(source, "rb")), os.fdopen(sink, "wb")


def test_the_kernels_made_ahead_are_those_of_the_plan() -> None:
    loss = loss_of(Tensor.ones(40, 24).realize(), *weights())
    graph = ahead._numbered([loss.uop])
    assert graph is not None
    helper, sink = of_pipe()
    with sink:
        helper._look_ahead(pickle.dumps(graph), "CPU", Device["CPU"], io.BytesIO())
        wanted = kernels(loss)
        assert helper.ahead and helper.ahead.keys() <= wanted.keys()
        for key, (fields, binary) in helper.ahead.items():
            made = make_kernel(wanted[key], Device["CPU"], key, is_short=True)
            assert fields["kernel"]["name"] == made.name
            assert binary == made.binary


def test_nothing_is_made_ahead_while_a_message_waits() -> None:
    graph = ahead._numbered([loss_of(Tensor.ones(40, 24).realize(), *weights()).uop])
    helper, sink = of_pipe()
    with sink:
        write_message(sink, {"key": "1"})
        asked = helper.messages.get(timeout=60)
        helper.messages.put(asked)
        helper._look_ahead(pickle.dumps(graph), "CPU", Device["CPU"], io.BytesIO())
        assert not helper.ahead


def test_parameters_to_be_drawn_count_as_memory() -> None:
    """An optimizer computes them first, so the kernels are those over memory."""
    x, drawn = Tensor.ones(40, 24).realize(), weights()
    for each in drawn:
        each[:] = Tensor.rand(*each.shape)
        assert each.uop.op is Ops.ASSIGN
    graph = ahead._numbered([loss_of(x, *drawn).uop])
    assert graph is not None
    helper, sink = of_pipe()
    with sink:
        helper._look_ahead(pickle.dumps(graph), "CPU", Device["CPU"], io.BytesIO())
    Tensor.realize(*drawn)
    assert helper.ahead and helper.ahead.keys() <= kernels(loss_of(x, *drawn)).keys()


def looked_ahead(monkeypatch: pytest.MonkeyPatch, *jobs: dict[str, Any]) -> tuple[Any, list[str]]:
    """A worker after it has looked ahead, and the keys of kernels and jobs in the order in which
    they were made and answered; `jobs` come while it makes the first kernel.
    """
    helper, sink = of_pipe()
    order: list[str] = []

    def made(ast: UOp, key: str, *rest: Any, **named: Any) -> Any:
        if not order:
            for job in jobs:
                helper.messages.put((job, b""))
        order.append(key)
        return {"kernel": key}, b""

    def answered(job: dict[str, Any], *rest: Any) -> Any:
        order.append(job["key"])
        return {}, b""

    monkeypatch.setattr(worker, "_made", made)
    monkeypatch.setattr(worker, "answer", answered)
    monkeypatch.setattr(worker._Worker, "_backend", lambda self, job: None)
    graph = ahead._numbered([loss_of(Tensor.ones(40, 24).realize(), *weights()).uop])
    with sink:
        helper._look_ahead(pickle.dumps(graph), "CPU", Device["CPU"], io.BytesIO())
    return helper, order


def test_a_job_of_a_schedule_is_answered_between_two_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = {"key": "asked", "is_short": True, "is_complete": False, "switches": {}}
    helper, order = looked_ahead(monkeypatch, job)
    first, second = helper.ahead
    assert order == [first, "asked", second]


def test_a_complete_plan_ends_the_work_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    job = {"key": "asked", "is_short": True, "is_complete": True, "switches": {}}
    helper, order = looked_ahead(monkeypatch, job)
    assert order == [*helper.ahead, "asked"] and len(helper.ahead) == 1


def test_a_small_plan_interrupts_no_helper_that_works_ahead() -> None:
    helper = workers.Helper.__new__(workers.Helper)
    helper.is_loaded, helper.has_ended, helper.is_ahead = True, False, False
    assert workers.Helpers([helper]).are_worth(2)
    helper.is_ahead = True
    assert not workers.Helpers([helper]).are_worth(2)
    assert workers.Helpers([helper]).are_worth(50)


def test_a_graph_that_cannot_be_scheduled_ends_no_helper() -> None:
    helper, sink = of_pipe()
    with sink:
        helper._look_ahead(b"no graph", "CPU", Device["CPU"], io.BytesIO())
        helper._look_ahead(pickle.dumps(UOp.sink()), "CPU", None, io.BytesIO())
        assert not helper.ahead


def test_answers_come_from_what_was_made_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker says first which kernels it has; a job for the best shape is made anew."""
    monkeypatch.setattr(worker, "_IDLE_S", 0.05)
    monkeypatch.setattr(worker, "answer", lambda job, *rest: ({"anew": job["key"]}, b""))
    monkeypatch.setattr(worker._Worker, "_backend", lambda self, job: None)
    helper, sink = of_pipe()
    helper.ahead, helper.is_untold = {"a": ({"kernel": 1}, b"x"), "b": ({"kernel": 2}, b"y")}, True
    source, answers = os.pipe()
    with sink, os.fdopen(source, "rb") as read, os.fdopen(answers, "wb") as written:
        write_message(sink, {"key": "a", "is_short": True, "switches": {}})
        write_message(sink, {"key": "b", "is_short": False, "switches": {}})
        helper.run(written)
        found = [read_message(read) for _ in range(4)]
    assert found == [
        ({}, b""),
        ({"ahead": ["a", "b"]}, b""),
        ({"kernel": 1}, b"x"),
        ({"anew": "b"}, b""),
    ]


def test_a_helper_is_asked_first_for_what_it_has() -> None:
    """This process takes those jobs last, as the helper may be lost."""
    found = kernels(loss_of(Tensor.ones(40, 24).realize(), *weights()))
    jobs = [Job(key, ast, "CPU", is_short=True) for key, ast in found.items()]
    assert len(jobs) > 2
    shared = workers._SharedJobs(jobs[:-1])
    helper: Any = object()
    has = {jobs[0].key, jobs[-1].key}
    shared.reserve(has, helper)
    shared.add(jobs)
    taken = shared.take(helper)
    assert taken is not None and taken.key in has
    here = [job.key for _ in jobs if (job := shared.take()) is not None]
    assert len(here) == len(jobs) - 1 and {here[-1], taken.key} == has
    assert shared.take() is None and shared.take(helper) is None


def test_graphs_of_another_device_are_left_alone() -> None:
    x = Tensor.ones(40, 24).realize()
    assert ahead._numbered([loss_of(x, *weights()).uop]) is not None
    elsewhere = Tensor.ones(40, 24, device="CPU:1").realize()
    assert ahead._numbered([elsewhere.sum().uop]) is None


SCRIPT = """
import time
from tilegrad import Tensor
from tilegrad.engine.build import workers
from tilegrad.engine.realize import ahead

kept = []
reserve = workers._SharedJobs.reserve
def noted(self, keys, helper):
    kept.append((self, keys))
    reserve(self, keys, helper)
workers._SharedJobs.reserve = noted
Tensor.manual_seed(3)
x = Tensor.randn(4, 3, 16, 16).realize()
w = [Tensor.randn(*shape).realize() for shape in ((8, 3, 3, 3), (16, 8, 3, 3), (16, 16, 3, 3))]
for each in w:
    each.requires_grad = True
while WAITS and not any(helper.is_loaded for helper in workers._helpers):
    time.sleep(0.01)
y = x
for each in w:
    y = y.conv2d(each, padding=1).relu()
loss = y.square().mean()
loss.backward()
time.sleep(5 * WAITS)
Tensor.realize(loss, *[each.grad for each in w])
print(loss.item(), [each.grad.numpy().tobytes().hex() for each in w])
print(all(keys and set(keys) <= shared._keys for shared, keys in kept), bool(kept))
"""


def test_a_first_step_computes_what_it_does_alone(tmp_path: Path) -> None:
    skip_if_edited()
    found = []
    for waits in (1, 0):
        done = subprocess.run(
            [sys.executable, "-c", f"WAITS = {waits}\n{SCRIPT}"],
            capture_output=True,
            text=True,
            timeout=120,
            env={
                "PYTHONPATH": ":".join(sys.path),
                "TILEGRAD_CACHE": str(tmp_path / str(waits)),
                "TILEGRAD_PARALLEL": str(waits),
            },
            check=False,
        )
        assert done.stderr == ""
        found.append(done.stdout.splitlines())
    assert found[0][0] == found[1][0]
    assert found[1][1] == "True False"
    if count_of_helpers():
        assert found[0][1] == "True True"
