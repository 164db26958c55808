"""What the device reaches: measured once, and kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilegrad.base.config import Context
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DeviceError
from tilegrad.device import calibrate
from tilegrad.device.calibrate import Ceilings, ceilings
from tilegrad.device.cpu import CpuRuntime
from tilegrad.device.registry import Device

CEILINGS = Ceilings(flops=100.0, copies=((10, 40.0), (1000, 20.0)))


def test_a_cache_is_asked_by_what_it_holds() -> None:
    assert [CEILINGS.bandwidth(size) for size in (1, 10, 11, 1000, 5000)] == [40, 40, 20, 20, 20]
    assert CEILINGS.memory == 20


def test_the_dearer_of_arithmetic_and_bytes_binds() -> None:
    assert CEILINGS.least_seconds(ops=300, nbytes=10) == 3
    assert CEILINGS.least_seconds(ops=1, nbytes=100) == 5


class Meter(calibrate._Meter):
    """Counts its measurements, and says what it is told of the machine."""

    made = 0
    alone = True

    def __init__(self, *given: Any):
        super().__init__(*given)
        # Past the last cache of a server lie hundreds of megabytes.
        self._target = replace(self._target, cache_bytes=(1 << 15, 1 << 20, 1 << 22))

    def ceilings(self) -> Ceilings:
        found = super().ceilings()
        type(self).made += 1
        self.was_alone = type(self).alone
        return found


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Meter]]:
    """Measured with short runs, in an empty cache."""
    monkeypatch.setattr(calibrate, "_Meter", Meter)
    monkeypatch.setattr(calibrate, "_LEAST_S", 1e-5)
    monkeypatch.setattr(calibrate, "_RUNS", 2)
    monkeypatch.setattr(calibrate, "_PAST_CACHES", 1)
    monkeypatch.setattr(Meter, "made", 0)
    with Context(CACHE=str(tmp_path)):
        yield Meter


def test_measured_once_and_kept(meter: type[Meter]) -> None:
    found = ceilings("CPU")
    sizes, rates = zip(*found.copies)
    assert sorted(rates, reverse=True) == list(rates)
    assert sorted(sizes) == list(sizes)
    assert ceilings("CPU") == found and meter.made == 1
    ceilings("CPU", renew=True)
    assert meter.made == 2


def test_work_is_counted_a_second(meter: type[Meter], monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Device["CPU"]
    runtime = backend.runtime
    assert isinstance(runtime, CpuRuntime)
    launch = runtime.launch

    def a_microsecond_a_step(*given: Any, **how: Any) -> float:
        """Runs the kernel, and says what a machine without other work would take."""
        launch(*given, **how)
        return 1e-6 * float(given[2][-1])

    monkeypatch.setattr(runtime, "launch", a_microsecond_a_step)
    found, threads = ceilings("CPU"), runtime.pool.workers
    lanes, registers = backend.target.lanes_of(dtypes.float32), backend.target.registers
    assert found.flops == pytest.approx(2e6 * lanes * (registers - 4) * threads)
    # Four vectors a round, of four bytes a lane, on every thread.
    assert found.memory == pytest.approx(1e6 * found.copies[-1][0], abs=2e6 * 16 * lanes * threads)


def test_a_busy_machine_is_not_kept(meter: type[Meter], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "alone", False)
    ceilings("CPU")
    ceilings("CPU")
    assert meter.made == 2


@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
def test_every_width_of_vector_compiles(lanes: int) -> None:
    from tilegrad.compile.llvm import compile_ir
    from tilegrad.runtime import elf

    code = compile_ir(calibrate._source(lanes, 8), cpu="x86-64-v3", features="", triple="x86_64")
    assert len(code) > 1000
    if Device["CPU"].target.isa.startswith(("avx", "sse")):
        assert elf.load(code).address("multiply_add")


def test_other_devices_have_none() -> None:
    with pytest.raises(DeviceError, match="EMU has no measured ceilings"):
        ceilings("EMU")
