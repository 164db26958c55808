"""The types of values: scalars, vectors of scalars, and pointers into memory.

A `DType` is a singleton, so that types compare by identity and hash in no time. `index` is the type
of index arithmetic: an unbounded integer, for which the ordinary laws of algebra hold; lowering
turns it into int32 or int64.
"""

from __future__ import annotations

import math
import struct
import sys
import time
import weakref
from collections.abc import Callable
from types import FrameType, MethodType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from tilegrad.base.absent import absent, nearest
from tilegrad.base.float8 import FORMATS
from tilegrad.base.members import Members

__all__ = [
    "AddressSpace", "DType", "DTypeNames", "Pointer", "as_const", "can_lossless_cast", "dtypes",
    "nearest_dtype", "saturate", "truncate",
]  # fmt: skip


class AddressSpace(Members):
    """Where memory lives: `GLOBAL` outlives a kernel, `SHARED` is per block, `SCRATCH` and
    `REGISTER` per thread.
    """

    GLOBAL = "global"
    SHARED = "shared"
    SCRATCH = "scratch"
    REGISTER = "register"


# How a program under other names than tilegrad's prints a dtype: from the dtype and the frame that
# asks, the text, or None where the program uses tilegrad's own.
spellings: list[Callable[[DType, FrameType], str | None]] = []


class DType:
    """A scalar or vector type. `itemsize` is the bytes of one lane, `kind` one of bool int uint
    float index void.

    >>> dtypes.half.name, dtypes.half.itemsize, dtypes.half.vec(4)
    ('float16', 2, dtypes.half.vec(4))
    """

    __slots__ = (
        "_vectors",
        "alias",
        "is_float",
        "is_int",
        "itemsize",
        "kind",
        "lanes",
        "name",
        "scalar",
    )

    def __init__(
        self,
        name: str,
        itemsize: int,
        kind: str,
        alias: str,
        lanes: int = 1,
        scalar: DType | None = None,
    ):
        self.name = name
        self.itemsize = itemsize
        self.kind = kind
        self.alias = alias
        self.lanes = lanes
        self.scalar: DType = self if scalar is None else scalar
        self.is_float = kind == "float"
        self.is_int = kind in ("int", "uint", "index")
        self._vectors: dict[int, DType] = {}

    @property
    def is_floating_point(self) -> bool:
        """Whether values are floats (PyTorch's name)."""
        return self.is_float

    @property
    def is_signed(self) -> bool:
        """Whether a value can be below 0."""
        return self.kind in ("int", "float")

    @property
    def is_complex(self) -> bool:
        """False: complex numbers are pairs of floats."""
        return False

    @property
    def abbr(self) -> str:
        """A letter for the kind, and the bits (PyTorch's name)."""
        if self.name.startswith("fp8"):
            return f"f{self.name[2:]}" + "fn" * (self.name == "fp8e4m3")
        letter = "bf" if self.name == "bfloat16" else self.kind[0]
        return f"{letter}{self.itemsize * 8}"

    def to_real(self) -> DType:
        """This dtype: its numbers are real (PyTorch's name)."""
        return self

    @property
    def bits(self) -> int:
        return 1 if self.kind == "bool" else self.itemsize * 8

    @property
    def nbytes(self) -> int:
        """Bytes of the whole value, all lanes."""
        return self.itemsize * self.lanes

    def vec(self, lanes: int) -> DType:
        """This scalar type with `lanes` lanes; one lane is the scalar itself."""
        if self.lanes != 1:
            raise ValueError(f"vec: {self!r} is a vector already")
        if lanes == 1:
            return self
        found = self._vectors.get(lanes)
        if found is None:
            made = DType(f"{self.name}x{lanes}", self.itemsize, self.kind, self.alias, lanes, self)
            found = self._vectors.setdefault(lanes, made)
        return found

    def ptr(self, size: int = -1, space: AddressSpace = AddressSpace.GLOBAL) -> Pointer:
        """A pointer to `size` elements of this type (-1: unknown) in `space`."""
        key = self, size, space
        known = _pointers.get(key)
        if known is not None and (found := known()) is not None:
            return found
        made = Pointer(self, size, space)
        reference = weakref.ref(made, MethodType(_pointers.pop, key))
        if _pointers.setdefault(key, reference) is reference:
            return made
        # Another thread was first, or it is about to remove a dead pointer, as of nodes (`UOp`).
        del reference
        time.sleep(0)
        return self.ptr(size, space)

    @property
    def min(self) -> int | float | bool:
        """The smallest value: minus infinity for floats that have one."""
        if self.kind == "float":
            return -self.max
        if self.kind == "bool":
            return False
        if self.kind == "index":
            return -(2**63)
        if self.kind in ("void", "pointer"):
            return 0
        return 0 if self.kind == "uint" else -(1 << (self.itemsize * 8 - 1))

    @property
    def max(self) -> int | float | bool:
        """The largest value: plus infinity for floats that have one."""
        if self.kind == "float":
            short = FORMATS.get(self.scalar.name)
            return math.inf if short is None or short.has_infinity else short.largest
        if self.kind == "bool":
            return True
        if self.kind == "index":
            return 2**63
        if self.kind in ("void", "pointer"):
            return 0
        return (1 << (self.itemsize * 8 - (0 if self.kind == "uint" else 1))) - 1

    @property
    def largest(self) -> int | float | bool:
        """The largest value that is finite."""
        if self.kind != "float":
            return self.max
        found = FORMATS.get(self.scalar.name)
        if found is not None:
            return found.largest
        digits, last = _digits(self.scalar), _span(self.scalar)[1]
        return math.ldexp(2.0 - 2.0**-digits, last - 1)

    def __repr__(self) -> str:
        for spell in spellings:
            found = spell(self, sys._getframe(1))
            if found is not None:
                return found
        return self._own_name()

    def _own_name(self) -> str:
        suffix = "" if self.lanes == 1 else f".vec({self.lanes})"
        return f"dtypes.{self.alias}{suffix}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._own_name(),)

    def __lt__(self, other: DType) -> bool:
        return (self.name, self.lanes) < (other.name, other.lanes)


