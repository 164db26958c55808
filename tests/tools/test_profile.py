"""The dearest kernels of a function."""

from __future__ import annotations

import pytest

from tilegrad import Tensor, jit
from tilegrad.base.errors import ConfigError
from tilegrad.device.calibrate import Ceilings
from tilegrad.tools import profile as module
from tilegrad.tools.profile import Row, profile, table

CEILINGS = Ceilings(flops=100e9, copies=((1 << 20, 40e9), (1 << 30, 20e9)))


@pytest.fixture(autouse=True)
def known_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    def ceilings(device: str) -> Ceilings | None:
        return CEILINGS if device == "CPU" else None

    monkeypatch.setattr(module, "_ceilings_of", ceilings)


def test_every_kernel_of_every_run_is_counted() -> None:
    x = Tensor.rand(64, 64).realize()
    rows = profile(lambda: ((x @ x).realize() + 1).realize(), runs=4)
    assert len(rows) == 2
    assert [row.launches for row in rows] == [1, 1]
    assert [len(row.samples) for row in rows] == [4, 4]
    matmul = next(row for row in rows if row.ops > 2 * 64**3 - 1)
    assert matmul.device == "CPU" and matmul.mem == 2 * 4 * 64 * 64
    assert rows[0].seconds >= rows[1].seconds > 0


def test_launches_of_one_kernel_are_one_row() -> None:
    x = Tensor.rand(32).realize()

    def function() -> None:
        for _ in range(3):
            (x + 1).realize()

    (row,) = profile(function, runs=2)
    assert row.launches == 3 and row.ops == 3 * 32


def test_a_captured_function_is_profiled_as_it_is() -> None:
    x = Tensor.rand(32).realize()
    step = jit(lambda: (x * 2).sum().realize())
    for _ in range(3):
        step()
    assert len(profile(step)) >= 1


def test_the_dearer_ceiling_counts_per_launch() -> None:
    row = Row("r_2", "CPU", launches=2, ops=2_000, mem=2_000_000, samples=[1e-4])
    assert row.share_of(CEILINGS) == pytest.approx(2 * (1_000_000 / 40e9) / 1e-4)


def test_the_table_says_time_share_speed_and_ceiling() -> None:
    rows = [
        Row("a" * 60, "CPU", ("dot", "relu"), 1, ops=10_000_000, mem=1000, samples=[2e-4]),
        Row("b", "EMU", (), 3, ops=3, mem=4, samples=[1e-4, 3e-4, 2e-4]),
    ]
    head, first, second, total, ceilings = table(rows).splitlines()
    assert " ".join(head.split()) == "kernel times time share GFLOP/s GB/s ceiling calls"
    assert first.split() == [
        "a" * 33 + "…", "1", "200.0us", "50.0%", "50.0", "0.0", "50%", "dot", "relu",
    ]  # fmt: skip
    assert second.split()[:4] == ["b", "3", "200.0us", "50.0%"] and second.count("%") == 1
    assert total == "2 kernels, 0.40 ms"
    assert ceilings.startswith("ceilings measured on CPU: 100 GFLOP/s") and "40, 20" in ceilings


def test_the_table_ends_where_asked() -> None:
    rows = [Row(f"k{n}", "EMU", (), 1, 1, 1, [1e-6]) for n in range(30)]
    assert len(table(rows).splitlines()) == 1 + 10 + 1
    assert len(table(rows, most=30).splitlines()) == 1 + 30 + 1
    assert table([]).splitlines()[-1] == "0 kernels, 0.00 ms"


def test_no_runs_are_refused() -> None:
    with pytest.raises(ConfigError, match="runs must be at least 1, not 0"):
        profile(lambda: None, runs=0)


def test_what_a_captured_function_leaves_to_be_computed_is_profiled() -> None:
    """It has kernels though it realizes nothing: its result, and a tensor that it assigns to."""
    x, state = Tensor.rand(32).realize(), Tensor.zeros(32).contiguous().realize()
    assert len(profile(jit(lambda: (x * 2).sum()))) >= 1

    @jit
    def step() -> None:
        state.assign(state + x)

    assert len(profile(step)) >= 1
