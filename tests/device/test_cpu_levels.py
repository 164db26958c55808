"""CPU_TARGET: the instructions that each level of x86-64 may use, and that its values agree."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tilegrad.device import cpu
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
from tilegrad.optimize.generators.heuristic import heuristic
from tilegrad.optimize.opts.opts import start
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


# Programs whose shapes depend on masks and on their cost, beside NumPy: rows that come more than
# once, rows made of several loads, rows that vectors do not divide, padding, gradients of poolings.
_VALUES = """
import numpy as np
from tilegrad import Tensor
random = np.random.default_rng(0)

def drawn(*shape):
    return random.standard_normal(shape, np.float32)

def close(found, expected):
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-4)

for columns in (300, 916, 1024):
    x, y, rows = drawn(24, columns), drawn(222, columns), random.integers(0, 24, 222)
    expected = x.astype(np.float64)
    np.add.at(expected, rows, y)
    close(Tensor(x).index_add(0, Tensor(rows), Tensor(y)), expected)
for columns in (60, 55, 282):
    x = drawn(320, columns)
    close(Tensor(x).roll(7, 1).contiguous(), np.roll(x, 7, 1))
    close(Tensor(x).pad((5, 2)).contiguous(), np.pad(x, ((0, 0), (5, 2))))
for columns in (15, 50, 61, 2064):
    x = drawn(160, columns)
    wide = x.astype(np.float64)
    close(Tensor(x).square().sum(1), (wide**2).sum(1))
    normal = Tensor(x) / Tensor(x).square().sum(1, keepdim=True)
    close(normal, wide / (wide**2).sum(1, keepdims=True))
x = drawn(187, 57, 41)
close(Tensor(x).sum(1), x.astype(np.float64).sum(1))
x, w = drawn(2, 80, 32, 29), drawn(80, 1, 2, 2)
padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
windows = np.lib.stride_tricks.sliding_window_view(padded, (2, 2), axis=(2, 3))
expected = np.einsum("ncyxij,cij->ncyx", windows, w[:, 0])
close(Tensor(x).conv2d(Tensor(w), padding=1, groups=80), expected)
x, g = drawn(2, 24, 42, 42), drawn(2, 24, 14, 14)
image = Tensor(x)
(found,) = Tensor.gradient(image.max_pool2d(2, 3), image, gradient=Tensor(g))
expected = np.zeros_like(x)
for at in np.ndindex(g.shape):
    top, left = 3 * at[2], 3 * at[3]
    window = x[at[0], at[1], top : top + 2, left : left + 2]
    down, right = np.unravel_index(window.argmax(), (2, 2))
    expected[at[0], at[1], top + down, left + right] += g[at]
close(found, expected)
"""


@pytest.mark.parametrize("limit", ["sse", "avx2", "avx512"])
def test_values_are_the_same_with_and_without_masks(limit: str, tmp_path: Path) -> None:
    if cpu_target(limit).isa != limit:
        pytest.skip(f"this processor has no {limit}")
    given = {"TILEGRAD_CPU_TARGET": limit, "TILEGRAD_CACHE": str(tmp_path)}
    found = subprocess.run(
        [sys.executable, "-c", _VALUES], env={**os.environ, **given}, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr[-2000:]


def test_bytes_and_masks_take_what_the_maker_of_a_processor_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A store by VMASKMOV is many on AMD's processors, and their last cache is near."""
    found = {}
    for maker in ("AuthenticAMD", "GenuineIntel", ""):
        monkeypatch.setattr(cpu, "_vendor", lambda maker=maker: maker)
        found[maker] = {limit: cpu_target(limit) for limit in ("sse", "avx2", "avx512")}
    for limit, target in found["AuthenticAMD"].items():
        other = found["GenuineIntel"][limit]
        assert other == found[""][limit]
        assert target.timing.byte[2] < other.timing.byte[2]
        assert (target.timing.masked_store > 1) == (target.isa == "avx2")
        assert other.timing.masked_store == 1