class Pointer(DType):
    """The address of `size` elements of `base` (a scalar or vector type) in `space`."""

    __slots__ = ("__weakref__", "base", "size", "space")

    def __init__(self, base: DType, size: int, space: AddressSpace):
        super().__init__(f"{base.name}*", 8, "pointer", base.alias, 1)
        self.base, self.size, self.space = base, size, space

    def __repr__(self) -> str:
        where = "" if self.space is AddressSpace.GLOBAL else f", {self.space!r}"
        size = "" if self.size == -1 and not where else str(self.size)
        return f"{self.base._own_name()}.ptr({size}{where})"

    def _own_name(self) -> str:
        return repr(self)


# Pointers that something has: a process of many shapes does not keep one for each.
_pointers: dict[tuple[DType, int, AddressSpace], weakref.ref[Pointer]] = {}


def _restore(text: str) -> DType:
    found = eval(text, {"dtypes": dtypes, "AddressSpace": AddressSpace, "__builtins__": {}})
    assert isinstance(found, DType)
    return found


class _Defaults:
    """The default dtypes, as a tuple that is one object as long as they are these: to compare that
    takes a tenth of the time of reading both. Each call of a method does so.
    """

    __slots__ = ("_known", "key")

    def __init__(self) -> None:
        self._known: dict[tuple[Any, Any], tuple[Any, Any]] = {}
        self.key: tuple[Any, Any] = (None, None)

    def note(self) -> None:
        key = dtypes.default_float, dtypes.default_int
        self.key = self._known.setdefault(key, key)


default_dtypes = _Defaults()


class DTypeNames(type):
    """The class of `dtypes`, which says of a name that it does not have which one was meant, and
    notes when a default dtype becomes another one.
    """

    def __setattr__(cls, name: str, value: object) -> None:
        super().__setattr__(name, value)
        default_dtypes.note()

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> NoReturn:
            raise absent("dtypes", name, _names())


def _names() -> list[str]:
    return [name for name, value in vars(dtypes).items() if isinstance(value, DType)]


def nearest_dtype(name: str) -> str:
    """The name of a dtype that was probably meant by `name`; empty if it is like none.

    >>> nearest_dtype("flaot32")
    'float32'
    """
    return nearest(name.rpartition(".")[2], _names())


