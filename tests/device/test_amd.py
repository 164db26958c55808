"""Code objects for AMD's GPUs: what is in them, and how the driver's library is called."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import re
import shutil
import struct
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.device.loops import listings
from tilegrad import Context, Device, Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DataError, DeviceError, OutOfMemoryError
from tilegrad.compile.llvm import compile_ir
from tilegrad.device import amd
from tilegrad.device.backend import Backend
from tilegrad.hardware import amd_target
from tilegrad.runtime.code_object import code_object, kernel_facts, metadata
from tilegrad.runtime.hip import HipRuntime, gpu_architectures, visible_architectures
from tilegrad.target import MatrixUnit

ARCHITECTURES = ("gfx90a", "gfx942", "gfx1100", "gfx1201")
Kernel = Callable[[str], Tensor]


def empty(device: str, *shape: int, dtype: str = "float") -> Tensor:
    return Tensor.empty(*shape, dtype=dtype, device=device).realize()


def product(device: str, dtype: str) -> Tensor:
    x = empty(device, 256, 256, dtype=dtype)
    return x.matmul(x, dtype="float")


KERNELS: dict[str, Kernel] = {
    "elementwise": lambda device: empty(device, 100, 37).sin() * 2,
    "product": lambda device: product(device, "float"),
    "product of halves": lambda device: product(device, "half"),
    "product of bfloat16": lambda device: product(device, "bfloat16"),
    "softmax": lambda device: empty(device, 64, 300).softmax(1),
    "sum": lambda device: empty(device, 1 << 16).sum(),
    "running sum": lambda device: empty(device, 16, 300).cumsum(1),
    "bytes": lambda device: (empty(device, 333, dtype="int32") // 7).cast("int8"),
    "sines of doubles": lambda device: empty(device, 45, dtype="double").sin(),
    "doubles": lambda device: empty(device, 65, dtype="double").exp(),
}
# The matrix unit that each product uses; RDNA has none for float32.
UNITS = {
    ("gfx90a", "product"): "v_mfma_f32_16x16x4f32",
    ("gfx90a", "product of halves"): "v_mfma_f32_16x16x16f16",
    ("gfx90a", "product of bfloat16"): "v_mfma_f32_16x16x16bf16_1k",
    ("gfx942", "product"): "v_mfma_f32_16x16x4_f32",
    ("gfx942", "product of halves"): "v_mfma_f32_16x16x16_f16",
    ("gfx942", "product of bfloat16"): "v_mfma_f32_16x16x16_bf16",
    ("gfx1100", "product of halves"): "v_wmma_f32_16x16x16_f16",
    ("gfx1100", "product of bfloat16"): "v_wmma_f32_16x16x16_bf16",
    ("gfx1201", "product of halves"): "v_wmma_f32_16x16x16_f16",
    ("gfx1201", "product of bfloat16"): "v_wmma_f32_16x16x16_bf16",
}


@cache
def built(arch: str, kernel: str) -> list[tuple[str, str, bytes]]:
    """Of each kernel behind one of `KERNELS` its name, its instructions and its code object."""
    device = f"NULL:AMD:{arch}"
    found = []
    for source, text in listings(KERNELS[kernel](device)):
        name = re.search(r"amdgpu_kernel void @(\w+)", source)
        assert name is not None
        found.append((name[1], text, Device[device].compile(source)))
    return found


# In each run; the others in the nightly one.
OFTEN = {
    "gfx90a": {"product of halves"},
    "gfx942": {"product", "product of halves", "softmax", "running sum", "sines of doubles"},
    "gfx1100": {"elementwise", "product", "softmax", "sum", "bytes"},
    "gfx1201": {"product of halves"},
}


@pytest.mark.parametrize(
    ("arch", "kernel"),
    [
        pytest.param(arch, kernel, marks=() if kernel in OFTEN[arch] else pytest.mark.nightly)
        for arch in ARCHITECTURES
        for kernel in KERNELS
    ],
)
def test_no_lane_uses_scratch_memory_and_products_run_on_matrix_units(
    arch: str, kernel: str
) -> None:
    objects = built(arch, kernel)
    assert objects
    for name, text, binary in objects:
        facts = kernel_facts(binary, name)
        assert facts[".private_segment_fixed_size"] == 0
        assert facts[".vgpr_spill_count"] == facts[".sgpr_spill_count"] == 0
        assert facts[".wavefront_size"] == (64 if arch.startswith("gfx9") else 32)
        assert metadata(binary)["amdhsa.target"] == f"amdgcn-amd-amdhsa--{arch}"
        assert re.search(r"^\t(scratch|buffer)_(load|store)", text, re.M) is None
    unit = UNITS.get((arch, kernel))
    used = {word for _, text, _ in objects for word in re.findall(r"v_(?:mfma|wmma)_\w+", text)}
    assert used == ({unit} if unit else set())


# The bits of an instruction of a matrix unit, from the ISA documents of CDNA3 and RDNA3: the
# encoding VOP3P and the opcode of v_mfma_f32_16x16x16_f16 and v_wmma_f32_16x16x16_f16.
ENCODINGS = {"gfx942": (0xFFFF0000, 0xD3CD0000), "gfx1100": (0xFFFF0000, 0xCC400000)}


@pytest.mark.parametrize("arch", ENCODINGS)
def test_the_code_holds_the_matrix_instructions_that_its_text_shows(arch: str) -> None:
    ((name, text, binary),) = built(arch, "product of halves")
    start, size = code_of(binary, name)
    words = struct.unpack(f"<{size // 4}I", binary[start : start + size // 4 * 4])
    mask, bits = ENCODINGS[arch]
    count = sum(word & mask == bits & mask for word in words)
    assert count == len(re.findall(r"^\tv_(?:mfma|wmma)_f32", text, re.M)) > 0


def dynamic(binary: bytes) -> dict[int, int]:
    """The entries of the segment that a loader reads first."""
    start, count = struct.unpack_from("<Q", binary, 32)[0], struct.unpack_from("<H", binary, 56)[0]
    for number in range(count):
        kind, _, offset, _, _, size = struct.unpack_from("<IIQQQQ", binary, start + 56 * number)
        if kind == 2:
            return dict(struct.iter_unpack("<QQ", binary[offset : offset + size]))
    raise AssertionError("no dynamic segment")


def symbols(binary: bytes) -> dict[str, tuple[int, int]]:
    """Address and size of each name, by the tables that the dynamic segment names."""
    found = dynamic(binary)
    texts = binary[found[5] : found[5] + found[10]]
    buckets, count = struct.unpack_from("<II", binary, found[4])
    assert buckets == 1
    result = {}
    number = struct.unpack_from("<I", binary, found[4] + 8)[0]
    while number:
        name, _, _, _, value, size = struct.unpack_from("<IBBHQQ", binary, found[6] + 24 * number)
        result[texts[name : texts.index(0, name)].decode()] = (value, size)
        number = struct.unpack_from("<I", binary, found[4] + 12 + 4 * number)[0]
    assert len(result) == count - 1
    return result


def code_of(binary: bytes, name: str) -> tuple[int, int]:
    return symbols(binary)[name]


def test_a_loader_finds_the_descriptor_and_by_it_the_code() -> None:
    """The descriptor has at byte 16 how far the code is from it, and before that the bytes of
    shared memory, of scratch and of arguments.
    """
    ((name, _, binary),) = built("gfx942", "softmax")
    found = symbols(binary)
    descriptor, size = found[f"{name}.kd"]
    assert size == 64 and descriptor % 64 == 0
    shared, scratch, arguments = struct.unpack_from("<III", binary, descriptor)
    assert (scratch, arguments) == (0, 16)
    assert shared == kernel_facts(binary, name)[".group_segment_fixed_size"] > 0
    entry = descriptor + struct.unpack_from("<q", binary, descriptor + 16)[0]
    assert entry == found[name][0] and entry % 256 == 0


@pytest.mark.skipif(shutil.which("readelf") is None, reason="no readelf (binutils)")
def test_binutils_reads_the_code_object_without_a_warning(tmp_path: Path) -> None:
    ((name, _, binary),) = built("gfx90a", "softmax")
    path = tmp_path / "kernel.hsaco"
    path.write_bytes(binary)
    done = subprocess.run(
        ["readelf", "-hlSdW", "--dyn-syms", str(path)], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert "DYN (Shared object file)" in done.stdout and f"{name}.kd" in done.stdout


def test_an_object_that_refers_elsewhere_or_is_cut_off_is_refused() -> None:
    text = (
        "declare void @other()\n"
        "define amdgpu_kernel void @kernel() {\n  call void @other()\n  ret void\n}\n"
    )
    binary = compile_ir(text, cpu="gfx942", features="", triple="amdgcn-amd-amdhsa")
    with pytest.raises(DeviceError, match="needs the symbol 'other'"):
        code_object(binary)
    with pytest.raises(DataError):
        code_object(binary[:200])


def test_a_damaged_object_is_a_clear_error_or_is_linked() -> None:
    """Damage within code cannot be seen; no other kind of error comes."""
    text = "define amdgpu_kernel void @kernel() {\n  ret void\n}\n"
    binary = compile_ir(text, cpu="gfx942", features="", triple="amdgcn-amd-amdhsa")
    source, refused = random.Random(0), 0
    for _ in range(300):
        changed = bytearray(binary[: source.randrange(len(binary) // 2, len(binary) + 1)])
        for _ in range(source.randrange(1, 4)):
            changed[source.randrange(len(changed))] = source.randrange(256)
        try:
            metadata(code_object(bytes(changed)))
        except (DataError, DeviceError):
            refused += 1
    assert refused > 150


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_lanes_of_a_matrix_unit_hold_every_element(arch: str) -> None:
    """As often for each: once, and twice where both halves of the lanes hold the same rows."""
    for unit in amd_target(arch).matrix_units:
        assert unit.lanes == (64 if arch.startswith("gfx9") else 32)
        for layout, shape in layouts(unit):
            found = [place for lane in layout for place in lane]
            counts = {place: found.count(place) for place in set(found)}
            wanted = {(i, j) for i in range(shape[0]) for j in range(shape[1])}
            assert set(counts) == wanted and len(set(counts.values())) == 1


def layouts(unit: MatrixUnit) -> list[tuple[Any, tuple[int, int]]]:
    return [
        (unit.a_layout, (unit.m, unit.k)),
        (unit.b_layout, (unit.k, unit.n)),
        (unit.c_layout, (unit.m, unit.n)),
    ]


@pytest.mark.parametrize("arch", ["GFX942", "GFX1100", "GFX1201"])
def test_products_on_the_units_have_the_values_of_products(arch: str) -> None:
    """The emulator multiplies by the tables; the rows of the result are not in order unless the
    table of the sum fits those of the operands.
    """
    a, b = (np.random.RandomState(seed).randint(-8, 8, (32, 32)) for seed in (0, 1))
    left, right = (Tensor(x.astype(np.float16), device=f"EMU:AMD:{arch}") for x in (a, b))
    found = left.matmul(right, dtype="float").numpy()
    np.testing.assert_array_equal(found, a @ b)


class FakeLibrary:
    """Takes the calls of libamdhip64 down; memory is host memory."""

    def __init__(self, gpus: int = 1, room: int = 1 << 20):
        self.calls: list[tuple[Any, ...]] = []
        self.gpus, self.room = gpus, room
        self.memory: dict[int, Any] = {}
        self.launched: list[tuple[tuple[int, ...], bytes]] = []
        self.refusal = ""
        self.is_stuck = False

    def __getattr__(self, name: str) -> Callable[..., int]:
        def function(*arguments: Any) -> int:
            self.calls.append((name, *arguments))
            return 719 if name == self.refusal else 0

        return function

    def hipGetErrorString(self, code: int) -> bytes:
        return b"unspecified launch failure" if code == 719 else b"?"

    def hipEventQuery(self, event: Any) -> int:
        self.calls.append(("hipEventQuery", event.value))
        return 600 if self.is_stuck else 719 if self.refusal == "hipEventQuery" else 0

    def hipGetDeviceCount(self, count: Any) -> int:
        count._obj.value = self.gpus
        return 0

    def hipMalloc(self, address: Any, nbytes: int) -> int:
        self.calls.append(("hipMalloc", nbytes))
        if sum(len(each) for each in self.memory.values()) + nbytes > self.room:
            return 2
        memory = (ctypes.c_char * nbytes)()
        address._obj.value = ctypes.addressof(memory)
        self.memory[ctypes.addressof(memory)] = memory
        return 0

    def hipFree(self, address: int) -> int:
        self.calls.append(("hipFree", address))
        del self.memory[address]
        return 0

    def hipMemcpy(self, to: int, source: int, nbytes: int, kind: int) -> int:
        self.calls.append(("hipMemcpy", kind))
        ctypes.memmove(to, source, nbytes)
        return 0

    def hipModuleLoadData(self, module: Any, image: bytes) -> int:
        self.calls.append(("hipModuleLoadData", image))
        module._obj.value = 7
        return 0

    def hipModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:
        self.calls.append(("hipModuleGetFunction", module.value, name))
        function._obj.value = 8
        return 0

    def hipModuleLaunchKernel(self, function: Any, *rest: Any) -> int:
        self.calls.append(("hipModuleLaunchKernel", function.value))
        if self.refusal == "hipModuleLaunchKernel":
            return 719
        *sizes, _stream, _parameters, extra = rest
        nbytes = ctypes.c_size_t.from_address(extra[3]).value
        assert (extra[0], extra[2], extra[4]) == (1, 2, 3)
        self.launched.append((tuple(sizes), ctypes.string_at(extra[1], nbytes)))
        return 0

    def names(self) -> list[str]:
        return [call[0] for call in self.calls if call[0] != "hipSetDevice"]


def device_over(library: FakeLibrary) -> Backend:
    described = amd.backend("AMD:gfx942", HipRuntime(library))
    return replace(described, name="FAKEAMD", _allocators=[])


@pytest.fixture
def library() -> Any:
    fake = FakeLibrary()
    Device.register("FAKEAMD", lambda name: device_over(fake))
    # It runs no kernel: what plans for a range of sizes give cannot be compared, as nightly does.
    with Context(SIZES=0):
        yield fake
    Device.unregister("FAKEAMD")


def test_a_launch_waits_for_nothing_and_a_copy_out_for_all_launches(library: FakeLibrary) -> None:
    x = Tensor([1.0, 2.0, 3.0], device="FAKEAMD").realize()
    library.calls.clear()
    with Context(DISABLE_COMPILER_CACHE=1):
        y = (x + 1).realize()
    assert library.names() == [
        "hipModuleLoadData", "hipModuleGetFunction", "hipMalloc", "hipModuleLaunchKernel",
    ] or library.names() == [
        "hipMalloc", "hipModuleLoadData", "hipModuleGetFunction", "hipModuleLaunchKernel",
    ]  # fmt: skip
    y.tolist()
    assert library.names()[-4:] == [
        "hipModuleLaunchKernel", "hipEventRecord", "hipEventQuery", "hipMemcpy",
    ]  # fmt: skip
    assert library.calls[-1] == ("hipMemcpy", 2)


def test_the_arguments_of_a_launch_are_addresses_in_the_order_of_the_slots(
    library: FakeLibrary,
) -> None:
    a = Tensor([1.0] * 64, device="FAKEAMD").realize()
    b = Tensor([2.0] * 64, device="FAKEAMD").realize()
    c = (a - b).realize()
    ((sizes, block),) = library.launched
    wanted = [each.uop.buffer.handle for each in (c, a, b)] if hasattr(c.uop, "buffer") else None
    words = struct.unpack("<3q", block)
    assert set(words) <= set(library.memory) and len(set(words)) == 3
    assert wanted is None or list(words) == wanted
    assert sizes[1:3] == sizes[4:6] == (1, 1) and sizes[0] * sizes[3] * 4 == 64
    assert sizes[6] == 0


def test_a_module_is_unloaded_with_its_program_and_memory_is_freed_when_there_is_no_room(
    library: FakeLibrary,
) -> None:
    runtime = HipRuntime(library)
    program = runtime.load("kernel", b"binary")
    assert ("hipModuleGetFunction", 7, b"kernel") in library.calls
    del program
    assert library.names()[-1] == "hipModuleUnload"
    backend = Device["FAKEAMD"]
    first = backend.buffer(200_000, dtypes.float32)
    first.copy_in(bytes(800_000))
    first.deallocate()
    second = backend.buffer(240_000, dtypes.float32)
    second.copy_in(bytes(960_000))
    assert "hipFree" in library.names()
    with pytest.raises(OutOfMemoryError, match="do not fit on FAKEAMD"):
        backend.buffer(240_000, dtypes.float32).to_write()


def test_an_error_of_the_library_has_its_text(library: FakeLibrary) -> None:
    x = Tensor([1.0], device="FAKEAMD").realize()
    library.refusal = "hipModuleLaunchKernel"
    with pytest.raises(DeviceError, match="hipModuleLaunchKernel: unspecified launch failure"):
        (x + 1).realize()


@pytest.mark.parametrize("name", ["hipModuleLaunchKernel", "hipModuleLoadData"])
def test_a_call_without_room_is_made_again_when_what_is_kept_has_gone_back(
    library: FakeLibrary, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The library takes memory for code and for lanes, when a program is loaded or launched."""
    x = Tensor([1.0, 2.0], device="FAKEAMD").realize()
    kept = Tensor.ones(50_000, device="FAKEAMD").contiguous().realize()
    del kept
    gc.collect()
    call, refusals = getattr(library, name), [2]

    def full(*arguments: Any) -> int:
        library.calls.append((name, "full"))
        return refusals.pop() if refusals else int(call(*arguments))

    monkeypatch.setattr(library, name, full)
    library.calls.clear()
    with Context(DISABLE_COMPILER_CACHE=1):
        (x * 3).realize()
    names = library.names()
    first = names.index(name)
    assert "hipFree" in names[first : names.index(name, first + 1) + 1]
    refusals[:] = [2] * 100
    with Context(DISABLE_COMPILER_CACHE=1), pytest.raises(OutOfMemoryError) as caught:
        (x * 5 - 1).realize()
    assert caught.value.headline == f"AMD: {name}: the device has no room"
    text = str(caught.value)
    assert "in_use:" in text and "8 bytes made at test_amd.py:" in text
    assert "call:    __mul__, __sub__" in text
    refusals.clear()
    assert len((x * 7).tolist()) == 2


