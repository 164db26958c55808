"""Values of the host, Python's and NumPy's, to bytes and back.

Lists are packed without NumPy, so that a program that never asks for an array never imports it.
Data of the host is copied at once: a list or an array that changes later does not change the
    tensor.
"""

from __future__ import annotations

import functools
import struct
import sys
from collections.abc import Sequence
from typing import Any

from tilegrad.base.dtype import DType, as_const, dtypes
from tilegrad.base.errors import DTypeError, ShapeError, article
from tilegrad.base.float8 import FORMATS
from tilegrad.ir.op import Ops

__all__ = [
    "array_fields", "array_from", "buffer_fields", "dtype_of_numbers", "few_numbers", "flatten",
    "format_of", "is_array", "is_plain_array", "moved", "moved_bytes", "nested", "pack", "unpack",
]  # fmt: skip

# The struct code of each dtype; bfloat16 goes through float32, floats of 8 bits by tables.
_CODES = {
    dtypes.bool: "?", dtypes.int8: "b", dtypes.uint8: "B", dtypes.int16: "h", dtypes.uint16: "H",
    dtypes.int32: "i", dtypes.uint32: "I", dtypes.int64: "q", dtypes.uint64: "Q",
    dtypes.float16: "e", dtypes.float32: "f", dtypes.float64: "d",
}  # fmt: skip
# Numbers of Python, and how many of them are few, in lists within lists.
_NUMBERS = frozenset({bool, int, float})
_MOST_FEW, _MOST_DEEP = 1 << 14, 16


def flatten(data: Sequence[Any]) -> tuple[list[Any], tuple[int, ...]]:
    """The numbers of a nested list in row-major order, and its shape.

    Raises ShapeError if the list is ragged, naming the place, or contains itself.
    """
    shape: list[int] = []
    above: set[int] = set()
    level: list[Any] = [data]
    while level and all(isinstance(each, (list, tuple)) for each in level):
        # One list at two depths would have two numbers of axes.
        now = {id(each) for each in level}
        if not above.isdisjoint(now):
            odd = next(at for at, each in enumerate(level) if id(each) in above)
            raise ShapeError("Tensor: a list that contains itself", at=_written_index(odd, shape))
        above |= now
        lengths = {len(each) for each in level}
        if len(lengths) > 1:
            odd = next(at for at, each in enumerate(level) if len(each) != len(level[0]))
            raise ShapeError(
                f"Tensor: a ragged list: {len(level[0])} and {len(level[odd])} elements "
                "side by side",
                first=_written_index(0, shape),
                other=_written_index(odd, shape),
            )
        shape.append(len(level[0]))
        level = [item for each in level for item in each]
    for at, item in enumerate(level):
        if isinstance(item, (list, tuple)):
            raise ShapeError(
                "Tensor: a ragged list: a number and a list side by side",
                at=_written_index(at, shape),
            )
    return level, tuple(shape)


def _written_index(at: int, shape: Sequence[int]) -> str:
    """How a program writes element `at` of `data`, which has the given shape."""
    steps: list[str] = []
    for size in reversed(shape):
        at, step = divmod(at, size)
        steps.append(f"[{step}]")
    return "data" + "".join(reversed(steps))


def few_numbers(
    data: Sequence[Any], dtype: DType | None
) -> tuple[bytes, DType, tuple[int, ...]] | None:
    """(bytes, dtype, shape) of nested lists of bools, integers and floats; None if there are none,
    or many, or something else.

    Raises ShapeError if the list is ragged, DTypeError if an integer does not fit.
    """
    first: Any = data
    count = 1
    for _ in range(_MOST_DEEP):
        if not isinstance(first, (list, tuple)):
            break
        count *= len(first)
        if not 0 < count <= _MOST_FEW:
            return None
        first = first[0]
    if first.__class__ not in _NUMBERS:
        return None
    values, shape = flatten(data)
    if not _NUMBERS.issuperset(map(type, values)):
        return None
    kind = dtype or dtype_of_numbers(values)
    return pack(values, kind), kind, shape


def dtype_of_numbers(values: Sequence[Any]) -> DType:
    """bool if all are, the default int if all are integers, else the default float."""
    kinds = set(map(type, values))
    if kinds <= {bool} and values:
        return dtypes.bool
    if kinds <= {bool, int} and values:
        return dtypes.default_int
    for kind in kinds - {bool, int, float}:
        raise DTypeError(
            f"Tensor: a list holds {article(kind.__name__)}", rule="numbers, or lists of numbers"
        )
    return dtypes.default_float


