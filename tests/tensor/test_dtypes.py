"""The dtype in which two operands meet: the table in docs/dtypes.md, checked and written by this
file.
"""

from __future__ import annotations

import math
import operator
from pathlib import Path

import numpy as np
import pytest

from tilegrad import Tensor, dtypes
from tilegrad.base.dtype import DType
from tilegrad.base.dtype_promotion import promote
from tilegrad.base.errors import DTypeError, ShapeError

PAGE = Path(__file__).parents[2] / "docs" / "dtypes.md"
INTEGERS = [dtype for dtype in dtypes.all if dtype.is_int]
SHORT = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64", "bool": "bool"}


def short(name: str) -> str:
    return SHORT.get(name) or name.replace("uint", "u").replace("int", "i").removeprefix("fp8")


def table() -> str:
    """The table as the page has it."""
    names = [dtype.name for dtype in dtypes.all]
    rows = [
        "| | " + " | ".join(short(name) for name in names) + " |",
        "| --- " * (len(names) + 1) + "|",
    ]
    for left in dtypes.all:
        cells = [short(promote(left, right).name) for right in dtypes.all]
        rows.append(f"| **{short(left.name)}** | " + " | ".join(cells) + " |")
    return "\n".join(rows)


@pytest.mark.row("X.2")
def test_the_page_holds_the_table() -> None:
    assert table() in PAGE.read_text(), f"replace the table in {PAGE} by:\n{table()}"


@pytest.mark.row("X.2")
@pytest.mark.parametrize("left", dtypes.all, ids=lambda d: d.name)
def test_addition_and_multiplication_meet_by_the_table(left: object) -> None:
    for right in dtypes.all:
        a, b = Tensor([1], dtype=left), Tensor([1], dtype=right)  # type: ignore[arg-type]
        assert (a * b).dtype is promote(left, right)  # type: ignore[arg-type]
        assert (a + b).dtype is promote(left, right)  # type: ignore[arg-type]
        assert (a < b).dtype is dtypes.bool


@pytest.mark.row("X.2")
def test_it_is_numpys_table_but_for_what_has_too_many_bits() -> None:
    """NumPy has no bfloat16, and goes from 32-bit integers with floats to float64; this table does
    not.
    """
    for left in dtypes.all:
        for right in dtypes.all:
            if dtypes.bfloat16 in (left, right) or left.is_float or right.is_float:
                continue
            theirs = np.result_type(left.name, right.name).name
            ours = promote(left, right).name
            assert ours == theirs or (theirs == "float64" and ours == "float32"), (left, right)


@pytest.mark.row("X.2")
@pytest.mark.parametrize("dtype", [d for d in dtypes.all if not d.is_float], ids=lambda d: d.name)
def test_true_division_gives_floats(dtype: object) -> None:
    quotient = Tensor([1], dtype=dtype) / Tensor([2], dtype=dtype)  # type: ignore[arg-type]
    assert quotient.dtype is dtypes.float32
    assert (Tensor([1], dtype=dtype) / 2).dtype is dtypes.float32  # type: ignore[arg-type]


def test_numbers_take_the_tensors_dtype() -> None:
    half, byte, flag = Tensor([1.0]).half(), Tensor([1], dtype="uint8"), Tensor([True])
    assert (half + 1).dtype is dtypes.float16
    assert (1.5 * half).dtype is dtypes.float16
    assert (byte + 1).dtype is dtypes.uint8
    assert (byte + 1.5).dtype is dtypes.float32
    assert (flag + 1).dtype is dtypes.int32
    assert (flag + 1.5).dtype is dtypes.float32
    assert (flag + True).dtype is dtypes.bool
    assert (Tensor([1.0]).double() * 2).dtype is dtypes.float64


