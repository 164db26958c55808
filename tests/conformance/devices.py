"""The part of docs/conformance.md that says which ops run on which devices: the cases of the sample
on each that is here.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache

from tests.conformance.case import Case
from tests.device.amd_on_cpu import amd_on_cpu, can_compile
from tests.device.ptx.device import simulated
from tests.device.shim.device import SHIMS, shimmed
from tilegrad import Context, Device
from tilegrad.base.errors import CompileError, DeviceError

__all__ = [
    "EVIDENCE",
    "Agreed",
    "device_rows",
    "is_stopped_by_itself",
    "measure_devices",
    "read_devices",
]

EVIDENCE = {
    "EMU": "emulator: blocks and lanes in Python, for the target of a GPU",
    "CLANG": "hardware: this processor, through C and its compiler",
    "CL": "real implementation: an OpenCL driver, without a GPU PoCL on this processor",
    "AARCH64": "emulator of the processor: QEMU, for NEON",
    "AARCH64:SVE": "emulator of the processor: QEMU, for SVE of 256 bits",
    "RISCV": "emulator of the processor: QEMU, for vectors of 128 bits",
    "WASM": "real implementation: the engine of node",
    "NV": "interpreter: PTX for sm_80, run by the tests' own reading of NVIDIA's manual",
    "WEBGPU": "real implementation: wgpu, without a GPU on Mesa's lavapipe on this processor",
    "CUDA": "its text for sm_80, as C++ on this processor: lanes, barriers and matrix units by the "
    "tests' own headers",
    "METAL": "its text, as C++ on this processor: as CUDA; what needs float64 is left out",
    "HIP": "its text for gfx942, as C++ on this processor: as CUDA",
    "AMD": "its LLVM text for gfx1100 on this processor, lane by lane, without matrix units; what "
    "LLVM cannot compile for this processor is left out",
}
# What stands for hardware that is not here.
_STAND_IN = {"NV": "NVSIM80"}
_TITLE = "## Devices"
# Powers and erfc of float32 are computed in float64; where there is none they are less exact
# (docs/devices.md).
LOOSER = {"erfc-special-float32", "pow-special-float32"}

Agreed = Mapping[str, Mapping[str, tuple[int, int]]]
"""Device -> op -> how many cases agree, and how many ran."""


@cache
def is_old_emulator() -> bool:
    """QEMU 7 stops at some vectors of floats that become integers: an assertion of its own,
    `decode_save_opc`, fails. QEMU 10 runs them all.
    """
    path = shutil.which("qemu-riscv64")
    assert path is not None
    text = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"version (\d+)", text)
    return found is not None and int(found[1]) < 8


def is_stopped_by_itself(device: str, error: DeviceError) -> bool:
    ended = re.search("the emulator ended by SIG(SEGV|ABRT)", error.headline)
    return device.startswith("RISCV") and ended is not None and is_old_emulator()


def measure_devices(
    cases: Iterable[Case], failed: list[str], devices: Iterable[str] = EVIDENCE
) -> Agreed:
    """Run the cases on each of `devices` that can be used here; what fails is added to `failed`."""
    found: dict[str, dict[str, tuple[int, int]]] = {}
    known = list(cases)
    for device in devices:
        if device == "AMD":
            why, remedy = "" if platform.machine() in ("x86_64", "AMD64") else "no loader", "x86-64"
        elif device in SHIMS:
            why, remedy = (
                "" if SHIMS[device].is_here else "no compiler for its text",
                "g++ or clang",
            )
        elif device in _STAND_IN:
            why, remedy = "", ""
        else:
            why, remedy = Device.refusal(device)
        if why:
            print(f"{device} is left out: {why}; {remedy}")
            continue
        ops = found.setdefault(device, {})
        with _default(device):
            for case in known:
                if device == "AMD" and not can_compile(case):
                    continue
                agreed, ran = ops.get(case.op, (0, 0))
                try:
                    case.check()
                    agreed += 1
                except Exception as error:  # all of them are reported
                    if _is_no_failure(device, case, error):
                        continue
                    failed.append(f"{device}: {case.name}: {error}")
                ops[case.op] = (agreed, ran + 1)
    return found


@contextmanager
def _default(device: str) -> Iterator[None]:
    """The device, or what stands for it, is the default."""
    if device in SHIMS:
        with shimmed(device):
            yield
    elif device == "AMD":
        with amd_on_cpu() as name, Context(DEVICE=name):
            yield
    else:
        name = simulated(_STAND_IN[device]) if device in _STAND_IN else device
        with Context(DEVICE=name):
            yield


def _is_no_failure(device: str, case: Case, error: Exception) -> bool:
    """Whether an emulator stopped, or a device without float64 said so."""
    if isinstance(error, DeviceError) and is_stopped_by_itself(device, error):
        return True
    is_refused = isinstance(error, CompileError) and "no values of float64" in error.headline
    return device == "METAL" and (is_refused or case.name in LOOSER)


def device_rows(found: Agreed) -> Iterator[str]:
    """The section, empty where no device was measured."""
    if not found:
        return
    yield f"\n{_TITLE}\n"
    yield "The cases of the sample that agree with the exact result, of those that ran; the tables"
    yield "above are of the device `CPU`, which is hardware.\n"
    yield "| device | kind of evidence | cases that agree |"
    yield "|---|---|---|"
    for device, ops in found.items():
        yield f"| {device} | {EVIDENCE[device]} | {_of(ops.values())} |"
    yield f"\n| op | {' | '.join(found)} |"
    yield "|---" * (len(found) + 1) + "|"
    for op in dict.fromkeys(op for ops in found.values() for op in ops):
        cells = [_of([ops[op]]) if op in ops else "" for ops in found.values()]
        yield f"| `{op}` | {' | '.join(cells)} |"


def _of(counts: Iterable[tuple[int, int]]) -> str:
    pairs = list(counts)
    agreed, ran = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
    return f"{ran}" if agreed == ran else f"{agreed} of {ran}"


def read_devices(page: str) -> Agreed:
    """What was measured, of a page that has the section."""
    text = page.partition(f"\n{_TITLE}\n")[2].partition("\n## ")[0]
    found: dict[str, dict[str, tuple[int, int]]] = {}
    heads: list[str] = []
    for line in text.splitlines():
        cells = [part.strip().strip("`") for part in line.split("|")[1:-1]]
        if line.startswith("| op |"):
            heads = cells[1:]
        elif line.startswith("| `"):
            for device, cell in zip(heads, cells[1:]):
                if cell:
                    agreed, _, ran = cell.partition(" of ")
                    found.setdefault(device, {})[cells[0]] = (int(agreed), int(ran or agreed))
    return found
