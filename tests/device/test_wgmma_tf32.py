"""Products of float32 with short fractions (the switch TF32) on the matrix units of sm_90a and
sm_100a that read shared memory: lanes round what they copy. What is chosen, values on the
interpreter of PTX, which refuses what is not rounded, and what NVIDIA's assembler makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.device.ptx import wgmma
from tests.device.ptx.device import simulated
from tests.device.ptx.parse import PTXError
from tests.device.test_ptx_products import NVDISASM, PTXAS, assembled_kernel, others_each
from tests.optimize.kernels import FLOAT, buffer, kernel, matmul, program
from tilegrad import Context, Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.device.emulator import execute
from tilegrad.device.nv import nv_target
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.render.ptx_warp_units import WarpUnits

pytestmark = pytest.mark.usefixtures("uncached")

TARGETS = {arch: nv_target(arch) for arch in ("sm_90a", "sm_100a")}
DEVICES = {"sm_90a": ("NVSIM90", "wgmma.m64"), "sm_100a": ("NVSIM100", "tcgen05.m128")}
nightly = pytest.mark.nightly
has_tools = pytest.mark.skipif(not PTXAS or not NVDISASM, reason="pip install tilegrad[test]")
Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def allowed() -> Iterator[None]:
    with Context(TF32=1):
        yield


def product(m: int, n: int, k: int, arch: str) -> UOp:
    left, right = buffer(0, m, k, dtype=FLOAT), buffer(1, k, n, dtype=FLOAT)
    return kernel(matmul(left, right), target=TARGETS[arch])


def names(found: list[UOp]) -> set[str]:
    return {node.arg.name for node in found if node.op is Ops.WMMA}


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def rounded(x: Array) -> Array:
    """To 10 binary digits behind the point, ties away from zero; in float64."""
    fraction, power = np.frexp(x.astype(np.float64))
    scaled = fraction * 2.0**11
    return np.ldexp(np.trunc(scaled + np.copysign(0.5, scaled)) / 2.0**11, power)


@pytest.mark.row("M9.1")
@pytest.mark.parametrize("arch", TARGETS)
def test_large_products_have_the_largest_unit(arch: str) -> None:
    ast = product(4096, 4096, 1024, arch)
    found = program(ast, None, TARGETS[arch])
    assert names(found) == {f"{DEVICES[arch][1]}n256k8.tf32"}
    # Lanes copy, as nobody else rounds.
    assert not {Ops.COPY_TILE, Ops.COPY_ASYNC} & {node.op for node in found}
    with Context(TF32=0):
        assert names(program(ast, None, TARGETS[arch])) == set()


CASES: dict[str, tuple[Callable[[Any, Any], Any], tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "plain": (lambda a, b: a @ b, ((128, 96), (96, 128))),
    "both transposed": (lambda a, b: a.T @ b.T, ((64, 128), (128, 64))),
    "padded": (lambda a, b: a @ b, ((125, 130), (130, 120))),
    "computed": (lambda a, b: (a * a) @ b, ((128, 64), (64, 128))),
}


@pytest.mark.row("M9.1", "M9.5")
@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize(
    "name", [name if name == "plain" else pytest.param(name, marks=nightly) for name in CASES]
)
@pytest.mark.parametrize("arch", TARGETS)
def test_the_interpreter_multiplies(arch: str, name: str) -> None:
    value, shapes = CASES[name]
    a, b = (drawn(*shape, seed=seed) for seed, shape in enumerate(shapes))
    device = simulated(DEVICES[arch][0])
    found = value(*(Tensor(each, device=device).realize() for each in (a, b))).numpy()
    if name == "computed":
        a, value = a * a, CASES["plain"][0]
    left, right = rounded(a), rounded(b)
    error = np.abs(found - value(left, right))
    np.testing.assert_array_less(error, value(np.abs(left), np.abs(right)) * 2.0**-20 + 1e-30)


@pytest.mark.row("M9.5")
@pytest.mark.usefixtures("few_blocks")
def test_the_emulator_multiplies() -> None:
    a, b, out = drawn(64, 64), drawn(64, 64, seed=1), np.zeros((64, 64), np.float32)
    found = program(product(64, 64, 64, "sm_90a"), None, TARGETS["sm_90a"])
    assert names(found) == {"wgmma.m64n64k8.tf32"}
    execute(found, [memoryview(out).cast("B"), *(bytearray(each.tobytes()) for each in (a, b))])
    np.testing.assert_allclose(out, rounded(a) @ rounded(b), atol=1e-4)


@pytest.mark.usefixtures("few_blocks")
def test_the_interpreter_refuses_what_is_not_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WarpUnits, "as_tf32", lambda self, name: name)
    a, b = (Tensor(drawn(64, 160), device=simulated("NVSIM90")).realize() for _ in range(2))
    with pytest.raises(PTXError, match="floats are not rounded"):
        (a @ b.T).numpy()


@pytest.mark.parametrize("n", [64, 128, 256])
def test_results_lie_where_the_instruction_puts_them(n: int) -> None:
    (unit,) = [u for u in TARGETS["sm_90a"].matrix_units if u.name == f"wgmma.m64n{n}k8.tf32"]
    assert unit.digits == 10 and unit.dtype_in is dtypes.float32
    rows, columns = wgmma.shape_of(f"m64n{n}k8", ("f32", "tf32", "tf32")).fragment()
    found = np.array(unit.c_layout)
    np.testing.assert_array_equal(found[..., 0], rows)
    np.testing.assert_array_equal(found[..., 1], columns)


@has_tools
@pytest.mark.row("S1.5", "M9.1")
@pytest.mark.parametrize("arch", ["sm_90a", pytest.param("sm_100a", marks=nightly)])
def test_units_are_not_held_up_by_rounding(arch: str, tmp_path: Path) -> None:
    made, _ = assembled_kernel(product(4096, 4096, 1024, arch), TARGETS[arch], tmp_path)
    assert made.spilled_bytes == 0 and others_each(made) <= 1.8
