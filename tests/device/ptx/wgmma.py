"""`wgmma` on NumPy arrays, after the PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions":
sections "Register Fragments and Shared Memory Matrix Layouts", "Strides", "Matrix Descriptor
Format", "wgmma.fence" and "Async Proxy".

A matrix of 16-bit elements lies in shared memory in rows of 128 bytes, 8 of which are a group of
1024; the bits 4 to 6 of an address are XORed with its bits 7 to 9 (128-byte swizzling). Rows run
along K, or, if the matrix is transposed, along M or N.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.device.ptx.numbers import from_bfloat
from tests.device.ptx.parse import PTXError

__all__ = ["GROUP", "Matrix", "Shape", "decode", "shape_of"]

Array = np.ndarray[Any, Any]
# Threads of four warps.
GROUP = 128
_K = 16


@dataclass(frozen=True)
class Matrix:
    """What a descriptor says, in bytes."""

    start: int
    leading: int
    stride: int

    def addresses(self, size: int, is_transposed: bool) -> Array:
        """The byte at which element (i, k) lies, for `size` values of i and 16 of k."""
        i, k = np.meshgrid(np.arange(size), np.arange(_K), indexing="ij")
        if is_transposed:
            across, down = i // 64 * self.leading + i % 64 * 2, k // 8 * self.stride + k % 8 * 128
        else:
            across, down = k * 2, i // 8 * self.stride + i % 8 * 128
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
    """m64nNk16."""

    n: int
    kind: str

    def fragment(self) -> tuple[Array, Array]:
        """Rows and columns of the registers of each thread of a warpgroup."""
        thread = np.arange(GROUP)[:, None]
        register = np.arange(self.n // 2)[None, :]
        row = thread // 32 * 16 + thread % 32 // 4 + register // 2 % 2 * 8
        return row, register // 4 * 8 + thread % 4 * 2 + register % 2

    def multiply(self, a: Array, b: Array, total: Array) -> Array:
        """The registers of a @ b.T + total, of one warpgroup: a is (64, 16), b (n, 16) as bits."""
        left, right = ((from_bfloat(x) if self.kind == "bf16" else x.view(np.float16)).astype(
            np.float64) for x in (a, b))  # fmt: skip
        rows, columns = self.fragment()
        matrix = np.full((64, self.n), np.nan)
        matrix[rows, columns] = total.view(np.float32)
        with np.errstate(all="ignore"):
            exact = left @ right.T + matrix
            return exact[rows, columns].astype(np.float32).view(np.uint32)


def shape_of(name: str, kinds: tuple[str, ...]) -> Shape:
    found = re.fullmatch(r"m64n(\d+)k16", name)
    if found is None or int(found[1]) not in range(8, 257, 8):
        raise PTXError(f"no wgmma of {name}")
    out, left, right = kinds
    if out != "f32" or left != right or left not in ("f16", "bf16"):
        raise PTXError(f"no wgmma of {kinds}")
    return Shape(int(found[1]), left)
