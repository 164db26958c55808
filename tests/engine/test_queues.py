"""The queues of several devices: who waits for whom, and the order in which all runs."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import InternalError
from tilegrad.engine.plans.plan import LoopPlan, Plan, PlannedMemory, Step
from tilegrad.engine.run.queues import ByteRange, Command, Job, Kind, Queues, queues_of


def region(name: str, start: int = 0, end: int = 4) -> ByteRange:
    return ByteRange(name, start, end)


def kernel(device: str, writes: str, *reads: str) -> Job:
    return Job(device, (region(writes),), tuple(map(region, reads)))


def copy(device: str, target: str, source: str, read: str) -> Job:
    return Job(device, (region(target),), (region(read),), source)


DOT = [
    copy("D", "a", "S", "x"),
    copy("D", "b", "S", "y"),
    kernel("D", "dot", "a", "b"),
    copy("HOST", "result", "D", "dot"),
]


def kinds(queue: list[Command]) -> list[str]:
    return [
        "copy" if each.kind is Kind.WORK and each.source else
        "kernel" if each.kind is Kind.WORK else str(each.kind.value)
        for each in queue
    ]  # fmt: skip


@pytest.mark.row("M5.1")
def test_a_dot_product_of_what_comes_from_another_device() -> None:
    queues = Queues.of(DOT)
    assert {name: kinds(queue) for name, queue in queues.commands.items()} == {
        "D": ["wait", "copy", "copy", "kernel", "sync"],
        "S": ["sync"],
        "HOST": ["wait", "copy"],
    }
    assert queues.text().splitlines()[0] == "D        wait S, copy 0, copy 1, kernel 2, sync"


@pytest.mark.row("M5.2")
def test_two_copies_of_one_source_wait_once() -> None:
    waits = [each for each in Queues.of(DOT)["D"] if each.kind is Kind.WAIT]
    assert [(each.source, each.number) for each in waits] == [("S", 0)]


@pytest.mark.row("M5.2")
def test_what_the_source_does_later_is_waited_for_again() -> None:
    jobs = [copy("D", "a", "S", "x"), kernel("S", "x2", "x"), copy("D", "b", "S", "x2")]
    queues = Queues.of(jobs, host="none")
    assert kinds(queues["S"]) == ["sync", "kernel", "sync"]
    assert kinds(queues["D"]) == ["wait", "copy", "wait", "copy", "sync"]


@pytest.mark.row("M5.1")
def test_whoever_overwrites_what_another_device_copies_waits_for_the_copy() -> None:
    jobs = [copy("D", "a", "S", "x"), kernel("S", "x", "y"), kernel("S", "z", "y")]
    queues = Queues.of(jobs)
    assert kinds(queues["S"]) == ["sync", "wait", "kernel", "kernel"]
    assert kinds(queues["D"]) == ["wait", "copy", "sync"]


def test_work_on_other_bytes_of_the_same_memory_waits_for_nobody() -> None:
    jobs = [
        Job("D", (region("a"),), (region("block", 0, 8),), "S"),
        Job("S", (region("block", 8, 16),), ()),
        Job("S", (region("block", 4, 12),), ()),
    ]
    assert kinds(Queues.of(jobs)["S"]) == ["sync", "kernel", "wait", "kernel"]


@pytest.mark.row("M5.3")
def test_a_sync_runs_when_nothing_else_can() -> None:
    jobs = [kernel("A", "a", "x"), copy("B", "b", "A", "a"), kernel("A", "c", "y")]
    jobs += [kernel("C", "d", "z")]
    order = Queues.of(jobs).order()
    syncs = [at for at, each in enumerate(order) if each.kind is Kind.SYNC]
    # All but what waits for it ran before: here the kernel of C, and that of A before its SYNC.
    assert {each.device for each in order[: syncs[0]]} == {"A", "C"}
    assert [each.kind for each in order[: syncs[0]]] == [Kind.WORK] * 2


@pytest.mark.row("M5.3")
def test_whichever_queue_is_looked_at_first_the_order_is_the_same() -> None:
    queues = Queues.of([*DOT, kernel("E", "e", "f"), copy("D", "g", "E", "e")])
    wanted = queues.order()
    for names in itertools.permutations(queues.commands):
        queues.commands = {name: queues.commands[name] for name in names}
        assert queues.order() == wanted


NAMES = ["A", "B", "C"]


@st.composite
def many_jobs(draw: st.DrawFn) -> list[Job]:
    """Kernels that read and write memory of their own device, and copies between devices."""
    jobs = []

    def of(name: str) -> ByteRange:
        start = draw(st.integers(0, 2))
        return ByteRange(name, start, start + draw(st.integers(1, 2)))

    for _ in range(draw(st.integers(1, 14))):
        device = draw(st.sampled_from(NAMES))
        other = draw(st.sampled_from(NAMES))
        if other == device:
            jobs.append(Job(device, (of(device),), (of(device), of(device))))
        else:
            jobs.append(Job(device, (of(device),), (of(other),), other))
    return jobs


@pytest.mark.row("M5.4")
@given(many_jobs())
def test_all_work_is_done_once_and_in_an_order_that_is_right(jobs: list[Job]) -> None:
    queues = Queues.of(jobs)
    order = queues.order()
    work = [each.number for each in order if each.kind is Kind.WORK]
    assert sorted(work) == list(range(len(jobs)))
    at = {number: position for position, number in enumerate(work)}
    for late, job in enumerate(jobs):
        for early in range(late):
            before = jobs[early]
            if meet(before.writes, (*job.writes, *job.reads)) or meet(before.reads, job.writes):
                assert at[early] < at[late]
                assert before.device == job.device or is_waited_for(order, early, late)


def meet(some: tuple[ByteRange, ...], others: tuple[ByteRange, ...]) -> bool:
    return any(
        one.memory == two.memory and one.start < two.end and two.start < one.end
        for one in some
        for two in others
    )


def is_waited_for(order: list[Command], early: int, late: int) -> bool:
    """Whether a chain of SYNC and WAIT leads from one job to the other: what each queue knows to be
    done, command by command.
    """
    known: dict[str, set[int]] = {name: set() for name in NAMES}
    synced: dict[tuple[str, int], set[int]] = {}
    for each in order:
        if each.kind is Kind.SYNC:
            synced[each.device, each.number] = set(known[each.device])
        elif each.kind is Kind.WAIT:
            known[each.device] |= synced[each.source, each.number]
        else:
            if each.number == late:
                return early in known[each.device]
            known[each.device].add(each.number)
    return False


@pytest.mark.row("M5.4")
def test_queues_that_wait_for_each_other_are_an_error() -> None:
    queues = Queues()
    queues.commands = {
        "A": [Command(Kind.WAIT, "A", 0, 0, "B"), Command(Kind.SYNC, "A", 0, 1)],
        "B": [Command(Kind.WAIT, "B", 0, 2, "A"), Command(Kind.SYNC, "B", 0, 3)],
    }
    with pytest.raises(InternalError, match="each waits for another"):
        queues.order()


def test_a_kernel_with_memory_of_another_device_is_refused() -> None:
    memory = tuple(
        PlannedMemory(name, dtypes.float32, 4, source=number, offset=None)
        for number, name in enumerate(("CPU", "CPU:1"))
    )
    loop = LoopPlan(Plan((), (), (), {}), 1, False, (), {})
    plan = Plan((Step("CPU", (0, 1), None, (), loop=loop),), memory, (0,), {})
    with pytest.raises(InternalError, match="a kernel on CPU with memory of another device"):
        queues_of(plan)
