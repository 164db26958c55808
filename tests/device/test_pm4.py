"""Launches as packets of AMD's command processor: their bytes beside the published headers, and
what they compute on a GPU of the tests, which reads them by itself.
"""

from __future__ import annotations

import gc
import platform
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.device.fake_kfd import CommandProcessor, device_over
from tilegrad import Context, Device, Tensor, jit
from tilegrad.runtime import kfd_sequence
from tilegrad.runtime.pm4 import (
    CommandProcessor as Processor,
)
from tilegrad.runtime.pm4 import (
    KernelDescriptor,
    command_processor_of,
    jump_packet,
    launch_words,
    wait_words,
)

needs_x86 = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="its own loader is for x86-64"
)


def processor_of(arch: str) -> Processor:
    found = command_processor_of(arch)
    assert found is not None
    return found


def bytes_of(words: list[int]) -> str:
    return struct.pack(f"<{len(words)}I", *words).hex(" ", 4)


@pytest.mark.row("P.7")
def test_a_launch_is_word_for_word_that_of_the_headers() -> None:
    """PACKET3(op, n) of soc15d.h is 3 << 30 | op << 8 | n << 16; SET_SH_REG (0x76) counts registers
    from 0x2C00, and gc_9_4_2_offset.h has them from 0x2000. DISPATCH_DIRECT is 0x15. Of 3,000 bytes
    of shared memory there are six units of 512, from bit 15 on.
    """
    kernel = KernelDescriptor(0, (0xAF0310, 0x138C, 0xB), has_scratch_words=True, is_plain=True)
    of_launch = (0x123456789A00, 3000, 0x7FFF00001040, (5, 3, 2), (64, 4, 1))
    found = launch_words(processor_of("gfx90a"), kernel, *of_launch)
    assert bytes_of(found) == (
        "007602c0 0c020000 9a785634 12000000 "  # COMPUTE_PGM_LO, _HI: the address by 256
        "007602c0 12020000 1003af00 8c130300 "  # COMPUTE_PGM_RSRC1, 2
        "007601c0 2d020000 0b000000 "  # COMPUTE_PGM_RSRC3
        "007601c0 18020000 00000000 "  # COMPUTE_TMPRING_SIZE
        "007601c0 15020000 00000000 "  # COMPUTE_RESOURCE_LIMITS
        "007603c0 04020000 00000000 00000000 00000000 "  # COMPUTE_START_X, Y, Z
        "007603c0 07020000 40000000 04000000 01000000 "  # COMPUTE_NUM_THREAD_X, Y, Z
        "007606c0 40020000 00000000 00000000 00000000 00000000 40100000 ff7f0000 "  # USER_DATA
        "001503c0 05000000 03000000 02000000 05000000"  # DISPATCH_DIRECT
    )


@pytest.mark.row("P.7")
@pytest.mark.parametrize("arch", ["gfx1010", "gfx1030", "gfx1100", "gfx1151"])
def test_a_launch_of_later_generations_is_word_for_word_that_of_the_headers(arch: str) -> None:
    """nvd.h has the opcodes of soc15d.h. gc_10_1_0_offset.h, gc_10_3_0_offset.h and
    gc_11_0_0_offset.h count from 0x1260 (navi10_ip_offset.h) and have COMPUTE_PGM_LO at 0x1bac,
    COMPUTE_PGM_RSRC3 at 0x1bc8, 0x2e28 from 0. Bit 15 of COMPUTE_DISPATCH_INITIATOR, CS_W32_EN, is
    for warps of 32 lanes.
    """
    assert (0x1260 + 0x1BAC - 0x2C00, 0x1260 + 0x1BC8 - 0x2C00) == (0x20C, 0x228)
    words = (0xE0AF0018, 0xB9A, 0x110)
    kernel = KernelDescriptor(0, words, has_scratch_words=False, is_plain=True, has_32_lanes=True)
    of_launch = (0x123456789A00, 3000, 0x7FFF00001040, (5, 3, 2), (64, 4, 1))
    assert bytes_of(launch_words(processor_of(arch), kernel, *of_launch)) == (
        "007602c0 0c020000 9a785634 12000000 "  # COMPUTE_PGM_LO, _HI
        "007602c0 12020000 1800afe0 9a0b0300 "  # COMPUTE_PGM_RSRC1, 2
        "007601c0 28020000 10010000 "  # COMPUTE_PGM_RSRC3
        "007601c0 18020000 00000000 "  # COMPUTE_TMPRING_SIZE
        "007601c0 15020000 00000000 "  # COMPUTE_RESOURCE_LIMITS
        "007603c0 04020000 00000000 00000000 00000000 "  # COMPUTE_START_X, Y, Z
        "007603c0 07020000 40000000 04000000 01000000 "  # COMPUTE_NUM_THREAD_X, Y, Z
        "007602c0 40020000 40100000 ff7f0000 "  # USER_DATA
        "001503c0 05000000 03000000 02000000 05800000"  # DISPATCH_DIRECT
    )


def test_waits_of_later_generations_are_word_for_word_those_of_the_headers() -> None:
    """ACQUIRE_MEM has a word more: GCR_CNTL. GLK is emptied by bit 7, GLV by 8, GL1 by 9; all of
    gfx_v10_0_emit_mem_sync and gfx_v11_0_emit_mem_sync are 0xC3B1.
    """
    processor = processor_of("gfx1100")
    rest = "00000000 ffffffff ffffff00 00000000 00000000 0a000000"
    head = "004600c0 07040000 005806c0"
    assert bytes_of(wait_words(processor, is_end=False)) == f"{head} {rest} 80030000"
    assert bytes_of(wait_words(processor, is_end=True)) == f"{head} {rest} b1c30000"


