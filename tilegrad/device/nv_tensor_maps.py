"""Tensor maps: what a kernel that copies boxes of a matrix is told of it (CUDA Driver API, "Tensor
Map Object Management"). The driver encodes one for an address; it lasts as long as the kernel.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from tilegrad.base.errors import DeviceError
from tilegrad.device.nv_driver import Driver

__all__ = ["MAP_BYTES", "TensorMap", "TensorMaps"]

MAP_BYTES = 128
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
        """What `render.tile_maps.map_text` wrote."""
        slot, itemsize, *rows = text.split(":")
        sizes, strides, box = (tuple(map(int, row.split(","))) for row in rows)
        return TensorMap(int(slot), int(itemsize), sizes, strides, box)


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
    module = driver.module
    kinds = module.CUtensorMapDataType
    wide, narrow = module.cuuint64_t, module.cuuint32_t
    kind = {1: kinds.CU_TENSOR_MAP_DATA_TYPE_UINT8, 2: kinds.CU_TENSOR_MAP_DATA_TYPE_UINT16}
    made: Any = driver.call(
        "cuTensorMapEncodeTiled",
        kind[each.itemsize],
        len(each.sizes),
        address,
        [wide(size) for size in each.sizes],
        [wide(stride * each.itemsize) for stride in each.strides[1:]],
        [narrow(length) for length in each.box],
        [narrow(1)] * len(each.box),
        module.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        module.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        module.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        module.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    return ctypes.string_at(int(made.getPtr()), MAP_BYTES)
