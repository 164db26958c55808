"""Copies of boxes and their barriers on NumPy arrays, after the PTX ISA: "Tensors", "Swizzling
Modes", "mbarrier", "cp.async.bulk.tensor", "elect.sync" and "Async Proxy"; and what a tensor map
may say, after the CUDA Driver API, "Tensor Map Object Management".
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.device.ptx.memory import FAR, GlobalMemory, SharedMemory
from tests.device.ptx.parse import PTXError

__all__ = ["ELECTED", "ENCODE", "MAP_BYTES", "Barriers", "TensorMap"]

Array = np.ndarray[Any, Any]
MAP_BYTES = 128
_WORD, _LENGTH = ctypes.c_uint64, ctypes.c_uint32
# cuTensorMapEncodeTiled, as cuda.h declares it: enumerations have 32 bits.
ENCODE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, _LENGTH, _LENGTH, ctypes.c_void_p, *[ctypes.POINTER(_WORD)] * 2,
    *[ctypes.POINTER(_LENGTH)] * 2, *[_LENGTH] * 4,
)  # fmt: skip
# The manual leaves open which lane of a warp is elected.
ELECTED = 17
_MAGIC = 0x7E4504A9
_LAYOUT = struct.Struct("<IIIQ5Q4Q5I")


@dataclass(frozen=True)
class TensorMap:
    """A matrix, in a form of our own: the driver's is not published."""

    itemsize: int
    address: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]

    def __post_init__(self) -> None:
        rank, row = len(self.sizes), self.box[0] * self.itemsize
        rules = {
            "1 to 5 dimensions": 1 <= rank <= 5,
            "a box and strides for each dimension": len(self.box) == rank == len(self.strides) + 1,
            "an address that is a multiple of 16": self.address % 16 == 0,
            "sizes of 1 to 2^32": all(0 < each <= 1 << 32 for each in self.sizes),
            "strides that are multiples of 16": all(each % 16 == 0 for each in self.strides),
            "strides below 2^40": all(0 < each < 1 << 40 for each in self.strides),
            "boxes of 1 to 256": all(0 < each <= 256 for each in self.box),
            "rows of a box of whole vectors": row % 16 == 0,
            "rows of at most 128 bytes, which are swizzled": row <= 128,
        }
        spans = [self.sizes[0] * self.itemsize]
        spans += [size * stride for size, stride in zip(self.sizes[1:], self.strides, strict=True)]
        rules["dimensions that lie in each other"] = all(
            span <= stride for span, stride in zip(spans, self.strides)
        )
        for rule, holds in rules.items():
            if not holds:
                raise PTXError(f"a tensor map has {rule}: {self}")

    def packed(self) -> bytes:
        rest = 5 - len(self.sizes)
        return _LAYOUT.pack(
            _MAGIC, self.itemsize, len(self.sizes), self.address,
            *self.sizes, *[0] * rest, *self.strides, *[0] * rest, *self.box, *[0] * rest,
        ).ljust(MAP_BYTES, b"\0")  # fmt: skip

    @staticmethod
    def unpacked(data: bytes) -> TensorMap:
        magic, itemsize, rank, address, *rest = _LAYOUT.unpack(data[: _LAYOUT.size])
        if magic != _MAGIC or len(data) != MAP_BYTES:
            raise PTXError("what is passed as a tensor map is none")
        sizes, strides, box = rest[:rank], rest[5 : 4 + rank], rest[9 : 9 + rank]
        return TensorMap(itemsize, address, tuple(sizes), tuple(strides), tuple(box))

    def elements(self, memory: GlobalMemory, begin: tuple[int, ...], what: str) -> Array:
        """The bytes of the box at `begin`, a row for each element; 0 outside of the matrix. Where
        they were read follows from `places`.
        """
        inside, addresses = self.places(begin)
        found = np.zeros((inside.size, self.itemsize), np.uint8)
        if inside.any():
            offsets = memory.offsets(addresses[inside], self.itemsize, what)
            for byte in range(self.itemsize):
                found[inside, byte] = memory.read(offsets + byte, np.dtype("u1"))
        return found

    def places(self, begin: tuple[int, ...]) -> tuple[Array, Array]:
        """Which elements of the box lie in the matrix, and the address of each."""
        # The first dimension is the fastest.
        grid = np.indices(self.box[::-1]).reshape(len(self.box), -1)[::-1]
        at = grid + np.array(begin)[:, None]
        inside = ((at >= 0) & (at < np.array(self.sizes)[:, None])).all(0)
        steps = np.array([self.itemsize, *self.strides])
        return inside, (self.address + (at * steps[:, None]).sum(0)).astype(np.uint64)

    def targets(self, start: int) -> Array:
        """The byte of shared memory where each element comes, for a box at `start`."""
        plain = start + np.arange(int(np.prod(self.box))) * self.itemsize
        return plain ^ (plain >> 7 & 7) << 4


