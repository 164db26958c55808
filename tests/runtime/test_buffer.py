"""Device memory: when it is taken, shared, reused and given back."""

from __future__ import annotations

import gc
import struct
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.guarded import guard_pages
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DeviceError, InternalError, OutOfMemoryError
from tilegrad.base.trace import GlobalCounters
from tilegrad.device.host import HostMemory
from tilegrad.runtime.buffer import Buffer, LRUAllocator, size_class

has_size_classes = pytest.mark.skipif(
    guard_pages.is_installed(), reason="sizes are exact beside guard pages"
)


class Small(HostMemory):
    """Host memory of a limited size, which remembers what was asked of it."""

    def __init__(self, capacity: int = 1 << 62):
        self.capacity = capacity
        self.held: dict[int, int] = {}
        self.taken = 0
        self.synchronized = 0

    def allocate(self, nbytes: int) -> Any:
        if sum(self.held.values()) + nbytes > self.capacity:
            raise MemoryError(nbytes)
        self.taken += 1
        handle = super().allocate(nbytes)
        self.held[id(handle)] = nbytes
        return handle

    def free(self, handle: Any, nbytes: int) -> None:
        assert self.held.pop(id(handle)) == nbytes

    def synchronize(self) -> None:
        self.synchronized += 1


@pytest.fixture(autouse=True)
def no_garbage() -> None:
    """Memory in use is compared: what other tests left in cycles goes first."""
    gc.collect()


@pytest.fixture
def allocator() -> LRUAllocator:
    """An allocator of a device of 4096 bytes."""
    return LRUAllocator("SMALL", Small(4096))


@pytest.mark.usefixtures("nothing_known")
def test_memory_is_taken_at_the_first_use(allocator: LRUAllocator) -> None:
    before = GlobalCounters.mem_used
    buffer = Buffer(allocator, 100, dtypes.float32)
    assert (buffer.nbytes, buffer.device, buffer.is_allocated) == (400, "SMALL", False)
    assert GlobalCounters.mem_used == before
    assert buffer.handle is buffer.handle
    assert buffer.is_allocated
    assert GlobalCounters.mem_used == before + 400
    del buffer
    assert GlobalCounters.mem_used == before


@has_size_classes
@pytest.mark.row("M7.3")
@pytest.mark.parametrize("sizes", [(10, 12, 30), (20_000, 20_200, 30_000)], ids=["small", "large"])
def test_a_freed_block_serves_the_next_buffer_of_its_size(sizes: tuple[int, int, int]) -> None:
    """Small blocks wait in a list of their class, large ones in the order in which they came."""
    allocator = LRUAllocator("LARGE", Small())
    own, alike, other = sizes
    first = Buffer(allocator, own, dtypes.int32)
    handle = first.handle
    del first
    assert Buffer(allocator, alike, dtypes.int32).handle is handle
    assert Buffer(allocator, other, dtypes.int32).handle is not handle
    assert allocator.runtime.taken == 2  # type: ignore[attr-defined]


@pytest.mark.row("M7.3")
def test_under_pressure_what_is_kept_goes_back(allocator: LRUAllocator) -> None:
    runtime = allocator.runtime
    assert isinstance(runtime, Small)
    for size in (1024, 512, 2048):
        Buffer(allocator, size, dtypes.uint8).copy_in(bytes(size))
    assert allocator.cached_bytes + allocator.used_bytes == 3584
    large = Buffer(allocator, 4096, dtypes.uint8)
    assert large.copy_out().nbytes == 4096
    assert list(runtime.held.values()) == [4096]
    assert runtime.synchronized == 1
    del large


@pytest.mark.row("M7.3")
def test_a_full_device_says_how_much_was_asked_and_is_in_use(allocator: LRUAllocator) -> None:
    held = Buffer(allocator, 3072, dtypes.uint8)
    held.copy_in(bytes(3072))
    with pytest.raises(OutOfMemoryError) as caught:
        Buffer(allocator, 500, dtypes.float32).handle  # noqa: B018
    assert isinstance(caught.value, MemoryError)
    assert "2000 bytes do not fit on SMALL" in str(caught.value)
    assert caught.value.details["in_use"] == "3072 bytes"
    assert "3.07 KB" in str(caught.value.details["largest"])
    del held
    assert Buffer(allocator, 500, dtypes.float32).handle is not None


