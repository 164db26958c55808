"""Tensor maps: a matrix as described to a kernel that copies boxes of it (CUDA Driver API, "Tensor
Map Object Management"). The driver encodes one for an address; it lasts as long as the kernel.

The driver wants the map at a multiple of 64 bytes (128 since CUDA 13). An object of the bindings
lies wherever Python has put it (cuda-bindings 13.5), so its function is called by its address.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from tilegrad.base.errors import DeviceError
from tilegrad.device.nv_driver import Driver

__all__ = ["Room", "TensorMap", "TensorMaps"]

MAP_BYTES = _ALIGNMENT = 128
_NAME, _RELEASE = "cuTensorMapEncodeTiled", 12000
_POINTER, _WORDS, _LENGTHS = (
    ctypes.c_void_p,
    *map(ctypes.POINTER, (ctypes.c_uint64, ctypes.c_uint32)),
)
_NUMBER = ctypes.c_uint32
# Arguments: the map, its dtype and rank, the address, sizes, strides, box and steps; interleaving,
# swizzling, bytes that the second cache reads at a time, and the values outside (cuda.h).
_FUNCTION = ctypes.CFUNCTYPE(
    ctypes.c_int, _POINTER, _NUMBER, _NUMBER, _POINTER, _WORDS, _WORDS, _LENGTHS, _LENGTHS,
    _NUMBER, _NUMBER, _NUMBER, _NUMBER,
)  # fmt: skip
# Elements are moved, whatever they mean: CU_TENSOR_MAP_DATA_TYPE_UINT8 and _UINT16.
_KINDS = {1: 0, 2: 1}
# CU_TENSOR_MAP_INTERLEAVE_NONE, _SWIZZLE_128B, _L2_PROMOTION_L2_128B, _FLOAT_OOB_FILL_NONE.
_PLAIN, _SWIZZLED_128, _PROMOTED_128, _ZEROS = 0, 3, 2, 0
# A base address is a multiple of it.
_VECTOR = 16
# Maps of a kernel that are kept: a program has few buffers, a loop over batches many.
_MOST = 256


class TensorMap(NamedTuple):
    """The slot of a buffer, the bytes of an element, and of each dimension the size, the distance
    of neighbours and the box, in elements, the dimension of the rows first.
    """

    slot: int
    itemsize: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]

    @staticmethod
    def read(text: str) -> TensorMap:
        """The map whose text `render.tile_maps.map_text` wrote."""
        slot, itemsize, *rows = text.split(":")
        sizes, strides, box = (tuple(map(int, row.split(","))) for row in rows)
        return TensorMap(int(slot), int(itemsize), sizes, strides, box)


class Room:
    """Memory for tensor maps, at `addresses`."""

    def __init__(self, count: int):
        self._bytes = (ctypes.c_ubyte * (count * MAP_BYTES + _ALIGNMENT))()
        first = -(-ctypes.addressof(self._bytes) // _ALIGNMENT) * _ALIGNMENT
        self.addresses = range(first, first + count * MAP_BYTES, MAP_BYTES)

    def set(self, number: int, encoded: bytes) -> None:
        ctypes.memmove(self.addresses[number], encoded, MAP_BYTES)


class TensorMaps:
    """The tensor maps of one kernel, by the address of the buffer."""

    def __init__(self, maps: tuple[TensorMap, ...], name: str):
        self.maps, self.name = maps, name
        self._known: dict[tuple[int, int], bytes] = {}

    def encoded(self, driver: Driver, number: int, address: int) -> bytes:
        """The bytes of map `number` for a buffer at `address`.

        Raises DeviceError for an address that is no multiple of a vector.
        """
        found = self._known.get((number, address))
        if found is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            found = self._known[number, address] = _encoded(
                driver, self.maps[number], address, self.name
            )
        return found


def _encoded(driver: Driver, each: TensorMap, address: int, name: str) -> bytes:
    if address % _VECTOR:
        raise DeviceError(
            f"{name}: a buffer that is copied by tiles begins at {address:#x}",
            rule=f"a multiple of {_VECTOR} bytes",
        )
    room = Room(1)
    rank, lengths = len(each.sizes), ctypes.c_uint32 * len(each.sizes)
    strides = [stride * each.itemsize for stride in each.strides[1:]]
    result = _FUNCTION(driver.entry(_NAME, _RELEASE))(
        room.addresses[0],
        _KINDS[each.itemsize],
        rank,
        address,
        (ctypes.c_uint64 * rank)(*each.sizes),
        (ctypes.c_uint64 * max(rank - 1, 1))(*strides),
        lengths(*each.box),
        lengths(*[1] * rank),
        _PLAIN,
        _SWIZZLED_128,
        _PROMOTED_128,
        _ZEROS,
    )
    if result:
        raise driver.error(_NAME, driver.module.CUresult(result))
    return ctypes.string_at(room.addresses[0], MAP_BYTES)