def test_a_launch_that_is_refused_is_told_with_its_kernel_and_sizes(library: FakeLibrary) -> None:
    x = Tensor([1.0] * 5, device="FAKEAMD").realize()
    first = (x * 2).realize()
    library.refusal = "hipModuleLaunchKernel"
    with pytest.raises(DeviceError, match=r"^E_\w+: AMD: hipModuleLaunchKernel: ") as caught:
        (x + 1).realize()
    details = caught.value.details
    assert len(details["blocks"]) == len(details["lanes"]) == 3  # type: ignore[arg-type]
    # An unspecified failure of what was launched before may be why.
    assert details["code"] == 719 and str(details["launched"]).startswith("E_")
    del first


def test_a_lost_gpu_says_what_to_do(library: FakeLibrary) -> None:
    x = Tensor([1.0], device="FAKEAMD").realize()
    library.refusal = "hipEventQuery"
    with pytest.raises(DeviceError, match="hipEventQuery: unspecified launch failure") as caught:
        (x + 1).tolist()
    assert "start the process anew" in str(caught.value)


def test_a_kernel_that_does_not_end_is_named(library: FakeLibrary) -> None:
    x = Tensor([1.0, 2.0], device="FAKEAMD").realize()
    x.tolist()
    y = (x + 1).realize()
    library.is_stuck = True
    with Context(HANG_SECONDS=1), pytest.raises(DeviceError, match="not ended for 1 s") as caught:
        y.tolist()
    assert str(caught.value.details["kernel"]).startswith("E_")
    with pytest.raises(DeviceError, match="not ended"):
        y.tolist()
    # What the kernel may still write to is not given to others.
    runtime, (handle, *_) = Device["FAKEAMD"].runtime, library.memory
    runtime.free(handle, 8)
    assert handle in library.memory
    library.is_stuck = False
    runtime.free(handle, 8)
    assert handle not in library.memory