def pack(values: Sequence[Any], dtype: DType) -> bytes:
    """The bytes of `values` in `dtype`.

    Raises DTypeError if an integer does not fit.
    """
    if dtype in dtypes.fp8s:
        to_bits = FORMATS[dtype.name].to_bits
        return bytes([to_bits(as_const(value, dtype)) for value in values])
    if dtype is dtypes.bfloat16:
        words = struct.unpack(
            f"<{len(values)}I",
            struct.pack(f"<{len(values)}f", *[as_const(value, dtype) for value in values]),
        )
        return struct.pack(f"={len(values)}H", *[word >> 16 for word in words])
    if dtype.is_int and any(type(value) is float for value in values):
        values = [as_const(value, dtype) if type(value) is float else value for value in values]
    try:
        return struct.pack(f"={len(values)}{_CODES[dtype]}", *values)
    except struct.error as error:
        for value in values:
            if not (hasattr(value, "__index__") or hasattr(value, "__float__")):
                raise DTypeError(
                    f"Tensor: {article(type(value).__name__)} is no number: {value!r}"
                ) from error
            if dtype.is_int and not dtype.min <= value <= dtype.max:
                raise DTypeError(
                    f"Tensor: {value} does not fit {dtype.name}",
                    remedy=f"pass dtype={_wider(value)!r}",
                ) from error
        if not dtype.is_float:
            raise
        return _pack_rounded(values, dtype)
    except OverflowError:
        return _pack_rounded(values, dtype)


def _pack_rounded(values: Sequence[Any], dtype: DType) -> bytes:
    """The bytes of numbers, where some, integers too, overflow to infinity."""
    rounded = [as_const(value, dtype) for value in values]
    return struct.pack(f"={len(values)}{_CODES[dtype]}", *rounded)


def _wider(value: int) -> DType:
    return dtypes.int64 if -(1 << 63) <= value < 1 << 63 else dtypes.float64


# Functions that take one number from bytes, which is the most frequent read.
_ONE = {
    dtype: struct.Struct(f"={code}").unpack
    for dtype, code in _CODES.items()
    if dtype is not dtypes.bfloat16 and dtype not in dtypes.fp8s
}


def unpack(data: memoryview, dtype: DType, count: int) -> tuple[Any, ...]:
    """`count` numbers from bytes."""
    if count == 1:
        one = _ONE.get(dtype)
        if one is not None:
            return one(data)
    if dtype in dtypes.fp8s:
        table = FORMATS[dtype.name].values()
        return tuple([table[bits] for bits in data.cast("B")])
    if dtype is dtypes.bfloat16:
        words = struct.unpack(f"={count}H", data)
        return struct.unpack(
            f"<{count}f", struct.pack(f"<{count}I", *[word << 16 for word in words])
        )
    return struct.unpack(f"={count}{_CODES[dtype]}", data)


def nested(values: Sequence[Any], shape: Sequence[int]) -> Any:
    """Numbers in row-major order as nested lists; a number for no axes."""
    if not shape:
        return values[0]
    level: list[Any] = list(values)
    for axis in range(len(shape) - 1, 0, -1):
        size = shape[axis]
        rows = 1
        for other in shape[:axis]:
            rows *= other
        level = [level[at * size : (at + 1) * size] for at in range(rows)]
    return level


# NumPy, for those who use it


def is_array(data: Any) -> bool:
    """Whether `data` is a NumPy array or scalar, or gives one, as pictures and the arrays of other
    libraries do; this imports no NumPy.
    """
    return hasattr(data, "__array__") or hasattr(data, "__array_interface__")


