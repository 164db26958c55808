"""A CUDA driver whose modules are CUDA C++: what the compiler of a device makes of a text is the
text, and its launches run as C++ on this processor.
"""

from __future__ import annotations

import ctypes
import re
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.device.ptx.driver import OK, FakeDriver
from tests.device.shim.device import SHIMS, ShimRuntime

__all__ = ["FakeCUDA"]

_KERNEL = re.compile(r'extern "C" __global__ void.*? (\w+)\(([^()]*)\) \{', re.S)


class FakeCUDA(FakeDriver):
    """`module` of the device: one GPU."""

    def __init__(self, **facts: Any):
        super().__init__(**facts)
        self._folder = tempfile.TemporaryDirectory()
        self._shim = ShimRuntime(SHIMS["CUDA"], Path(self._folder.name))

    def cuModuleLoadDataEx(self, image: bytes, count: int, kinds: Any, values: Any) -> Any:
        assert count == len(kinds) == len(values) and image.endswith(b"\0")
        source = image[:-1].decode()
        ((name, parameters),) = _KERNEL.findall(source)
        function = self._shim.load(name, self._shim.compile(source))
        made = self._next()
        kinds_of = [("", "u64" if "*" in each else "s32") for each in parameters.split(",") if each]
        asks = "extern __shared__" in source
        entry = SimpleNamespace(
            parameters=kinds_of, function=function, asks=asks, arrays=dict[str, Any]()
        )
        self.modules[made] = {name: entry}
        return OK, made

    def _launch(
        self, function: int, grid: Any, block: Any, pointers: int, asked: int, together: int = 1
    ) -> None:
        assert asked <= self.asked.get(function, 0), "a launch asks for no more than was allowed"
        wanted = self.functions[function][1].asks
        assert bool(asked) == wanted, (
            "a text without arrays of its own has what the launch asks for"
        )
        module, entry = self.functions[function]
        assert module in self.modules, "a launch of a kernel that is unloaded"
        count = len(entry.parameters)
        words = (ctypes.c_void_p * count).from_address(pointers) if count else ()
        held, passed = [], []
        for (_, kind), word in zip(entry.parameters, words):
            size = int(kind[1:]) // 8
            value = int.from_bytes(ctypes.string_at(word, size), "little", signed=kind[0] == "s")
            if kind[0] == "u":
                passed.append(int(self.memory.window(value, 1).ctypes.data))
            else:
                held.append(ctypes.c_int64(value))
                passed.append(ctypes.addressof(held[-1]))
        _, run, meets, _ = entry.function
        sizes = [(ctypes.c_uint * 3)(*size) for size in (grid, block)]
        wrong = run((ctypes.c_void_p * max(count, 1))(*passed), *sizes, meets)
        assert not wrong, f"lane {wrong - 1} waits where lane 0 does not"
