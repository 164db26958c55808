"""Every op, with every dtype it is defined for, on arguments of many shapes and layouts."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.case import Case
from tests.conformance.cases import CASES, SAMPLE
from tilegrad import Context, Device
from tilegrad.device.cpu import cpu_target

ROOT = Path(__file__).parents[2]


def test_how_many_there_are() -> None:
    """Names are unique, so that a failure names one case; every op has a small one."""
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert len({(case.op, case.pattern) for case in CASES}) >= 150
    assert len({(case.op, case.pattern) for case in CASES if case.often}) >= 150


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=() if case.often else pytest.mark.nightly)
        for case in CASES
    ],
)
def test_op(case: Case) -> None:
    case.check()


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in SAMPLE])
def test_op_on_the_emulator(case: Case) -> None:
    with Context(DEVICE="EMU"):
        assert Device.DEFAULT == "EMU"
        case.check()


@pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="needs an x86-64 processor"
)
@pytest.mark.parametrize("step", [8, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("limit", ["scalar", "sse", "avx2"])
def test_sample_with_narrower_vectors(limit: str, step: int) -> None:
    """The switch holds for a whole process, which opens the processor once."""
    if limit == "avx2" and cpu_target("avx2").isa != "avx2":
        pytest.skip("this processor has no AVX2")
    assert cpu_target(limit).isa == limit
    found = subprocess.run(
        [sys.executable, "-m", "tests.conformance.cases", str(step)],
        cwd=ROOT,
        env={**os.environ, "TILEGRAD_CPU_TARGET": limit},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert found.returncode == 0, found.stdout[-4000:] + found.stderr[-4000:]
    count = str(len(SAMPLE[::step]))
    assert found.stdout.split()[-4:] == [count, "of", count, "agree"]
