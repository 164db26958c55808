"""Libraries of vendors, by one that every system has."""

from __future__ import annotations

import ctypes
import ctypes.util

import pytest

from tilegrad.base.errors import DeviceError
from tilegrad.base.libraries import open_declared
from tilegrad.compile import nvrtc

FOUND = ctypes.util.find_library("m") or ctypes.util.find_library("msvcrt") or ""
pytestmark = pytest.mark.skipif(not FOUND, reason="no library of mathematics is here")


def test_the_first_library_there_is_has_its_functions_declared() -> None:
    library = open_declared("AMD", ["libnone.so", FOUND], {"cos": (ctypes.c_double,)}, "none")
    library.cos.restype = ctypes.c_double
    assert library.cos(0.0) == 1.0
    with pytest.raises(ctypes.ArgumentError):
        library.cos("0")


def test_an_old_library_is_told_with_what_it_lacks() -> None:
    functions = {"cos": (ctypes.c_double,), "hipMalloc": (ctypes.c_void_p, ctypes.c_size_t)}
    with pytest.raises(DeviceError) as caught:
        open_declared("AMD", [FOUND], functions, "install a newer one")
    assert caught.value.headline == f"AMD: {FOUND} is too old: it has no hipMalloc"
    assert caught.value.details["remedy"] == "install a newer one"


def test_a_library_that_is_not_here_is_told_with_the_names_that_were_looked_for() -> None:
    with pytest.raises(DeviceError, match="AMD: libnone cannot be loaded") as caught:
        open_declared("AMD", ["libnone.so", "libnone.so.2"], {}, "install it")
    assert caught.value.details["looked_for"] == "libnone.so, libnone.so.2"


def test_an_old_compiler_of_nvidia_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """One without `nvrtcGetCUBIN`, as before CUDA 11.2."""
    monkeypatch.setattr(nvrtc, "_roots", lambda: iter(()))
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: FOUND)
    with pytest.raises(DeviceError, match="is too old: it gives no machine code"):
        nvrtc._library.__wrapped__()
