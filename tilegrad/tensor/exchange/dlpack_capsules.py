"""DLPack: how array libraries of one process hand each other memory without a copy.

A capsule holds a pointer to a C struct that describes the memory, with a function that its taker
calls when it is done. There are two layouts: the old one, and a versioned one, which can say that
memory is read-only. This module knows the structs; `interchange.py` knows tensors.

Who takes our memory keeps it as long as he likes: a tensor that is written to meanwhile goes on in
other memory. Memory that we take is read in place and never written to, and its giver is told when
the last tensor over it has gone.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DataError, DTypeError

__all__ = ["CPU", "MAX_VERSION", "Incoming", "give", "take"]

CPU = (1, 0)
MAX_VERSION = (1, 1)
_HOSTS = (1, 3, 11)  # plain memory, and memory of the host that CUDA or ROCm have pinned
_READ_ONLY, _COPIED = 1, 2
_MAX_AXES = 32

# (code, bits) of each dtype.
_KINDS: dict[DType, tuple[int, int]] = {
    **{dtype: (0, 8 * dtype.itemsize) for dtype in dtypes.signed},
    **{dtype: (1, 8 * dtype.itemsize) for dtype in dtypes.unsigned},
    dtypes.float16: (2, 16), dtypes.float32: (2, 32), dtypes.float64: (2, 64),
    dtypes.bfloat16: (4, 16), dtypes.bool: (6, 8),
    dtypes.fp8e4m3: (10, 8), dtypes.fp8e4m3fnuz: (11, 8),
    dtypes.fp8e5m2: (12, 8), dtypes.fp8e5m2fnuz: (13, 8),
}  # fmt: skip
_DTYPES = {kind: dtype for dtype, kind in _KINDS.items()}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_number", ctypes.c_int32),
        ("axes", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_OLD, _NEW = b"dltensor", b"dltensor_versioned"
# A capsule keeps the pointer to its name, so the names of taken capsules live here.
_USED = {_OLD: ctypes.c_char_p(b"used_dltensor"), _NEW: ctypes.c_char_p(b"used_dltensor_versioned")}
_NAMES = {name: ctypes.c_char_p(name) for name in (_OLD, _NEW)}


def _api(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


# Capsules as addresses, since a destructor gets one that is no object any more.
_new = _api("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_is_valid = _api("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_pointer = _api("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_rename = _api("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_is_valid_at = _api("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_pointer_at = _api("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)

# Memory that is lent, by the address of its struct, until its taker is done with it.
_given: dict[int, Any] = {}


def _end(address: int | None, given: dict[int, Any] = _given) -> None:
    """The taker is done. The table is an argument, as at exit globals go first."""
    given.pop(address or 0, None)


def _drop(capsule: int | None, given: dict[int, Any] = _given) -> None:
    """A capsule dies; if its memory was not taken, it cannot be any more."""
    for name in (_OLD, _NEW):
        if _is_valid_at(capsule, name):
            given.pop(_pointer_at(capsule, name) or 0, None)


_done, _dropped = _Deleter(_end), _Deleter(_drop)


def give(
    memory: memoryview,
    address: int,
    dtype: DType,
    shape: Sequence[int],
    *,
    is_versioned: bool,
    is_copied: bool,
) -> Any:
    """A capsule with row-major `memory`, which lives until the taker is done.

    Raises DTypeError for a dtype that DLPack lacks.
    """
    kind = _KINDS.get(dtype)
    if kind is None:
        raise DTypeError(f"dlpack: DLPack has no {dtype.name}")
    axes = len(shape)
    strides = [1] * axes
    for axis in range(axes - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    # One array for both, at least one element long.
    numbers = (ctypes.c_int64 * (2 * axes + 1))(*shape, *strides)
    managed: Any = _Versioned() if is_versioned else _Managed()
    managed.deleter = ctypes.cast(_done, ctypes.c_void_p)
    if is_versioned:
        managed.major, managed.minor = MAX_VERSION
        managed.flags = _COPIED if is_copied else _READ_ONLY
    tensor = managed.tensor
    tensor.data = address if memory.nbytes else None
    tensor.device_type, tensor.device_number = CPU
    tensor.axes, (tensor.code, tensor.bits), tensor.lanes = axes, kind, 1
    pointer = ctypes.POINTER(ctypes.c_int64)
    tensor.shape = ctypes.cast(numbers, pointer)
    tensor.strides = ctypes.cast(ctypes.addressof(numbers) + 8 * axes, pointer)
    where = ctypes.addressof(managed)
    _given[where] = (managed, numbers, memory)
    destructor = ctypes.cast(_dropped, ctypes.c_void_p)
    return _new(where, _NAMES[_NEW if is_versioned else _OLD], destructor)


class Incoming(NamedTuple):
    """Memory that somebody gave: a row of elements, from the lowest address on; `memory` keeps it.
    Along an axis with a negative stride the tensor begins at the far end.
    """

    memory: memoryview
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def take(capsule: Any, name: str) -> Incoming:
    """The memory in a capsule; its giver is told when the last view of the memory has gone.

    Raises DataError for an object that is no capsule, was taken before, or is not in the host's
    memory; DTypeError for a dtype that tensors do not have. The capsule is then left as it was.
    """
    kind = next((each for each in (_NEW, _OLD) if _is_valid(capsule, each)), None)
    if kind is None:
        raise DataError(
            f"{name}: this is no capsule of DLPack, or it was taken already", got=f"{capsule!r:.80}"
        )
    address = _pointer(capsule, kind)
    managed: Any = (_Versioned if kind is _NEW else _Managed).from_address(address)
    if kind is _NEW and managed.major != MAX_VERSION[0]:
        raise DataError(
            f"{name}: this version of DLPack is unknown",
            expected=f"{MAX_VERSION[0]}.x",
            got=f"{managed.major}.{managed.minor}",
        )
    tensor = managed.tensor
    if tensor.device_type not in _HOSTS:
        raise DataError(
            f"{name}: the memory is on a device that the host does not reach",
            got=f"DLPack device {tensor.device_type}, {tensor.device_number}",
            remedy="move it to the CPU in its own library first",
        )
    dtype = _DTYPES.get((tensor.code, tensor.bits))
    if dtype is None or tensor.lanes != 1:
        raise DTypeError(
            f"{name}: no dtype of tensors is this one",
            got=f"DLPack code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes",
            known=", ".join(each.name for each in _KINDS),
        )
    axes = tensor.axes
    if not 0 <= axes <= _MAX_AXES:
        raise DataError(f"{name}: {axes} axes", expected=f"at most {_MAX_AXES}")
    shape = tuple(tensor.shape[axis] for axis in range(axes))
    strides = _strides(tensor, shape)
    is_empty = 0 in shape
    low = sum(min((n - 1) * step, 0) for n, step in zip(shape, strides))
    span = 1 + sum((n - 1) * abs(step) for n, step in zip(shape, strides))
    begin = (tensor.data or 0) + tensor.offset + low * dtype.itemsize
    size = 0 if is_empty else span * dtype.itemsize
    found = (ctypes.c_char * size).from_address(begin if size else ctypes.addressof(managed))
    _rename(capsule, _USED[kind])
    if managed.deleter:
        deleter: Callable[[int], None] = _Deleter(managed.deleter)
        weakref.finalize(found, deleter, address).atexit = False
    return Incoming(memoryview(found).cast("B").toreadonly(), dtype, shape, strides)


def _strides(tensor: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    if tensor.strides:
        return tuple(tensor.strides[axis] for axis in range(len(shape)))
    found = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        found[axis] = found[axis + 1] * shape[axis + 1]
    return tuple(found)
