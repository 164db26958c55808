"""Functions of two integers at the ends of their dtypes, by Python's own integers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilegrad import Tensor, dtypes
from tilegrad.base.errors import DTypeError


def wrapped(value: int, dtype: str) -> int:
    """What `dtype` holds of an integer: its last bits."""
    ends = np.iinfo(dtype)
    return (value - int(ends.min)) % (1 << ends.bits) + int(ends.min)


def ends_of(dtype: str) -> list[int]:
    ends = np.iinfo(dtype)
    some = [-7, -1, 0, 1, 2, 7, 46337, 2147483629, 10**18 + 9]
    numbers = [*some, int(ends.min), int(ends.min) + 1, int(ends.max) - 1, int(ends.max)]
    return sorted({each for each in numbers if ends.min <= each <= ends.max})


def pairs_of(dtype: str) -> list[tuple[int, int]]:
    return [*itertools.product(ends_of(dtype), repeat=2)]


# Functions whose value is that of Python, or its last bits.
EXACT: dict[str, Callable[[int, int], int]] = {
    "maximum": max,
    "minimum": min,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
    "__floordiv__": lambda a, b: a // b if b else 0,
    "eq": lambda a, b: a == b,
    "__lt__": lambda a, b: a < b,
    "__ge__": lambda a, b: a >= b,
}


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
@pytest.mark.parametrize("name", EXACT)
def test_exact_functions(name: str, dtype: str) -> None:
    pairs = pairs_of(dtype)
    left, right = (Tensor(np.array(side, dtype)) for side in zip(*pairs))
    found = getattr(left, name)(right).tolist()
    expected: list[Any] = [EXACT[name](a, b) for a, b in pairs]
    if not isinstance(expected[0], bool):
        expected = [wrapped(each, dtype) for each in expected]
    assert found == expected


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_common_divisors_and_multiples(dtype: str) -> None:
    """The multiple has the last bits of the true one; of 32 and 64 bits, the magnitude of these."""
    least = int(np.iinfo(dtype).min)
    pairs = [pair for pair in pairs_of(dtype) if least not in pair or not least]
    left, right = (Tensor(np.array(side, dtype)) for side in zip(*pairs))
    assert left.gcd(right).tolist() == [math.gcd(*pair) for pair in pairs]
    expected = [wrapped(math.lcm(*pair), dtype) for pair in pairs]
    if dtype in ("int32", "int64"):
        expected = [wrapped(abs(each), dtype) for each in expected]
    assert left.lcm(right).tolist() == expected


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_ldexp_by_any_integer(dtype: str) -> None:
    """A power beyond all floats is infinite or 0, however large it is."""
    powers = [each for each in ends_of(dtype) if abs(each) > 1000]
    found = Tensor([1.0]).ldexp(Tensor(np.array([3, *powers], dtype)))
    assert found.tolist() == [8.0, *(math.inf if each > 0 else 0.0 for each in powers)]


# What puts a number into the integers `x`; the second is of truth values.
PUT: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {
    "masked_fill": lambda x, mask, number: x.masked_fill(mask, number),
    "where": lambda x, mask, number: mask.where(number, x),
    "clamp": lambda x, mask, number: x.clamp(min=number),
    "maximum": lambda x, mask, number: x.maximum(number),
    "pad": lambda x, mask, number: x.pad((0, 1), value=number),
    "scatter": lambda x, mask, number: x.scatter(0, Tensor([0]), number),
    "index_fill": lambda x, mask, number: x.index_fill(0, Tensor([0]), number),
}


@pytest.mark.parametrize("name", PUT)
def test_a_number_that_an_integer_cannot_be_is_not_put_into_a_tensor(name: str) -> None:
    """Its bits were another number."""
    for dtype in (dtypes.int8, dtypes.int32, dtypes.int64):
        x, mask = Tensor([1, 2]).cast(dtype), Tensor([True, False])
        assert dtype.max in PUT[name](x, mask, dtype.max).tolist()
        for number in (dtype.max + 1, dtype.min - 1):
            with pytest.raises(DTypeError, match=f"{number} does not fit {dtype.name}"):
                PUT[name](x, mask, number)
