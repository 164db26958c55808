"""Libraries of vendors, by ctypes: the first one that is here, with the used functions declared."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from tilegrad.base.errors import DeviceError

__all__ = ["open_declared"]


def open_declared(
    kind: str, names: Sequence[str], functions: Mapping[str, tuple[Any, ...]], remedy: str
) -> Any:
    """The first of the libraries `names`, for a device of this kind. The argument types of each
    function are declared.

    Raises DeviceError where there is none, or where it lacks a function.
    """
    for name in names:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        for function, arguments in functions.items():
            try:
                getattr(library, function).argtypes = arguments
            except AttributeError:
                raise DeviceError(
                    f"{kind}: {name} is too old: it has no {function}", remedy=remedy
                ) from None
        return library
    title = names[0].partition(".")[0]
    raise DeviceError(
        f"{kind}: {title} cannot be loaded", looked_for=", ".join(names), remedy=remedy
    )
