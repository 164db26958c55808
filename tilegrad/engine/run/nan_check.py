"""The check of `CHECK=2`: which kernel makes a NaN of numbers.

The memory of a kernel is looked at before and after it runs. A NaN spreads, so the kernel named is
the first one whose memory held none before. Infinities are no error: masks are made of them, and a
NaN that comes of one is found.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import NotANumberError
from tilegrad.base.float8 import FORMATS
from tilegrad.runtime.buffer import Buffer

__all__ = ["LaunchWatch"]

# Largest bits, without the sign, of a number that is no NaN.
_LARGEST = {dtypes.float16: 0x7C00, dtypes.bfloat16: 0x7F80}
_WIDE = {dtypes.float32: "f", dtypes.float64: "d"}


class LaunchWatch:
    """One launch of a kernel on `buffers`, about to be; those of them that are `new` hold nothing
    yet, and get zeros, lest remains of other values are taken for its work.
    """

    def __init__(self, buffers: Sequence[Buffer], new: Iterable[Buffer]):
        for each in new:
            each.copy_in(bytes(each.nbytes))
        floats = [each for each in dict.fromkeys(buffers) if each.dtype.is_float]
        self._before = {each: bytes(each.copy_out()) for each in floats}
        self._has_nan = any(
            next(_positions(data, each.dtype), None) is not None
            for each, data in self._before.items()
        )

    def look(self, name: str) -> None:
        """Raise NotANumberError if the kernel `name` made a NaN, and was given none."""
        if self._has_nan:
            return
        for buffer, before in self._before.items():
            data = bytes(buffer.copy_out())
            first = next(_positions(data, buffer.dtype), None) if data != before else None
            if first is None:
                continue
            given = [other for other in self._before if other is not buffer]
            infinite = sum(_infinities(self._before[other], other.dtype) for other in given)
            raise NotANumberError(
                f"check: the kernel {name} makes NaN",
                first=f"element {first} of {buffer.size} of {buffer.dtype.name} that it writes",
                given=f"no NaN, {infinite or 'no'} infinite number{'s' * (infinite != 1)}",
            )


def _positions(data: bytes, dtype: DType) -> Iterator[int]:
    """Positions of NaN."""
    if dtype in _WIDE:
        numbers = _numbers(data, dtype)
        # Fast, and NaN if one of them is.
        if math.isnan(sum(numbers)):
            yield from (position for position, number in enumerate(numbers) if number != number)
    elif dtype in _LARGEST:
        most = _LARGEST[dtype]
        words = memoryview(data).cast("H")
        yield from (position for position, word in enumerate(words) if word & 0x7FFF > most)
    elif dtype in dtypes.fp8s:
        values = FORMATS[dtype.name].values()
        yield from (position for position, word in enumerate(data) if math.isnan(values[word]))


def _numbers(data: bytes, dtype: DType) -> Sequence[float]:
    cast: Any = memoryview(data).cast
    numbers: Sequence[float] = cast(_WIDE[dtype])
    return numbers


def _infinities(data: bytes, dtype: DType) -> int:
    if dtype in _WIDE:
        return sum(map(math.isinf, _numbers(data, dtype)))
    most = _LARGEST.get(dtype)
    return 0 if most is None else sum(w & 0x7FFF == most for w in memoryview(data).cast("H"))