def test_a_forked_process_is_told(library: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = HipRuntime(library)
    monkeypatch.setattr(runtime, "_process", os.getpid() + 1)
    with pytest.raises(DeviceError, match="opened before this process was forked"):
        runtime.allocate(4)
    library.calls.clear()
    runtime.free(1234, 4)
    assert not library.calls


def test_there_is_no_gpu_beyond_the_last(library: FakeLibrary) -> None:
    with pytest.raises(DeviceError, match="no GPU number 1"):
        HipRuntime(library, 1)


def test_architectures_are_those_of_the_topology(tmp_path: Path) -> None:
    for number, version in enumerate((0, 90010, 90402, 110000, 120001)):
        node = tmp_path / str(number)
        node.mkdir()
        (node / "properties").write_text(f"cpu_cores_count 8\ngfx_target_version {version}\n")
    assert gpu_architectures(str(tmp_path)) == dict(enumerate(ARCHITECTURES, 1))
    assert gpu_architectures(str(tmp_path / "none")) == {}


def test_the_library_may_hide_gpus_of_the_topology(tmp_path: Path) -> None:
    """A processor's own GPU, and two others; the library counts the last one, then the first."""
    gpus = [(100306, 0x300), (110000, 0xC108), (120001, 0xC200)]
    for number, (version, place) in enumerate(gpus):
        node = tmp_path / str(number)
        node.mkdir()
        text = f"location_id {place}\ndomain 1\ngfx_target_version {version}\n"
        (node / "properties").write_text(text)

    class Visible(FakeLibrary):
        at = (b"0001:C2:00.0", b"0001:03:00.0")

        def hipDeviceGetPCIBusId(self, text: Any, size: int, number: int) -> int:
            text.value = self.at[number]
            return 0

    assert visible_architectures(Visible(gpus=2), str(tmp_path)) == ["gfx1201", "gfx1036"]
    # A library that does not tell counts them as the driver lists them.
    silent = FakeLibrary(gpus=2)
    silent.refusal = "hipDeviceGetPCIBusId"
    assert visible_architectures(silent, str(tmp_path)) == ["gfx1036", "gfx1100"]
    silent.refusal = "hipInit"
    assert visible_architectures(silent, str(tmp_path)) == []


def test_a_device_that_is_not_here_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr("ctypes.CDLL", absent)
    with pytest.raises(DeviceError, match="libamdhip64 cannot be loaded") as caught:
        amd.backend("AMD")
    assert "hip-runtime-amd" in caught.value.details["remedy"]
    assert "AMD:KFD" in caught.value.details["remedy"]
    with pytest.raises(DeviceError, match="names an architecture, not a GPU"):
        amd.backend("AMD:GFX942")
    with pytest.raises(DeviceError, match="'gfx1' is no architecture"):
        Device["NULL:AMD:gfx1"]
