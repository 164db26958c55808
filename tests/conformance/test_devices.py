"""The cases of the conformance suite on the devices that this machine has beside the CPU: a part of
the sample in each run, in the nightly one all of them.
"""

from __future__ import annotations

import pytest

from tests.conformance.case import Case
from tests.conformance.cases import CASES, SAMPLE
from tests.conformance.devices import is_stopped_by_itself
from tests.device.helpers import LEAST, needs, with_least_adapter
from tests.device.ptx.device import driver_of, simulated
from tilegrad import Context, Device
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import CompileError, DeviceError, TilegradError

# In each run, these steps through the sample: PoCL takes a quarter of a second of a processor
# for a kernel.
STEPS = {"CLANG": 40, "CL": 24, "WEBGPU": 20}
AMD = [f"NULL:AMD:{arch}" for arch in ("gfx90a", "gfx942", "gfx1100", "gfx1201")]
# Under an emulator of another processor, or an engine.
ELSEWHERE = {"AARCH64": 96, "AARCH64:SVE": 101, "RISCV": 96, "WASM": 96}
CHUNKS = 64
# Of the sample's texts for a device: a chunk takes less than a minute.
TEXT_CHUNKS = 12
# NV's kernels on the interpreter of PTX, by step through the sample.
PTX_STEPS = {"NVSIM75": 80, "NVSIM80": 20, "NVSIM90": 80}
# What is compiled for hardware that is not here, run lane by lane in Python.
EMULATED = ("EMU:CL", "EMU:CUDA:SM_75", "EMU:HIP", "EMU:METAL", "EMU:WEBGPU")
EMULATED_STEP = 13


# Powers and erfc of float32 are computed in float64; where there is none they are less exact
# (docs/devices.md).
LOOSER = {"erfc-special-float32", "pow-special-float32"}


def check_all(device: str, cases: list[Case]) -> None:
    """All of them are tried; raises AssertionError with each that fails, and for one that is known
    to be less exact there and is not.
    """
    wrong = {}
    has_doubles = Device[device].target.supports(dtypes.float64)
    with Context(DEVICE=device):
        assert Device.DEFAULT == device
        for case in cases:
            try:
                case.check()
            except DeviceError as error:
                if not is_stopped_by_itself(device, error):
                    wrong[case.name] = str(error)
            except CompileError as error:
                # Metal and most adapters of WebGPU have no float64, and say so.
                if has_doubles or "no values of float64" not in error.headline:
                    wrong[case.name] = str(error)
            except Exception as error:  # all of them are reported
                wrong[case.name] = f"{type(error).__name__}: {error}"
    known = set() if has_doubles else LOOSER & {case.name for case in cases}
    text = "\n\n".join(f"{name}: {error}" for name, error in wrong.items())
    assert wrong.keys() == known, f"{len(wrong)} of {len(cases)} on {device}\n{text}"


@needs("CLANG")
@pytest.mark.row("P.5")
@pytest.mark.parametrize("case", SAMPLE[:: STEPS["CLANG"]], ids=lambda case: case.name)
def test_sample_through_c(case: Case) -> None:
    check_all("CLANG", [case])


@needs("CL")
@pytest.mark.row("P.5")
@pytest.mark.parametrize("case", SAMPLE[:: STEPS["CL"]], ids=lambda case: case.name)
def test_sample_on_opencl(case: Case) -> None:
    check_all("CL", [case])


@pytest.mark.parametrize("device", [pytest.param(name, marks=needs(name)) for name in ELSEWHERE])
def test_a_part_of_the_sample_on_other_processors(device: str) -> None:
    check_all(device, SAMPLE[:: ELSEWHERE[device]])


@pytest.mark.nightly
@pytest.mark.parametrize(
    "device", [pytest.param(name, marks=needs(name)) for name in (*ELSEWHERE, "RISCV:RVV256")]
)
def test_sample_on_other_processors(device: str) -> None:
    check_all(device, SAMPLE)


@needs("WEBGPU")
@pytest.mark.parametrize("case", SAMPLE[:: STEPS["WEBGPU"]], ids=lambda case: case.name)
def test_sample_on_webgpu(case: Case) -> None:
    check_all("WEBGPU", [case])


@needs("WEBGPU")
@pytest.mark.nightly
def test_sample_on_the_least_adapter_of_webgpu() -> None:
    """Without float16 and float64, with 8 buffers in a kernel."""
    with with_least_adapter():
        check_all(LEAST, SAMPLE)


@pytest.mark.row("P.5")
@pytest.mark.parametrize("device", EMULATED)
def test_a_part_of_the_sample_for_targets_that_are_not_here(device: str) -> None:
    check_all(device, SAMPLE[::EMULATED_STEP])


@pytest.mark.row("M9.10", "P.5", "P.6")
@pytest.mark.parametrize("device", PTX_STEPS)
def test_a_part_of_the_sample_as_ptx(device: str) -> None:
    """Each on the interpreter in tests/device/ptx, which reports what a GPU would not."""
    name = simulated(device)
    before = driver_of(name).names().count("cuLaunchKernel")
    check_all(name, SAMPLE[:: PTX_STEPS[device]])
    assert driver_of(name).names().count("cuLaunchKernel") > before


@pytest.mark.nightly
@pytest.mark.parametrize("device", PTX_STEPS)
def test_sample_as_ptx(device: str) -> None:
    check_all(simulated(device), SAMPLE)


@pytest.mark.nightly
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_small_cases_as_ptx(chunk: int) -> None:
    check_all(simulated("NVSIM80"), [case for case in CASES if case.small][chunk::CHUNKS])


@pytest.mark.nightly
@pytest.mark.parametrize("device", [*EMULATED, "EMU:AMD:GFX942"])
def test_sample_for_targets_that_are_not_here(device: str) -> None:
    check_all(device, SAMPLE)


@pytest.mark.nightly
@pytest.mark.parametrize("chunk", range(TEXT_CHUNKS))
@pytest.mark.parametrize(
    "device", ["NULL:CL", "NULL:CUDA", "NULL:HIP", "NULL:METAL", "NULL:NV", "NULL:WEBGPU", *AMD]
)
def test_sample_has_text_for_hardware_that_is_not_here(device: str, chunk: int) -> None:
    """Nothing runs, so values are zeros: what counts is that no kernel is refused."""
    refused = []
    has_doubles = Device[device].target.supports(dtypes.float64)
    with Context(DEVICE=device):
        for case in SAMPLE[chunk::TEXT_CHUNKS]:
            try:
                case.check()
            except TilegradError as error:
                if has_doubles or "no values of float64" not in str(error):
                    refused.append(f"{case.name}: {error}")
            except AssertionError:
                continue
    assert not refused, "\n\n".join(refused)


@pytest.mark.nightly
@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("device", [pytest.param(name, marks=needs(name)) for name in STEPS])
def test_all(device: str, chunk: int) -> None:
    check_all(device, CASES[chunk::CHUNKS])
