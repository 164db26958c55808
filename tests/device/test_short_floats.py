"""Products on NVIDIA's matrix units whose factors have short fractions: float32 with 10 binary
digits (tf32), where the switch allows it, and floats of 8 bits from sm_89 on. Where they are
chosen, and their values, on the emulator and on the interpreter of PTX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.device.ptx.device import simulated
from tests.device.ptx.driver import FakeDriver
from tests.device.test_ptx_products import (
    NVDISASM,
    PTXAS,
    assembled_kernel,
    others_each,
)  # fmt: skip
from tests.optimize.kernels import good_program
from tests.schedule.plans import plan
from tilegrad import Context, Tensor
from tilegrad import torch as like_torch
from tilegrad.device.emulator import execute
from tilegrad.device.nv import nv_target, opened
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.lower.lower import lower
from tilegrad.render.ptx import PTXRenderer
from tilegrad.target import Target
from tilegrad.tools.gpu_report import count
from tilegrad.tools.gpu_time import predicted

AMPERE, ADA = nv_target("sm_80"), nv_target("sm_89")
TF32 = "mma.m16n8k8.tf32.float32"
BYTES = {
    "fp8e4m3": ("mma.m16n8k32.fp8e4m3.float32", ml_dtypes.float8_e4m3fn),
    "fp8e5m2": ("mma.m16n8k32.fp8e5m2.float32", ml_dtypes.float8_e5m2),
}
Array = np.ndarray[Any, Any]
Product = Callable[[Tensor, Tensor], Tensor]


@pytest.fixture
def allowed() -> Iterator[None]:
    with Context(TF32=1, SIZES=0):
        yield


def rounded(values: Array) -> Array:
    """float32 with 10 digits behind the point, in float64: the nearest, ties away from zero."""
    fraction, exponent = np.frexp(values.astype(np.float64))
    size = np.ldexp(np.floor(np.ldexp(np.abs(fraction), 11) + 0.5), exponent - 11)
    return np.copysign(size, values)


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ast_of(product: Product, *shapes: tuple[int, ...], dtype: str, target: Target) -> UOp:
    sides = [Tensor.empty(*shape, dtype=dtype) for shape in shapes]
    found = plan(product(*sides), target=target).items[-1].ast
    assert found is not None
    return found


def units(ast: UOp, target: Target) -> set[str]:
    return {node.arg.name for node in good_program(ast, target) if node.op is Ops.WMMA}


# Products: the expression, the shapes of its operands, and the expression in NumPy.
VALUES: dict[str, tuple[Product, tuple[tuple[int, ...], tuple[int, ...]], Callable[..., Any]]] = {
    "plain": (lambda a, b: a @ b, ((64, 64), (64, 64)), lambda a, b: a @ b),
    "weights by rows": (lambda a, b: a @ b.T, ((64, 64), (64, 64)), lambda a, b: a @ b.T),
    "left transposed": (lambda a, b: a.T @ b, ((64, 64), (64, 32)), lambda a, b: a.T @ b),
    "batch": (lambda a, b: a @ b, ((2, 32, 64), (2, 64, 32)), lambda a, b: a @ b),
    "padded": (lambda a, b: a @ b.T, ((60, 120), (62, 120)), lambda a, b: a @ b.T),
    "epilogue": (
        lambda a, b: (a @ b.T * 0.5 + 1).relu(),
        ((32, 64), (32, 64)),
        lambda a, b: np.maximum((a @ b.T) * 0.5 + 1, 0),
    ),
}  # fmt: skip
USUAL = ("plain", "weights by rows", "padded")
CASES = [
    name if name in USUAL else pytest.param(name, marks=pytest.mark.nightly) for name in VALUES
]


# float32 with short fractions


@pytest.mark.row("M9.1", "M9.5")
@pytest.mark.usefixtures("allowed")
@pytest.mark.parametrize("name", CASES)
def test_factors_are_rounded_and_sums_are_not(name: str) -> None:
    product, shapes, wanted = VALUES[name]
    assert units(ast_of(product, *shapes, dtype="float32", target=AMPERE), AMPERE) == {TF32}
    sides = [drawn(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    device = simulated("NVSIM80")
    found = product(*(Tensor(each, device=device).realize() for each in sides)).numpy()
    exact = wanted(*map(rounded, sides))
    # The largest sum of sizes, by the last digit of float32.
    size = np.abs(rounded(sides[0])).max() * np.abs(rounded(sides[1])).max() * shapes[0][-1]
    np.testing.assert_allclose(found, exact, rtol=0, atol=size * 2.0**-22)
    # Other than what float32 gives.
    assert np.abs(found - wanted(*(each.astype(np.float64) for each in sides))).max() > 1e-4


@pytest.mark.row("M9.5")
@pytest.mark.usefixtures("allowed")
@pytest.mark.parametrize("shape", [(32, 64), pytest.param((32, 512), marks=pytest.mark.nightly)])
def test_the_emulator_rounds_as_the_unit_does(shape: tuple[int, int]) -> None:
    ast = ast_of(lambda a, b: a @ b.T, shape, shape, dtype="float32", target=AMPERE)
    a, b = drawn(*shape), drawn(*shape, seed=1)
    out = np.zeros((shape[0], shape[0]), np.float32)
    execute(good_program(ast, AMPERE), [memoryview(each).cast("B") for each in (out, a, b)])
    np.testing.assert_allclose(out, rounded(a) @ rounded(b).T, rtol=0, atol=1e-4)


@pytest.mark.usefixtures("allowed")
def test_ties_and_what_is_no_number() -> None:
    """One term of each sum alone is not zero, so that the product is the rounded factor."""
    tie, past, below = 1 + 2.0**-11, 1 + 2.0**-11 + 2.0**-23, 1 + 2.0**-11 - 2.0**-23
    values = [tie, -tie, past, below, 3.0e38, -1e-30, 2 - 2.0**-12, np.inf, -np.inf, np.nan]
    left = np.zeros((32, 32), np.float32)
    left[np.arange(len(values)), np.arange(len(values))] = values
    one = np.eye(32, dtype=np.float32)
    device = simulated("NVSIM80")
    found = (Tensor(left, device=device) @ Tensor(one, device=device)).numpy()
    step = 2.0**-10
    expected = [1 + step, -1 - step, 1 + step, 1, float(rounded(np.float32([3e38]))[0])]
    expected += [float(rounded(np.float32([-1e-30]))[0]), 2.0]
    np.testing.assert_array_equal(np.diag(found)[:7], np.float32(expected))
    np.testing.assert_array_equal(np.diag(found)[7:10], [np.inf, -np.inf, np.nan])


def test_without_the_switch_nothing_is_rounded() -> None:
    product, shapes, _ = VALUES["plain"]
    with Context(TF32=0):
        assert not units(ast_of(product, *shapes, dtype="float32", target=AMPERE), AMPERE)
    with Context(TF32=1):
        turing = nv_target("sm_75")
        assert not units(ast_of(product, *shapes, dtype="float32", target=turing), turing)
        doubles = ast_of(product, *shapes, dtype="float64", target=AMPERE)
        assert not units(doubles, AMPERE)


def test_pytorchs_names_set_the_switch() -> None:
    product, shapes, _ = VALUES["plain"]
    products = like_torch.backends.cuda.matmul

    def found() -> set[str]:
        return units(ast_of(product, *shapes, dtype="float32", target=AMPERE), AMPERE)

    with Context(TF32=0):
        assert like_torch.get_float32_matmul_precision() == "highest"
        for name in ("high", "medium"):
            like_torch.set_float32_matmul_precision(name)
            assert like_torch.get_float32_matmul_precision() == name
            assert products.allow_tf32 and products.fp32_precision == "tf32"
            assert found() == {TF32}
        with pytest.warns(UserWarning, match="none of highest"):
            like_torch.set_float32_matmul_precision("low")
        assert like_torch.get_float32_matmul_precision() == "medium"
        products.allow_tf32 = False
        assert like_torch.get_float32_matmul_precision() == "highest" and not found()
        products.allow_tf32 = True
        assert like_torch.get_float32_matmul_precision() == "medium" and found() == {TF32}


@pytest.mark.usefixtures("allowed")
def test_gradients_of_products_are_such_products() -> None:
    a = Tensor.empty(64, 64).requires_grad_()
    (a @ Tensor.empty(64, 64)).backward(Tensor.empty(64, 64))
    (item,) = plan(a.grad, target=AMPERE).items
    assert item.ast is not None and units(item.ast, AMPERE) == {TF32}


@pytest.mark.row("M9.1")
@pytest.mark.usefixtures("allowed")
@pytest.mark.skipif(not PTXAS or not NVDISASM, reason="pip install tilegrad[test]")
@pytest.mark.parametrize("arch", ["sm_80", pytest.param("sm_90a", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", ["plain", "weights by rows"])
def test_rounding_leaves_the_units_busy(name: str, arch: str, tmp_path: Path) -> None:
    """A unit of the A100 takes 8 cycles for 16x8x8, half of 16x8x16, and a warp's instructions that
    start in them are 8.
    """
    target = nv_target(arch)
    ast = ast_of(VALUES[name][0], (4096, 1024), (1024, 4096)[:: 1 if name == "plain" else -1],
                 dtype="float32", target=target)  # fmt: skip
    made, _ = assembled_kernel(ast, target, tmp_path)
    assert made.spilled_bytes == 0 and made.registers <= 200
    assert others_each(made) <= 7


@pytest.mark.usefixtures("allowed")
@pytest.mark.parametrize("name", ["plain", "weights by rows"])
def test_lanes_that_read_an_operand_meet_in_no_bank(name: str) -> None:
    ast = ast_of(VALUES[name][0], (256, 128), (128, 256)[:: 1 if name == "plain" else -1],
                 dtype="float32", target=AMPERE)  # fmt: skip
    found = count(good_program(ast, AMPERE), 1)
    assert found.conflicts == 0 and found.sector_use == 1.0


def test_units_take_twice_the_time_of_halves_and_bytes_half() -> None:
    """As NVIDIA's papers have it: 156, 312 and 624 for the A100."""

    def limit(dtype: str, target: Target) -> float:
        ast = ast_of(lambda a, b: a.float() @ b.float().T, (256, 128), (256, 128), dtype=dtype,
                     target=target)  # fmt: skip
        return predicted(count(good_program(ast, target), 1), "sm_80").limits["matrix"]

    with Context(TF32=1):
        halves = limit("float16", AMPERE)
        assert limit("float32", AMPERE) == pytest.approx(2 * halves)
        assert limit("fp8e4m3", ADA) == pytest.approx(halves / 2)


