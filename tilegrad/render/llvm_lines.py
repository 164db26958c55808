"""LLVM IR line by line: types, constants, and the lines of one function."""

from __future__ import annotations

import functools
import struct

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["Lines", "constant_of", "mangled", "memory_type", "type_of"]

_FLOATS = {
    dtypes.float16: "half",
    dtypes.bfloat16: "bfloat",
    dtypes.float32: "float",
    dtypes.float64: "double",
}
_SUFFIX = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}


@functools.cache
def type_of(dtype: DType) -> str:
    """The LLVM type of values of `dtype`."""
    scalar = dtype.scalar
    name = "i1" if scalar is dtypes.bool else _FLOATS.get(scalar) or f"i{scalar.itemsize * 8}"
    return name if dtype.lanes == 1 else f"<{dtype.lanes} x {name}>"


def memory_type(dtype: DType) -> str:
    """The LLVM type under which `dtype` lies in memory: a bool takes a byte."""
    return type_of(dtypes.uint8.vec(dtype.lanes)) if dtype.scalar is dtypes.bool else type_of(dtype)


def mangled(kind: str) -> str:
    """The type as intrinsic names spell it: `v16f32`, `i32`."""
    if kind.startswith("<"):
        count, _, inner = kind[1:-1].partition(" x ")
        return f"v{count}{mangled(inner)}"
    return _SUFFIX.get(kind, kind)


def constant_of(value: object, dtype: DType) -> str:
    """A constant's text: floats by their bits, so that every value survives."""
    if dtype.lanes > 1:
        return f"splat ({type_of(dtype.scalar)} {constant_of(value, dtype.scalar)})"
    if dtype is dtypes.bool:
        return "true" if value else "false"
    if not dtype.is_float:
        return str(int(value))  # type: ignore[call-overload]
    if dtype is dtypes.float16:
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    if dtype is dtypes.bfloat16:
        return f"0xR{struct.unpack('<I', struct.pack('<f', value))[0] >> 16:04X}"
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


class Lines:
    """Lines of one function, and the name of each node's value in them."""

    def __init__(self, name: str):
        self.name = name
        self.body: list[str] = []
        self.values: dict[UOp, str] = {}
        self.declared: dict[str, str] = {}
        self.count = 0
        self.block = "start"

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def line(self, text: str) -> None:
        self.body.append("  " + text)

    def make(self, text: str) -> str:
        name = self.fresh()
        self.line(f"{name} = {text}")
        return name

    def label(self, name: str) -> None:
        self.body.append(f"{name}:")
        self.block = name

    def call(
        self, intrinsic: str, kind: str, *arguments: tuple[str, str], suffix: str | None = None
    ) -> str:
        """A call of an LLVM intrinsic that is overloaded on `kind`."""
        full = f"llvm.{intrinsic}.{suffix or mangled(kind)}"
        self.declared[full] = f"declare {kind} @{full}({', '.join(each for each, _ in arguments)})"
        return self.make(
            f"call {kind} @{full}({', '.join(f'{each} {value}' for each, value in arguments)})"
        )

    def use(self, node: UOp) -> str:
        """The value of `node` here; an accumulator is read at this moment."""
        if node.op is Ops.CONST:
            return constant_of(node.arg, node.dtype)
        if node.op is Ops.DEFINE_ACC:
            return self.make(f"load {type_of(node.dtype)}, ptr {self.values[node]}")
        return self.values[node]
