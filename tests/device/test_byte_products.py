"""Products of bytes on NVIDIA's matrix units (`mma` of s8, sums of 32 bits): where they are chosen,
and their values, which are exact, on the emulator and on the interpreter of PTX.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.device.ptx.device import simulated
from tests.device.test_ptx_products import NVDISASM, PTXAS, assembled_kernel, others_each
from tests.optimize.kernels import program
from tests.schedule.plans import plan
from tilegrad import Context, Tensor
from tilegrad.device.emulator import execute
from tilegrad.device.nv import nv_target
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tools.gpu_report import count
from tilegrad.tools.gpu_time import predicted

NV = nv_target("sm_80")
UNIT = "mma.m16n8k32.int8.int32"
Product = Callable[[Tensor, Tensor], Tensor]


def wide(a: Any, b: Any) -> Any:
    return a.cast("int32") @ b.cast("int32")


def drawn(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """With the ends of the dtype among them."""
    found = np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)
    found.flat[:: max(found.size // 7, 1)] = -128
    return found


def ast_of(product: Product, *shapes: tuple[int, ...], dtype: str = "int8") -> UOp:
    sides = [Tensor.empty(*shape, dtype=dtype) for shape in shapes]
    found = plan(product(*sides), target=NV).items[-1].ast
    assert found is not None
    return found


def units(ast: UOp, target: Any = NV) -> set[str]:
    return {node.arg.name for node in program(ast, None, target) if node.op is Ops.WMMA}


# Products: the expression, the shapes of its operands, and the expression in NumPy.
VALUES: dict[str, tuple[Product, tuple[tuple[int, ...], tuple[int, ...]], Callable[..., Any]]] = {
    "weights by rows": (
        lambda a, b: wide(a, b.T), ((64, 128), (64, 128)), lambda a, b: a @ b.T
    ),
    "plain": (wide, ((64, 64), (64, 64)), lambda a, b: a @ b),
    "left transposed": (lambda a, b: wide(a.T, b), ((64, 64), (64, 32)), lambda a, b: a.T @ b),
    "batch": (wide, ((2, 32, 64), (2, 64, 32)), lambda a, b: a @ b),
    "padded": (lambda a, b: wide(a, b.T), ((60, 120), (62, 120)), lambda a, b: a @ b.T),
    "epilogue": (
        lambda a, b: wide(a, b.T).cast("float32") * 0.5 + 1,
        ((32, 64), (32, 64)),
        lambda a, b: (a @ b.T) * 0.5 + 1,
    ),
    "wraps around": (lambda a, b: a @ b.T, ((32, 64), (32, 64)), lambda a, b: a @ b.T),
}  # fmt: skip
USUAL = ("weights by rows", "plain", "wraps around")
CASES = [
    name if name in USUAL else pytest.param(name, marks=pytest.mark.nightly) for name in VALUES
]


@pytest.mark.row("M9.1", "M9.5")
@pytest.mark.parametrize("name", CASES)
def test_values_are_exact_on_the_interpreter(name: str) -> None:
    product, shapes, wanted = VALUES[name]
    assert units(ast_of(product, *shapes)) == {UNIT}
    sides = [drawn(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    device = simulated("NVSIM80")
    with Context(SIZES=0):
        found = product(*(Tensor(each, device=device).realize() for each in sides)).numpy()
    exact = wanted(*(each.astype(np.int64) for each in sides))
    np.testing.assert_array_equal(found, exact.astype(found.dtype))


@pytest.mark.row("M9.5")
@pytest.mark.parametrize("shape", [(32, 64), pytest.param((32, 512), marks=pytest.mark.nightly)])
def test_the_emulator_multiplies(shape: tuple[int, int]) -> None:
    ast = ast_of(lambda a, b: wide(a, b.T), shape, shape)
    a, b = drawn(*shape), drawn(*shape, seed=1)
    out = np.zeros((shape[0], shape[0]), np.int32)
    execute(program(ast, None, NV), [memoryview(each).cast("B") for each in (out, a, b)])
    np.testing.assert_array_equal(out, a.astype(np.int64) @ b.T.astype(np.int64))


def test_products_that_wrap_around_before_a_wider_sum_have_no_unit() -> None:
    """Each product has 8 bits, the sum 32: a unit would not cut them."""

    def product(a: Tensor, b: Tensor) -> Tensor:
        return (a.unsqueeze(1) * b.unsqueeze(0)).cast("int32").sum(2)

    assert not units(ast_of(product, (64, 128), (64, 128)))


def test_other_dtypes_and_older_units_have_none() -> None:
    shapes = ((64, 128), (64, 128))
    assert not units(ast_of(lambda a, b: wide(a, b.T), *shapes, dtype="uint8"))
    turing = nv_target("sm_75")
    assert UNIT not in {unit.name for unit in turing.matrix_units}


@pytest.mark.row("M9.1")
@pytest.mark.skipif(not PTXAS or not NVDISASM, reason="pip install tilegrad[test]")
def test_an_operand_is_loaded_by_words(tmp_path: Path) -> None:
    """No byte is packed: beside the products there are loads of their operands, for the most."""
    ast = ast_of(lambda a, b: wide(a, b.T), (1024, 1024), (1024, 1024))
    made, _ = assembled_kernel(ast, NV, tmp_path)
    assert made.spilled_bytes == 0 and made.loop["IMMA"] >= 64
    assert not {"PRMT", "SGXT"} & set(made.loop)
    assert others_each(made) <= 1.5


def test_twice_as_many_products_take_the_time_of_one() -> None:
    """As the A100's white paper has it: 624 TOPS of bytes, 312 TFLOPS of halves."""

    def limit(dtype: str) -> float:
        cast = "int32" if dtype == "int8" else "float32"
        ast = ast_of(
            lambda a, b: a.cast(cast) @ b.T.cast(cast), (256, 128), (256, 128), dtype=dtype
        )
        return predicted(count(program(ast, None, NV), 1), "sm_80").limits["matrix"]

    assert limit("int8") == pytest.approx(limit("float16") / 2)