class dtypes(metaclass=DTypeNames):
    """Every dtype by its name, and by the C-like name under which it prints (`float`, `long`,
    `uchar`).

    >>> dtypes.float32, dtypes.float, dtypes.int8.max
    (dtypes.float, dtypes.float, 127)
    """

    void: Final = DType("void", 0, "void", "void")
    bool: Final = DType("bool", 1, "bool", "bool")
    int8: Final = DType("int8", 1, "int", "char")
    uint8: Final = DType("uint8", 1, "uint", "uchar")
    int16: Final = DType("int16", 2, "int", "short")
    uint16: Final = DType("uint16", 2, "uint", "ushort")
    int32: Final = DType("int32", 4, "int", "int")
    uint32: Final = DType("uint32", 4, "uint", "uint")
    int64: Final = DType("int64", 8, "int", "long")
    uint64: Final = DType("uint64", 8, "uint", "ulong")
    fp8e4m3: Final = DType("fp8e4m3", 1, "float", "fp8e4m3")
    fp8e5m2: Final = DType("fp8e5m2", 1, "float", "fp8e5m2")
    fp8e4m3fnuz: Final = DType("fp8e4m3fnuz", 1, "float", "fp8e4m3fnuz")
    fp8e5m2fnuz: Final = DType("fp8e5m2fnuz", 1, "float", "fp8e5m2fnuz")
    float16: Final = DType("float16", 2, "float", "half")
    bfloat16: Final = DType("bfloat16", 2, "float", "bfloat16")
    float32: Final = DType("float32", 4, "float", "float")
    float64: Final = DType("float64", 8, "float", "double")
    index: Final = DType("index", 8, "index", "index")

    char, uchar, short, ushort = int8, uint8, int16, uint16
    int, uint, long, ulong = int32, uint32, int64, uint64
    half, float, double = float16, float32, float64
    # The names of PyTorch, and of NumPy's extension ml_dtypes.
    float8_e4m3fn, float8_e5m2 = fp8e4m3, fp8e5m2
    float8_e4m3fnuz, float8_e5m2fnuz = fp8e4m3fnuz, fp8e5m2fnuz

    default_float: Final = float32
    default_int: Final = int32

    # Those that arithmetic is done in, and those that are computed in float32.
    floats = (float16, bfloat16, float32, float64)
    fp8s = (fp8e4m3, fp8e5m2, fp8e4m3fnuz, fp8e5m2fnuz)
    signed = (int8, int16, int32, int64)
    unsigned = (uint8, uint16, uint32, uint64)
    all = (bool, *signed, *unsigned, *fp8s, *floats)

    @staticmethod
    def from_name(name: str) -> DType:
        """The dtype called `name` ("float32", "float", "long").

        Raises DTypeError if there is none.
        """
        from tilegrad.base.errors import DTypeError

        found = getattr(dtypes, name, None) if name.isidentifier() else None
        if not isinstance(found, DType):
            meant = nearest_dtype(name)
            raise DTypeError(
                f"dtype: no dtype is called {name!r}"
                + (f"; did you mean {meant!r}?" if meant else ""),
                known=", ".join(d.name for d in dtypes.all),
            )
        return found

    @staticmethod
    def finfo(dtype: DType) -> tuple[Any, Any]:
        """The bits of a float's exponent, and of its mantissa behind the point.

        Raises DTypeError for a dtype that is no float.

        >>> dtypes.finfo(dtypes.bfloat16), dtypes.finfo(dtypes.fp8e4m3)
        ((8, 7), (4, 3))
        """
        from tilegrad.base.errors import DTypeError

        if not dtype.is_float:
            raise DTypeError(
                f"finfo: {dtype.name} is no float",
                known=", ".join(d.name for d in (*dtypes.fp8s, *dtypes.floats)),
            )
        digits = _digits(dtype.scalar)
        return 8 * dtype.itemsize - 1 - digits, digits

    @staticmethod
    def min(dtype: DType) -> Any:
        """The smallest value of `dtype`; minus infinity for floats that have one.

        >>> dtypes.min(dtypes.int8), dtypes.min(dtypes.half), dtypes.min(dtypes.fp8e4m3)
        (-128, -inf, -448.0)
        """
        return dtype.min

    @staticmethod
    def max(dtype: DType) -> Any:
        """The largest value of `dtype`; infinity for floats that have one.

        >>> dtypes.max(dtypes.uint16), dtypes.max(dtypes.fp8e4m3fnuz)
        (65535, 240.0)
        """
        return dtype.max

    @staticmethod
    def is_float(dtype: DType) -> Any:
        return dtype.is_float

    @staticmethod
    def is_int(dtype: DType) -> Any:
        return dtype.is_int


