"""`mma.sync`: matrix units whose operands are registers of a warp's lanes.

Operands of 16 bits come in pairs, those of 8 in fours, in a register of 32 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import CompileError
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.render.ptx_code import Code, kind_of, root
from tilegrad.render.ptx_memory import PTXMemory
from tilegrad.target import MatrixUnit

__all__ = ["WarpUnits"]

_UNIT_TYPES = {
    dtypes.float16: "f16",
    dtypes.bfloat16: "bf16",
    dtypes.float32: "f32",
    dtypes.int8: "s8",
    dtypes.int32: "s32",
    dtypes.fp8e4m3: "e4m3",
    dtypes.fp8e5m2: "e5m2",
}
# Bytes of a register of 32 bits.
_BYTES = 4


class WarpUnits:
    """The matrix units of one kernel whose operands are registers of a warp's lanes."""

    def __init__(self, code: Code, memory: PTXMemory, program: Sequence[UOp]):
        self.code, self.memory = code, memory
        self.whole_words = _whole_words(program)
        # The 32-bit register that two halves or four bytes were loaded as, by their registers.
        self.words: dict[tuple[str, ...], str] = {}
        # The register of a float32 operand as a unit reads it, by its own and the loop around.
        self.shortened: dict[tuple[str, UOp | None], str] = {}

    def load_word(self, node: UOp) -> tuple[str, ...]:
        """The names of four bytes that are one of `whole_words`."""
        # The bytes are never read one by one: their names stand for the word alone.
        names = tuple([self.code.new("b32") for _ in range(_BYTES)])
        address = self.memory.address(node.src[0], node.index).at()
        self.words[names] = self.code.op("b32", "ld.shared.b32", address)
        return names

    def multiply(self, node: UOp, body: UOp | None) -> Sequence[str]:
        """The registers of a product, in the body of the loop `body`."""
        unit: MatrixUnit = node.arg
        a, b, c = (self.packed(source) for source in node.src)
        if unit.digits:
            a, b = (self._shortened(source, names, body) for source, names in zip(node.src, (a, b)))
        kind_in = "tf32" if unit.digits else _UNIT_TYPES[unit.dtype_in]
        kind_out = _UNIT_TYPES[unit.dtype_out]
        kinds = f"{kind_out}.{kind_in}.{kind_in}.{kind_out}"
        shape = f"m{unit.m}n{unit.n}k{unit.k}.row.col.{kinds}"
        kind = kind_of(unit.dtype_out)
        kind = "b32" if kind == "b16" else kind
        made = [self.code.new(kind) for _ in c]
        groups = ", ".join(f"{{{', '.join(group)}}}" for group in (made, a, b, c))
        self.code.emit(f"mma.sync.aligned.{shape} {groups}")
        return made if unit.dtype_out.itemsize == 4 else self._unpacked(made)

    def fragment(self, node: UOp) -> Sequence[str]:
        """The registers of a lane's share of some matrices in shared memory."""
        count, is_transposed = node.arg
        (row,) = node.src
        address = self.memory.address(row.src[0], row.src[1]).at()
        made = [self.code.new("b32") for _ in range(count)]
        kind = f"{'trans.' if is_transposed else ''}shared.b16"
        self.code.emit(
            f"ldmatrix.sync.aligned.m8n8.x{count}.{kind} {{{', '.join(made)}}}, {address}"
        )
        itemsize = row.dtype.itemsize
        if itemsize == _BYTES:
            return [self.code.op("f32", "mov.b32", word) for word in made]
        if itemsize == 1:
            # The bytes are never read one by one: their names stand for the word alone.
            fours = [tuple([self.code.new("b32") for _ in range(_BYTES)]) for _ in made]
            self.words |= zip(fours, made, strict=True)
            return [name for four in fours for name in four]
        halves = self._unpacked(made)
        self.words |= zip(zip(halves[::2], halves[1::2], strict=True), made, strict=True)
        return halves

    def packed(self, node: UOp) -> list[str]:
        """The registers of 32 bits that hold an operand: pairs of 16-bit floats in one, or four
        bytes.
        """
        values = self.code.registers_of(self.code.lanes(node), kind_of(node.dtype))
        if node.dtype.itemsize == 1:
            fours = [tuple(values[at : at + _BYTES]) for at in range(0, len(values), _BYTES)]
            return [self.words.get(four) or self._four(four) for four in fours]
        if kind_of(node.dtype) != "b16":
            return values
        pairs = zip(values[::2], values[1::2], strict=True)
        return [
            self.words.get((low, high)) or self.code.op("b32", "mov.b32", f"{{{low}, {high}}}")
            for low, high in pairs
        ]

    def as_words(self, node: UOp) -> list[str]:
        """The registers of a BITCAST between pairs of 16-bit floats and words of 32 bits."""
        (source,) = node.src
        if kind_of(source.dtype) == "b16" and kind_of(node.dtype) == "b32":
            return self.packed(source)
        if kind_of(source.dtype) == "b32" and kind_of(node.dtype) == "b16":
            return self._unpacked(self.code.registers_of(self.code.lanes(source), "b32"))
        raise CompileError("render.ptx: bits of one size as another", node=repr(node)[:200])

    def _shortened(self, node: UOp, values: Sequence[str], body: UOp | None) -> list[str]:
        """The registers of float32 operands with the shorter fraction of a unit: one for each value
        in a body, unless it is an accumulator's, which changes.
        """
        is_changing = any(root(source).op is Ops.DEFINE_ACC for source in (node, *node.src))
        made = []
        for name in values:
            key = (name, body)
            found = None if is_changing else self.shortened.get(key)
            if found is None:
                found = self.shortened[key] = self.as_tf32(name)
            made.append(found)
        return made

    def as_tf32(self, name: str) -> str:
        """A float32 rounded to 10 digits behind the point: half of the last one is added, as a
        multiple of the number's power of two, and the digits behind it are cut. NaN stays NaN, and
        what is less than the normal numbers is only cut. (`cvt.rna.tf32.f32` does so with two
        comparisons more.)
        """
        code = self.code
        power = code.op("b32", "and.b32", code.op("b32", "mov.b32", name), "0xFF800000")
        half = code.constant(2.0**-11, dtypes.float32)
        total = code.op("f32", "fma.rn.f32", code.op("f32", "mov.b32", power), half, name)
        return code.op("b32", "and.b32", code.op("b32", "mov.b32", total), "0xFFFFE000")

    def _four(self, values: Sequence[str]) -> str:
        """The lowest bytes of four registers as one."""
        low, high = (
            self.code.op("b32", "prmt.b32", *values[at : at + 2], "0x0040") for at in (0, 2)
        )
        return self.code.op("b32", "prmt.b32", low, high, "0x5410")

    def _unpacked(self, words: Sequence[str]) -> list[str]:
        found = []
        for word in words:
            low, high = self.code.new("b16"), self.code.new("b16")
            self.code.emit(f"mov.b32 {{{low}, {high}}}, {word}")
            found += [low, high]
        return found


