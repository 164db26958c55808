"""Linear programs written by hand, run by the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.base.dtype import AddressSpace, DType, dtypes
from tilegrad.device.emulator import execute
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp
from tilegrad.runtime.dtype_arithmetic import decode, encode

__all__ = ["FLOAT", "HALF", "INT", "Program", "blank", "elements", "filled"]

INT, FLOAT, HALF = dtypes.int32, dtypes.float32, dtypes.float16


class Program:
    """A linear program under construction: every node is listed when it is made."""

    def __init__(self) -> None:
        self.nodes: list[UOp] = []

    def add(self, op: Ops, dtype: DType = dtypes.void, *src: UOp, arg: Any = None) -> UOp:
        node = UOp(op, dtype, src, arg)
        self.nodes.append(node)
        return node

    def all(self, root: UOp) -> UOp:
        """List what an expression needs and has not been listed yet."""
        known = set(self.nodes)
        self.nodes += [node for node in root.toposort() if node not in known]
        return root

    def const(self, value: Any, dtype: DType = INT) -> UOp:
        return self.add(Ops.CONST, dtype, arg=value)

    def data(self, slot: int, size: int, dtype: DType = FLOAT) -> UOp:
        return self.add(Ops.DEFINE_GLOBAL, dtype.ptr(size), arg=slot)

    def local(
        self,
        number: int,
        size: int,
        dtype: DType = FLOAT,
        place: AddressSpace = AddressSpace.SHARED,
    ) -> UOp:
        return self.add(Ops.DEFINE_LOCAL, dtype.ptr(size, place), arg=number)

    def special(self, name: str, extent: Any) -> UOp:
        return self.add(Ops.SPECIAL, INT, arg=(name, extent))

    def loop(self, extent: int | UOp, number: int = 0) -> UOp:
        count = extent if isinstance(extent, UOp) else self.const(extent)
        return self.add(Ops.RANGE, INT, count, arg=(number, Axis.REDUCE))

    def end(self, loop: UOp) -> UOp:
        return self.add(Ops.END, dtypes.void, loop)

    def run(self, *buffers: Any, **variables: int) -> None:
        execute([*self.nodes, UOp(Ops.SINK)], buffers, variables, name="r")


def filled(values: Sequence[Any], dtype: DType = FLOAT) -> bytearray:
    return bytearray(encode(values, dtype))


def blank(count: int, dtype: DType = FLOAT) -> bytearray:
    return bytearray(count * dtype.itemsize)


def elements(data: bytearray, dtype: DType = FLOAT) -> list[Any]:
    return list(decode(bytes(data), dtype))
