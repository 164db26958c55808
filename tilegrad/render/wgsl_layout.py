"""How the elements of an array lie in WGSL's memory.

Dtypes of fewer than 32 bits lie packed in words, as on every other device. Where every access moves
four neighbours, or every one two, the array is one of vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilegrad.base.dtype import AddressSpace, DType, Pointer, dtypes
from tilegrad.base.errors import CompileError
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.render.inline import real
from tilegrad.target import Target

__all__ = ["ATOMIC", "Layout", "fills_words", "layout_of"]

_WORD = 4
_VECTORS = {dtypes.float32: "f32", dtypes.int32: "i32", dtypes.uint32: "u32"}
ATOMIC = {
    (Ops.ADD, dtypes.int32): "atomic<i32>",
    (Ops.ADD, dtypes.uint32): "atomic<u32>",
    (Ops.MAX, dtypes.int32): "atomic<i32>",
    (Ops.MAX, dtypes.uint32): "atomic<u32>",
    # The bits of floats are compared and exchanged.
    (Ops.ADD, dtypes.float32): "atomic<u32>",
}
_PLAIN = {
    **_VECTORS,
    dtypes.int64: "vec2<u32>",
    dtypes.uint64: "vec2<u32>",
    dtypes.float16: "f16",
    dtypes.float64: "f64",
}

_REGISTERS = {
    dtypes.bool: "bool",
    dtypes.int8: "i32",
    dtypes.int16: "i32",
    dtypes.uint8: "u32",
    dtypes.uint16: "u32",
}


@dataclass(frozen=True)
class Layout:
    """How the elements of one array lie.

    Attributes:
        element: the type of the array's elements.
        bits: of a value that shares its word with others, else 0.
        lanes: values of an element that is a vector.
        is_atomic: whether lanes may change one element at a time.
    """

    element: str
    bits: int = 0
    lanes: int = 1
    is_atomic: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of an element."""
        narrow = {"f16": 2, "f64": 8, "vec2<u32>": 8}
        return _WORD * self.lanes if self.lanes > 1 else narrow.get(self.element, _WORD)

    def length(self, size: int) -> int:
        """Elements of an array of `size` values."""
        per_element = 32 // self.bits if self.bits else self.lanes
        return max(1, -(-size // per_element))


def layout_of(node: UOp, program: Sequence[UOp], target: Target) -> Layout:
    """The layout of the array `node`, by the program's accesses to it."""
    pointer = node.dtype
    if not isinstance(pointer, Pointer):
        raise CompileError(f"render: parameter {node.arg} is no pointer", dtype=pointer)
    dtype = pointer.base
    loads = [n for n in program if n.op is Ops.LOAD and real(n.src[0]) is node]
    stores = [n for n in program if n.op is Ops.STORE and real(n.src[0]) is node]
    if dtype not in _PLAIN and (dtype.itemsize >= _WORD or not dtype.itemsize):
        raise CompileError(f"render: {target.name} has no memory of {dtype.name}", dtype=dtype)
    if pointer.space is AddressSpace.SCRATCH:
        return Layout(_PLAIN.get(dtype) or _REGISTERS[dtype])
    if dtype not in _PLAIN:
        is_atomic = any(not fills_words(store, dtype) for store in stores)
        return Layout("atomic<u32>" if is_atomic else "u32", 8 * dtype.itemsize, 1, is_atomic)
    combined = {store.arg for store in stores if store.arg is not None}
    if any((op, dtype) in ATOMIC for op in combined):
        return Layout(next(ATOMIC[op, dtype] for op in combined if (op, dtype) in ATOMIC),
                      is_atomic=True)  # fmt: skip
    counts = {n.dtype.lanes for n in loads} | {n.value.dtype.lanes for n in stores}
    if dtype in _VECTORS and counts in ({4}, {2}) and not combined:
        (lanes,) = counts
        return Layout(f"vec{lanes}<{_VECTORS[dtype]}>", lanes=lanes)
    return Layout(_PLAIN[dtype])


def fills_words(store: UOp, dtype: DType) -> bool:
    """Whether a store moves whole words: what is joined is aligned to its own size."""
    return store.arg is None and store.value.dtype.lanes * dtype.itemsize % _WORD == 0