# floats of 8 bits


def bytes_of(kind: Any, *shape: int, seed: int = 0) -> Array:
    """Any bits but those of what is no number."""
    bits = np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)
    found = bits.view(kind)
    return np.where(np.isfinite(found.astype(np.float32)), found, kind(0.5))


def wide(product: Product) -> Product:
    return lambda a, b: product(a.float(), b.float())


@pytest.mark.row("M9.1", "M9.5")
@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("name", CASES)
def test_products_of_bytes_of_floats(name: str, dtype: str) -> None:
    product, shapes, wanted = VALUES[name]
    unit, kind = BYTES[dtype]
    ast = ast_of(wide(product), *shapes, dtype=dtype, target=ADA)
    assert units(ast, ADA) == {unit}
    sides = [bytes_of(kind, *shape, seed=seed) for seed, shape in enumerate(shapes)]
    device = simulated("NVSIM89")
    with Context(SIZES=0):
        given = [
            Tensor(each.view(np.uint8), device=device).realize().bitcast(dtype) for each in sides
        ]
        found = wide(product)(*(each.realize() for each in given)).numpy()
    left, right = (each.astype(np.float64) for each in sides)
    size = wanted(np.abs(left), np.abs(right))
    np.testing.assert_array_less(
        np.abs(found - wanted(left, right)), np.maximum(size * 2.0**-20, 1e-30)
    )


