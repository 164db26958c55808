"""Products of bytes, integers and floats of 8 bits, on the matrix units of sm_90a and sm_100a that
read shared memory: what is chosen, its values on the emulator and on the interpreter of PTX, and
what NVIDIA's assembler makes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.device.ptx import wgmma
from tests.device.ptx.device import simulated
from tests.device.ptx.parse import PTXError
from tests.device.test_byte_products import drawn
from tests.device.test_ptx_products import NVDISASM, PTXAS, assembled_kernel, others_each
from tests.device.test_short_floats import BYTES, ast_of, bytes_of, units
from tests.optimize.kernels import good_program
from tilegrad import Tensor
from tilegrad.device.emulator import execute
from tilegrad.device.nv import nv_target
from tilegrad.tools.gpu_report import count

pytestmark = pytest.mark.usefixtures("uncached")

TARGETS = {arch: nv_target(arch) for arch in ("sm_90a", "sm_100a")}
TARGET = TARGETS["sm_90a"]
# The device that interprets, and how the names of units begin.
DEVICES = {"sm_90a": ("NVSIM90", "wgmma.m64"), "sm_100a": ("NVSIM100", "tcgen05.m128")}
# In each run one dtype of floats, which differ in a bit of a descriptor; at night both.
USUAL = ["fp8e4m3", pytest.param("fp8e5m2", marks=pytest.mark.nightly), "int8"]
Array = np.ndarray[Any, Any]
Product = Callable[[Tensor, Tensor], Tensor]


def wide(product: Product, dtype: str) -> Product:
    kind = "int32" if dtype == "int8" else "float32"
    return lambda a, b: product(a.cast(kind), b.cast(kind))


def values(dtype: str, *shape: int, seed: int = 0) -> Array:
    return (
        drawn(*shape, seed=seed)
        if dtype == "int8"
        else bytes_of(BYTES[dtype][1], *shape, seed=seed)
    )


def close(found: Array, left: Array, right: Array, dtype: str) -> None:
    """Integers are exact; sums of floats are within some last digits of float32."""
    a, b = left.astype(np.float64), right.astype(np.float64)
    if dtype == "int8":
        np.testing.assert_array_equal(found, a @ b)
    else:
        error = np.abs(found - a @ b)
        np.testing.assert_array_less(error, np.abs(a) @ np.abs(b) * 2.0**-20 + 1e-30)


CASES: dict[str, tuple[Product, tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "by rows": (lambda a, b: a @ b.T, ((128, 256), (128, 256))),
    "plain": (lambda a, b: a @ b, ((128, 256), (256, 64))),
    "left transposed": (lambda a, b: a.T @ b, ((256, 128), (256, 64))),
    "padded": (lambda a, b: a @ b.T, ((120, 510), (250, 510))),
    "batch": (lambda a, b: a @ b.transpose(1, 2), ((2, 128, 256), (2, 64, 256))),
}


@pytest.mark.row("M9.1")
@pytest.mark.parametrize("arch", TARGETS)
@pytest.mark.parametrize("dtype", USUAL)
def test_large_products_have_the_largest_unit(dtype: str, arch: str) -> None:
    shape, target = (4096, 1024), TARGETS[arch]
    ast = ast_of(wide(CASES["by rows"][0], dtype), shape, shape, dtype=dtype, target=target)
    # Of two blocks together, where units add in tensor memory.
    kind = DEVICES[arch][1].replace("m128", "m256")
    assert units(ast, target) == {f"{kind}n256k32.{dtype}"}


@pytest.mark.row("M9.1", "M9.5")
@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize("arch", TARGETS)
@pytest.mark.parametrize("dtype", USUAL)
@pytest.mark.parametrize(
    "name", ["by rows", "plain", *(pytest.param(n, marks=pytest.mark.nightly)
                                   for n in ("left transposed", "padded", "batch"))],
)  # fmt: skip
def test_values_on_the_interpreter(name: str, dtype: str, arch: str) -> None:
    (product, shapes), target = CASES[name], TARGETS[arch]
    ast = ast_of(wide(product, dtype), *shapes, dtype=dtype, target=target)
    (unit,) = units(ast, target)
    device, prefix = DEVICES[arch]
    assert unit.startswith(prefix) and unit.endswith(f"k32.{dtype}")
    sides = [values(dtype, *shape, seed=seed) for seed, shape in enumerate(shapes)]
    device = simulated(device)
    given = [Tensor(each.view(np.uint8), device=device).realize().bitcast(dtype) for each in sides]
    found = wide(product, dtype)(*(each.realize() for each in given)).numpy()
    left, right = sides
    if name == "left transposed":
        left = left.T
    if name != "plain" and name != "left transposed":
        right = np.swapaxes(right, -1, -2)
    close(found, left, right, dtype)


@pytest.mark.row("M9.5")
@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize("arch", TARGETS)
@pytest.mark.parametrize(
    "dtype", ["int8", "fp8e4m3", pytest.param("fp8e5m2", marks=pytest.mark.nightly)]
)
def test_values_on_the_emulator(dtype: str, arch: str) -> None:
    left, right, target = (128, 256), (64, 256), TARGETS[arch]
    ast = ast_of(wide(CASES["by rows"][0], dtype), left, right, dtype=dtype, target=target)
    assert units(ast, target) == {f"{DEVICES[arch][1]}n64k32.{dtype}"}
    a, b = values(dtype, *left), values(dtype, *right, seed=1)
    out = np.zeros((128, 64), np.int32 if dtype == "int8" else np.float32)
    given = [memoryview(each.view(np.uint8)).cast("B") for each in (out, a, b)]
    execute(good_program(ast, target), given)
    close(out, a, b.T, dtype)


@pytest.mark.row("M9.1")
@pytest.mark.skipif(not PTXAS or not NVDISASM, reason="pip install tilegrad[test]")
@pytest.mark.parametrize("arch", TARGETS)
@pytest.mark.parametrize("dtype", USUAL)
def test_the_assembler_has_an_instruction_of_its_own(dtype: str, arch: str, tmp_path: Path) -> None:
    shape, target = (4096, 1024), TARGETS[arch]
    ast = ast_of(wide(CASES["by rows"][0], dtype), shape, shape, dtype=dtype, target=target)
    made, _ = assembled_kernel(ast, target, tmp_path)
    name = "IGMMA" if dtype == "int8" else "QGMMA"
    # Four tiles, or one of twice as many rows.
    if arch == "sm_100a":
        assert made.loop[f"UTC{name[0]}MMA"] >= 8
    else:
        assert made.loop[name] >= 16
    assert made.spilled_bytes == 0 and made.registers <= 168
    assert others_each(made) <= (0.05 if arch == "sm_100a" else 0.5)


@pytest.mark.usefixtures("few_blocks")
def test_rows_of_bytes_are_copied_without_a_conflict() -> None:
    shape = (128, 512)
    ast = ast_of(wide(CASES["by rows"][0], "int8"), shape, shape, dtype="int8", target=TARGET)
    found = count(good_program(ast, TARGET), 1)
    assert found.conflicts == 0 and found.sector_use == 1.0


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("m64n64k16", ("f32", "e4m3", "e4m3")),
        ("m64n64k32", ("f32", "f16", "f16")),
        ("m64n64k32", ("f32", "s8", "s8")),
        ("m64n40k32", ("s32", "s8", "s8")),
    ],
)
def test_the_interpreter_knows_no_other_shapes(name: str, kinds: tuple[str, ...]) -> None:
    with pytest.raises(PTXError, match="no wgmma"):
        wgmma.shape_of(name, kinds)
