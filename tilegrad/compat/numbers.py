"""The dtypes as tinygrad's scripts name and change them, `Variable`, and habits of tensors."""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy

from tilegrad.base import dtype as ours
from tilegrad.base.dtype import DType
from tilegrad.base.dtype_promotion import least_upper_dtype, promote
from tilegrad.base.errors import DTypeError, TilegradError
from tilegrad.base.float8 import FORMATS
from tilegrad.ir.rules import simplify
from tilegrad.ir.text import render
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.core import as_dtype, live
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "ConstType", "DTypeLike", "Variable", "dtypes", "float_to_bf16", "float_to_fp8",
    "float_to_fp16", "fp8_to_float", "least_upper_float", "restored_defaults", "sum_acc_dtype",
    "to_dtype", "truncate",
]  # fmt: skip


def _set_default(name: str, dtype: DType, allowed: tuple[DType, ...]) -> None:
    if dtype not in allowed:
        raise DTypeError(
            f"dtypes.{name}: {dtype!r} cannot be the default",
            allowed=", ".join(each.name for each in allowed),
        )
    setattr(ours.dtypes, name, dtype)


class _Defaults(ours.DTypeNames):
    """Where `dtypes.default_float = dtypes.half` reaches the library."""

    @property
    def default_float(cls) -> DType:
        """The dtype of floats without one."""
        return ours.dtypes.default_float

    @default_float.setter
    def default_float(cls, dtype: DType) -> None:
        _set_default("default_float", dtype, ours.dtypes.floats)

    @property
    def default_int(cls) -> DType:
        """The dtype of integers without one."""
        return ours.dtypes.default_int

    @default_int.setter
    def default_int(cls, dtype: DType) -> None:
        _set_default("default_int", dtype, (ours.dtypes.int32, ours.dtypes.int64))


class dtypes(ours.dtypes, metaclass=_Defaults):
    """tilegrad's dtypes, with tinygrad's groups of them and questions about them."""

    uints = ours.dtypes.unsigned
    sints = ours.dtypes.signed
    ints = uints + sints

    @staticmethod
    def is_unsigned(dtype: DType) -> Any:
        return dtype.kind == "uint"

    @staticmethod
    def is_bool(dtype: DType) -> Any:
        return dtype.kind == "bool"

    @staticmethod
    def from_py(value: Any) -> DType:
        """The dtype that a tensor of a Python number, or of a list of them, has.

        Raises DTypeError for what is no number.
        """
        if isinstance(value, (list, tuple)):
            found = [dtypes.from_py(each) for each in value]
            return least_upper_dtype(*found) if found else dtypes.default_float
        kinds = {
            bool: ours.dtypes.bool,
            int: dtypes.default_int,
            float: dtypes.default_float,
        }
        if type(value) not in kinds:
            raise DTypeError(f"dtypes.from_py: a {type(value).__name__} is no number")
        return kinds[type(value)]

    @staticmethod
    def as_const(value: Any, dtype: DType) -> Any:
        """`value` as a Python number of the kind of `dtype`."""
        return ours.as_const(value, dtype)

    @staticmethod
    def fields() -> dict[str, DType]:
        """Every name of a dtype of tensors."""
        return {
            name: found
            for name, found in vars(ours.dtypes).items()
            if isinstance(found, DType) and found in ours.dtypes.all and "default" not in name
        }


ConstType = float | int | bool
DTypeLike = str | DType


def to_dtype(dtype: DTypeLike) -> DType:
    """A dtype, or the one of that name.

    >>> to_dtype("float32").name
    'float32'
    """
    return as_dtype(dtype)


def least_upper_float(dtype: DType) -> DType:
    """`dtype` if it is a float, else the default one.

    >>> least_upper_float(dtypes.half).name, least_upper_float(dtypes.int8).name
    ('half', 'float32')
    """
    return dtype if dtype.is_float else ours.dtypes.default_float


def sum_acc_dtype(dtype: DType) -> DType:
    """The dtype of tinygrad's sums of `dtype`: 32 bits at least, and 64 if it has them.

    >>> [sum_acc_dtype(each).name for each in (dtypes.uint8, dtypes.bool, dtypes.half)]
    ['uint32', 'int32', 'float32']
    """
    least = ours.dtypes.uint32 if dtype in ours.dtypes.unsigned else ours.dtypes.int32
    least = ours.dtypes.float32 if dtype.is_float else least
    return promote(dtype, least)


def _to_np_dtype(dtype: DType) -> Any:
    """NumPy's type of a dtype; None where it has none."""
    try:
        return numpy.dtype(dtype.name if dtype is not ours.dtypes.half else "float16").type
    except TypeError:
        return None


def _from_np_dtype(npdtype: Any) -> DType:
    """The dtype of NumPy's."""
    return as_dtype(numpy.dtype(npdtype))


