"""OpenCL C with vectors, as processors get it: its text, and its values on a real driver where one
is here.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.device.helpers import needs
from tests.optimize.kernels import program
from tests.schedule.plans import plan
from tilegrad import Context, Tensor
from tilegrad.hardware import opencl_processor, opencl_target
from tilegrad.render.opencl_vectors import OpenCLVectorRenderer
from tilegrad.target import Target

TARGET = opencl_processor(opencl_target(has_half=False), 2)
opencl = needs("CL")
# More than vectors and what is behind them, from either end of what can be.
FLOATS = np.array(
    [np.nan, np.inf, -np.inf, 1e30, -1e30, 3.7, -3.7, 255.5, -128.9, -0.0, 1e-40, 65535.9, 7e9] * 3,
    np.float32,
)


def text_of(value: Tensor, target: Target = TARGET) -> str:
    """The kernel that stores `value`."""
    *_, item = plan(value, target=target).items
    return OpenCLVectorRenderer(target).render("kernel", program(item.ast, None, target))


def test_a_product_adds_vectors_in_its_inner_loop() -> None:
    text = text_of(Tensor.empty(256, 256) @ Tensor.empty(256, 256))
    lines = text.splitlines()
    depth = max(len(line) - len(line.lstrip()) for line in lines)
    inner = [line for line in lines if len(line) - len(line.lstrip()) == depth]
    assert sum("float8" in line for line in inner) > 4
    assert not re.search(r"\bfloat \w+ = \(?\w+\*", "\n".join(inner)), "no sum of single floats"


def test_vectors_that_functions_take_have_32_bytes_at_most() -> None:
    """Eight floats become doubles, lane by lane."""
    text = text_of(Tensor.empty(64).cast("double").exp().cast("float"))
    found = text + text_of(Tensor.empty(64, dtype="int32").cast("int64") * 3)
    assert "exp(" in found
    for name in re.findall(r"(?:convert_|as_|vload|vstore)\w*", found):
        assert not re.search(r"(?:double|long)(?:8|16)|(?:float|int|uint)16", name), name
    wide = OpenCLVectorRenderer(replace(TARGET, vector_bytes=64))
    for dtype in ("double", "int64"):
        *_, item = plan(Tensor.empty(64, dtype=dtype) + 1, target=wide.target).items
        found = wide.render("kernel", program(item.ast, None, wide.target))
        assert re.search(r"\b(?:double|long)8 ", found) and "vload8" not in found
        assert "vstore8" not in found


def test_comparisons_are_negated_as_bytes() -> None:
    """Oclgrind 21.10 makes 255 of a negated vector of comparisons, and reads behind its gate."""
    a, b = Tensor.empty(64), Tensor.empty(64)
    text = text_of(a < b) + text_of(a.cast("bool")) + text_of((a < b).where(a, b))
    assert "(-convert_uchar8((" in text and "(-convert_uchar8(*" not in text
    assert "convert_uchar8(-" not in text


def test_a_language_without_longer_vectors_has_as_many_lanes_of_bytes() -> None:
    assert TARGET.vector_bytes // 1 > TARGET.most_lanes
    assert "char8" in text_of(Tensor.empty(256, dtype="int8") ^ 3)
    assert replace(TARGET, most_lanes=0).lanes_of(Tensor.empty(1, dtype="int8").dtype) == 32


@opencl
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64"])
def test_a_float_that_no_integer_holds_saturates_and_nan_is_zero(dtype: str) -> None:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    wanted = [0 if x != x else high if x >= high else low if x <= low else int(x)
              for x in map(float, FLOATS)]  # fmt: skip
    assert Tensor(FLOATS, device="CL").cast(dtype).tolist() == wanted


@opencl
@pytest.mark.parametrize(
    "dtype", ["int8", "uint64", pytest.param("int32", marks=pytest.mark.nightly)]
)
def test_integers_wrap_compare_and_choose(dtype: str) -> None:
    info = np.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    x = np.array([low + (high - low) * number // 52 for number in range(53)], dtype)
    y = x[::-1].copy()
    a, b = Tensor(x, device="CL"), Tensor(y, device="CL")
    with np.errstate(over="ignore"):
        pairs = [
            (a + b + 3, x + y + np.array(3, dtype)),
            (a * 3 - b, x * np.array(3, dtype) - y),
            (-a, -x),
            (a.maximum(b), np.maximum(x, y)),
            ((a > b).where(a, 5), np.where(x > y, x, np.array(5, dtype))),
            ((a > b) & (a != 3), (x > y) & (x != 3)),
            (a.cast("float32"), x.astype(np.float32)),
            (a.cast("bool"), x != 0),
            (a // 7, x // np.array(7, dtype)),
        ]
    for found, wanted in pairs:
        np.testing.assert_array_equal(found.numpy(), wanted)


@opencl
def test_nan_wins_and_zeros_keep_their_signs() -> None:
    with np.errstate(invalid="ignore"):
        x, y = FLOATS, FLOATS[::-1].copy()
        a, b = Tensor(x, device="CL"), Tensor(y, device="CL")
        np.testing.assert_array_equal(a.maximum(b).numpy(), np.maximum(x, y))
        np.testing.assert_array_equal((a > b).numpy(), x > y)
        negated, is_number = (a * -1).numpy(), x == x
        np.testing.assert_array_equal(negated, -x)
        np.testing.assert_array_equal(np.signbit(negated)[is_number], np.signbit(-x)[is_number])
    np.testing.assert_array_equal(a.bitcast("int32").numpy(), x.view(np.int32))
    small = np.array([1e-40, -1e-40, 0.5, 3.0] * 5, np.float32)
    wide = small.astype(np.float64)
    np.testing.assert_allclose(Tensor(small, device="CL").sin().numpy(), np.sin(wide), rtol=2e-7)
    np.testing.assert_allclose(Tensor(small, device="CL").cos().numpy(), np.cos(wide), rtol=2e-7)


@opencl
def test_accesses_begin_anywhere_and_have_gates() -> None:
    x = np.random.default_rng(1).standard_normal((19, 53)).astype(np.float32)
    a = Tensor(x, device="CL")
    np.testing.assert_array_equal((a[1:, 3:] * 2).numpy(), x[1:, 3:] * 2)
    np.testing.assert_array_equal(
        (a.pad(((1, 2), (3, 4))) + 1).numpy(), np.pad(x, ((1, 2), (3, 4))) + 1
    )
    np.testing.assert_array_equal((a.flip(1) + a).numpy(), x[:, ::-1] + x)
    np.testing.assert_array_equal((a.T + 1).numpy(), x.T + 1)
    np.testing.assert_allclose((a @ a.T).numpy(), x @ x.T, rtol=1e-4, atol=1e-4)


@opencl
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_floats_have_the_values_of_the_processor(dtype: str) -> None:
    x = np.random.default_rng(2).standard_normal((17, 40)).astype(np.float32)
    found, wanted = (
        ((a := Tensor(x, device=device).cast(dtype)) * 1.5 + a.exp()).cast("float32").numpy()
        for device in ("CL", "CPU")
    )
    np.testing.assert_allclose(
        found, wanted, rtol={"float16": 1e-3, "bfloat16": 1e-2}.get(dtype, 1e-7)
    )


@opencl
def test_elements_that_meet_are_added_one_at_a_time() -> None:
    rows = np.array([3, 1, 3, 3, 0, 1, 3, 2] * 4)
    values = np.arange(32 * 24, dtype=np.int32).reshape(32, 24)
    wanted = np.zeros((4, 24), np.int32)
    np.add.at(wanted, rows, values)
    with Context(DEVICE="CL"):
        index = Tensor(rows).reshape(32, 1).expand(32, 24)
        found = (
            Tensor.zeros(4, 24, dtype="int32")
            .contiguous()
            .scatter_reduce(0, index, Tensor(values), reduce="sum")
        )
        np.testing.assert_array_equal(found.numpy(), wanted)
