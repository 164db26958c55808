"""Kernels in OpenCL C under Oclgrind, which simulates a device and reports races between lanes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.device.helpers import needs

OCLGRIND = shutil.which("oclgrind")
nightly = pytest.mark.nightly
pytestmark = [
    needs("CL"),
    pytest.mark.skipif(OCLGRIND is None, reason="apt-get install oclgrind"),
]

SCRIPT = """
import numpy as np
from tilegrad import Device, Tensor
from tilegrad.device import opencl

# It says that it is a processor; races are those of blocks.
opencl.opened.__kwdefaults__["has_blocks"] = True
assert "Oclgrind" in Device["CL"].hardware, Device["CL"].hardware
random = np.random.default_rng(0)

def check(name, found, wanted):
    error = np.abs(found.numpy() - wanted).max()
    assert error < 1e-4 * max(1, np.abs(wanted).max()), (name, error)

"""
CASES = {
    # A product with tiles in shared memory, a row for each block, sums in two stages.
    "product": """
a = random.standard_normal((64, 64)).astype("f")
check("product", Tensor(a) @ Tensor(a), a.astype("d") @ a)
""",
    "rows": """
a = random.standard_normal((4, 3000)).astype("f")
powers = np.exp(a.astype("d"))
check("softmax", Tensor(a).softmax(1), powers / powers.sum(1, keepdims=True))
check("sum", Tensor(a).sum(), a.astype("d").sum())
check("cumsum", Tensor(a).cumsum(1), a.astype("d").cumsum(1))
""",
    # Rows that meet are added by atomics.
    "rows that meet": """
rows, values = random.integers(0, 5, 40), random.standard_normal((40, 8)).astype("f")
wanted = np.zeros((5, 8))
np.add.at(wanted, rows, values)
check("add", Tensor.zeros(5, 8).index_add(0, Tensor(rows), Tensor(values)), wanted)
""",
    "convolution": """
image, filters = random.standard_normal((2, 8, 12, 12)), random.standard_normal((16, 8, 3, 3))
wanted = np.zeros((2, 16, 10, 10))
for y in range(3):
    for x in range(3):
        part = image[:, :, y : y + 10, x : x + 10]
        wanted += np.einsum("bcyx,oc->boyx", part, filters[:, :, y, x])
check("convolution", Tensor(image.astype("f")).conv2d(Tensor(filters.astype("f"))), wanted)
""",
}
WITHOUT_BARRIERS = """
from dataclasses import replace
from tilegrad.render.opencl import OpenCLRenderer
OpenCLRenderer.dialect = replace(OpenCLRenderer.dialect, barrier=";")
"""


def simulated(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What Python prints that runs on the simulated device."""
    assert OCLGRIND is not None
    return subprocess.run(
        [OCLGRIND, "--data-races", sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TILEGRAD_DEVICE": "CL", "DISABLE_COMPILER_CACHE": "1"},
        check=False,
        timeout=1800,
    )


@pytest.mark.parametrize(
    "name",
    [
        "product",
        pytest.param("rows", marks=nightly),
        pytest.param("rows that meet", marks=nightly),
        pytest.param("convolution", marks=nightly),
    ],
)
def test_no_race_is_found_and_values_are_those_of_numpy(name: str) -> None:
    done = simulated("-c", SCRIPT + CASES[name])
    assert done.returncode == 0, done.stderr
    assert "data race" not in done.stdout + done.stderr


@nightly
def test_the_conformance_sample_has_no_race_and_stays_within_its_memory() -> None:
    """Of all that it simulates: draws have an instruction that it lacks."""
    done = simulated("-m", "tests.conformance.cases")
    found = done.stdout + done.stderr
    assert "data race" not in found and "Invalid" not in found
    counts = re.search(r"^(\d+) of (\d+) agree$", done.stdout, re.MULTILINE)
    assert counts is not None and int(counts[1]) >= 0.95 * int(counts[2]), counts


def test_a_race_would_be_found() -> None:
    """The same product without its barriers."""
    done = simulated("-c", WITHOUT_BARRIERS + SCRIPT + CASES["product"])
    assert "data race at local memory" in done.stdout + done.stderr
