"""The kernel driver's interface to AMD's GPUs: bytes as the published header has them, and a GPU
that takes packets out of the ring and runs the kernels' LLVM text on this processor.
"""

from __future__ import annotations

import ctypes
import gc
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.device.fake_kfd import NODE, Gpu, device_over
from tilegrad import Context, Device, Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DeviceError, OutOfMemoryError
from tilegrad.device import amd
from tilegrad.runtime import kfd
from tilegrad.runtime.kfd import REQUESTS, KfdRuntime, Node, dispatch_packet

HEADER = Path("/usr/include/linux/kfd_ioctl.h")
# The fields of each structure in their order.
FIELDS = {
    "CREATE_QUEUE": "ring_base_address write_pointer_address read_pointer_address doorbell_offset "
    "ring_size gpu_id queue_type queue_percentage queue_priority queue_id eop_buffer_address "
    "eop_buffer_size ctx_save_restore_address ctx_save_restore_size ctl_stack_size",
    "DESTROY_QUEUE": "queue_id pad",
    "ACQUIRE_VM": "drm_fd gpu_id",
    "ALLOC_MEMORY_OF_GPU": "va_addr size handle mmap_offset gpu_id flags",
    "FREE_MEMORY_OF_GPU": "handle",
    "MAP_MEMORY_TO_GPU": "handle device_ids_array_ptr n_devices n_success",
    "UNMAP_MEMORY_FROM_GPU": "handle device_ids_array_ptr n_devices n_success",
}


def request_of(name: str) -> int:
    """The number that the runtime gives to ioctl."""
    seen = []

    class Listening:
        def ioctl(self, file: int, request: int, data: bytearray) -> None:
            seen.append(request)

    runtime = object.__new__(KfdRuntime)
    runtime._system, runtime._file = Listening(), 3  # type: ignore[assignment]
    runtime._request(name, *range(1, 1 + len(FIELDS[name].split())))
    return seen[0]


@pytest.mark.skipif(
    not HEADER.exists() or shutil.which("gcc") is None,
    reason="no gcc, or no header of the kernel (linux-libc-dev)",
)
def test_requests_are_byte_for_byte_those_of_the_kernels_header(tmp_path: Path) -> None:
    """A C program fills each structure with 1, 2, 3, ... and prints its bytes."""
    lines = ["#include <stdio.h>", "#include <string.h>", "#include <linux/kfd_ioctl.h>"]
    lines += ["int main(void) {"]
    for name, fields in FIELDS.items():
        kind = f"struct kfd_ioctl_{name.lower()}_args"
        sets = " ".join(f"x.{field} = {i};" for i, field in enumerate(fields.split(), 1))
        lines.append(
            f'{{ {kind} x; memset(&x, 0, sizeof x); {sets} printf("{name} %lu ", '
            f"(unsigned long)AMDKFD_IOC_{name}); for (unsigned i = 0; i < sizeof x; i++) "
            f'printf("%02x", ((unsigned char*)&x)[i]); puts(""); }}'
        )
    (tmp_path / "print.c").write_text("\n".join([*lines, "return 0; }"]))
    # Of the header that it includes, the kernel's needs the names of integers only.
    (tmp_path / "drm").mkdir()
    (tmp_path / "drm" / "drm.h").write_text("#include <linux/types.h>\n")
    subprocess.run(["gcc", "-I.", "print.c", "-o", "print"], cwd=tmp_path, check=True)
    done = subprocess.run(["./print"], cwd=tmp_path, capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    assert {row[0] for row in rows} == set(REQUESTS)
    for name, number, data in rows:
        values = range(1, 1 + len(FIELDS[name].split()))
        assert int(number) == request_of(name)
        assert REQUESTS[name][2].pack(*values).hex() == data


@pytest.mark.row("P.7")
def test_a_dispatch_packet_is_byte_for_byte_that_of_the_specification() -> None:
    """HSA Platform System Architecture 1.2, table of the kernel dispatch packet. The header: type
    2, barrier, acquire and release for the whole system; then three dimensions.
    """
    packet = dispatch_packet((5, 3, 2), (64, 4, 1), 2048, 0x1122334455667788, 0xAABBCC00, 0xDD00)
    assert packet.hex(" ", 4) == (
        "02150300 40000400 01000000 40010000 0c000000 02000000 00000000 00080000 "
        "88776655 44332211 00ccbbaa 00000000 00000000 00000000 00dd0000 00000000"
    )


@pytest.fixture
def gpu() -> Iterator[Gpu]:
    found = Gpu()
    Device.register("FAKEKFD", lambda name: device_over(found))
    yield found
    Device.unregister("FAKEKFD")


needs_x86 = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="its own loader is for x86-64"
)


@needs_x86
@pytest.mark.row("P.7")
def test_what_packets_launch_has_the_values_of_numpy(gpu: Gpu) -> None:
    x = np.random.RandomState(0).randn(5, 90).astype(np.float32)
    t = Tensor(x, device="FAKEKFD").realize()
    e = np.exp(x.astype("d") - x.max(1, keepdims=True))
    np.testing.assert_allclose(t.softmax(1).numpy(), e / e.sum(1, keepdims=True), rtol=2e-6)
    np.testing.assert_allclose((t @ t.T).numpy(), x.astype("d") @ x.T, rtol=1e-5, atol=1e-4)
    assert len(gpu.packets) >= 2


@needs_x86
def test_the_ring_is_used_again_from_its_start(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kfd, "_PACKETS", 4)
    t = Tensor(np.zeros(5, np.float32), device="FAKEKFD").realize()
    for _ in range(11):
        t = (t + 1).realize()
    assert t.tolist() == [11.0] * 5
    assert len(gpu.packets) == gpu.read == 11