@pytest.mark.row("M7.3")
@pytest.mark.parametrize("size", [0, -1])
def test_a_buffer_of_no_elements_is_an_error(allocator: LRUAllocator, size: int) -> None:
    with pytest.raises(InternalError, match="an empty tensor has no buffer"):
        Buffer(allocator, size, dtypes.float32)
    with pytest.raises(InternalError, match="an empty tensor has no buffer"):
        allocator.allocate(size)


def test_the_oldest_blocks_go_first_when_too_much_is_kept() -> None:
    runtime = Small()
    runtime.cache_bytes = 2048
    allocator = LRUAllocator("SMALL", runtime)
    sizes = (640, 704, 768, 832)
    handles = [allocator.allocate(size) for size in sizes]
    for handle, size in zip(handles, sizes, strict=True):
        allocator.take_back((size_class(size), handle))
    allocator.allocate(64)
    assert list(runtime.held.values()) == [768, 832, 64]
    assert allocator.cached_bytes == 1600


@has_size_classes
@given(nbytes=st.integers(1, 1 << 40))
def test_a_size_class_wastes_little(nbytes: int) -> None:
    size = size_class(nbytes)
    assert size % 64 == 0
    assert nbytes <= size <= max(nbytes + 63, nbytes * 17 // 16, 64)
    assert size - nbytes < 1 << 20 or nbytes < 1 << 20
    assert size_class(size) == size


def test_bytes_go_in_and_out(allocator: LRUAllocator) -> None:
    buffer = Buffer(allocator, 3, dtypes.int32).copy_in(struct.pack("3i", 1, 2, 3))
    assert struct.unpack("3i", buffer.copy_out()) == (1, 2, 3)
    target = bytearray(12)
    buffer.copy_out(memoryview(target).cast("i"))
    assert target == struct.pack("3i", 1, 2, 3)
    with pytest.raises(InternalError, match="8 bytes into a buffer of 12"):
        buffer.copy_in(bytes(8))
    with pytest.raises(InternalError, match="a buffer of 12 bytes into 8"):
        buffer.copy_out(memoryview(bytearray(8)))


@pytest.mark.usefixtures("nothing_known")
def test_a_view_shares_the_memory_and_keeps_it(allocator: LRUAllocator) -> None:
    before = GlobalCounters.mem_used
    base = Buffer(allocator, 8, dtypes.int32)
    view = base.view(8, 4, dtypes.int16)
    inner = view.view(4, 1, dtypes.int32)
    assert not view.is_allocated
    inner.copy_in(struct.pack("i", -1))
    assert struct.unpack("8i", base.copy_out()) == (0, 0, 0, -1, 0, 0, 0, 0)
    assert struct.unpack("4h", view.copy_out()) == (0, 0, -1, -1)
    assert (inner.base, inner.offset) == (base, 12)
    assert GlobalCounters.mem_used == before + 32
    del base, view
    gc.collect()
    assert GlobalCounters.mem_used == before + 32
    assert struct.unpack("i", inner.copy_out()) == (-1,)
    del inner
    gc.collect()
    assert GlobalCounters.mem_used == before


@pytest.mark.parametrize(("offset", "size"), [(-4, 1), (4, 8), (2, 1), (32, 1)])
def test_a_view_may_not_leave_its_buffer(allocator: LRUAllocator, offset: int, size: int) -> None:
    with pytest.raises(InternalError, match="leaves the buffer"):
        Buffer(allocator, 8, dtypes.int32).view(offset, size)


@pytest.mark.usefixtures("nothing_known")
@pytest.mark.row("S0.5")
def test_host_memory_is_wrapped_without_a_copy(allocator: LRUAllocator) -> None:
    data = bytearray(struct.pack("2i", 1, 2))
    before = GlobalCounters.mem_used
    buffer = Buffer.from_memory(allocator, memoryview(data), dtypes.int32)
    data[0] = 9
    assert struct.unpack("2i", buffer.copy_out()) == (9, 2)
    assert (buffer.size, buffer.is_allocated, GlobalCounters.mem_used) == (2, True, before)
    with pytest.raises(DeviceError, match="cannot be wrapped"):
        Buffer.from_memory(allocator, memoryview(data)[::2], dtypes.int8)
    with pytest.raises(DeviceError, match="cannot be wrapped"):
        Buffer.from_memory(allocator, memoryview(data)[:3], dtypes.int32)


@pytest.mark.usefixtures("nothing_known")
@pytest.mark.row("S0.5")
def test_the_hosts_view_aliases_and_keeps_the_buffer(allocator: LRUAllocator) -> None:
    before = GlobalCounters.mem_used
    buffer = Buffer(allocator, 4, dtypes.uint8).copy_in(b"abcd")
    view = buffer.host_view()
    assert view is not None
    view[0] = ord("z")
    assert bytes(buffer.copy_out()) == b"zbcd"
    part = view[1:3]
    del buffer, view
    gc.collect()
    assert bytes(part) == b"bc"
    assert GlobalCounters.mem_used == before + 4
    del part
    gc.collect()
    assert GlobalCounters.mem_used == before


@pytest.mark.row("S0.5")
def test_a_device_apart_has_no_view_for_the_host() -> None:
    class Apart(HostMemory):
        def host_view(self, handle: Any, nbytes: int) -> memoryview | None:
            return None

        def wrap(self, memory: memoryview) -> Any:
            return None

    allocator = LRUAllocator("APART", Apart())
    assert Buffer(allocator, 4, dtypes.uint8).host_view() is None
    with pytest.raises(DeviceError, match="APART cannot reach host memory"):
        Buffer.from_memory(allocator, memoryview(bytearray(4)), dtypes.uint8)


@pytest.mark.usefixtures("nothing_known")
def test_deallocate_gives_back_now_and_the_next_use_takes_new(allocator: LRUAllocator) -> None:
    before = GlobalCounters.mem_used
    buffer = Buffer(allocator, 4, dtypes.uint8).copy_in(b"abcd")
    buffer.deallocate()
    buffer.deallocate()
    assert (buffer.is_allocated, GlobalCounters.mem_used) == (False, before)
    assert buffer.copy_out().nbytes == 4
    assert GlobalCounters.mem_used == before + 4


@pytest.mark.usefixtures("nothing_known")
def test_several_threads_take_and_give_back() -> None:
    allocator = LRUAllocator("MANY", Small())
    before = GlobalCounters.mem_used
    failures: list[str] = []

    def work(number: int) -> None:
        for step in range(200):
            buffer = Buffer(allocator, 16 + step % 3 * 32, dtypes.uint8)
            value = bytes([number]) * buffer.nbytes
            buffer.copy_in(value)
            if bytes(buffer.copy_out()) != value:
                failures.append(f"thread {number}, step {step}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert GlobalCounters.mem_used == before
    allocator.flush()
    assert (allocator.used_bytes, allocator.cached_bytes) == (0, 0)
    assert allocator.runtime.held == {}  # type: ignore[attr-defined]


def test_writes_to_watched_memory_are_counted(allocator: LRUAllocator) -> None:
    one, other = Buffer(allocator, 4, dtypes.float32), Buffer(allocator, 4, dtypes.float32)
    seen = one.watch()
    before = Buffer.writes
    other.before_write()
    assert one.version == seen
    one.before_write()
    assert one.version != seen and Buffer.writes == before
    assert one.watch(has_copies=True) == one.version
    one.before_write()
    assert Buffer.writes != before
    # A write to a part of the memory is one to all of it.
    seen, window = one.version, one.view(4, 2)
    window.before_write()
    assert one.version == window.version != seen
    assert one.is_private
    window.expose()
    assert not one.is_private


def test_memory_of_others_is_not_private(allocator: LRUAllocator) -> None:
    theirs = Buffer.from_memory(allocator, memoryview(bytearray(16)), dtypes.float32, is_fixed=True)
    assert not theirs.is_private
    theirs.before_write()
    assert theirs.is_private, "it went on in other memory"
    assert Buffer.from_memory(allocator, memoryview(bytes(16)), dtypes.float32).is_private


class Owning(Small):
    """Handles that give their memory back when they die, as those of some drivers do."""

    class Handle:
        is_released = False

        def __del__(self) -> None:
            self.is_released = True

    def allocate(self, nbytes: int) -> Any:
        self.taken += 1
        return self.Handle()

    def free(self, handle: Any, nbytes: int) -> None:
        self.taken -= 1


@pytest.mark.parametrize("size", [16, 1 << 20])
def test_a_handle_outlives_a_buffer_that_dies_in_a_cycle(size: int) -> None:
    """The garbage collector calls all finalizers of a cycle before it asks what they revived."""
    runtime = Owning()
    allocator = LRUAllocator("OWNING", runtime)
    cycle: list[Any] = [Buffer(allocator, size, dtypes.uint8)]
    assert not cycle[0].handle.is_released
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert not Buffer(allocator, size, dtypes.uint8).handle.is_released
    assert runtime.taken == 1
    allocator.flush()
    gc.collect()
    assert runtime.taken == 0