def test_waits_and_the_jump_are_word_for_word_those_of_the_headers() -> None:
    """EVENT_WRITE (0x46) of CS_PARTIAL_FLUSH (7) with index 4. ACQUIRE_MEM (0x58) of all memory as
    in gfx_v9_0_emit_mem_sync: actions of TCL1 (bit 22) and scalar caches (27), at the end of TC
    (23, written back: 18) and instructions (29) too. INDIRECT_BUFFER (0x3F) is valid by bit 23.
    """
    rest = "ffffffff ffffff00 00000000 00000000 0a000000"
    processor, head = processor_of("gfx90a"), "004600c0 07040000 005805c0"
    assert bytes_of(wait_words(processor, is_end=False)) == f"{head} 00004008 {rest}"
    assert bytes_of(wait_words(processor, is_end=True)) == f"{head} 0000c428 {rest}"
    assert jump_packet(0x7FFF12345600, 77, 0xDD00).hex(" ", 4) == (
        "00150100 003f02c0 00563412 ff7f0000 4d008000 0a000000 00000000 00000000 00000000 00000000 "
        "00000000 00000000 00000000 00000000 00dd0000 00000000"
    )


@pytest.fixture(params=["gfx90a", "gfx1030", "gfx1100"])
def gpu(request: pytest.FixtureRequest) -> Iterator[CommandProcessor]:
    found = CommandProcessor(request.param)
    Device.register("FAKEPM4", lambda name: device_over(found, name, found.arch, has_pm4=True))
    with Context(TEMPLATES=1, SEGMENTS=1, SIZES=1, DISABLE_COMPILER_CACHE=1):
        yield found
    Device.unregister("FAKEPM4")


@pytest.fixture
def step() -> Callable[[Tensor], Tensor]:
    """A function of three kernels; each reads what the one before it wrote."""
    return jit(lambda x: ((x @ x.T).softmax(1) @ x).realize())


def array(number: int) -> Any:
    return np.random.default_rng(number).standard_normal((24, 17)).astype(np.float32)


def check(step: Callable[[Tensor], Tensor], number: int) -> None:
    """A run has the values of NumPy."""
    given = array(number)
    scores = given.astype(np.float64) @ given.T
    powers = np.exp(scores - scores.max(1, keepdims=True))
    wanted = powers / powers.sum(1, keepdims=True) @ given
    found = step(Tensor(given, device="FAKEPM4").realize()).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def check_all(step: Callable[[Tensor], Tensor], count: int) -> None:
    for number in range(count):
        check(step, number)


@needs_x86
@pytest.mark.row("P.7")
def test_a_captured_step_is_one_packet_with_the_values_of_numpy(
    gpu: CommandProcessor, step: Callable[[Tensor], Tensor]
) -> None:
    for number in range(8):
        before = len(gpu.packets)
        check(step, number)
        if number > 5:
            assert len(gpu.packets) == before + 1
    # What a run writes is the same twice: two copies in turn.
    assert len(gpu.jumps) >= 3 and gpu.jumps[-1] == gpu.jumps[-3] != gpu.jumps[-2]


@needs_x86
@pytest.mark.parametrize("missing", [False, True])
def test_a_wait_that_is_missing_is_found(
    gpu: CommandProcessor,
    step: Callable[[Tensor], Tensor],
    monkeypatch: pytest.MonkeyPatch,
    missing: bool,
) -> None:
    """The GPU of these tests is worth asking: between launches, and at both ends."""

    def without(processor: Processor, is_end: bool) -> list[int]:
        return [] if is_end == missing else wait_words(processor, is_end)

    monkeypatch.setattr(kfd_sequence, "wait_words", without)
    with pytest.raises(AssertionError, match="nothing waits" if missing else "Not equal"):
        check_all(step, 6)


@needs_x86
def test_no_arguments_change_while_the_gpu_reads_them(
    gpu: CommandProcessor, step: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run waits for the last but one, whose copy of the packets it takes."""
    check_all(step, 6)
    given, waited = Tensor(array(0), device="FAKEPM4").realize(), list[int]()
    monkeypatch.setattr(Device["FAKEPM4"].runtime, "wait_until", waited.append)
    done = len(gpu.packets)
    for _ in range(4):
        step(given)
    assert len(waited) == 4 and waited[2:] == [done + 1, done + 2]


@needs_x86
def test_memory_of_packets_goes_back_with_the_function(gpu: CommandProcessor) -> None:
    step = jit(lambda x: ((x @ x.T).softmax(1) @ x).realize())
    check_all(step, 6)
    before = len(gpu.mapped)
    del step
    gc.collect()
    assert len(gpu.mapped) < before


def test_only_architectures_of_one_die_are_known() -> None:
    """Nothing published says how the dies of gfx942 share a launch. Where the registers of gfx12
    lie was not read.
    """
    assert command_processor_of("gfx942") is None and command_processor_of("gfx1201") is None
    assert processor_of("gfx1036") is processor_of("gfx1100") is not processor_of("gfx906")


@needs_x86
def test_other_architectures_launch_by_the_specification_s_packets() -> None:
    found = CommandProcessor()
    Device.register("FAKEPM4", lambda name: device_over(found, name, "gfx942"))
    try:
        with Context(TEMPLATES=1, SEGMENTS=1, SIZES=1, DISABLE_COMPILER_CACHE=1):
            step = jit(lambda x: ((x @ x.T).softmax(1) @ x).realize())
            check_all(step, 6)
        assert not found.jumps and len(found.packets) == 18
    finally:
        Device.unregister("FAKEPM4")
