"""What languages and machines leave undefined is defined: docs/undefined-behaviour.md has the list.

Each op is compared with Python's own numbers, as a constant that folds, on the processor and on the
emulator.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.lower.test_results import program
from tilegrad import Context, Tensor, dtypes
from tilegrad.base.dtype import DType
from tilegrad.base.errors import DTypeError
from tilegrad.ir import Ops
from tilegrad.render.llvm import LLVMRenderer

INTEGERS = (*dtypes.signed, *dtypes.unsigned)
DEVICES = ("CPU", "EMU")


def wrapped(value: int, dtype: DType) -> int:
    return (value - int(dtype.min)) % (1 << dtype.bits) + int(dtype.min)


def shifted(value: int, amount: int, dtype: DType, *, left: bool) -> int:
    """By bits that are all there is: a negative amount shifts everything out."""
    amount = amount if 0 <= amount <= dtype.bits else dtype.bits
    return wrapped(value * 2**amount if left else value // 2**amount, dtype)


def some(dtype: DType) -> list[int]:
    near = [0, 1, 3, 100, int(dtype.max), int(dtype.max) - 1]
    return near if dtype.kind == "uint" else [*near, -1, -5, int(dtype.min), int(dtype.min) + 1]


def filled(values: list[Any], dtype: DType) -> Tensor:
    return Tensor(np.array(values, dtype.name))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("left", [True, False])
def test_shifts_by_the_width_or_more(dtype: DType, left: bool, device: str) -> None:
    def shift(x: Any, y: Any) -> Tensor:
        found: Tensor = x << y if left else x >> y
        return found

    values = some(dtype)
    numbers = [0, 1, dtype.bits - 1, dtype.bits, dtype.bits + 1, 40, 10**9]
    inside = [n for n in numbers if n <= int(dtype.max)]
    inside += [-1, int(dtype.min)] if dtype.kind == "int" else [int(dtype.max)]
    with Context(DEVICE=device):
        for amount in numbers[-4:]:
            expected = [shifted(value, amount, dtype, left=left) for value in values]
            if amount in (dtype.bits, 40):
                assert shift(filled(values, dtype), amount).tolist() == expected
            folded = [shift(Tensor(value, dtype=dtype), amount).item() for value in values]
            assert folded == expected
        pairs = [(value, amount) for value in values for amount in inside]
        x, y = (filled(list(column), dtype) for column in zip(*pairs))
        expected = [shifted(value, amount, dtype, left=left) for value, amount in pairs]
        assert shift(x, y).tolist() == expected


def test_a_shift_by_a_negative_number_is_refused() -> None:
    with pytest.raises(DTypeError, match="lshift: a shift by -1 bits"):
        Tensor([1]) << -1
    with pytest.raises(DTypeError, match="rshift: a shift by -3 bits"):
        Tensor([1]) >> -3


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_division_by_zero_and_of_the_least_by_minus_one(dtype: DType, device: str) -> None:
    values = some(dtype)
    pairs = [(a, b) for a in values for b in values]
    with Context(DEVICE=device):
        x, y = (filled(list(column), dtype) for column in zip(*pairs))
        assert (x // y).tolist() == [wrapped(a // b if b else 0, dtype) for a, b in pairs]
        assert (x % y).tolist() == [wrapped(a % b if b else 0, dtype) for a, b in pairs]
        for a, b in pairs[::3]:
            folded = Tensor(a, dtype=dtype) // Tensor(b, dtype=dtype)
            assert folded.item() == wrapped(a // b if b else 0, dtype)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", [Ops.IDIV, Ops.MOD])
def test_c_division_of_a_kernel_has_no_traps(op: Ops, dtype: DType) -> None:
    """As the graph before it is rendered has it: no divisor is 0 or -1."""

    def divided(a: int, b: int) -> int:
        quotient = 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return wrapped(quotient if op is Ops.IDIV else a - b * quotient, dtype)

    values = some(dtype)
    x, y = (filled([pair[side] for pair in pairs_of(values)], dtype) for side in (0, 1))
    found = Tensor._of(x.uop.alu(op, y.uop), x.device)
    assert found.tolist() == [divided(a, b) for a, b in pairs_of(values)]


def pairs_of(values: list[int]) -> list[tuple[int, int]]:
    return [(a, b) for a in values for b in values]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", ["add", "sub", "mul"])
def test_overflow_wraps_around(dtype: DType, op: str, device: str) -> None:
    exact: dict[str, Callable[[int, int], int]] = {
        "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    }  # fmt: skip
    values = some(dtype)
    pairs = [(a, b) for a in values for b in values]
    with Context(DEVICE=device):
        x, y = (filled(list(column), dtype) for column in zip(*pairs))
        assert getattr(x, op)(y).tolist() == [wrapped(exact[op](a, b), dtype) for a, b in pairs]


def saturated(value: float, dtype: DType) -> int:
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return int(dtype.max if value > 0 else dtype.min)
    return min(max(math.trunc(value), int(dtype.min)), int(dtype.max))


# Every pair on both devices at night; by day those of float32, and one other of each dtype.
CASTS = [
    pytest.param(
        source,
        target,
        device,
        id=f"{source.name}-{target.name}-{device}",
        marks=()
        if (source is dtypes.float32 and device == "CPU") or (a + b + c) % 9 == 0
        else pytest.mark.nightly,
    )
    for a, source in enumerate((*dtypes.floats, *dtypes.fp8s))
    for b, target in enumerate(INTEGERS)
    for c, device in enumerate(DEVICES)
]


@pytest.mark.parametrize(("source", "target", "device"), CASTS)
def test_floats_outside_an_integers_range(target: DType, source: DType, device: str) -> None:
    edges = [0.0, -0.0, 0.9, -0.9, -1.0, 127.0, 128.0, -129.0, 255.0, 256.0, 300.7, -300.7, 32768.0]
    edges += [65535.0, 65536.0, 2.0**31, -(2.0**31), 2.0**32, 2.0**63, -(2.0**63), 2.0**64, 3e38]
    edges += [1e300, -1e300, math.inf, -math.inf, math.nan]
    with Context(DEVICE=device):
        x = Tensor(edges, dtype=source)
        expected = [saturated(value, target) for value in x.cast(dtypes.float64).tolist()]
        assert x.realize().cast(target).tolist() == expected
        # As vectors of the processor, too.
        assert x.realize().repeat(16).cast(target).tolist() == expected * 16
        kept = x.cast(dtypes.float64).tolist()
        folded = [Tensor(value, dtype=source).cast(target).item() for value in kept]
        assert folded == expected


@pytest.mark.parametrize("target", INTEGERS)
def test_numbers_become_integers_alike(target: DType) -> None:
    """Of a list, an array, a number that fills."""
    edges = [-1.0, 300.7, -300.7, 1e30, -1e30, math.inf, math.nan]
    expected = [saturated(value, target) for value in edges]
    assert Tensor(np.array(edges)).cast(target).tolist() == expected
    assert [Tensor.full((1,), value).cast(target).item() for value in edges] == expected


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", dtypes.floats)
def test_the_first_of_equal_zeros_is_the_larger(dtype: DType, device: str) -> None:
    """And a NaN wins, on either side."""
    values = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan]
    pairs = [(a, b) for a in values for b in values]

    def chosen(a: float, b: float, *, larger: bool) -> float:
        if a != a or b != b:
            return math.nan
        return b if (b > a if larger else b < a) else a

    with Context(DEVICE=device):
        for times in (1, 5):
            x, y = (Tensor(list(column) * times, dtype=dtype).realize() for column in zip(*pairs))
            for larger in (True, False):
                found = (x.maximum(y) if larger else x.minimum(y)).tolist()
                wanted = [chosen(a, b, larger=larger) for a, b in pairs] * times
                assert list(map(str, found)) == list(map(str, wanted))
        relu = Tensor(values, dtype=dtype).realize().relu().tolist()
        assert list(map(str, relu)) == ["0.0", "-0.0", "1.0", "0.0", "inf", "0.0", "nan"]
        folded = [Tensor(value, dtype=dtype).relu().item() for value in values]
        assert list(map(str, folded)) == list(map(str, relu))


FLAGS = re.compile(
    r"\b(fast|nnan|ninf|nsz|arcp|contract|afn|reassoc|exact|disjoint|nneg|undef|noundef|nonnull|"
    r"dereferenceable|samesign)\b|!range|llvm\.assume|unreachable|ctlz|cttz"
)


def text_of(value: Tensor) -> str:
    return LLVMRenderer(32).render("kernel", program(value))


PROGRAMS: dict[str, Callable[[], Tensor]] = {
    "sum": lambda: Tensor.empty(1000, 37).sum(1),
    "masked": lambda: Tensor.empty(37, 37).pad((1, 2)) * 2,
    "shift": lambda: Tensor.empty(100, dtype=dtypes.int32) << Tensor.empty(100, dtype=dtypes.int32),
    "division": lambda: (
        Tensor.empty(100, dtype=dtypes.int32) // Tensor.empty(100, dtype=dtypes.int32)
    ),
    "cast": lambda: Tensor.empty(100).cast(dtypes.uint8),
    "exp": lambda: Tensor.empty(100).exp(),
    "fmod": lambda: Tensor.empty(100).fmod(Tensor.empty(100)),
    "picked": lambda: Tensor.empty(50, 3)[Tensor.empty(9, dtype=dtypes.int32)],
    "matmul": lambda: Tensor.empty(33, 65) @ Tensor.empty(65, 17),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_instruction_promises_more_than_holds(name: str) -> None:
    """The one promise is that the counter of a loop, below its extent, does not wrap; and addresses
    that are always in the memory say so.
    """
    text = text_of(PROGRAMS[name]())
    assert not FLAGS.search(text)
    for line in text.splitlines():
        if " nsw " in line or " nuw " in line:
            assert re.fullmatch(r"\s*%n(\d+) = add nuw nsw i(32|64) %i\1, 1", line)


def test_the_address_of_a_masked_access_may_lie_outside() -> None:
    text = text_of(PROGRAMS["masked"]())
    outside = {
        name
        for line in text.splitlines()
        if "@llvm.masked." in line and "declare" not in line
        for name in re.findall(r"ptr (%v\d+)", line)
    }
    assert outside
    for name in outside:
        (made,) = [line for line in text.splitlines() if f"{name} = " in line]
        assert "inbounds" not in made


def test_a_shift_is_by_less_than_the_width() -> None:
    """As the processor computes it: the amount is masked, or a constant below the width."""
    text = text_of(PROGRAMS["shift"]())
    shifts = re.findall(r" = shl (?:<\d+ x )?i32>? %\w+, (%\w+|splat \(i32 (\d+)\))", text)
    assert shifts
    for amount, constant in shifts:
        masked = re.search(rf"{amount} = and .*splat \(i32 31\)", text) if not constant else None
        assert masked or int(constant) < 32
