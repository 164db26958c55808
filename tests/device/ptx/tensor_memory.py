"""`tcgen05` on NumPy arrays, after the PTX ISA 9.2, "TensorCore 5th Generation Family Instructions"
(9.7.16): sections "Tensor Memory", "Matrix Shape", "Data Movement Shape", "Strides", "Shared Memory
Descriptor" (table 40), "Instruction Descriptor" (table 42), "Issue Granularity" and "Memory
Consistency Model".

Tensor memory has 128 lanes and 512 columns of 32 bits. It is not there before a warp has asked for
it, and must be given back. What one lane has begun to multiply comes to it when a lane waits for
the phase of a commit, and not before; what is loaded is in registers when the warp waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.device.ptx import wgmma
from tests.device.ptx.parse import PTXError

__all__ = ["Product", "Shape", "TensorMemory", "decode", "fragment", "instruction"]

Array = np.ndarray[Any, Any]
_LANES, _COLUMNS, _WARP = 128, 512, 32
# The lane is in the upper half of an address.
_LANE = 16
_UNKNOWN = 0xFFC5A5A5


def decode(bits: int) -> wgmma.Matrix:
    """The fields of a descriptor of an operand in shared memory.

    Raises PTXError for what no kernel here may say.
    """
    if bits >> 46 & 7 != 1:
        raise PTXError(f"bits 46-48 of a matrix descriptor are {bits >> 46 & 7:#05b}, not 0b001")
    if bits >> 61 != 2:
        raise PTXError(f"a matrix that is not swizzled by 128 bytes: mode {bits >> 61}")
    known = 0x3FFF | 0x3FFF << 16 | 0x3FFF << 32 | 7 << 46 | 7 << 61
    if bits & ~known:
        raise PTXError(f"a matrix descriptor with bits that mean nothing: {bits & ~known:#x}")
    start, leading, stride = ((bits >> at & 0x3FFF) << 4 for at in (0, 16, 32))
    return wgmma.Matrix(start, leading, stride)


@dataclass(frozen=True)
class Shape:
    """What an instruction's descriptor says: M, N, the type of the operands, and which of them are
    transposed.
    """

    m: int
    n: int
    kind: str
    across: tuple[bool, bool]

    @property
    def itemsize(self) -> int:
        return {"f16": 2, "bf16": 2, "tf32": 4}.get(self.kind, 1)

    def multiply(self, a: Array, b: Array, total: Array | None) -> Array:
        """The bits of a @ b.T + total: a is (m, k), b (n, k), total (m, n), all as bits."""
        values = wgmma.Shape(self.n, self.kind).values
        is_integer = self.kind == "s8"
        with np.errstate(all="ignore"):
            exact = values(a).astype(np.float64) @ values(b).astype(np.float64).T
            if total is not None:
                exact = exact + total.view(np.int32 if is_integer else np.float32)
            if is_integer:
                # Exact in 53 bits; it wraps around.
                return exact.astype(np.int64).astype(np.uint32)
            return exact.astype(np.float32).view(np.uint32)


# By kind: the number of the type of the results, and the types of the operands by their numbers.
_KINDS = {
    "f16": (1, {0: "f16", 1: "bf16"}),
    "tf32": (1, {2: "tf32"}),
    "i8": (2, {1: "s8"}),
    "f8f6f4": (1, {0: "e4m3", 1: "e5m2"}),
}


def instruction(bits: int, kind: str, blocks: int = 1) -> Shape:
    """The fields of an instruction's descriptor, for `.kind::` kind and a group of `blocks`.

    Raises PTXError for what no kernel here may say.
    """
    if kind not in _KINDS:
        raise PTXError(f"no tcgen05.mma of kind {kind}")
    known = 3 << 4 | 7 << 7 | 7 << 10 | 3 << 15 | 0x3F << 17 | 0x1F << 24
    if bits & ~known:
        raise PTXError(f"an instruction descriptor with bits {bits & ~known:#x}")
    result, left, right = bits >> 4 & 3, bits >> 7 & 7, bits >> 10 & 7
    wanted, types = _KINDS[kind]
    if result != wanted or left != right or left not in types:
        raise PTXError(f"no {kind} of types {left} and {right} to {result}")
    n, m = (bits >> 17 & 0x3F) << 3, (bits >> 24 & 0x1F) << 4
    if m != blocks * _LANES or n % (16 * blocks) or not 16 <= n <= 256:
        raise PTXError(f"no product of {m}x{n}")
    across = (bool(bits >> 15 & 1), bool(bits >> 16 & 1))
    if any(across) and kind != "f16":
        raise PTXError(f"a transposed operand of kind {kind}")
    return Shape(m, n, types[left], across)


def fragment(shape: str, count: int) -> tuple[Array, Array, int]:
    """Lanes and columns of tensor memory, from the first, of each register of each thread of a
    warp; and how many lanes there are.
    """
    thread = np.arange(_WARP)[:, None]
    if shape == "32x32b":
        return thread + np.zeros((1, count), int), np.arange(count)[None, :] + 0 * thread, 32
    if shape != "16x256b":
        raise PTXError(f"no tcgen05.ld of {shape}")
    register = np.arange(4 * count)[None, :]
    lane = thread // 4 + register // 2 % 2 * 8
    return lane, register // 4 * 8 + thread % 4 * 2 + register % 2, 16


@dataclass
class Product:
    """Products that a lane has begun: in which blocks and which columns they are added to, and what
    the unit reads, each with its block. Blocks other than the lane's are `freed` of these reads as
    they have waited for it.
    """

    blocks: range
    block: int
    lane: int
    columns: range
    shape: tuple[int, int, str]
    reads: list[tuple[int, Array, Array]]
    number: int
    is_done: bool = False
    freed: set[int] = field(default_factory=set)


@dataclass
class _Block:
    """Tensor memory as a block sees it. `values` are there, `coming` will be."""

    lanes: int
    values: Array = field(default_factory=lambda: np.full((_LANES, _COLUMNS), _UNKNOWN, np.uint32))
    coming: Array = field(default_factory=lambda: np.zeros((_LANES, _COLUMNS), np.uint32))
    is_set: Array = field(default_factory=lambda: np.zeros(_COLUMNS, bool))
    # First column -> how many, and the warp that asked for them.
    live: dict[int, tuple[int, int]] = field(default_factory=dict)
    is_given_up: bool = False
    # All that was begun, by lane; and what is not done.
    begun: dict[int, list[Product]] = field(default_factory=dict)
    products: list[Product] = field(default_factory=list)
    # By column, the number of the last product that is added to it.
    latest: Array = field(default_factory=lambda: np.zeros(_COLUMNS, np.int64))

    def __post_init__(self) -> None:
        # The last product of each column that lanes know to be done; whether they must fence before
        # they go on; whether they have fenced before a barrier; and how far their loads are: begun
        # (1), waited for (2), fenced (3).
        self.knows = np.zeros((self.lanes, _COLUMNS), np.int64)
        self.is_behind = np.zeros(self.lanes, bool)
        self.has_fenced = np.zeros(self.lanes, bool)
        self.loads = np.zeros(self.lanes, np.int8)

    def held(self, first: int, count: int) -> range:
        if not any(
            start <= first and first + count <= start + n for start, (n, _) in self.live.items()
        ):
            raise PTXError(f"columns {first} to {first + count} of tensor memory are not allocated")
        return range(first, first + count)


class TensorMemory:
    """The tensor memory of each block of a launch."""

    def __init__(self, blocks: int, lanes: int):
        self._blocks = [_Block(lanes) for _ in range(blocks)]
        # Products so far.
        self._count = 0

    # memory

    def allocate(self, block: int, lanes: Array, count: int) -> int:
        """The address of columns for a warp: never the first ones."""
        each = self._blocks[block]
        if each.is_given_up:
            raise PTXError("tcgen05.alloc behind tcgen05.relinquish_alloc_permit")
        if count not in (32, 64, 128, 256, 512):
            raise PTXError(f"tcgen05.alloc of {count} columns")
        first = min(each.live, default=_COLUMNS) - count
        if first < 0:
            raise PTXError(f"tcgen05.alloc waits for ever for {count} columns")
        each.live[first] = (count, int(lanes[0]) // _WARP)
        return first

    def give_up(self, block: int) -> None:
        self._blocks[block].is_given_up = True

    def free(self, block: int, lanes: Array, address: int, count: int) -> None:
        each = self._blocks[block]
        if each.live.get(address) != (count, int(lanes[0]) // _WARP):
            raise PTXError(f"tcgen05.dealloc of {count} columns at {address:#x}")
        self._is_ordered(each, lanes, "tcgen05.dealloc")
        if any(set(of.columns) & set(range(address, address + count)) for of in each.products):
            raise PTXError("tcgen05.dealloc while a matrix unit works")
        del each.live[address]

    def _is_ordered(self, each: _Block, lanes: Array, what: str) -> None:
        """An error where other lanes may still load, or these have not fenced behind a barrier."""
        if each.is_behind[lanes].any():
            raise PTXError(f"{what} without tcgen05.fence::after_thread_sync")
        others = np.ones(each.lanes, bool)
        others[lanes] = False
        if (each.loads[others] > 0).any() or (each.loads[lanes] == 1).any():
            raise PTXError(f"{what} while lanes load, or without the fence and barrier behind it")

    def close(self) -> None:
        """The kernel ends."""
        for each in self._blocks:
            if each.products:
                raise PTXError("a kernel ends while a matrix unit works")
            if each.live:
                raise PTXError(f"a kernel ends with tensor memory: {sorted(each.live)}")

    # units

    def multiply(
        self, blocks: range, block: int, lane: int, address: int, shape: Shape, left: list[Array],
        right: Array, reads: list[tuple[int, Array, Array]], *, adds: bool,
    ) -> None:  # fmt: skip
        """A lane of `block` begins a product, of operands as they are now: of each of `blocks` the
        rows that it has.
        """
        if address >> _LANE:
            raise PTXError("results of 128 rows begin at lane 0")
        key, self._count = (shape.m, shape.n, shape.kind), self._count + 1
        columns = next(self._blocks[of].held(address, shape.n) for of in blocks)
        begun = Product(blocks, block, lane, columns, key, reads, self._count)
        at = slice(columns.start, columns.stop)
        for of, rows in zip(blocks, left):
            each = self._blocks[of]
            if of == block:
                self._is_ordered(each, np.array([lane]), "tcgen05.mma")
            elif (each.loads > 0).any():
                raise PTXError("tcgen05.mma while lanes of the other block load")
            for other in each.products:
                if set(other.columns) & set(columns) and (
                    (other.block, other.lane, other.columns, other.shape)
                    != (block, lane, columns, key)
                ):
                    raise PTXError("tcgen05.mma that is not ordered with another one")
            if adds and not each.is_set[at].all():
                raise PTXError("tcgen05.mma adds to what nobody wrote")
            total = each.coming[:, at].copy() if adds else None
            each.coming[:, at] = shape.multiply(rows, right, total)
            each.is_set[at], each.values[:, at], each.latest[at] = True, _UNKNOWN, self._count
            each.products.append(begun)
        own = self._blocks[block]
        own.begun.setdefault(lane, []).append(begun)
        own.has_fenced[lane] = False

    def committed(self, block: int, lane: int) -> list[Product]:
        """What a lane has begun until now, which a commit tracks."""
        return list(self._blocks[block].begun.get(lane, ()))

    def done(self, products: Iterable[Product]) -> None:
        """Products are there, unless others that add to the same columns are on their way."""
        for each in products:
            if each.is_done:
                continue
            each.is_done = True
            for block in [self._blocks[of] for of in each.blocks]:
                block.products.remove(each)
                if not any(set(of.columns) & set(each.columns) for of in block.products):
                    at = slice(each.columns.start, each.columns.stop)
                    block.values[:, at] = block.coming[:, at]

    def know(self, block: int, products: Iterable[Product], lanes: Array) -> None:
        """Lanes of a block have waited for the phase of these products."""
        own = self._blocks[block]
        for each in products:
            own.is_behind[lanes] = True
            at = np.ix_(lanes, each.columns)
            own.knows[at] = np.maximum(own.knows[at], each.number)

    # lanes

    def load(self, block: int, lanes: Array, address: int, shape: str, count: int) -> Array:
        """The registers of a warp."""
        each = self._blocks[block]
        rows, columns, height = fragment(shape, count)
        lane, first = address >> _LANE, address & (1 << _LANE) - 1
        quarter = lanes[0] // _WARP % 4 * _WARP
        if lane not in range(quarter, quarter + _WARP, height):
            raise PTXError(f"warp {lanes[0] // _WARP} loads from lane {lane} of tensor memory")
        held = each.held(first, int(columns.max()) + 1)
        at = slice(held.start, held.stop)
        if each.is_behind[lanes].any():
            raise PTXError("tcgen05.ld without tcgen05.fence::after_thread_sync")
        if not each.is_set[at].all():
            raise PTXError("tcgen05.ld of what nobody wrote")
        if any(set(of.columns) & set(held) for of in each.products):
            raise PTXError("tcgen05.ld while a matrix unit adds to the columns")
        if (each.knows[lanes, at] < each.latest[at]).any():
            raise PTXError("tcgen05.ld by lanes that have not waited for the units")
        each.loads[lanes], each.has_fenced[lanes] = 1, False
        return each.values[lane + rows, first + columns]

    def waited(self, block: int, lanes: Array) -> None:
        own = self._blocks[block].loads
        own[lanes] = np.where(own[lanes] == 1, 2, own[lanes])

    def fence_before(self, block: int, lanes: Array) -> None:
        each = self._blocks[block]
        each.has_fenced[lanes] = True
        each.loads[lanes] = np.where(each.loads[lanes] == 2, 3, each.loads[lanes])

    def fence_after(self, block: int, lanes: Array) -> None:
        self._blocks[block].is_behind[lanes] = False

    def meet(self, whole: Array) -> None:
        """All lanes of these blocks have met at a barrier."""
        for block in np.flatnonzero(whole):
            each = self._blocks[block]
            each.loads[each.loads == 3] = 0
            told = np.where(each.has_fenced[:, None], each.knows, 0).max(0)
            each.knows[:] = np.maximum(each.knows, told)
            each.is_behind[:] = True