def test_a_number_that_does_not_fit_raises_or_compares_rightly() -> None:
    byte = Tensor([5], dtype="uint8")
    with pytest.raises(DTypeError, match="add: 300 does not fit uint8"):
        byte + 300
    assert (byte < 300).item() is True
    assert (byte > -1).item() is True
    assert byte.eq(261).item() is False
    assert (byte <= 2**70).item() is True
    assert (Tensor([-1]) & 0xFFFFFFFF).item() == -1


@pytest.mark.parametrize(
    "op", [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]
)
def test_bits_of_floats_raise(op: object) -> None:
    with pytest.raises(DTypeError, match="integers are needed"):
        op(Tensor([1.0]), 1)  # type: ignore[operator]
    with pytest.raises(DTypeError):
        op(Tensor([1]), Tensor([1.0]))  # type: ignore[operator]


def test_sums_widen() -> None:
    for dtype in dtypes.all:
        total = Tensor([1], dtype=dtype).sum().dtype
        assert total is (dtype if dtype.is_float else dtypes.int64)


def test_operands_of_other_kinds_raise() -> None:
    with pytest.raises(DTypeError, match="add: cannot use a str as an operand"):
        Tensor([1]) + "a"
    with pytest.raises(ShapeError, match="bitcast: int64 takes 2 elements of float32"):
        Tensor([1.0]).bitcast(dtypes.int64)
    with pytest.raises(ShapeError, match="bitcast: int64 takes 8 elements of bool"):
        Tensor(True).bitcast(dtypes.int64)
    with pytest.raises(ShapeError, match="cannot become several of int16"):
        Tensor(1.0).bitcast(dtypes.int16)


@pytest.mark.parametrize("name", ["uint8", "int16", "float32", "int64", "float64"])
def test_bits_of_neighbours_are_wider_elements(name: str) -> None:
    bits = np.random.default_rng(5).integers(0, 256, (3, 16), dtype=np.uint8)
    narrow, wide = bits, bits.view(name)
    found = Tensor(narrow).bitcast(name)
    assert (found.shape, found.dtype.name) == (wide.shape, name)
    assert found.numpy().tobytes() == bits.tobytes()
    for other in ("uint8", "float16", "int32"):
        if np.dtype(other).itemsize <= wide.itemsize:
            back = Tensor(wide).bitcast(other)
            assert back.shape == wide.view(other).shape
            assert back.numpy().tobytes() == bits.tobytes()


def test_numpy_operands_stand_on_either_side() -> None:
    x = Tensor([1.0, 2.0])
    assert (x * np.float64(2)).dtype is dtypes.float32
    assert (np.float32(2) * x).tolist() == [2.0, 4.0]
    assert isinstance(np.ones(2, np.float32) + x, Tensor)
    assert (np.ones(2, np.float32) - x).tolist() == [0.0, -1.0]
    assert (x + np.int64(3)).dtype is dtypes.float32


def whole(value: float, dtype: DType) -> int:
    """A float as an integer: at most the end of the dtype, and 0 for NaN."""
    if value != value:
        return 0
    if not math.isfinite(value):
        return int(dtype.min if value < 0 else dtype.max)
    return int(min(max(int(value), dtype.min), dtype.max))


@pytest.mark.parametrize("source", [dtypes.float16, dtypes.float32, dtypes.float64])
def test_vectors_of_floats_reach_the_ends_of_integers(source: DType) -> None:
    powers = [sign * 2.0**power for power in (7, 8, 15, 16, 31, 32, 63, 64) for sign in (1, -1)]
    values = [0.0, -0.0, 0.9, -0.9, -1.5, 1e30, -1e30, math.inf, -math.inf, math.nan]
    with np.errstate(over="ignore"):
        array = np.array([*values, *powers], source.name)
    array = np.concatenate([array, np.nextafter(array, array[:1]), array[:12]])
    x = Tensor(array).realize()
    made = [x.cast(dtype) for dtype in INTEGERS]
    Tensor.realize(*made)
    for dtype, found in zip(INTEGERS, made):
        assert found.tolist() == [whole(value, dtype) for value in array.tolist()], dtype.name