@pytest.mark.row("M9.5")
@pytest.mark.parametrize("dtype", BYTES)
def test_the_emulator_multiplies_bytes_of_floats(dtype: str) -> None:
    """With all bits, those of NaN among them, each in a row of its own."""
    kind = BYTES[dtype][1]
    ast = ast_of(lambda a, b: a.float() @ b.float().T, (32, 64), (32, 64), dtype=dtype, target=ADA)
    a, b = bytes_of(kind, 32, 64), bytes_of(kind, 32, 64, seed=1)
    a[3, 5] = kind(np.nan)
    out = np.zeros((32, 32), np.float32)
    execute(
        good_program(ast, ADA), [memoryview(each.view(np.uint8)).cast("B") for each in (out, a, b)]
    )
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.isnan(out[3]).all() and not np.isnan(np.delete(out, 3, 0)).any()
    size = np.abs(np.delete(a, 3, 0).astype(np.float64)) @ np.abs(b.astype(np.float64)).T
    np.testing.assert_array_less(np.abs(np.delete(out - exact, 3, 0)), size * 2.0**-20)


def test_a_product_in_the_dtype_of_its_factors_is_rounded_once() -> None:
    dtype, kind = "fp8e4m3", BYTES["fp8e4m3"][1]
    a, b = (
        (np.random.default_rng(seed).integers(-2, 3, (32, 32)) / 4).astype(kind) for seed in (0, 1)
    )
    device = simulated("NVSIM89")
    with Context(SIZES=0):
        x, y = (
            Tensor(each.view(np.uint8), device=device).realize().bitcast(dtype).realize()
            for each in (a, b)
        )
        found = (x @ y).bitcast("uint8").numpy().view(kind)
    exact = (a.astype(np.float32) @ b.astype(np.float32)).astype(kind)
    np.testing.assert_array_equal(found.astype(np.float32), exact.astype(np.float32))


