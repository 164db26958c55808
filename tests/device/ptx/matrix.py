"""`mma.sync`: which lane holds which element, from the tables of the PTX ISA manual ("Matrix
Fragments for mma.m16n8k8", "... m16n8k16 with floating point type" and "... m16n8k32"), and what
the bits of an operand mean ("Alternate Floating-Point Data Formats").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.device.ptx.numbers import from_bfloat
from tests.device.ptx.parse import PTXError

__all__ = ["Shape", "eighths", "multiply", "of_bytes", "shape_of"]

Array = np.ndarray[Any, Any]
_LANES = np.arange(32)
_GROUP, _IN_GROUP = _LANES >> 2, _LANES % 4


@dataclass(frozen=True)
class Shape:
    """The shape m x n x k, with m = 16 and n = 8."""

    k: int
    kind: str = ""

    def rows(self, operand: str) -> tuple[Array, Array]:
        """Row and column of each element of each lane: arrays (32, elements)."""
        if self.k == 32 and operand == "a":
            numbers = range(16)
            row = [_GROUP + (8 if 4 <= i < 8 or i >= 12 else 0) for i in numbers]
            column = [_IN_GROUP * 4 + (i & 3) + (16 if i >= 8 else 0) for i in numbers]
        elif self.k == 32 and operand == "b":
            numbers = range(8)
            row = [_IN_GROUP * 4 + (i & 3) + (16 if i >= 4 else 0) for i in numbers]
            column = [_GROUP for _ in numbers]
        elif self.kind == "tf32" and operand == "a":
            row = [_GROUP + (8 if i in (1, 3) else 0) for i in range(4)]
            column = [_IN_GROUP + (4 if i >= 2 else 0) for i in range(4)]
        elif self.kind == "tf32" and operand == "b":
            row = [_IN_GROUP + 4 * i for i in range(2)]
            column = [_GROUP for _ in range(2)]
        elif operand == "a":
            numbers = range(4 if self.k == 8 else 8)
            row = [_GROUP + (8 if i in (2, 3, 6, 7) else 0) for i in numbers]
            column = [_IN_GROUP * 2 + (i & 1) + (8 if i >= 4 else 0) for i in numbers]
        elif operand == "b":
            numbers = range(2 if self.k == 8 else 4)
            row = [_IN_GROUP * 2 + (i & 1) + (8 if i >= 2 else 0) for i in numbers]
            column = [_GROUP for _ in numbers]
        else:
            row = [_GROUP + (8 if i >= 2 else 0) for i in range(4)]
            column = [_IN_GROUP * 2 + (i & 1) for i in range(4)]
        return np.stack(row, 1), np.stack(column, 1)

    def words(self, kind: str, operand: str) -> int:
        """How many registers of 32 bits a lane gives."""
        elements = self.rows(operand)[0].shape[1]
        return elements // {"f16": 2, "bf16": 2, "s8": 4, "e4m3": 4, "e5m2": 4}.get(kind, 1)


def shape_of(name: str, kind: str, out: str) -> Shape:
    if (name, kind, out) == ("m16n8k32", "s8", "s32"):
        return Shape(32)
    if name == "m16n8k32" and kind in ("e4m3", "e5m2") and out == "f32":
        return Shape(32)
    if (name, kind, out) == ("m16n8k8", "tf32", "f32"):
        return Shape(8, kind)
    known = {("m16n8k8", "f16"): 8, ("m16n8k16", "f16"): 16, ("m16n8k16", "bf16"): 16}
    if (name, kind) not in known or out not in ("f16", "f32") or (kind == "bf16" and out == "f16"):
        raise PTXError(f"no mma.{name} of {kind} and {out}")
    return Shape(known[name, kind])


def _values(words: Array, kind: str) -> Array:
    if kind == "f32":
        return words.view(np.float32).astype(np.float64)
    if kind == "s32":
        return words.view(np.int32).astype(np.float64)
    if kind == "tf32":
        if (words & 0x1FFF).any():
            raise PTXError("mma of float32 that is no tf32: its last 13 digits are not zero")
        return words.view(np.float32).astype(np.float64)
    if kind in ("e4m3", "e5m2"):
        return of_bytes(np.ascontiguousarray(words).view(np.uint8), kind)
    if kind == "s8":
        return np.ascontiguousarray(words).view(np.int8).astype(np.float64)
    halves = np.stack([words & 0xFFFF, words >> 16], -1).reshape(*words.shape[:-1], -1)
    bits = halves.astype(np.uint16)
    return (from_bfloat(bits) if kind == "bf16" else bits.view(np.float16)).astype(np.float64)


def of_bytes(bits: Array, kind: str) -> Array:
    """Floats of 8 bits: a sign, an exponent of 4 or 5 bits, and the rest of the fraction. With 4,
    only the largest pattern is NaN, and nothing is infinite.
    """
    digits = 3 if kind == "e4m3" else 2
    bias = 7 if kind == "e4m3" else 15
    exponent = (bits & 0x7F) >> digits
    fraction = (bits & ((1 << digits) - 1)).astype(np.float64) / (1 << digits)
    is_small = exponent == 0
    power = np.where(is_small, 1, exponent).astype(np.int64) - bias
    size = np.ldexp(np.where(is_small, fraction, 1 + fraction), power)
    if kind == "e4m3":
        size = np.where(bits & 0x7F == 0x7F, np.nan, size)
    else:
        size = np.where(exponent == 31, np.where(fraction == 0, np.inf, np.nan), size)
    return np.where(bits & 0x80, -size, size)


def _gathered(shape: Shape, operand: str, values: Array) -> Array:
    sizes = {"a": (16, shape.k), "b": (shape.k, 8), "c": (16, 8)}[operand]
    found = np.full((values.shape[0], *sizes), np.nan)
    rows, columns = shape.rows(operand)
    found[:, rows, columns] = values
    return found


def multiply(shape: Shape, kind: str, out: str, a: Array, b: Array, c: Array) -> Array:
    """The registers of a @ b + c, of registers (warp, lane, register)."""
    operands = [("a", a, kind), ("b", b, kind), ("c", c, out)]
    left, right, total = (
        _gathered(shape, name, _values(words, held)) for name, words, held in operands
    )
    with np.errstate(all="ignore"):
        exact = left @ right + total
        rows, columns = shape.rows("c")
        picked = exact[:, rows, columns]
        if out == "s32":
            # Exact in 53 bits; it wraps around.
            return picked.astype(np.int64).astype(np.uint32)
        if out == "f32":
            return picked.astype(np.float32).view(np.uint32)
        halves = picked.astype(np.float16).view(np.uint16).astype(np.uint32)
    return halves[..., 0::2] | halves[..., 1::2] << np.uint32(16)


def eighths(rows: Array, number: int, is_transposed: bool) -> Array:
    """The register of each thread for matrix `number` of `ldmatrix`, of rows (warp, lane, 8): two
    elements of row lane / 4, from column 2 * (lane % 4) on; of the transposed matrix, if so.
    """
    whole = rows[:, 8 * number : 8 * number + 8]
    if is_transposed:
        whole = whole.transpose(0, 2, 1)
    pairs = whole[:, _GROUP[:, None], _IN_GROUP[:, None] * 2 + np.arange(2)].astype(np.uint32)
    return pairs[..., 0] | pairs[..., 1] << np.uint32(16)