default_dtypes.note()
_DIGITS = {dtypes.float16: 10, dtypes.bfloat16: 7, dtypes.float32: 23, dtypes.float64: 52}


def _digits(dtype: DType) -> int:
    """Bits of a float's mantissa behind the point."""
    found = FORMATS.get(dtype.name)
    return _DIGITS[dtype] if found is None else found.digits


def _span(dtype: DType) -> tuple[int, int]:
    """(e, f): every finite value of a float is a multiple of 2**e and less than 2**f."""
    found = FORMATS.get(dtype.name)
    digits = _digits(dtype)
    if found is not None:
        return 1 - found.bias - digits, math.frexp(found.largest)[1]
    last = 1 << (8 * dtype.itemsize - 2 - digits)
    return 2 - last - digits, last


def can_lossless_cast(source: DType, target: DType) -> bool:
    """Whether every value of `source` is one of `target`, infinities and -0.0 too.

    >>> can_lossless_cast(dtypes.uint8, dtypes.bfloat16)
    True
    >>> can_lossless_cast(dtypes.int16, dtypes.half)
    False
    """
    if source is target or source is dtypes.bool:
        return True
    if target is dtypes.bool or dtypes.void in (source, target):
        return False
    if not source.is_float and not target.is_float:
        return bool(target.min <= source.min and source.max <= target.max)
    if not target.is_float or source is dtypes.index:
        return False
    least, beyond = _span(target)
    if not source.is_float:
        bits = source.bits - (source.kind == "int")
        return bits <= _digits(target) + 1 and bits < beyond
    if target in dtypes.fp8s:
        return False  # none holds all of another: digits, range, infinities or -0.0
    lowest, highest = _span(source)
    return _digits(source) <= _digits(target) and least <= lowest and highest <= beyond


def _round_float(value: float, dtype: DType) -> float:
    if value != value:
        return math.nan  # one NaN: its sign and payload differ from machine to machine
    if dtype.itemsize == 1:
        return FORMATS[dtype.name].round(value)
    if dtype is dtypes.float64 or not math.isfinite(value):
        return value
    if dtype is dtypes.bfloat16:
        nearest = _round_float(value, dtypes.float32)
        if not math.isfinite(nearest):
            return nearest
        (bits,) = struct.unpack("<I", struct.pack("<f", nearest))
        if nearest != value:
            # Rounded to odd, so that rounding a second time gives the same as rounding once.
            bits = (bits - (abs(nearest) > abs(value))) | 1
        bits = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16
        (rounded,) = struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))
        return float(rounded)
    code = "<f" if dtype is dtypes.float32 else "<e"
    try:
        (rounded,) = struct.unpack(code, struct.pack(code, value))
    except OverflowError:
        return math.copysign(math.inf, value)
    return float(rounded)


def truncate(value: Any, dtype: DType) -> Any:
    """`value` as `dtype` holds it: floats rounded to nearest even, fixed-width integers wrapped
    around.

    >>> truncate(300, dtypes.uint8), truncate(0.1, dtypes.half)
    (44, 0.0999755859375)
    """
    kind = dtype.kind
    if kind == "float":
        return _round_float(float(value), dtype.scalar)
    if kind == "bool":
        return bool(value)
    if kind == "index":
        return int(value)
    bits = dtype.itemsize * 8
    value = int(value) & ((1 << bits) - 1)
    return value - (1 << bits) if kind == "int" and value >> (bits - 1) else value


def as_const(value: Any, dtype: DType) -> Any:
    """`value` as the argument of a CONST of `dtype`, as a cast gives it: a float outside an
    integer's range becomes the nearest integer of it, NaN 0.

    >>> as_const(2.7, dtypes.int32), as_const(300.5, dtypes.uint8), as_const(-1.0, dtypes.uint8)
    (2, 255, 0)
    """
    if isinstance(value, float) and not dtype.is_float and dtype.kind != "bool":
        return saturate(value, dtype)
    return truncate(value, dtype)


def saturate(value: float, dtype: DType) -> int:
    """A float as the integer of `dtype` that a cast gives: toward zero, the nearest that there is,
    0 for NaN.

    >>> saturate(-1e30, dtypes.int16), saturate(300.5, dtypes.uint8), saturate(-0.5, dtypes.int8)
    (-32768, 255, 0)
    """
    if value != value:
        return 0
    low, high = int(dtype.min), int(dtype.max)
    return high if value >= high else low if value <= low else int(value)
