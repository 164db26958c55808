"""CPU_TARGET: the instructions that each level of x86-64 may use, and that its values agree."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tilegrad.device.cpu import cpu_target, processor_flags

pytestmark = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="levels of x86-64"
)

# Prints the assembly of the kernels of a product and a softmax, and checks them on the emulator.
PROGRAM = """
import numpy as np
from tilegrad import Context, Device, Tensor
from tilegrad.engine.plans.plans import normalise
from tilegrad.engine.program.stages import to_program
from tilegrad.ir.uop import UOp
from tilegrad.optimize.heuristic import heuristic
from tilegrad.optimize.opts import start
from tilegrad.schedule.schedule import make_schedule

random = np.random.default_rng(3)
a, b = (random.standard_normal(shape, np.float32) for shape in ((37, 19), (19, 53)))

def compute():
    x, y = Tensor(a).realize(), Tensor(b).realize()
    return x @ y, (x @ y).softmax(1), (x * 3).exp().sum(0), x.cast("int32") * 2

backend = Device["CPU"]
graph = normalise(UOp.sink(*(each.uop for each in compute()))).numbered()
for item in make_schedule(graph, {"CPU": backend.target}, "CPU", plain=False).items:
    opts = heuristic(start(item.ast, backend.target), backend.target)
    _, program = to_program(item.ast, backend.target, opts)
    print(backend.assembly(backend.render("kernel", program)))
found = [each.numpy() for each in compute()]
with Context(DEVICE="EMU"):
    expected = [each.numpy() for each in compute()]
for value, other in zip(found, expected, strict=True):
    np.testing.assert_allclose(value, other, rtol=2e-5, atol=1e-5)
"""


def listing(limit: str, path: Path) -> str:
    environment = {"TILEGRAD_CPU_TARGET": limit, "TILEGRAD_CACHE": str(path)}
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-2000:]
    return found.stdout


def test_sse_is_four_lanes_without_masks_and_fused_sums(tmp_path: Path) -> None:
    if "sse4_2" not in processor_flags():
        pytest.skip("this processor has no SSE4.2")
    text = listing("sse", tmp_path)
    assert re.search(r"\bmulps\b", text)
    assert re.search(r"\baddps\b", text)
    # Instructions with three operands came with AVX, wider registers with it.
    assert not re.search(r"\bv(mul|add|mov|fm)|[yz]mm\d", text)


def test_avx2_is_eight_lanes_with_fused_sums(tmp_path: Path) -> None:
    if cpu_target("avx2").isa != "avx2":
        pytest.skip("this processor has no AVX2")
    text = listing("avx2", tmp_path)
    assert re.search(r"\bvfn?m(add|sub)\w+ps\b.*ymm", text)
    assert "zmm" not in text


def test_each_level_is_no_more_than_the_one_above() -> None:
    targets = [cpu_target(limit) for limit in ("scalar", "sse", "avx2", "avx512")]
    assert [target.vector_bytes for target in targets] == sorted(
        target.vector_bytes for target in targets
    )
    scalar, sse = targets[:2]
    assert (scalar.isa, sse.isa, sse.vector_bytes, sse.registers) == ("scalar", "sse", 16, 16)
    assert not (sse.has_fma or sse.has_mask or sse.has_scatter or sse.has_scale)
    assert not sse.matrix_units
