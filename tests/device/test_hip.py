"""The HIP device: on a library that takes calls down and runs the C++ on this processor, and by a
compiler that gives the text back. No GPU is needed, and none is touched.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.device.helpers import registered
from tests.device.shim.device import SHIMS, ShimRuntime
from tests.device.test_amd import FakeLibrary
from tests.engine.test_rows import rows_of
from tilegrad import Context, Device, Tensor
from tilegrad.base.errors import CompileError, DeviceError
from tilegrad.compile.hiprtc import compile_hip
from tilegrad.device import hip
from tilegrad.runtime.hip import HipSourceRuntime

has_compiler = pytest.mark.skipif(not SHIMS["HIP"].is_here, reason="no C++ compiler is here")


class Compiler:
    """libhiprtc: the code object of a text is the text."""

    def __init__(self, log: str = ""):
        self.log, self.options = log, [""]
        self.programs: dict[int, bytes] = {}

    def hiprtcCreateProgram(self, program: Any, source: bytes, name: bytes, *headers: Any) -> int:
        assert headers == (0, None, None)
        program._obj.value = 100 + len(self.programs)
        self.programs[program._obj.value] = source
        return 0

    def hiprtcCompileProgram(self, program: Any, count: int, options: Any) -> int:
        assert program.value in self.programs and len(options) == count
        self.options = [each.decode() for each in options]
        return 6 if self.log else 0

    def _size(self, size: Any, data: bytes) -> int:
        size._obj.value = len(data)
        return 0

    def _text(self, room: Any, data: bytes) -> int:
        ctypes.memmove(room, data, len(data))
        return 0

    def hiprtcGetCodeSize(self, program: Any, size: Any) -> int:
        return self._size(size, self.programs[program.value])

    def hiprtcGetCode(self, program: Any, room: Any) -> int:
        return self._text(room, self.programs[program.value])

    def hiprtcGetProgramLogSize(self, program: Any, size: Any) -> int:
        return self._size(size, self.log.encode() + b"\0")

    def hiprtcGetProgramLog(self, program: Any, room: Any) -> int:
        return self._text(room, self.log.encode() + b"\0")

    def hiprtcDestroyProgram(self, program: Any) -> int:
        del self.programs[program._obj.value]
        return 0


class Library(FakeLibrary):
    """libamdhip64, whose modules are texts."""

    def __init__(self) -> None:
        super().__init__(room=1 << 24)
        self._folder = tempfile.TemporaryDirectory()
        self._shim = ShimRuntime(SHIMS["HIP"], Path(self._folder.name))
        self._modules: list[Any] = []

    def hipModuleLoadData(self, module: Any, image: bytes) -> int:
        self._modules.append(self._shim.load("", self._shim.compile(image.decode())))
        module._obj.value = len(self._modules)
        return 0

    def hipModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:
        function._obj.value = module.value
        return 0

    def hipModuleLaunchKernel(self, function: Any, *rest: Any) -> int:
        *sizes, shared, _stream, parameters, extra = rest
        assert shared == 0 and extra is None
        self.calls.append(("hipModuleLaunchKernel", tuple(sizes)))
        _, run, meets, slots = self._modules[function.value - 1]
        # Of memory the address is passed, of integers where they lie.
        passed = [
            ctypes.c_uint64.from_address(each).value if place < len(slots) else each
            for place, each in enumerate(parameters)
        ]
        counts = [(ctypes.c_uint * 3)(*sizes[start : start + 3]) for start in (0, 3)]
        wrong = run((ctypes.c_void_p * len(passed))(*passed), *counts, meets)
        assert not wrong, f"lane {wrong - 1} waits where lane 0 does not"
        return 0


@pytest.fixture
def library() -> Iterator[Library]:
    """What is behind the default device."""
    found, compiler = Library(), Compiler()
    with registered("FAKEHIP", lambda name: hip.opened(name, found, compiler, ["gfx942"])):
        yield found
    assert not compiler.programs
    assert compiler.options[:3] == ["--offload-arch=gfx942", "-O3", "-ffp-contract=off"]


@has_compiler
def test_products_rows_and_draws_are_those_of_numpy(library: Library) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((40, 33)), rng.standard_normal((33, 50))
    found = (Tensor(a.astype(np.float32)) @ Tensor(b.astype(np.float32))).softmax(1).numpy()
    powers = np.exp(a @ b - (a @ b).max(1, keepdims=True))
    np.testing.assert_allclose(found, powers / powers.sum(1, keepdims=True), atol=1e-5)
    # The seed and the offset are integers.
    Tensor.manual_seed(3)
    drawn = Tensor.rand(100).numpy()
    Tensor.manual_seed(3)
    np.testing.assert_array_equal(drawn, Tensor.rand(100, device="CPU").numpy())
    assert "hipModuleLaunchKernel" in library.names()


@pytest.mark.row("M3.2")
@has_compiler
def test_a_dot_product_waits_twice(library: Library, capsys: pytest.CaptureFixture[str]) -> None:
    """For the queue that has not answered, and for the queue with the kernel in it."""
    with Context(DEBUG=2, SIZES=0):
        assert Tensor([1, 2]).dot(Tensor([3, 4])).tolist() == 11
        copies = library.names().count("hipMemcpy")
        marks = library.names().count("hipEventRecord")
    kinds = [row.name.split("_")[0].split()[0] for row in rows_of(capsys.readouterr().out)]
    assert kinds == ["sync", "copy", "copy", "r", "sync", "copy"]
    # One event for each wait, and one for the kernel's time.
    assert (copies, marks) == (3, 3)


def test_what_the_compiler_says_is_told() -> None:
    compiler = Compiler("kernel.hip:2:9: error: unknown type name 'flot'\n 1 error generated.")
    backend = hip.opened("HIP", FakeLibrary(), compiler, ["gfx1100"])
    with pytest.raises(CompileError, match="hip: unknown type name 'flot'") as caught:
        backend.compile("// add: 0 | | 1 1 1\nflot x;")
    assert caught.value.details["kernel"] == "add" and not compiler.programs
    with pytest.raises(CompileError):
        compile_hip(compiler, "flot x;", "gfx1100")


def test_no_second_gpu() -> None:
    with pytest.raises(DeviceError, match="HIP: there is no GPU number 1"):
        hip.opened("HIP:1", FakeLibrary(), Compiler(), ["gfx1100"])
    with pytest.raises(DeviceError, match="HIP: there is no GPU number 2"):
        HipSourceRuntime(FakeLibrary(), 2)


def test_an_architecture_is_that_of_the_gpu() -> None:
    with pytest.raises(DeviceError, match="names an architecture, not a GPU"):
        _ = Device["HIP:gfx942"]
