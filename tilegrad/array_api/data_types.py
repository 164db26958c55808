"""Dtypes by the standard: which there are, where two meet, what they hold.

The standard says where two integers meet and where two floats do. Where it says nothing, a bool
or an integer meets a float as tensors do (docs/dtypes.md); uint64 and a signed integer do not meet,
since what tensors give there, float32, is a loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from tilegrad.array_api.array import Array, as_array
from tilegrad.array_api.operators import is_number
from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.dtype_promotion import promote
from tilegrad.base.errors import DTypeError
from tilegrad.tensor import Tensor
from tilegrad.tensor.handle.broadcasting import broadcast_shape
from tilegrad.tensor.handle.core import as_dtype

__all__ = [
    "DEFAULT_INTEGER", "as_operands", "astype", "broadcast_arrays", "broadcast_to", "can_cast",
    "finfo", "iinfo", "isdtype", "meeting", "result_type", "scalar_dtype",
]  # fmt: skip

DEFAULT_INTEGER: Final = dtypes.int64
"""The dtype of new arrays of integers: that of sums of integers too, as the standard asks for.
Positions have 32 bits, and 64 where these do not do (`default_dtypes()["indexing"]`).
"""

_KINDS = {
    "bool": (dtypes.bool,),
    "signed integer": dtypes.signed,
    "unsigned integer": dtypes.unsigned,
    "integral": (*dtypes.signed, *dtypes.unsigned),
    "real floating": (*dtypes.floats, *dtypes.fp8s),
    "complex floating": (),
}
_KINDS["numeric"] = (*_KINDS["integral"], *_KINDS["real floating"])


def meeting(name: str, first: DType, second: DType) -> DType:
    """The dtype in which arrays of two dtypes meet.

    Raises DTypeError for uint64 beside a signed integer.
    """
    kinds = {first, second}
    if dtypes.uint64 in kinds and kinds & set(dtypes.signed):
        raise DTypeError(
            f"{name}: no integer holds all of {first.name} and of {second.name}",
            remedy="cast one of them with astype",
        )
    return promote(first, second)


def scalar_dtype(name: str, dtype: DType, value: Any) -> DType:
    """The dtype that the number `value` takes beside an array of `dtype`."""
    if isinstance(value, bool):
        return dtype
    if isinstance(value, int):
        return DEFAULT_INTEGER if dtype is dtypes.bool else dtype
    if isinstance(value, float):
        return dtype if dtype.is_float else dtypes.default_float
    raise DTypeError(
        f"{name}: a {type(value).__name__} cannot stand beside an array",
        rule="an array, or a bool, int or float",
    )


def as_operands(name: str, x1: Any, x2: Any) -> tuple[Tensor, Tensor]:
    """Two operands, at most one a Python number, as tensors of one dtype."""
    if isinstance(x1, Array) and isinstance(x2, Array):
        first, second = x1.tensor, x2.tensor
        if first.dtype is second.dtype:
            return first, second
        dtype = meeting(name, first.dtype, second.dtype)
        return first.cast(dtype), second.cast(dtype)
    if isinstance(x1, Array):
        first = x1.tensor
        value = plain(name, x2)
        dtype = scalar_dtype(name, first.dtype, value)
        return first.cast(dtype), _constant(value, dtype, first)
    second = as_array(name, x2).tensor
    value = plain(name, x1)
    dtype = scalar_dtype(name, second.dtype, value)
    return _constant(value, dtype, second), second.cast(dtype)


def plain(name: str, value: Any) -> Any:
    """A number as one of Python's."""
    if isinstance(value, (bool, int, float)):
        return value
    if not is_number(value):
        as_array(name, value)
    return value.item()


def _constant(value: Any, dtype: DType, beside: Tensor) -> Tensor:
    return Tensor(value, dtype=dtype, device=beside.device)