def _whole_words(program: Sequence[UOp]) -> set[UOp]:
    """Loads of four bytes from shared memory that are only ever a word of a matrix unit's
    operand.
    """
    operands = {
        source
        for node in program
        if node.op is Ops.WMMA
        for source in node.src[:2]
        if source.op is Ops.VECTORIZE and source.dtype.itemsize == 1
    }
    words: set[UOp] = set()
    others: set[UOp] = set()
    for node in program:
        if node not in operands:
            # Any other user of a byte needs it in a register of its own.
            others.update(node.src if node.op not in (Ops.GEP, Ops.WMMA) else node.src[2:])
            continue
        for at in range(0, len(node.src), _BYTES):
            four = node.src[at : at + _BYTES]
            if _is_word(four):
                words.add(four[0].src[0])
            else:
                others.update(four)
    read = {
        source.src[0] if source.op is Ops.GEP else source
        for node in others
        for source in (node.src if node in operands else (node,))
    }
    return words - read


def _is_word(four: Sequence[UOp]) -> bool:
    """Whether these are the bytes of one load from shared memory, in their order."""
    load = four[0].src[0] if four[0].op is Ops.GEP else four[0]
    return (
        load.op is Ops.LOAD
        and not load.is_gated
        and load.dtype.lanes == _BYTES
        and load.index.dtype.lanes == 1
        and root(load.src[0]).op is Ops.DEFINE_LOCAL
        and all(
            each.op is Ops.GEP and each.src[0] is load and each.arg == (lane,)
            for lane, each in enumerate(four)
        )
    )
