"""Messages to Objective-C objects, by ctypes: how Apple's frameworks are called without a compiler.

An object is its address. The caller owns what comes of `new...` and `alloc`, and releases it; what
other methods give lives until the autorelease pool around the call ends, unless it is retained
(Apple, "Advanced Memory Management Programming Guide").
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilegrad.base.errors import DeviceError

__all__ = ["Count", "Object", "ObjectiveC", "open_metal"]

Object = ctypes.c_void_p
Count = ctypes.c_size_t  # NSUInteger

_RUNTIME = "/usr/lib/libobjc.dylib"
_FRAMEWORKS = "/System/Library/Frameworks/{0}.framework/{0}"


class ObjectiveC:
    """The runtime of the language, and the framework Metal.

    Args:
        runtime: libobjc.
        metal: the framework.
    """

    def __init__(self, runtime: Any, metal: Any):
        self._runtime, self._metal = runtime, metal
        for function, result, arguments in (
            (runtime.objc_getClass, Object, (ctypes.c_char_p,)),
            (runtime.sel_registerName, Object, (ctypes.c_char_p,)),
            (runtime.objc_autoreleasePoolPush, Object, ()),
            (runtime.objc_autoreleasePoolPop, None, (Object,)),
            (metal.MTLCreateSystemDefaultDevice, Object, ()),
        ):
            function.restype, function.argtypes = result, arguments
        self._send_address = ctypes.cast(runtime.objc_msgSend, Object).value or 0
        self._selectors: dict[str, int] = {}
        self._functions: dict[tuple[Any, ...], Any] = {}

    def system_device(self) -> int:
        """The GPU that the system prefers, owned by the caller; 0 where there is none."""
        return int(self._metal.MTLCreateSystemDefaultDevice() or 0)

    def class_named(self, name: str) -> int:
        """The class object of a class."""
        return int(self._runtime.objc_getClass(name.encode()) or 0)

    def text(self, string: int) -> str:
        """The characters of an NSString."""
        found = self.send(string, "UTF8String", result=ctypes.c_char_p) if string else b""
        return (found or b"").decode(errors="replace")

    def description(self, error: int) -> str:
        """Text of an NSError."""
        return self.text(self.send(error, "localizedDescription")) if error else ""

    def answers(self, receiver: int, selector: str) -> bool:
        """Whether an object has a method: a message without one ends the process."""
        number = Object(self._runtime.sel_registerName(selector.encode()))
        return bool(self.send(receiver, "respondsToSelector:", number, result=ctypes.c_bool))

    @contextmanager
    def pool(self) -> Iterator[None]:
        """Objects autoreleased inside are released at the end."""
        pool = self._runtime.objc_autoreleasePoolPush()
        try:
            yield
        finally:
            self._runtime.objc_autoreleasePoolPop(pool)

    def send(self, receiver: int, selector: str, *arguments: Any, result: Any = Object) -> Any:
        """The answer of `receiver` to a message; `arguments` are values of ctypes, of the types
        that the method takes. Objects that come are addresses, 0 for nil.
        """
        types = tuple(type(each) for each in arguments)
        function = self._functions.get((result, types))
        if function is None:
            # One address for all methods: it is called with the method's own type.
            prototype = ctypes.CFUNCTYPE(result, Object, Object, *types)
            function = self._functions[result, types] = prototype(self._send_address)
        number = self._selectors.get(selector)
        if number is None:
            number = self._selectors[selector] = self._runtime.sel_registerName(selector.encode())
        found = function(receiver, number, *arguments)
        return found or 0 if result is Object else found


def open_metal() -> ObjectiveC:
    """The frameworks of this system.

    Raises DeviceError on a system that has none.
    """
    if sys.platform != "darwin":
        raise DeviceError(
            "METAL: only Apple's systems have it",
            found=sys.platform,
            remedy="NULL:METAL compiles for it and runs nothing, EMU:METAL runs it in Python",
        )
    try:
        # Without it the system prefers no GPU for a program without windows.
        ctypes.CDLL(_FRAMEWORKS.format("CoreGraphics"))
        metal = ctypes.CDLL(_FRAMEWORKS.format("Metal"))
        return ObjectiveC(ctypes.CDLL(_RUNTIME), metal)
    except OSError as error:
        raise DeviceError(f"METAL: {error}", remedy="macOS 10.13 or newer has it") from None
