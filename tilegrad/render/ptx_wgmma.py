"""`wgmma`: matrix units of four warps that read their operands from shared memory by themselves, or
the left one from registers.

An operand is a *matrix descriptor* of 64 bits (PTX ISA, "Asynchronous Warpgroup Level Matrix
Instructions", sections "Matrix Descriptor Format" and "Strides"), in units of 16 bytes:

    bits 0-13     where it begins        bits 16-29    leading: between rows of one term, which
                                                       rows along the sum do not have
    bits 32-45    stride: between        bits 62-63    1: rows of 128 bytes, whose vectors are
                  groups of 8 rows                     swizzled

Units that follow each other add to the same registers, and nothing touches these until
`wgmma.wait_group`. `wgmma.fence` orders what was written to them before; `fence.proxy.async` what
lanes have written to shared memory, before the barrier behind which a unit reads it. So the
operands in registers of all units that follow each other are packed before the first one begins.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.base.dtype import Pointer, dtypes
from tilegrad.base.errors import CompileError
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.render.ptx_code import Code, kind_of, root
from tilegrad.render.ptx_memory import PTXMemory
from tilegrad.render.ptx_warp_units import WarpUnits
from tilegrad.target import MatrixUnit

__all__ = ["WarpGroups", "descriptor", "needless"]

# Bytes that a descriptor counts in, and its mode of swizzling, in the upper word.
_UNIT, _SWIZZLED_128 = 16, 1 << 30
_KINDS = {
    dtypes.float16: "f16",
    dtypes.bfloat16: "bf16",
    dtypes.float32: "tf32",
    dtypes.int8: "s8",
    dtypes.fp8e4m3: "e4m3",
    dtypes.fp8e5m2: "e5m2",
}
_PURE = frozenset({Ops.LOAD, Ops.CONST, Ops.CAST, Ops.BITCAST, Ops.VECTORIZE, Ops.GEP, Ops.SPECIAL})


def needless(program: Sequence[UOp]) -> set[UOp]:
    """Nodes that only the lanes' loads of an operand need: a unit that reads shared memory by
    itself needs none of them.
    """
    if all(node.op is not Ops.DESCRIPTOR for node in program):
        return set()
    needed: set[UOp] = set()
    for node in reversed(program):
        if node in needed or not (node.op.is_alu or node.op in _PURE):
            needed.update(node.src[1:] if node.op is Ops.DESCRIPTOR else node.src)
            needed.add(node)
    return set(program) - needed


def descriptor(code: Code, memory: PTXMemory, node: UOp, fixed: int) -> str:
    """The register of an operand's descriptor; `fixed` are bits of its upper word."""
    _, pointer, index = node.src
    leading, stride, _ = node.arg
    address, array = memory.plain(pointer, index), root(pointer).dtype
    assert isinstance(array, Pointer)
    itemsize = array.base.nbytes
    low = (leading * itemsize // _UNIT << 16) + address.offset // _UNIT
    word = code.op("b32", "shr.u32", address.base, "4")
    if low:
        word = code.op("b32", "add.s32", word, str(low))
    upper = code.in_register(str(fixed + stride * itemsize // _UNIT), "b32")
    return code.op("b64", "mov.b64", f"{{{word}, {upper}}}")


class WarpGroups:
    """The units of one kernel."""

    def __init__(self, code: Code, memory: PTXMemory, units: WarpUnits, program: Sequence[UOp]):
        self.code, self.memory, self.units = code, memory, units
        # The registers of units without a wait.
        self._open: dict[UOp, list[str]] = {}
        # The unit that adds to the result of another, and the registers of left operands.
        self._next = {
            node.src[2]: node
            for node in program
            if node.op is Ops.WMMA and node.src[2].op is Ops.WMMA
        }
        self._packed: dict[UOp, list[str]] = {}

    def descriptor(self, node: UOp) -> str:
        """The register of an operand."""
        return descriptor(self.code, self.memory, node, _SWIZZLED_128)

    def multiply(self, node: UOp, total: Sequence[str]) -> list[str]:
        """The registers of a unit's results, which are `total` where that is another's."""
        unit: MatrixUnit = node.arg
        code, (a, b, c) = self.code, node.src
        read = (b,) if unit.takes_left else (a, b)
        if unit.dtype_in not in _KINDS or any(each.op is not Ops.DESCRIPTOR for each in read):
            raise CompileError(f"render.ptx: {unit.name} reads shared memory only")
        is_added = c.op is Ops.WMMA or (c.op is Ops.WAIT and c.arg)
        if is_added and c not in self._open:
            raise CompileError(f"render.ptx: two units add to what one {unit.name} gives")
        if is_added:
            made = self._open.pop(c)
        elif _is_nothing(c):
            made = [code.new(kind_of(unit.dtype_out)) for _ in range(c.dtype.lanes)]
        else:
            kind_out = kind_of(unit.dtype_out)
            made = [code.op(kind_out, f"mov.{kind_out}", value) for value in total]
        if unit.takes_left and node not in self._packed:
            self._pack(node)
            code.emit("wgmma.fence.sync.aligned")
        elif c.op is not Ops.WMMA:
            code.emit("wgmma.fence.sync.aligned")
        kind = _KINDS[unit.dtype_in]
        out = "f32" if unit.dtype_out.is_float else "s32"
        shape = f"m{unit.m}n{unit.n}k{unit.k}.{out}.{kind}.{kind}"
        # It adds to the present value, if any; floats may be negated, and halves lie across the
        # sum.
        rest = [str(int(not _is_nothing(c))), *["1"] * (2 * unit.dtype_in.is_float)]
        if unit.dtype_in.itemsize == 2:
            rest += [str(int(each.arg[2])) for each in read]
        left = f"{{{', '.join(self._packed.pop(node))}}}" if unit.takes_left else code.scalar(a)
        operands = ", ".join([left, code.scalar(b), *rest])
        code.emit(f"wgmma.mma_async.sync.aligned.{shape} {{{', '.join(made)}}}, {operands}")
        self._open[node] = made
        return made

    def _pack(self, node: UOp) -> None:
        """The registers of the left operand, and of those of the units that follow, as far as they
        are there: nothing may be written between units.
        """
        each: UOp | None = node
        while each is not None and each.src[0] in self.code.values:
            self._packed[each] = self.units.packed(each.src[0])
            each = self._next.get(each)

    def wait(self, node: UOp) -> tuple[str, ...]:
        """The registers of a unit's results, which are there if it waits for all."""
        made = self._open.pop(node.src[0])
        if node.src[0].op is Ops.WMMA:
            self.code.emit("wgmma.commit_group.sync.aligned")
        self.code.emit(f"wgmma.wait_group.sync.aligned {node.arg or 0}")
        if node.arg:
            self._open[node] = made
        return tuple(made)


def _is_nothing(total: UOp) -> bool:
    """Whether a unit adds to zeros."""
    if total.op not in (Ops.CONST, Ops.VECTORIZE):
        return False
    return all(each.op is Ops.CONST and each.arg == 0 for each in (total.src or (total,)))
