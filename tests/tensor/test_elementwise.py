"""Arithmetic, comparisons, choices, bits and rounding, against NumPy."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.tensor.helpers import check, close, numbers
from tilegrad import Tensor, dtypes

INF, NAN = float("inf"), float("nan")
SPECIAL = np.array([0.0, -0.0, 1.0, -1.5, 2.5, -2.5, 1e30, INF, -INF, NAN], np.float32)
INTEGERS = np.array([-7, -3, -1, 0, 1, 2, 5, 8], np.int32)
DIVISORS = np.array([2, -2, 3, 5, -4, 7, 1, -1], np.int32)

BINARY = [operator.add, operator.sub, operator.mul, operator.truediv]
COMPARE = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


@pytest.mark.parametrize("op", BINARY + COMPARE)
def test_operator_on_two_tensors_broadcasts(op: Callable[..., Any]) -> None:
    check(op, None, numbers(3, 4), numbers(4, seed=1))


@pytest.mark.parametrize("op", BINARY + COMPARE)
def test_operator_with_a_number_on_either_side(op: Callable[..., Any]) -> None:
    check(lambda x: op(x, 0.5), None, numbers(5))
    check(lambda x: op(0.5, x), None, numbers(5))


@pytest.mark.parametrize("op", COMPARE)
def test_comparisons_with_nan_are_those_of_numpy(op: Callable[..., Any]) -> None:
    check(op, None, SPECIAL, SPECIAL[::-1].copy())
    check(op, None, SPECIAL, SPECIAL)


@pytest.mark.parametrize("op", [operator.floordiv, operator.mod])
def test_floor_division_follows_python_for_both_signs(op: Callable[..., Any]) -> None:
    check(op, None, INTEGERS, DIVISORS)
    check(op, None, numbers(6), np.array([0.5, -0.5, 1.5, -0.7, 2.0, -3.0], np.float32))


def test_division_can_round_toward_zero() -> None:
    ours = Tensor(INTEGERS).div(Tensor(DIVISORS), rounding_mode="trunc")
    close(ours, np.trunc(INTEGERS / DIVISORS).astype(np.int32))
    check(lambda x: x.fmod(1.5), lambda x: np.fmod(x, np.float32(1.5)), numbers(8))
    check(lambda x, y: x.fmod(y), np.fmod, INTEGERS, DIVISORS)


@pytest.mark.parametrize("op", [operator.and_, operator.or_, operator.xor])
def test_bits(op: Callable[..., Any]) -> None:
    check(op, None, INTEGERS, DIVISORS)
    check(op, None, INTEGERS > 0, DIVISORS > 0)
    check(lambda x: op(x, 5), None, INTEGERS)
    check(lambda x: op(5, x), None, INTEGERS)


@pytest.mark.parametrize("op", [operator.lshift, operator.rshift])
def test_shifts(op: Callable[..., Any]) -> None:
    check(op, None, INTEGERS, np.arange(8, dtype=np.int32))
    check(lambda x: op(x, 2), None, INTEGERS)
    check(lambda x: op(3, x), None, np.arange(4, dtype=np.int32))


def test_inversion() -> None:
    check(operator.invert, None, INTEGERS)
    check(operator.invert, None, INTEGERS > 0)
    check(operator.neg, None, numbers(4))
    check(lambda x: x.logical_not(), np.logical_not, numbers(4))


def test_bool_arithmetic_is_logic_but_subtraction_counts() -> None:
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    check(operator.add, None, a, b)
    check(operator.mul, None, a, b)
    check(operator.lt, None, a, b)
    check(lambda x, y: x.maximum(y), np.maximum, a, b)
    close(Tensor(a) - Tensor(b), a.astype(np.int32) - b.astype(np.int32))


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32", "int64"])
def test_integers_wrap_around(dtype: str) -> None:
    a = np.array([np.iinfo(dtype).max, np.iinfo(dtype).min, 3], dtype)
    check(operator.add, None, a, a)
    check(operator.mul, None, a, a)
    check(lambda x: x - 4, lambda x: x - np.array(4, x.dtype), a)
    check(operator.neg, None, a)


def test_maximum_and_minimum_keep_nan_and_least_integers() -> None:
    check(lambda x, y: x.maximum(y), np.maximum, SPECIAL, SPECIAL[::-1].copy())
    check(lambda x, y: x.minimum(y), np.minimum, SPECIAL, SPECIAL[::-1].copy())
    edges = np.array([-(2**31), 2**31 - 1, 0], np.int32)
    check(lambda x, y: x.minimum(y), np.minimum, edges, edges[::-1].copy())
    unsigned = np.array([0, 255, 7], np.uint8)
    check(lambda x, y: x.minimum(y), np.minimum, unsigned, unsigned[::-1].copy())


def test_clip_has_either_end_or_both() -> None:
    check(lambda x: x.clip(-1, 1), lambda x: np.clip(x, -1, 1), numbers(6))
    check(lambda x: x.clamp(max=0.5), lambda x: np.minimum(x, np.float32(0.5)), numbers(6))
    check(lambda x: x.clip(min=0), lambda x: np.maximum(x, 0), INTEGERS)


def test_where_takes_tensors_and_numbers() -> None:
    x, y = numbers(3, 4), numbers(4, seed=1)
    close((Tensor(x) > 0).where(Tensor(x), Tensor(y)), np.where(x > 0, x, y))
    close((Tensor(x) > 0).where(Tensor(x), 0), np.where(x > 0, x, np.float32(0)))
    close((Tensor(x) > 0).where(1, 0), np.where(x > 0, np.int32(1), np.int32(0)))
    close((Tensor(x) > 0).where(1.5, 0), np.where(x > 0, np.float32(1.5), np.float32(0)))
    close(Tensor(x).masked_fill(Tensor(x) > 0, -1), np.where(x > 0, np.float32(-1), x))


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "sign", "isnan", "isinf", "isfinite"])
def test_rounding_and_tests(name: str) -> None:
    values = np.concatenate([SPECIAL, numbers(8, low=-3, high=3)])
    check(lambda x: getattr(x, name)(), getattr(np, name), values)


def test_round_goes_to_the_even_half() -> None:
    values = np.array(
        [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, 1e8, -0.3, 3.7, INF, NAN], np.float32
    )
    check(lambda x: x.round(), np.round, values)


def test_zeros_have_the_sign_0_and_no_size_has_a_sign() -> None:
    """As NumPy and PyTorch have it: the sign of -0.0 is 0.0. Odd functions keep that of a zero."""
    zeros = Tensor(np.array([-0.0, 0.0], np.float32))
    assert not np.signbit(zeros.sign().numpy()).any()
    assert not np.signbit(zeros.abs().numpy()).any()
    assert np.signbit(zeros.asinh().numpy()).tolist() == [True, False]


def test_abs_and_copysign() -> None:
    check(abs, np.abs, SPECIAL)
    check(abs, np.abs, INTEGERS)
    check(
        lambda x, y: x.copysign(y),
        np.copysign,
        numbers(10),
        SPECIAL[[0, 1, 2, 3, 4, 5, 6, 7, 8, 0]],
    )


def test_lerp_square_reciprocal_isclose() -> None:
    check(
        lambda x, y: x.lerp(y, 0.25),
        lambda x, y: x + (y - x) * np.float32(0.25),
        numbers(4),
        numbers(4, seed=1),
    )
    check(lambda x: x.square(), np.square, numbers(4))
    check(lambda x: x.reciprocal(), lambda x: 1 / x, numbers(4))
    check(
        lambda x, y: x.isclose(y, equal_nan=True),
        lambda x, y: np.isclose(x, y, equal_nan=True),
        SPECIAL,
        SPECIAL + np.float32(1e-9),
    )


def test_isinf_by_sign() -> None:
    close(Tensor(SPECIAL).isinf(detect_negative=False), np.isposinf(SPECIAL))
    close(Tensor(SPECIAL).isinf(detect_positive=False), np.isneginf(SPECIAL))


def test_float_to_integer_casts_truncate() -> None:
    close(Tensor([1.7, -1.7, 0.2]).cast(dtypes.int32), np.array([1, -1, 0], np.int32))
    close(Tensor([0.0, 0.3, -2.0]).bool(), np.array([False, True, True]))
    close(Tensor([300, -1, 5]).cast("uint8"), np.array([44, 255, 5], np.uint8))


@pytest.mark.row("M8.4")
def test_bitcast_reads_the_same_bits() -> None:
    assert Tensor([1.0]).bitcast(dtypes.int32).tolist() == [1065353216]
    x = numbers(4)
    close(Tensor(x).bitcast(dtypes.uint32), x.view(np.uint32))
    close(Tensor(x).bitcast(dtypes.int32).bitcast(dtypes.float32), x)