@dataclass
class _Barrier:
    """An mbarrier object: phases end as `pending` arrivals and `missing` bytes are 0."""

    maker: int
    count: int
    pending: int
    missing: int = 0
    phase: int = 0
    # Whether its maker has come to a fence, and to a barrier that others came to.
    is_fenced: bool = False
    has_met: bool = False
    # Whether its maker has come to a fence for the cluster, and this to a barrier since.
    is_published: bool = False
    is_known: bool = False
    flying: list[tuple[int, int]] = field(default_factory=list)
    # The copies of this phase, and of the last one that ended.
    now: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    # Commits whose products have not come; the products of this phase, and of the last one.
    commits: list[list[Any]] = field(default_factory=list)
    products: list[Any] = field(default_factory=list)
    ended: list[Any] = field(default_factory=list)


class Barriers:
    """The barriers of all blocks of a launch."""

    def __init__(self, shared: SharedMemory):
        self.shared = shared
        self._known: dict[tuple[int, int], _Barrier] = {}

    def init(self, block: int, lane: int, address: int, count: int) -> None:
        if count < 1:
            raise PTXError(f"a barrier for {count} arrivals")
        self.shared.reserve(block, address, 8)
        self._known[block, address] = _Barrier(lane, count, count)

    def fence(self, block: Array, lane: Array) -> None:
        makers = set(zip(block.tolist(), lane.tolist()))
        for (of, _), each in self._known.items():
            each.is_fenced |= (of, each.maker) in makers

    def publish(self, block: Array, lane: Array) -> None:
        """These lanes have come to a `fence.mbarrier_init.release.cluster`."""
        makers = set(zip(block.tolist(), lane.tolist()))
        for (of, _), each in self._known.items():
            each.is_published |= (of, each.maker) in makers

    def meet_all(self, whole: Array) -> None:
        """The clusters of these blocks have met."""
        for (block, _), each in self._known.items():
            each.is_known |= each.is_published and bool(whole[block])

    def meet(self, whole: Array) -> None:
        for (block, _), each in self._known.items():
            each.has_met |= bool(whole[block])

    def _of(self, block: int, lane: int, address: int) -> _Barrier:
        found = self._known.get((block, address))
        if found is None:
            raise PTXError(f"there is no mbarrier at {address}")
        if not found.has_met and found.maker != lane:
            raise PTXError("an mbarrier that another lane made since the last barrier")
        return found

    def arrive(self, block: int, lane: int, address: int, nbytes: int) -> None:
        each = self._of(block, lane, address)
        if each.pending < 1:
            raise PTXError("more lanes arrive at an mbarrier than it was made for")
        each.pending -= 1
        each.missing += nbytes
        self._end(each)

    def copy(
        self, block: int, lane: int, counts: int, address: int, start: int, matrix: TensorMap,
        data: Array, what: str,
    ) -> None:  # fmt: skip
        """Begin to copy a box, whose elements are `data`, to `start`; its bytes count for the
        barrier of block `counts`.
        """
        is_far = lane >= FAR or counts != block
        each = self._of(counts, lane + FAR if counts != block else lane, address)
        if not each.is_fenced:
            raise PTXError(f"{what}: an mbarrier that was made without fence.proxy.async")
        if is_far and not each.is_known:
            raise PTXError(f"{what}: an mbarrier of another block that the cluster does not know")
        if start % 128:
            raise PTXError(f"{what}: a box begins at {start}, no multiple of 128")
        number = self.shared.fill(block, lane, matrix.targets(start), data, what)
        each.flying.append((number, data.size))
        each.now.append(number)

    def _end(self, each: _Barrier) -> None:
        if not each.pending and not each.missing:
            each.phase += 1
            each.pending = each.count
            each.last, each.now = each.now, []
            each.ended, each.products = each.products, []

    def commit(self, block: int, lane: int, address: int, products: list[Any]) -> None:
        """Units will arrive once as these products are there."""
        each = self._of(block, lane, address)
        if lane >= FAR and not each.is_known:
            raise PTXError("a commit to an mbarrier that the cluster does not know")
        if not each.is_fenced:
            raise PTXError("a commit to an mbarrier that was made without fence.proxy.async")
        each.commits.append(products)

    def wait(
        self, block: int, lanes: Array, address: int, parity: int,
        done: Callable[[list[Any]], None] | None = None,
    ) -> list[Any]:  # fmt: skip
        """Lanes of a block wait for a phase. All that was begun has landed then; if the phase has
        not ended, no lane can end it: those that copy have come here too. `done` is told of
        products that are there now; those of the phase are returned.
        """
        each = self._of(block, int(lanes[0]), address)
        for lane in lanes if not each.has_met else ():
            self._of(block, int(lane), address)
        for number, nbytes in each.flying:
            self.shared.arrive_at(number)
            each.missing -= nbytes
        each.flying.clear()
        if each.now:
            self._end(each)
        for products in each.commits:
            assert done is not None
            done(products)
            if each.pending < 1:
                raise PTXError("more commits arrive at an mbarrier than it was made for")
            each.pending -= 1
            each.products += products
            self._end(each)
        each.commits.clear()
        if each.phase % 2 == parity:
            raise PTXError(
                f"lanes wait for a phase that does not end: {each.pending} arrivals and "
                f"{each.missing} bytes are missing"
            )
        self.shared.show(each.last, block, lanes)
        return each.ended

    def close(self) -> None:
        """The kernel ends."""
        if any(each.flying for each in self._known.values()):
            raise PTXError("a kernel ends while a box is copied")