def is_plain_array(data: Any) -> bool:
    """Whether `data` is a NumPy array, and of no subclass; this imports no NumPy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and data.__class__ is numpy.ndarray


def buffer_fields(data: Any) -> tuple[bytes, DType, tuple[int, ...]] | None:
    """(bytes, dtype, shape) of an object with a buffer; None if it has none. Bytes are uint8.

    Raises DTypeError for a buffer of a dtype that tensors do not hold.
    """
    try:
        view = memoryview(data)
    except TypeError:
        return None
    code = view.format.lstrip("@=" + ("<" if sys.byteorder == "little" else ">!"))
    kinds = {"?": "bool", **dict.fromkeys("bhilqn", "int"), **dict.fromkeys("BHILQNc", "uint")}
    kind = kinds.get(code, "float" if code in ("e", "f", "d") else "")
    for dtype in dtypes.all:
        is_plain = dtype is not dtypes.bfloat16 and dtype not in dtypes.fp8s
        if is_plain and dtype.kind == kind and dtype.itemsize == view.itemsize:
            return view.tobytes(), dtype, tuple(view.shape or ())
    raise DTypeError(
        f"Tensor: no dtype for a buffer of {view.format!r}",
        known=", ".join(d.name for d in dtypes.all),
    )


def array_fields(data: Any) -> tuple[bytes, DType, tuple[int, ...], Any]:
    """(bytes, dtype, shape, the number if it has no axes) of an array in any layout and byte order.

    Raises DTypeError for a dtype that tensors do not have.
    """
    import numpy

    array = numpy.asarray(data)
    name = array.dtype.name
    known = getattr(dtypes, name, None)
    if known not in dtypes.all:
        raise DTypeError(
            f"Tensor: no dtype for an array of {array.dtype}",
            known=", ".join(d.name for d in dtypes.all),
        )
    if array.dtype.byteorder not in ("=", "|", "<" if sys.byteorder == "little" else ">"):
        array = array.astype(array.dtype.newbyteorder("="))
    is_foreign = known is dtypes.bfloat16 or known in dtypes.fp8s
    number = array.astype(numpy.float64).item() if is_foreign and array.ndim == 0 else None
    if array.ndim == 0 and number is None:
        number = array.item()
    return array.tobytes(), known, array.shape, number


@functools.cache
def _knows_half() -> bool:
    try:
        cast: Any = memoryview(bytes(2)).cast
        cast("e")
    except ValueError:
        return False
    return True


def format_of(dtype: DType) -> str:
    """The code under which a memoryview knows `dtype`; bfloat16 is 16 bits to it (and so is a half,
    to those of older Pythons), and a float of 8 bits a byte.
    """
    if dtype is dtypes.float16 and not _knows_half():
        return "H"
    return _CODES.get(dtype, "H" if dtype.itemsize == 2 else "B")


def array_from(data: memoryview, dtype: DType, shape: Sequence[int]) -> Any:
    """The bytes as a NumPy array, not copied; bfloat16 and floats of 8 bits become float32."""
    import numpy

    if dtype in dtypes.fp8s:
        table = numpy.array(FORMATS[dtype.name].values(), numpy.float32)
        return table[numpy.frombuffer(data, numpy.uint8)].reshape(shape)

    if dtype is dtypes.bfloat16:
        words = numpy.frombuffer(data, numpy.uint16).astype(numpy.uint32) << 16
        return words.view(numpy.float32).reshape(shape)
    return numpy.frombuffer(data, dtype.name).reshape(shape)


def bytes_of_array(array: Any, dtype: DType, shape: Sequence[int], name: str) -> memoryview:
    """The bytes of the result of the function `name` for a tensor of `dtype` and `shape`.

    Raises ShapeError or DTypeError if that is something else.
    """
    data, found, sizes, _ = array_fields(array)
    if tuple(sizes) != tuple(shape):
        raise ShapeError(f"apply: {name} gave shape {tuple(sizes)}, not {tuple(shape)}")
    if found is not dtype:
        raise DTypeError(f"apply: {name} gave {found.name}, not {dtype.name}")
    return memoryview(data)


def moved(array: Any, op: Ops, arg: Any) -> Any:
    """The result of a movement op on an array."""
    import numpy

    match op:
        case Ops.RESHAPE:
            return array.reshape(arg)
        case Ops.PERMUTE:
            return array.transpose(arg)
        case Ops.EXPAND:
            return numpy.broadcast_to(array, arg)
        case Ops.PAD:
            return numpy.pad(array, arg)
        case Ops.SHRINK:
            return array[tuple(slice(start, end) for start, end in arg)]
        case Ops.FLIP:
            return array[tuple(slice(None, None, -1 if flipped else 1) for flipped in arg)]
        case _:
            assert op is Ops.DETACH, op
            return array


def moved_bytes(raw: memoryview, itemsize: int, moves: Sequence[tuple[Ops, Any]]) -> memoryview:
    """The bytes, in row-major order, that movement ops, in order, leave of a memory of elements of
    `itemsize` bytes.
    """
    import numpy

    array: Any = numpy.frombuffer(raw, f"u{itemsize}")
    for op, arg in moves:
        array = moved(array, op, arg)
    flat: Any = numpy.ascontiguousarray(array).reshape(-1)
    return memoryview(flat).cast("B")
