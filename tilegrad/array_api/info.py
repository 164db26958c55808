"""The namespace's description of itself."""

from __future__ import annotations

from typing import Any

from tilegrad.array_api.data_types import DEFAULT_INTEGER, isdtype
from tilegrad.base.dtype import DType, dtypes
from tilegrad.device.registry import Device

__all__ = ["Info"]

_DTYPES = {
    dtype.name: dtype
    for dtype in (
        dtypes.bool, *dtypes.signed, *dtypes.unsigned, dtypes.float32, dtypes.float64
    )
}  # fmt: skip


class Info:
    """Result of `__array_namespace_info__`: the limits, devices and dtypes of the namespace.

    >>> from tilegrad import array_api as xp
    >>> xp.__array_namespace_info__().default_dtypes()["real floating"] == xp.float32
    True
    """

    def capabilities(self) -> dict[str, Any]:
        """Answers to questions that the standard leaves to a library.

        >>> from tilegrad import array_api as xp
        >>> xp.__array_namespace_info__().capabilities()["boolean indexing"]
        True
        """
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """The device of new arrays.

        >>> from tilegrad import array_api as xp
        >>> xp.__array_namespace_info__().default_device() == xp.zeros(1).device
        True
        """
        return Device.DEFAULT

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType | None]:
        """The dtypes of new arrays, and of positions; there is none of complex numbers.

        >>> from tilegrad import array_api as xp
        >>> xp.__array_namespace_info__().default_dtypes()["indexing"] == xp.int32
        True
        """
        return {
            "real floating": dtypes.default_float,
            "complex floating": None,
            "integral": DEFAULT_INTEGER,
            "indexing": dtypes.default_int,
        }

    def dtypes(self, *, device: str | None = None, kind: Any = None) -> dict[str, DType]:
        """The dtypes by their names: all, or those of a kind (see `isdtype`).

        >>> from tilegrad import array_api as xp
        >>> sorted(xp.__array_namespace_info__().dtypes(kind="real floating"))
        ['float32', 'float64']
        """
        return {
            name: dtype for name, dtype in _DTYPES.items() if kind is None or isdtype(dtype, kind)
        }

    def devices(self) -> list[str]:
        """The devices that arrays can be on: those in use, and the default one.

        >>> from tilegrad import array_api as xp
        >>> "CPU" in xp.__array_namespace_info__().devices()
        True
        """
        return sorted({"CPU", Device.DEFAULT, *Device.opened()})