def test_older_units_have_no_floats_of_8_bits() -> None:
    product, shapes, _ = VALUES["plain"]
    assert not units(ast_of(wide(product), *shapes, dtype="fp8e4m3", target=AMPERE), AMPERE)


@pytest.mark.parametrize(
    ("dtype", "arch"),
    [
        # In each run one of each kind: with units of its own, and without.
        (dtype, arch)
        if (dtype, arch) in {("fp8e4m3", "sm_89"), ("fp8e5m2", "sm_90a")}
        else pytest.param(dtype, arch, marks=pytest.mark.nightly)
        for dtype in BYTES
        for arch in ("sm_89", "sm_90a", "sm_100a", "sm_120")
    ],
)
@pytest.mark.skipif(not PTXAS or not NVDISASM, reason="pip install tilegrad[test]")
def test_the_assembler_takes_floats_of_8_bits(dtype: str, arch: str, tmp_path: Path) -> None:
    """Units of sm_89 and sm_120 multiply them; for others `ptxas` makes halves of them."""
    product = wide(VALUES["weights by rows"][0])
    target = nv_target(arch)
    ast = ast_of(product, (256, 256), (256, 256), dtype=dtype, target=target)
    made, _ = assembled_kernel(ast, target, tmp_path)
    is_own = arch in ("sm_89", "sm_120")
    assert ("QMMA" in made.loop) == is_own and ("HMMA" in made.loop) != is_own
    if is_own:
        assert made.spilled_bytes == 0 and others_each(made) <= 1.5


def test_the_text_asks_for_the_version_that_has_them() -> None:
    ast = ast_of(wide(VALUES["plain"][0]), (64, 64), (64, 64), dtype="fp8e5m2", target=ADA)
    text = PTXRenderer(ADA).render("product", good_program(ast, ADA))
    assert text.startswith(".version 8.4\n") and ".f32.e5m2.e5m2.f32" in text
    plain = PTXRenderer(ADA).render(
        "sum", lower(ast_of(lambda a, b: a + b, (64,), (64,), dtype="float32", target=ADA), ADA)
    )
    assert plain.startswith(".version 7.8\n")


def test_a_driver_that_reads_no_such_text_has_no_such_units() -> None:
    """Without `ptxas`, which makes machine code for any driver of its major release."""

    def names(version: int) -> set[str]:
        target = opened("NV", FakeDriver((8, 9), version), assembles=False).target
        return {unit.name for unit in target.matrix_units}

    units_of_bytes = {unit for unit, _ in BYTES.values()}
    assert units_of_bytes <= names(12040) and units_of_bytes.isdisjoint(names(12030))
    assert TF32 in names(12030)
