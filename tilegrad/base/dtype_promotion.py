"""Which dtype holds the values of several: promotion, and the dtypes of sums."""

from __future__ import annotations

from tilegrad.base.dtype import DType, dtypes

__all__ = ["least_upper_dtype", "promote", "sum_dtype", "total_dtype"]


# The least upper type of two: bool < unsigned and signed integers < floats of 8 bits <
# half/bfloat16 < float < double.
# An unsigned type meets a signed one at the next wider signed type; uint64 with a signed one gives
# float32, as it has no integer above.
_PARENTS: dict[DType, tuple[DType, ...]] = {
    dtypes.bool: (dtypes.int8, dtypes.uint8),
    dtypes.int8: (dtypes.int16,),
    dtypes.int16: (dtypes.int32,),
    dtypes.int32: (dtypes.int64,),
    dtypes.int64: dtypes.fp8s,
    dtypes.uint8: (dtypes.int16, dtypes.uint16),
    dtypes.uint16: (dtypes.int32, dtypes.uint32),
    dtypes.uint32: (dtypes.int64, dtypes.uint64),
    dtypes.uint64: dtypes.fp8s,
    **dict.fromkeys(dtypes.fp8s, (dtypes.float16, dtypes.bfloat16)),
    dtypes.float16: (dtypes.float32,),
    dtypes.bfloat16: (dtypes.float32,),
    dtypes.float32: (dtypes.float64,),
    dtypes.float64: (),
}


_ORDER = (
    dtypes.bool, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.int32,
    dtypes.uint32, dtypes.int64,
    dtypes.uint64, *dtypes.fp8s, dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64,
)  # fmt: skip


def _ancestors(dtype: DType) -> frozenset[DType]:
    return frozenset({dtype}).union(*(_ancestors(parent) for parent in _PARENTS[dtype]))


_ABOVE = {dtype: _ancestors(dtype) for dtype in _ORDER}


_PROMOTED: dict[tuple[DType, DType], DType] = {
    (a, b): min(_ABOVE[a] & _ABOVE[b], key=_ORDER.index) for a in _ORDER for b in _ORDER
}


_PROMOTED |= {
    pair: dtypes.float32 for d in dtypes.signed for pair in ((dtypes.uint64, d), (d, dtypes.uint64))
}


_PROMOTED |= {(dtypes.index, d): d if d.is_float else dtypes.index for d in _ORDER}


_PROMOTED |= {(d, dtypes.index): d if d.is_float else dtypes.index for d in _ORDER}


_PROMOTED[dtypes.index, dtypes.index] = dtypes.index


def promote(a: DType, b: DType) -> DType:
    """The dtype in which `a` and `b` meet (the table is in docs/dtypes.md).

    >>> promote(dtypes.int32, dtypes.half)
    dtypes.half
    """
    return _PROMOTED[a, b]


def least_upper_dtype(*several: DType) -> DType:
    """The dtype in which all of `several` meet, from left to right.

    >>> least_upper_dtype(dtypes.int8, dtypes.uint8, dtypes.bool)
    dtypes.short
    """
    met = several[0]
    for dtype in several[1:]:
        met = promote(met, dtype)
    return met


def sum_dtype(dtype: DType) -> DType:
    """The dtype in which a sum is kept: small integers and bool widen to 32 bits, half, bfloat16
    and the floats of 8 bits to float32.

    >>> sum_dtype(dtypes.uint8)
    dtypes.uint
    """
    if dtype is dtypes.bool:
        return dtypes.int32
    if dtype.is_int and dtype.itemsize < 4:
        return dtypes.int32 if dtype.kind == "int" else dtypes.uint32
    return dtypes.float32 if dtype.is_float and dtype.itemsize < 4 else dtype


def total_dtype(dtype: DType) -> DType:
    """The dtype in which the elements of a tensor are added up or multiplied: that of sums for
    floats, int64 for all integers and bool, so that no count of them wraps.

    >>> total_dtype(dtypes.uint8)
    dtypes.long
    """
    return sum_dtype(dtype) if dtype.is_float else dtypes.int64