def _kind_of(value: Any) -> DType:
    return value.dtype if isinstance(value, Array) else as_dtype(value)


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype in which arrays, dtypes and numbers meet.

    Raises DTypeError for no dtype, and for uint64 beside a signed integer.

    >>> from tilegrad import array_api as xp
    >>> xp.result_type(xp.int8, xp.uint8, 1) == xp.int16
    True
    """
    numbers = [each for each in arrays_and_dtypes if is_number(each)]
    kinds = [_kind_of(each) for each in arrays_and_dtypes if not is_number(each)]
    if not kinds:
        raise DTypeError("result_type: at least one array or dtype is needed")
    found = kinds[0]
    for kind in kinds[1:]:
        found = meeting("result_type", found, kind)
    for number in numbers:
        found = scalar_dtype("result_type", found, plain("result_type", number))
    return found


def can_cast(from_: Any, to: DType, /) -> bool:
    """Whether a dtype, or that of an array, becomes `to` where both meet, by the standard's table.

    >>> from tilegrad import array_api as xp
    >>> xp.can_cast(xp.int8, xp.int16), xp.can_cast(xp.int64, xp.int16)
    (True, False)
    """
    source, target = _kind_of(from_), as_dtype(to)
    if source is target:
        return True
    are_integers = source.is_int and target.is_int
    if not are_integers and not (source.is_float and target.is_float):
        return False
    return promote(source, target) is target


def astype(x: Array, dtype: DType, /, *, copy: bool = True, device: str | None = None) -> Array:
    """The array in another dtype; with `copy=False` the array itself where it has that dtype.

    >>> from tilegrad import array_api as xp
    >>> xp.astype(xp.asarray([1.7, -1.7]), xp.int32).tensor.tolist()
    [1, -1]
    """
    tensor = as_array("astype", x).tensor
    kind = as_dtype(dtype)
    is_there = device is None or device == tensor.device
    if tensor.dtype is kind and is_there:
        return Array(tensor.clone()) if copy else x
    found = tensor.cast(kind)
    return Array(found if is_there else found.to(device))


def broadcast_to(x: Array, /, shape: tuple[int, ...]) -> Array:
    """The array with axes of size 1 repeated to `shape`.

    Raises ShapeError if they do not fit.

    >>> from tilegrad import array_api as xp
    >>> xp.broadcast_to(xp.asarray([1, 2]), (2, 2)).tensor.tolist()
    [[1, 2], [1, 2]]
    """
    return Array(as_array("broadcast_to", x).tensor.broadcast_to(tuple(shape)))


def broadcast_arrays(*arrays: Array) -> tuple[Array, ...]:
    """The arrays, each in the shape in which all meet.

    >>> from tilegrad import array_api as xp
    >>> [each.shape for each in xp.broadcast_arrays(xp.ones((2, 1)), xp.ones(3))]
    [(2, 3), (2, 3)]
    """
    tensors = [as_array("broadcast_arrays", each).tensor for each in arrays]
    if not tensors:
        return ()
    shape = broadcast_shape("broadcast_arrays", [tensor.uop for tensor in tensors])
    return tuple([Array(tensor.broadcast_to(shape)) for tensor in tensors])


@dataclass(frozen=True)
class FloatInfo:
    """Result of `finfo`."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IntegerInfo:
    """Result of `iinfo`."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: Any, /) -> FloatInfo:
    """The limits of a float dtype, or of an array's.

    Raises DTypeError for a dtype that is no float.

    >>> from tilegrad import array_api as xp
    >>> xp.finfo(xp.float64).eps == 2.0**-52
    True
    """
    kind = _kind_of(type)
    exponent, digits = dtypes.finfo(kind)
    least = math.ldexp(1.0, 2 - (1 << (exponent - 1)))
    largest = float(kind.largest)
    return FloatInfo(8 * kind.itemsize, 2.0**-digits, largest, -largest, least, kind)


def iinfo(type: Any, /) -> IntegerInfo:
    """The limits of an integer dtype, or of an array's.

    Raises DTypeError for a dtype that is no integer.

    >>> from tilegrad import array_api as xp
    >>> xp.iinfo(xp.int8).min
    -128
    """
    kind = _kind_of(type)
    if not kind.is_int:
        raise DTypeError(f"iinfo: {kind.name} is no integer")
    return IntegerInfo(8 * kind.itemsize, int(kind.max), int(kind.min), kind)


def isdtype(dtype: DType, kind: Any) -> bool:
    """Whether a dtype is `kind`: another dtype, the name of several, or a tuple of these.

    Raises ValueError for a name that the standard does not have.

    >>> from tilegrad import array_api as xp
    >>> xp.isdtype(xp.uint8, "integral"), xp.isdtype(xp.uint8, ("bool", xp.int8))
    (True, False)
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, each) for each in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ValueError(f"isdtype: {kind!r} is no kind; known: {', '.join(_KINDS)}")
        return dtype in _KINDS[kind]
    return dtype is kind