def float_to_fp8(value: float, dtype: DType) -> int:
    """The bits of `value` rounded to a float of 8 bits; what is too large becomes the largest.

    >>> float_to_fp8(1.5, dtypes.fp8e4m3)
    60
    """
    kind = FORMATS[dtype.name]
    if value != value or (math.isinf(value) and dtype is ours.dtypes.fp8e4m3):
        # All ones, as tinygrad has it.
        sign = 0x80 if math.copysign(1.0, value) < 0 and not kind.has_one_zero else 0
        return kind.nan if kind.has_one_zero else sign | 0x7F
    if math.isfinite(value):
        value = max(-kind.largest, min(value, kind.largest))
    return kind.to_bits(kind.round(value))


def fp8_to_float(bits: int, dtype: DType) -> float:
    """The value of the 8 bits of a float.

    >>> fp8_to_float(60, dtypes.fp8e4m3)
    1.5
    """
    return FORMATS[dtype.name].values()[bits]


def float_to_fp16(value: float) -> float:
    """The float16 nearest to `value`.

    >>> float_to_fp16(1.00001), float_to_fp16(1e6)
    (1.0, inf)
    """
    return float(ours.truncate(value, ours.dtypes.float16))


def float_to_bf16(value: float) -> float:
    """The bfloat16 nearest to `value`.

    >>> float_to_bf16(1.01)
    1.0078125
    """
    return float(ours.truncate(value, ours.dtypes.bfloat16))


# Functions that round a number to a dtype, by the dtype.
truncate = {each: functools.partial(ours.truncate, dtype=each) for each in ours.dtypes.all}


@contextmanager
def restored_defaults() -> Iterator[None]:
    """A block in which tensors have tinygrad's habits, and after which the default dtypes are what
    they were.
    """
    before = {name: getattr(ours.dtypes, name) for name in ("default_float", "default_int")}
    _older.update({id(tensor): weakref.ref(tensor) for tensor in live()})
    methods = {name: getattr(Tensor, name) for name in _HABITS}
    for name, method in _HABITS.items():
        setattr(Tensor, name, method)
    for name, method in _NODE_METHODS.items():
        setattr(UOp, name, method)
    try:
        yield
    finally:
        _older.clear()
        for name in _NODE_METHODS:
            delattr(UOp, name)
        for name, method in methods.items():
            setattr(Tensor, name, method)
        for name, dtype in before.items():
            setattr(ours.dtypes, name, dtype)


# The tensors that were there before the script, by number.
_older: dict[int, weakref.ref[Any]] = {}
_plain_backward, _gelu, _numpy = Tensor.backward, Tensor.gelu, Tensor.numpy


def _tanh_gelu(self: Tensor, approximate: str = "tanh") -> Tensor:
    """`Tensor.gelu`, by default in the form with tanh."""
    return _gelu(self, approximate)


def _writable(self: Tensor) -> Any:
    """`Tensor.numpy`, an array that may be written to without the tensor's notice."""
    found = _numpy(self)
    return found if found.flags.writeable else found.copy()


def _backward(self: Tensor, gradient: Tensor | None = None, retain_graph: bool = True) -> Tensor:
    """`Tensor.backward`; where no tensor below was marked, every float that the script made and did
    not compute gets a gradient.

    Raises the plain error where two of them have one value, as in `Tensor.ones(2)` twice: equal
    graphs are one node, whose gradient is that of both.
    """
    try:
        return _plain_backward(self, gradient, retain_graph)
    except TilegradError as error:
        if type(error) is not TilegradError:
            raise
        made = [
            tensor
            for tensor in live()
            if isinstance(tensor, Tensor)
            and tensor._is_leaf
            and tensor.requires_grad is None
            and tensor.dtype.is_float
            and tensor is not gradient
            and not _is_older(tensor)
        ]
        found = zip(made, self.gradient(*made, gradient=gradient))
        reached = [(tensor, each) for tensor, each in found if each is not None]
        if not reached or len({tensor.uop for tensor, _ in reached}) < len(reached):
            raise
    for tensor, each in reached:
        tensor.grad = each if tensor.grad is None else tensor.grad + each
    return self


def _is_older(tensor: Any) -> bool:
    reference = _older.get(id(tensor))
    return reference is not None and reference() is tensor


# Methods with one name in both libraries, and another result.
_HABITS = {"backward": _backward, "gelu": _tanh_gelu, "numpy": _writable}


# Methods of tinygrad's nodes that are functions here.
_NODE_METHODS: dict[str, Any] = {
    "simplify": simplify,
    "render": lambda self, simplify=True, pm=None: render(_simplified(self) if simplify else self),
    "const_like": lambda self, b: UOp.const(self.dtype, b),
}


def _simplified(node: UOp) -> UOp:
    return simplify(node)


class _AnyNode(type):
    """`isinstance(x, Variable)` asks for a node: a variable, a bound one, or what is made of it."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, UOp)


class Variable(metaclass=_AnyNode):
    """`Variable("n", 1, 8)` is a `UOp`, as `tilegrad.Variable` makes it; a dtype is not needed."""

    def __new__(  # type: ignore[misc]  # a variable is a node
        cls, name: str, min_val: int, max_val: int, dtype: DType | None = None
    ) -> UOp:
        return UOp.variable(name, min_val, max_val)
