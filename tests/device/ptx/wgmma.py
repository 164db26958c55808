"""`wgmma` on NumPy arrays, after the PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions":
sections "Register Fragments and Shared Memory Matrix Layouts", "Strides", "Matrix Descriptor
Format", "wgmma.fence" and "Async Proxy".

A matrix of elements of 16 or 8 bits lies in shared memory in rows of 128 bytes, 8 of which are a
group of 1024; the bits 4 to 6 of an address are XORed with its bits 7 to 9 (128-byte swizzling).
Rows run along K, or, if a matrix of 16 bits is transposed, along M or N. K is 32 bytes. The left
matrix may lie in registers instead ("Register Fragments for wgmma.mma_async.m64nNk16").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.device.ptx.matrix import of_bytes
from tests.device.ptx.numbers import from_bfloat
from tests.device.ptx.parse import PTXError

__all__ = ["GROUP", "Matrix", "Shape", "decode", "shape_of"]

Array = np.ndarray[Any, Any]
# Threads of four warps.
GROUP = 128
_K_BYTES = 32


@dataclass(frozen=True)
class Matrix:
    """What a descriptor says, in bytes."""

    start: int
    leading: int
    stride: int

    def addresses(self, size: int, is_transposed: bool, itemsize: int = 2) -> Array:
        """The byte at which element (i, k) lies, for `size` values of i and 32 bytes of k."""
        i, k = np.meshgrid(np.arange(size), np.arange(_K_BYTES // itemsize), indexing="ij")
        if is_transposed:
            across, down = i // 64 * self.leading + i % 64 * 2, k // 8 * self.stride + k % 8 * 128
        else:
            across, down = k * itemsize, i // 8 * self.stride + i % 8 * 128
        plain = self.start + across + down
        return plain ^ (plain >> 7 & 7) << 4


def decode(bits: int) -> Matrix:
    """The fields of a matrix descriptor.

    Raises PTXError for what no kernel here may say.
    """
    if bits >> 62 != 1:
        raise PTXError(f"a matrix that is not swizzled by 128 bytes: mode {bits >> 62}")
    known = 0x3FFF | 0x3FFF << 16 | 0x3FFF << 32 | 3 << 62
    if bits & ~known:
        raise PTXError(f"a matrix descriptor with bits that mean nothing: {bits & ~known:#x}")
    start, leading, stride = ((bits >> at & 0x3FFF) << 4 for at in (0, 16, 32))
    return Matrix(start, leading, stride)


@dataclass(frozen=True)
class Shape:
    """m64nNk16, m64nNk32 of bytes, or m64nNk8 of tf32."""

    n: int
    kind: str

    @property
    def itemsize(self) -> int:
        return {"f16": 2, "bf16": 2, "tf32": 4}.get(self.kind, 1)

    @property
    def word(self) -> str:
        """The type of the registers of the results."""
        return "b32" if self.kind == "s8" else "f32"

    def constants(self, descriptors: int) -> list[list[str]]:
        """The operands allowed after the descriptors: scale-d, no negation, transposition."""
        signs = [] if self.kind == "s8" else [["1"]] * 2
        across = [["0", "1"]] * descriptors if self.itemsize == 2 else []
        return [["0", "1"], *signs, *across]

    def left(self, registers: Sequence[Array]) -> Array:
        """The bits of the left matrix (64, 16), of the four registers of a warpgroup's threads: two
        elements in each, the lower one first.
        """
        if self.itemsize != 2 or len(registers) != 4:
            raise PTXError(f"{len(registers)} registers for a matrix of {self.kind}")
        found = np.zeros((64, 16), np.uint16)
        for thread in range(GROUP):
            warp, group, within = thread // 32, thread % 32 // 4, thread % 4
            for number, register in enumerate(registers):
                row = 16 * warp + group + (8 if number in (1, 3) else 0)
                column = 2 * within + (8 if number in (2, 3) else 0)
                word = int(register[thread])
                found[row, column], found[row, column + 1] = word & 0xFFFF, word >> 16
        return found

    def values(self, bits: Array) -> Array:
        """The numbers of an operand's bits."""
        if self.kind == "bf16":
            return from_bfloat(bits)
        if self.kind == "f16":
            return bits.view(np.float16)
        if self.kind == "tf32":
            return of_tf32(bits)
        return bits.view(np.int8) if self.kind == "s8" else of_bytes(bits, self.kind)

    def fragment(self) -> tuple[Array, Array]:
        """Rows and columns of the registers of each thread of a warpgroup."""
        thread = np.arange(GROUP)[:, None]
        register = np.arange(self.n // 2)[None, :]
        row = thread // 32 * 16 + thread % 32 // 4 + register // 2 % 2 * 8
        return row, register // 4 * 8 + thread % 4 * 2 + register % 2

    def multiply(self, a: Array, b: Array, total: Array) -> Array:
        """The registers of a @ b.T + total, of one warpgroup: a is (64, k), b (n, k) as bits."""
        left, right = (self.values(x).astype(np.float64) for x in (a, b))
        rows, columns = self.fragment()
        matrix = np.full((64, self.n), np.nan)
        matrix[rows, columns] = total.view(np.int32 if self.kind == "s8" else np.float32)
        with np.errstate(all="ignore"):
            exact = left @ right.T + matrix
            if self.kind == "s8":
                # Exact in 53 bits; it wraps around.
                return exact[rows, columns].astype(np.int64).astype(np.uint32)
            return exact[rows, columns].astype(np.float32).view(np.uint32)


def shape_of(name: str, kinds: tuple[str, ...]) -> Shape:
    found = re.fullmatch(r"m64n(\d+)k(8|16|32)", name)
    if found is None or int(found[1]) not in range(8, 257, 8):
        raise PTXError(f"no wgmma of {name}")
    out, left, right = kinds
    known = {"f16": "f32", "bf16": "f32", "tf32": "f32", "e4m3": "f32", "e5m2": "f32", "s8": "s32"}
    if left != right or known.get(left) != out:
        raise PTXError(f"no wgmma of {kinds}")
    shape = Shape(int(found[1]), left)
    if int(found[2]) * shape.itemsize != _K_BYTES:
        raise PTXError(f"no wgmma of {name} for {left}")
    if left == "s8" and shape.n % 16 and shape.n not in (8, 24):
        raise PTXError(f"no wgmma of {name} for {left}")
    return shape


def of_tf32(bits: Array) -> Array:
    """The numbers of a matrix of `.tf32`: float32 whose last 13 bits are ignored.

    Raises PTXError where they are not zero, as what a unit makes of them is not written.
    """
    words = np.ascontiguousarray(bits).view(np.uint32)
    if (words & 0x1FFF).any():
        raise PTXError("a matrix of tf32 whose floats are not rounded")
    return words.view(np.float32)
