"""The profiler: regions, the kernels in them, and the table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tilegrad.torch as torch
from tilegrad.torch.profiler import profile, record_function, schedule


def work() -> None:
    with record_function("outer"), record_function("inner"):
        torch.ones(3).exp().sum().item()


def test_a_kernel_counts_in_the_region_that_computes_it() -> None:
    with profile() as prof:
        work()
        work()
    events = prof.events()
    assert [each.name for each in events if not each.is_kernel] == ["outer", "inner"] * 2
    outer, inner, *kernels = events[: len(events) // 2]
    assert kernels
    inside = sum(each.cpu_time_total for each in kernels)
    assert inner.cpu_time_total == pytest.approx(inner.self_cpu_time_total + inside)
    assert outer.cpu_time_total == pytest.approx(outer.self_cpu_time_total + inner.cpu_time_total)
    assert {each.key: each.count for each in prof.key_averages()}["inner"] == 2
    assert sum(each.cpu_time_total for each in events if each.name == "outer") == pytest.approx(
        prof.self_cpu_time_total
    )


def test_a_table_has_a_row_for_each_key_and_knows_its_orders() -> None:
    with profile() as prof:
        work()
    lines = prof.key_averages().table(sort_by="cpu_time_total", row_limit=1).splitlines()
    assert lines[1].split("  ")[-1].strip() == "# of Calls"
    assert lines[3].split()[0] == "outer"
    assert lines[-1].startswith("Self CPU time total: ")
    with pytest.raises(RuntimeError, match=r"no order 'name'"):
        prof.key_averages().table(sort_by="name")


def test_a_schedule_hands_over_each_cycle(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with profile(
        schedule=schedule(wait=1, warmup=0, active=2, repeat=1),
        on_trace_ready=lambda prof: prof.export_chrome_trace(str(path)),
    ) as prof:
        for _ in range(5):
            work()
            prof.step()
    names = [each["name"] for each in json.loads(path.read_text())["traceEvents"]]
    assert [name for name in names if name.startswith("ProfilerStep")] == [
        "ProfilerStep#1", "ProfilerStep#2",
    ]  # fmt: skip
    assert names.count("outer") == 2


def test_without_a_profiler_a_region_does_nothing() -> None:
    with record_function("alone"), profile() as prof:
        pass
    assert not prof.events()
