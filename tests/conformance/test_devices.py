"""The cases of the conformance suite on the devices that this machine has beside the CPU: a part of
the sample in each run, in the nightly one all of them.
"""

from __future__ import annotations

import pytest

from tests.conformance.case import Case
from tests.conformance.cases import CASES, SAMPLE
from tests.device.helpers import needs
from tilegrad import Context, Device

# In each run, these steps through the sample: PoCL takes a quarter of a second of a processor
# for a kernel.
STEPS = {"CLANG": 40, "CL": 24}
CHUNKS = 64


def check_all(device: str, cases: list[Case]) -> None:
    """All of them are tried; raises AssertionError with each that fails."""
    wrong = []
    with Context(DEVICE=device):
        assert Device.DEFAULT == device
        for case in cases:
            try:
                case.check()
            except Exception as error:  # all of them are reported
                wrong.append(f"{case.name}: {type(error).__name__}: {error}")
    assert not wrong, f"{len(wrong)} of {len(cases)} on {device}\n" + "\n\n".join(wrong)


@needs("CLANG")
@pytest.mark.parametrize("case", SAMPLE[:: STEPS["CLANG"]], ids=lambda case: case.name)
def test_sample_through_c(case: Case) -> None:
    check_all("CLANG", [case])


@needs("CL")
@pytest.mark.parametrize("case", SAMPLE[:: STEPS["CL"]], ids=lambda case: case.name)
def test_sample_on_opencl(case: Case) -> None:
    check_all("CL", [case])


@pytest.mark.nightly
@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("device", [pytest.param(name, marks=needs(name)) for name in STEPS])
def test_all(device: str, chunk: int) -> None:
    check_all(device, CASES[chunk::CHUNKS])
