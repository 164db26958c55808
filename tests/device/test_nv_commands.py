"""Commands for NVIDIA's GPUs, byte for byte as the published headers have them, and a stand-in that
reads a ring as the manuals describe it.

The bytes expected here are those of C programs in which the lines of the headers stand, `31:29` as
`1 ? 31:29` and `0 ? 31:29`; none is the encoder's own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.device.nv_commands import (
    ADA_COMPUTE_A,
    DOORBELL,
    GP_GET,
    GP_PUT,
    QMD,
    QMD_BYTES,
    REQUESTS,
    WORK_SUBMIT_TOKEN,
    Pushbuffer,
    channel_parameters,
    gp_entry,
    qmd,
    request_number,
)

SEMAPHORE, PAYLOAD = 0x12_3456_7890, 0x1122_3344_5566_7788


def words_of(*calls: Callable[[Pushbuffer], None]) -> str:
    """What is written, as words."""
    made = Pushbuffer()
    for call in calls:
        call(made)
    assert struct.unpack(f"<{len(made.words)}I", bytes(made)) == tuple(made.words)
    return " ".join(f"{word:08x}" for word in made.words)


@pytest.mark.row("P.9")
@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda push: push.methods(0x100, 7, 8, 9), "20032040 00000007 00000008 00000009"),
        (
            lambda push: push.constant(0x1B4, 0xDEADBEEF, 1, subchannel=4),
            "6002806d deadbeef 00000001",
        ),
        (lambda push: push.once(0x1B0, 1, 2, 3), "a003206c 00000001 00000002 00000003"),
        (lambda push: push.immediate(0x1A2C, 0x1FFF), "9fff268b"),
        (
            lambda push: push.release(SEMAPHORE, PAYLOAD, timestamp=True),
            "20050017 34567890 00000012 55667788 11223344 03100001",
        ),
        (
            lambda push: push.acquire(SEMAPHORE, 5),
            "20050017 34567890 00000012 00000005 00000000 01000003",
        ),
        (lambda push: push.select_compute(), "20012000 0000c9c0"),
        (
            lambda push: push.windows(0x1_FE00_0000, 0x1_FF00_0000),
            "200220a8 00000001 fe000000 200221ec 00000001 ff000000",
        ),
        (lambda push: push.local_memory(0x1_FFFF_8000_0000), "200221e4 0001ffff 80000000"),
        (lambda push: push.invalidate_caches(), "90112087"),
        (
            lambda push: push.upload(0x12_3456_7800, b"abcdef"),
            "20042060 00000006 00000001 00000012 34567800 a003206c 00000011 64636261 00006665",
        ),
        (lambda push: push.launch(0x12_3456_7800), "200120ad 12345678 800320b0"),
        (
            lambda push: push.report(SEMAPHORE, 77),
            "20052056 0000004d 00000000 34567890 00000012 00000008",
        ),
    ],
    ids=[
        "incrementing", "constant", "once", "immediate", "release", "acquire", "select", "windows",
        "local", "caches", "upload", "launch", "report",
    ],
)  # fmt: skip
def test_methods_are_those_of_the_headers(
    call: Callable[[Pushbuffer], None], expected: str
) -> None:
    assert words_of(call) == expected


@pytest.mark.row("P.9")
def test_an_entry_of_the_ring() -> None:
    """Forty bits of address, 21 of length, and whether it waits."""
    assert gp_entry(0xAB_1234_5678, 21).hex(" ", 4) == "78563412 ab540000"
    assert gp_entry(0xAB_1234_5678, (1 << 21) - 1, waits=True).hex(" ", 4) == "78563412 abfcffff"


ZEROS = " 00000000" * 8
LAUNCHES: list[tuple[dict[str, int | dict[int, int]], str]] = [
    (
        {
            "SM_GLOBAL_CACHING_ENABLE": 1, "INVALIDATE_SHADER_DATA_CACHE": 1,
            "INVALIDATE_INSTRUCTION_CACHE": 1, "INVALIDATE_SHADER_CONSTANT_CACHE": 1,
            "CWD_MEMBAR_TYPE": 1, "API_VISIBLE_CALL_LIMIT": 1,
            "CTA_RASTER_WIDTH": 0x01020304, "CTA_RASTER_HEIGHT": 0x0506, "CTA_RASTER_DEPTH": 0x0708,
            "SHARED_MEMORY_SIZE": 0x3FC00, "MIN_SM_CONFIG_SHARED_MEM_SIZE": 0x15,
            "MAX_SM_CONFIG_SHARED_MEM_SIZE": 0x2A, "TARGET_SM_CONFIG_SHARED_MEM_SIZE": 0x33,
            "CTA_THREAD_DIMENSION0": 256, "CTA_THREAD_DIMENSION1": 3, "CTA_THREAD_DIMENSION2": 2,
            "REGISTER_COUNT_V": 0x1AB, "BARRIER_COUNT": 0x11,
            "SHADER_LOCAL_MEMORY_LOW_SIZE": 0xABCDEF, "SHADER_LOCAL_MEMORY_HIGH_SIZE": 0x123456,
            "SASS_VERSION": 0x89,
            "RELEASE0_ADDRESS_LOWER": 0x9ABCDEF0, "RELEASE0_ADDRESS_UPPER": 0x5A,
            "RELEASE0_MEMBAR_TYPE": 1, "RELEASE0_ENABLE": 1, "RELEASE0_PAYLOAD64B": 1,
            "RELEASE0_STRUCTURE_SIZE": 2, "RELEASE0_PAYLOAD_LOWER": 0x55667788,
            "RELEASE0_PAYLOAD_UPPER": 0x11223344,
            "CONSTANT_BUFFER_VALID": {0: 1, 7: 1},
            "CONSTANT_BUFFER_ADDR_LOWER": {0: 0x10203040, 7: 0x50607080},
            "CONSTANT_BUFFER_ADDR_UPPER": {0: 0x1ABCD, 7: 2},
            "CONSTANT_BUFFER_INVALIDATE": {0: 1},
            "CONSTANT_BUFFER_SIZE_SHIFTED4": {0: 0x16, 7: 0x1FFF},
            "PROGRAM_ADDRESS_LOWER": 0xCAFE0100, "PROGRAM_ADDRESS_UPPER": 0x1F00D,
        },
        " 00000000 00000000 00000000 00000000 40000000 000000e0 00000000 00000000"
        " 00000000 00000000 00000000 00000104 04030201 06050000 08070000 00000000"
        " 00000000 00fc5754 30000001 03000200 81ab6700 00000000 00000000 efcdab88"
        " f0debc9a 5a0088a0 88776655 44332211 00000000 00000000 00000000 00000000"
        " 40302010 cdabb500 00000000 00000000 00000000 00000000 00000000 00000000"
        " 00000000 00000000 00000000 00000000 00000000 00000000 80706050 0200f8ff"
        " 0001feca 0df00100 56341200 00000089 00000000 00000000 00000000 00000000" + ZEROS,
    ),
    (
        {
            "QMD_VERSION": 9, "QMD_MAJOR_VERSION": 3, "QMD_GROUP_ID": 0x2B,
            "INVALIDATE_TEXTURE_HEADER_CACHE": 1, "INVALIDATE_TEXTURE_DATA_CACHE": 1,
            "SAMPLER_INDEX": 1, "PROGRAM_PREFETCH_ADDR_LOWER_SHIFTED": 0x12345678,
            "PROGRAM_PREFETCH_ADDR_UPPER_SHIFTED": 0x155, "PROGRAM_PREFETCH_SIZE": 0xAA,
            "PROGRAM_PREFETCH_TYPE": 1, "DEPENDENT_QMD0_POINTER": 0x87654321,
            "DEPENDENT_QMD0_ENABLE": 1, "DEPENDENT_QMD0_ACTION": 4, "DEPENDENT_QMD0_PREFETCH": 1,
            "CONSTANT_BUFFER_PREFETCH_POST": {3: 1},
        },
        " 00000000 00000000 00000000 00000000 2b000000 00000014 00000000 00000000"
        " 78563412 00000000 00000000 00000040 00000000 00000000 00000000 21436587"
        " 19000000 00000000 39000000 00000000 00000000 00000000 00000000 00000000" + ZEROS +
        " 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000200" + ZEROS +
        " 00000000 00000000 00000000 55550500 00000000 00000000 00000000 00000000" + ZEROS,
    ),
    (
        {"INVALIDATE_TEXTURE_SAMPLER_CACHE": 1},
        " 00000000 00000000 00000000 00000000 00000000 00000008 00000000 00000000" + ZEROS +
        " 00000000 00000000 30000000 00000000 00000000 00000000 00000000 00000000" + ZEROS * 5,
    ),
]  # fmt: skip


@pytest.mark.row("P.9")
@pytest.mark.parametrize(("fields", "expected"), LAUNCHES, ids=["launch", "others", "sampler"])
def test_a_launch_is_described_as_in_the_header(
    fields: dict[str, int | dict[int, int]], expected: str
) -> None:
    """Version 03_00; the bits of a field are not those of its neighbours."""
    assert " " + qmd(**fields).hex(" ", 4) == expected


def test_each_field_of_a_launch_is_held_to_the_header() -> None:
    assert {name for fields, _ in LAUNCHES for name in fields} == set(QMD)


def test_no_bit_of_a_launch_is_in_two_fields() -> None:
    used: dict[int, str] = {}
    for name, (high, low, step) in QMD.items():
        for number in range(8 if step else 1):
            for bit in range(low + number * step, high + number * step + 1):
                assert bit < 8 * QMD_BYTES
                assert used.setdefault(bit, name) == name or bit not in used
    total = sum((high - low + 1) * (8 if step else 1) for high, low, step in QMD.values())
    assert len(used) == total


@pytest.mark.row("P.9")
@pytest.mark.parametrize(
    ("name", "values", "number", "expected"),
    [
        ("RM_FREE", (1, 2, 3, 4), 0xC0104629, "01000000 02000000 03000000 04000000"),
        (
            "RM_CONTROL", (1, 2, 3, 4, 5, 6, 7), 0xC020462A,
            "01000000 02000000 03000000 04000000 05000000 00000000 06000000 07000000",
        ),
        (
            "RM_ALLOC", (1, 2, 3, 4, 5, 6), 0xC020462B,
            "01000000 02000000 03000000 04000000 05000000 00000000 06000000 00000000",
        ),
    ],
)  # fmt: skip
def test_requests_are_those_of_the_drivers_header(
    name: str, values: tuple[int, ...], number: int, expected: str
) -> None:
    assert request_number(name) == number
    assert REQUESTS[name][1].pack(*values).hex(" ", 4) == expected


@pytest.mark.row("P.9")
def test_a_channel_is_asked_for_as_in_the_drivers_header() -> None:
    made = channel_parameters(
        ring=0x77_0000_0000, entries=1024, space=0x22, userd=[0x33, 0x44], engine=1, error=0x11
    )
    assert len(made) == 304
    assert made[:64].hex(" ", 4) == (
        "11000000 00000000 00000000 77000000 00040000 00000000 00000000 22000000 "
        "33000000 44000000 00000000 00000000 00000000 00000000 00000000 00000000"
    )
    assert made[64:].hex(" ", 4).split() == ["00000000"] * 16 + ["01000000"] + ["00000000"] * 43


def test_the_token_for_the_doorbell_is_a_command_of_the_channel() -> None:
    """Class VOLTA_CHANNEL_GPFIFO_A, category GPFIFO, command 8 (ctrlc36f.h)."""
    assert WORK_SUBMIT_TOKEN == 0xC36F << 16 | 0x01 << 8 | 0x08
    assert (GP_GET, GP_PUT, DOORBELL) == (0x88, 0x8C, 0x90)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Pushbuffer().methods(0x101, 1), "no multiple of 4"),
        (lambda: Pushbuffer().methods(0x4000, 1), "method address"),
        (lambda: Pushbuffer().methods(0x100), "0 words behind a header"),
        (lambda: Pushbuffer().methods(0x100, *range(8192)), "8192 words behind a header"),
        (lambda: Pushbuffer().methods(0x100, 1 << 32), "method data"),
        (lambda: Pushbuffer().methods(0x100, 1, subchannel=8), "subchannel"),
        (lambda: Pushbuffer().immediate(0x100, 1 << 13), "immediate data"),
        (lambda: Pushbuffer().release(0x104, 1), "semaphore: .* no multiple of 8"),
        (lambda: Pushbuffer().acquire(0x104, 1), "semaphore: .* no multiple of 8"),
        (lambda: Pushbuffer().release(0x108, 1, timestamp=True), "no multiple of 16"),
        (lambda: Pushbuffer().release(1 << 40, 1), "address"),
        (lambda: Pushbuffer().launch(0x180), "not aligned to 256"),
        (lambda: Pushbuffer().upload(0, b""), "no bytes"),
        (lambda: gp_entry(0x1000, 0), "segment: 0 words"),
        (lambda: gp_entry(0x1000, 1 << 21), "segment: 2097152 words"),
        (lambda: gp_entry(0xFF_FFFF_FFFC, 1), "segment: 1 words at 0xfffffffffc"),
        (lambda: qmd(CTA_RASTER_HEIGHT=1 << 16), "CTA_RASTER_HEIGHT: 0x10000 does not fit"),
        (lambda: qmd(CONSTANT_BUFFER_VALID={8: 1}), "there is no number 8"),
        (lambda: qmd(CONSTANT_BUFFER_VALID=1), "a value for each number"),
        (lambda: qmd(BARRIER_COUNT={0: 1}), "one value"),
        (
            lambda: channel_parameters(ring=0, entries=3, space=1, userd=[1], engine=1),
            "3 entries is no power of two",
        ),
        (lambda: channel_parameters(ring=0, entries=4, space=1, userd=[], engine=1), "0 GPUs"),
    ],
)
def test_what_does_not_fit_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


# A reader of pushbuffers, after dev_ram.ref: "Types of PB Entries" and the header formats.


def methods_of(words: list[int]) -> list[tuple[int, int, int]]:
    """The methods that a segment makes, as subchannel, address in bytes, and word."""
    found: list[tuple[int, int, int]] = []
    at = 0
    while at < len(words):
        header = words[at]
        at += 1
        if header == 0:
            continue
        kind, count = header >> 29, header >> 16 & 0x1FFF
        subchannel, address = header >> 13 & 7, (header & 0xFFF) * 4
        if kind == 0b100:
            found.append((subchannel, address, count))
            continue
        steps = {0b001: range(count), 0b011: [0] * count, 0b101: [0] + [1] * (count - 1)}[kind]
        for step in steps:
            found.append((subchannel, address + 4 * step, words[at]))
            at += 1
    return found


_WORDS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=9)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 0xFF0), st.integers(0, 7), _WORDS)))
def test_what_is_written_is_read_again(calls: list[tuple[int, int, int, list[int]]]) -> None:
    push, expected = Pushbuffer(), list[tuple[int, int, int]]()
    for kind, place, subchannel, data in calls:
        address = 4 * place
        if kind == 0:
            push.methods(address, *data, subchannel=subchannel)
            expected += [(subchannel, address + 4 * i, word) for i, word in enumerate(data)]
        elif kind == 1:
            push.constant(address, *data, subchannel=subchannel)
            expected += [(subchannel, address, word) for word in data]
        elif kind == 2:
            push.once(address, *data, subchannel=subchannel)
            expected += [(subchannel, address + 4 * bool(i), word) for i, word in enumerate(data)]
        else:
            push.immediate(address, data[0] % 2**13, subchannel)
            expected.append((subchannel, address, data[0] % 2**13))
    assert methods_of(push.words) == expected


class Channel:
    """A channel and a compute engine: memory is an array of bytes, and a store to the doorbell
    makes it read the ring up to GP_PUT. `kernels` are Python, by the address of their program.
    """

    RING, ENTRIES, USERD = 0x1000, 8, 0x2000
    TOKEN = 0x0005_0003

    def __init__(self, kernels: dict[int, Callable[[Channel, bytes], None]]):
        self.memory = bytearray(1 << 16)
        self.kernels = kernels
        self.state: dict[int, int] = {}
        self.inline: list[int] = []
        self.waiting: list[tuple[int, int, int]] = []
        self._put = 0

    # the host's side, by the steps of dev_usermode.ref

    def submit(self, push: Pushbuffer, address: int) -> None:
        data = bytes(push)
        self.memory[address : address + len(data)] = data
        at = self.RING + 8 * (self._put % self.ENTRIES)
        self.memory[at : at + 8] = gp_entry(address, len(push.words))
        self._put += 1
        self.write(self.USERD + GP_PUT, self._put % self.ENTRIES)
        self.ring_doorbell(DOORBELL, self.TOKEN)

    # the GPU's side

    def word(self, address: int, size: int = 4) -> int:
        return int.from_bytes(self.memory[address : address + size], "little")

    def write(self, address: int, value: int, size: int = 4) -> None:
        self.memory[address : address + size] = value.to_bytes(size, "little")

    def ring_doorbell(self, register: int, token: int) -> None:
        assert (register, token) == (0x90, self.TOKEN)
        self.run()

    def run(self) -> None:
        """Go on, up to a semaphore that is not there yet."""
        while True:
            while self.waiting:
                if not self._take(*self.waiting[0]):
                    return
                self.waiting.pop(0)
            get = self.word(self.USERD + 0x88)
            if get == self.word(self.USERD + 0x8C):
                return
            entry = self.word(self.RING + 8 * get, 8)
            start, length = entry & 0xFF_FFFF_FFFC, entry >> 42 & 0x1FFFFF
            self.waiting = methods_of([self.word(start + 4 * i) for i in range(length)])
            self.write(self.USERD + 0x88, (get + 1) % self.ENTRIES)

    def _take(self, subchannel: int, address: int, word: int) -> bool:
        if 0 < address < 0x100:
            return self._take_of_host(address, word)
        assert subchannel == 1
        self.state[address] = word
        if address == 0:
            assert word == ADA_COMPUTE_A
        elif address == 0x1B0:
            self.inline = []
        elif address == 0x1B4:
            self.inline.append(word)
            count = self.state[0x180]
            if len(self.inline) == -(-count // 4):
                data = b"".join(each.to_bytes(4, "little") for each in self.inline)[:count]
                place = self.state[0x188] << 32 | self.state[0x18C]
                self.memory[place : place + count] = data
        elif address == 0x2C0:
            assert word == 3
            place = self.state[0x2B4] << 8
            self._launch(bytes(self.memory[place : place + 256]))
        elif address == 0x168:
            assert word == 8
            self.write(self.state[0x164] << 32 | self.state[0x160], self.state[0x158])
        return True

    def _take_of_host(self, address: int, word: int) -> bool:
        self.state[address] = word
        if address != 0x6C:
            return True
        place = self.state[0x60] << 32 | self.state[0x5C]
        payload = self.state[0x68] << 32 | self.state[0x64]
        assert word >> 24 & 1, "64 bits"
        if word & 7 == 3:
            return (self.word(place, 8) - payload) % 2**64 < 2**63
        assert word & 7 == 1
        self.write(place, payload, 8)
        return True

    def _launch(self, described: bytes) -> None:
        bits = int.from_bytes(described, "little")
        assert bits >> 576 & 0xFF == 0x30, "version 03_00"
        program = bits >> 1536 & (1 << 49) - 1
        self.kernels[program](self, described)


@pytest.mark.row("P.9")
def test_a_submitted_launch_runs_between_its_semaphores() -> None:
    """A QMD and its constants are uploaded, the channel waits for the host, a kernel adds its
    constant to each element of its grid, and the channel says so.
    """
    numbers, constants, launch_at, gate, done = 0x8000, 0x9000, 0xA000, 0xB000, 0xB010

    def add(channel: Channel, described: bytes) -> None:
        bits = int.from_bytes(described, "little")
        blocks, lanes = bits >> 384 & 0xFFFFFFFF, bits >> 592 & 0xFFFF
        place, size = bits >> 1024 & (1 << 49) - 1, (bits >> 1075 & 0x1FFF) << 4
        assert bits >> 640 & 1 and size == 16
        target, term = channel.word(place, 8), channel.word(place + 8)
        for number in range(blocks * lanes):
            value = channel.word(target + 4 * number)
            channel.write(target + 4 * number, value + term)

    channel = Channel({0xC_0000_0100: add})
    channel.memory[numbers : numbers + 48] = struct.pack("<12I", *range(12))
    push = Pushbuffer()
    push.select_compute()
    push.upload(constants, struct.pack("<QI", numbers, 100))
    push.upload(
        launch_at,
        qmd(
            CTA_RASTER_WIDTH=3, CTA_RASTER_HEIGHT=1, CTA_RASTER_DEPTH=1,
            CTA_THREAD_DIMENSION0=4, CTA_THREAD_DIMENSION1=1, CTA_THREAD_DIMENSION2=1,
            CONSTANT_BUFFER_VALID={0: 1}, CONSTANT_BUFFER_ADDR_LOWER={0: constants},
            CONSTANT_BUFFER_SIZE_SHIFTED4={0: 1},
            PROGRAM_ADDRESS_LOWER=0x100, PROGRAM_ADDRESS_UPPER=0xC,
        ),
    )  # fmt: skip
    push.acquire(gate, 5)
    push.invalidate_caches()
    push.launch(launch_at)
    push.report(done + 8, 9)
    push.release(done, 7)
    channel.submit(push, 0x4000)
    assert channel.word(done) == 0
    assert struct.unpack_from("<12I", channel.memory, numbers) == tuple(range(12))
    channel.write(gate, 6, 8)
    channel.run()
    assert struct.unpack_from("<12I", channel.memory, numbers) == tuple(range(100, 112))
    assert (channel.word(done, 8), channel.word(done + 8)) == (7, 9)


def test_a_ring_is_used_again_from_its_start() -> None:
    channel = Channel({})
    for number in range(1, 2 * Channel.ENTRIES + 3):
        push = Pushbuffer()
        push.release(0xB000, number)
        channel.submit(push, 0x4000)
        assert channel.word(0xB000, 8) == number