def test_the_queue_is_made_of_memory_that_is_mapped_before(gpu: Gpu) -> None:
    KfdRuntime(NODE, gpu)
    assert gpu.opened == ["/dev/kfd", "/dev/dri/renderD128"]
    pairs = ["ALLOC_MEMORY_OF_GPU", "MAP_MEMORY_TO_GPU"]
    assert gpu.names() == ["ACQUIRE_VM", *pairs * 6, "CREATE_QUEUE"]
    assert gpu.log[0][1] == (12, NODE.gpu_id)
    ring, written, read, _, size, who, kind, percentage, priority, _, *rest = gpu.queue
    assert {ring, rest[0], rest[2]} <= set(gpu.blocks) and written - 56 == read - 128
    assert (size, who, kind, percentage, priority) == (65536, NODE.gpu_id, 2, 100, 7)
    assert rest[1] == 4096 and tuple(rest[3:]) == (0x8000, 0x1000)
    # Each packet says that it is none, until one is written.
    assert ctypes.string_at(ring, 128) == bytes([1, *[0] * 63]) * 2


def test_a_kernel_that_needs_scratch_memory_is_refused(gpu: Gpu) -> None:
    text = (
        "define amdgpu_kernel void @kernel(ptr addrspace(1) %p, i64 %i) {\n"
        "  %a = alloca [9 x double], addrspace(5)\n"
        "  %q = getelementptr double, ptr addrspace(5) %a, i64 %i\n"
        "  store volatile double 1.0, ptr addrspace(5) %q\n"
        "  ret void\n}\n"
    )
    binary = amd.backend("AMD:gfx942", KfdRuntime(NODE, gpu)).compile(text)
    with pytest.raises(DeviceError, match="kernel: its lanes need scratch memory"):
        KfdRuntime(NODE, Gpu()).load("kernel", binary)


def test_memory_is_unmapped_before_it_is_freed_and_a_lack_of_it_is_an_error(gpu: Gpu) -> None:
    backend = Device["FAKEKFD"]
    before = len(gpu.mapped)
    buffer = backend.buffer(1 << 20, dtypes.float32)
    buffer.copy_in(bytes(4 << 20))
    assert len(gpu.mapped) == before + 1
    buffer.deallocate()
    with pytest.raises(OutOfMemoryError, match="do not fit on FAKEKFD"):
        backend.buffer(1 << 28, dtypes.float32).to_write()
    assert gpu.names()[-4:-1] == [
        "ALLOC_MEMORY_OF_GPU", "UNMAP_MEMORY_FROM_GPU", "FREE_MEMORY_OF_GPU",
    ]  # fmt: skip
    assert len(gpu.mapped) == before


@needs_x86
def test_a_block_with_more_lanes_than_a_kernel_is_made_for_is_refused(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU says nothing of it: the queue would stop."""
    runtime, loaded = Device["FAKEKFD"].runtime, list[Any]()
    load = runtime.load

    def noted(name: str, binary: bytes) -> Any:
        loaded.append(load(name, binary))
        return loaded[-1]

    monkeypatch.setattr(runtime, "load", noted)
    x = Tensor(np.ones(5, np.float32), device="FAKEKFD").realize()
    with Context(DISABLE_COMPILER_CACHE=1):
        (x * 3 + 2).realize()
    (program,) = loaded
    before = len(gpu.packets)
    with pytest.raises(DeviceError, match=f"{program.name}: 1025 lanes in a block") as caught:
        runtime.launch(program, [0, 0], [], (1, 1, 1), (1025, 1, 1))
    assert caught.value.details["limit"] == f"{program.lanes} of this kernel"
    with pytest.raises(DeviceError, match="4294967300 lanes along an axis") as caught:
        runtime.launch(program, [0, 0], [], ((1 << 30) + 1, 1, 1), (4, 1, 1))
    assert caught.value.details["limit"] == "4294967295 in one launch"
    assert program.lanes <= 1024 and len(gpu.packets) == before


def test_a_number_behind_the_driver_is_no_device() -> None:
    with pytest.raises(DeviceError, match="'AMD:KFD:5' is no device"):
        amd.backend("AMD:KFD:5")


def test_a_kernel_that_does_not_end_is_an_error(gpu: Gpu) -> None:
    t = Tensor([1.0], device="FAKEKFD").realize()
    gpu.is_stuck = True
    with (
        Context(HANG_SECONDS=1),
        pytest.raises(DeviceError, match=r"AMD: E\w* has not ended for 1 s"),
    ):
        (t + 1).tolist()
    # Nobody waits for it again, nor does the collector, which frees what it may still write.
    freed = gpu.names().count("FREE_MEMORY_OF_GPU")
    with pytest.raises(DeviceError, match=r"E\w* has not ended for"):
        t.tolist()
    del t
    gc.collect()
    assert gpu.names().count("FREE_MEMORY_OF_GPU") == freed
    gpu.is_stuck = False


def test_a_machine_without_the_driver_and_an_old_driver_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="lists no GPU"):
        amd.backend("AMD:KFD")
    node = tmp_path / "1"
    node.mkdir()
    (node / "gpu_id").write_text("4660\n")
    (node / "properties").write_text("drm_render_minor 128\n")
    with pytest.raises(DeviceError, match="how large a queue's state is"):
        Node.read(1, str(tmp_path))
    (node / "properties").write_text("drm_render_minor 128\ncwsr_size 32768\nctl_stack_size 4096\n")
    assert Node.read(1, str(tmp_path)) == NODE
