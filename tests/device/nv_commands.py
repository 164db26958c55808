"""What a driver in user space writes for an NVIDIA GPU, as bytes. No device is behind it.

Each number is one of a published header or manual (docs/nvidia-commands.md has the list):

    pushbuffer   methods, which are pairs of an address and a word: for the channel itself
                 (semaphores) and for the compute engine (class ADA_COMPUTE_A)
    QMD          2048 bits that describe a launch (version 03_00)
    GP entry     where a segment of the pushbuffer lies, in the ring of a channel
    requests     what the kernel's driver is asked for: objects, among them the channel

A field has the name of the header, and its value is as the header has it: nothing is scaled.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "ADA_COMPUTE_A", "AMPERE_CHANNEL_GPFIFO_A", "COMPUTE", "DOORBELL", "GP_GET", "GP_PUT", "QMD",
    "QMD_BYTES", "REQUESTS", "WORK_SUBMIT_TOKEN", "Pushbuffer", "channel_parameters", "gp_entry",
    "qmd", "request_number",
]  # fmt: skip

# clc9c0.h, clc56f.h
ADA_COMPUTE_A, AMPERE_CHANNEL_GPFIFO_A = 0xC9C0, 0xC56F
# The subchannel of the compute engine (dev_ram.ref, "Types of PB Entries").
COMPUTE = 1
# Of the memory USERD of a channel (clc56f.h, Nvc56fControl), in bytes.
GP_GET, GP_PUT = 0x88, 0x8C
# Of the mapped registers of the class VOLTA_USERMODE_A (clc361.h), in bytes.
DOORBELL = 0x90
# The command that asks a channel for what is written to the doorbell (ctrlc36f.h).
WORK_SUBMIT_TOKEN = 0xC36F0108

# Kinds of method headers: NV_FIFO_DMA_SEC_OP.
_INCREMENTING, _CONSTANT, _IMMEDIATE, _ONCE = 1, 3, 4, 5
_MOST_METHODS, _MOST_WORDS = (1 << 13) - 1, (1 << 21) - 1
_ADDRESS_BITS = 40

# Methods of the channel (clc56f.h).
_SEM_ADDR_LO = 0x5C
_ACQUIRE, _RELEASE = 3, 1  # ACQ_CIRC_GEQ: until the word is the payload, or past it
# Methods of the compute class (clc9c0.h).
_SET_OBJECT = 0x0000
_REPORT_SEMAPHORE = 0x0158
_LINE_LENGTH_IN, _LAUNCH_DMA = 0x0180, 0x01B0
_INVALIDATE_SHADER_CACHES = 0x021C
_SHARED_WINDOW, _LOCAL_MEMORY, _LOCAL_WINDOW = 0x02A0, 0x0790, 0x07B0
_SEND_PCAS_A, _SEND_SIGNALING_PCAS2_B = 0x02B4, 0x02C0
_INVALIDATE_COPY_SCHEDULE = 3


def _field(value: int, high: int, low: int, name: str = "field") -> int:
    """The bits of a word, or of a QMD. Raises ValueError where the value has more."""
    if not 0 <= value < 1 << high - low + 1:
        raise ValueError(f"{name}: {value:#x} does not fit into the bits {high}:{low}")
    return value << low


def _halves(value: int, bits: int = _ADDRESS_BITS, name: str = "address") -> tuple[int, int]:
    """The upper and the lower word."""
    _field(value, bits - 1, 0, name)
    return value >> 32, value & 0xFFFFFFFF


class Pushbuffer:
    """Words for the channel, in the order in which they are read."""

    def __init__(self) -> None:
        self.words: list[int] = []

    def __bytes__(self) -> bytes:
        return struct.pack(f"<{len(self.words)}I", *self.words)

    # headers (dev_ram.ref, "Host Pushbuffer Format")

    def _header(self, kind: int, address: int, subchannel: int, count: int) -> None:
        if address % 4:
            raise ValueError(f"method: the address {address:#x} is no multiple of 4")
        self.words.append(
            _field(kind, 31, 29)
            | _field(count, 28, 16, "count or immediate data")
            | _field(subchannel, 15, 13, "subchannel")
            | _field(address >> 2, 11, 0, "method address")
        )

    def _methods(self, kind: int, address: int, data: Sequence[int], subchannel: int) -> None:
        if not 1 <= len(data) <= _MOST_METHODS:
            raise ValueError(f"method: {len(data)} words behind a header, most {_MOST_METHODS}")
        words = [_field(word, 31, 0, "method data") for word in data]
        self._header(kind, address, subchannel, len(data))
        self.words += words

    def methods(self, address: int, *data: int, subchannel: int = COMPUTE) -> None:
        """One word for each method from `address` on."""
        self._methods(_INCREMENTING, address, data, subchannel)

    def constant(self, address: int, *data: int, subchannel: int = COMPUTE) -> None:
        """All words for the method at `address`."""
        self._methods(_CONSTANT, address, data, subchannel)

    def once(self, address: int, *data: int, subchannel: int = COMPUTE) -> None:
        """The first word for the method at `address`, all others for the one behind it."""
        self._methods(_ONCE, address, data, subchannel)

    def immediate(self, address: int, data: int, subchannel: int = COMPUTE) -> None:
        """A word of 13 bits, in the header itself."""
        self._header(_IMMEDIATE, address, subchannel, data)

    # the channel's own methods: a subchannel is ignored

    def _semaphore(self, address: int, payload: int, operation: int, align: int = 8) -> None:
        upper, lower = _halves(address)
        if lower % align:
            raise ValueError(f"semaphore: the address {address:#x} is no multiple of {align}")
        payload_upper, payload_lower = _halves(payload, 64, "payload")
        is_long = 1 << 24
        self.methods(
            _SEM_ADDR_LO, lower, upper, payload_lower, payload_upper, operation | is_long,
            subchannel=0,
        )  # fmt: skip

    def acquire(self, address: int, payload: int) -> None:
        """The channel waits until the 64 bits at `address` are `payload`, or past it by less than
        half of their range.
        """
        self._semaphore(address, payload, _ACQUIRE)

    def release(self, address: int, payload: int, *, timestamp: bool = False) -> None:
        """64 bits are written once the engine is idle, and with `timestamp` nanoseconds behind."""
        operation = _RELEASE | 1 << 20 | timestamp << 25
        self._semaphore(address, payload, operation, 16 if timestamp else 8)

    # the compute class

    def select_compute(self) -> None:
        """The subchannel is checked to be one of the compute class."""
        self.methods(_SET_OBJECT, ADA_COMPUTE_A)

    def windows(self, shared: int, local: int) -> None:
        """Where shared memory and that of a lane appear among the addresses of a kernel."""
        self.methods(_SHARED_WINDOW, *_halves(shared, 49))
        self.methods(_LOCAL_WINDOW, *_halves(local, 49))

    def local_memory(self, address: int) -> None:
        """Where the memory of lanes lies."""
        self.methods(_LOCAL_MEMORY, *_halves(address, 49))

    def invalidate_caches(self) -> None:
        """Instructions, data and constants are read anew."""
        self.immediate(_INVALIDATE_SHADER_CACHES, 1 << 0 | 1 << 4 | 1 << 12)

    def upload(self, address: int, data: bytes) -> None:
        """Bytes that stand in the pushbuffer itself, written to `address` as one line."""
        if not data:
            raise ValueError(f"upload: no bytes to {address:#x}")
        upper, lower = _halves(address, 49)
        padded = data + bytes(-len(data) % 4)
        words = struct.unpack(f"<{len(padded) // 4}I", padded)
        self.methods(_LINE_LENGTH_IN, len(data), 1, upper, lower)
        # DST_MEMORY_LAYOUT_PITCH, COMPLETION_TYPE_FLUSH_ONLY; then LOAD_INLINE_DATA.
        self.once(_LAUNCH_DMA, 1 << 0 | 1 << 4, *words)

    def launch(self, address: int) -> None:
        """The launch that the QMD at `address` describes."""
        if address % QMD_BYTES:
            raise ValueError(f"launch: the QMD at {address:#x} is not aligned to {QMD_BYTES}")
        self.methods(_SEND_PCAS_A, _field(address >> 8, 31, 0, "QMD address"))
        self.immediate(_SEND_SIGNALING_PCAS2_B, _INVALIDATE_COPY_SCHEDULE)

    def report(self, address: int, payload: int) -> None:
        """As `release`, by the compute engine: one word, behind all launches before."""
        upper, lower = _halves(address)
        # OPERATION_RELEASE is 0.
        one_word = 1 << 3
        self.methods(
            _REPORT_SEMAPHORE, _field(payload, 31, 0, "payload"), 0, lower, upper, one_word
        )


# The QMD, version 03_00 (clc9c0qmd.h): the highest and the lowest bit of the fields that a launch
# has a use for, and how far the next one of a row is.
QMD_BYTES = 256
QMD: dict[str, tuple[int, int, int]] = {
    name: (*bits, 0)
    for name, bits in {
        "QMD_GROUP_ID": (133, 128),
        "SM_GLOBAL_CACHING_ENABLE": (134, 134),
        "INVALIDATE_TEXTURE_HEADER_CACHE": (186, 186),
        "INVALIDATE_TEXTURE_SAMPLER_CACHE": (187, 187),
        "INVALIDATE_TEXTURE_DATA_CACHE": (188, 188),
        "INVALIDATE_SHADER_DATA_CACHE": (189, 189),
        "INVALIDATE_INSTRUCTION_CACHE": (190, 190),
        "INVALIDATE_SHADER_CONSTANT_CACHE": (191, 191),
        "PROGRAM_PREFETCH_ADDR_LOWER_SHIFTED": (287, 256),
        "CWD_MEMBAR_TYPE": (369, 368),
        "API_VISIBLE_CALL_LIMIT": (378, 378),
        "SAMPLER_INDEX": (382, 382),
        "CTA_RASTER_WIDTH": (415, 384),
        "CTA_RASTER_HEIGHT": (431, 416),
        "CTA_RASTER_DEPTH": (463, 448),
        "DEPENDENT_QMD0_POINTER": (511, 480),
        "DEPENDENT_QMD0_ENABLE": (512, 512),
        "DEPENDENT_QMD0_ACTION": (515, 513),
        "DEPENDENT_QMD0_PREFETCH": (516, 516),
        "SHARED_MEMORY_SIZE": (561, 544),
        "MIN_SM_CONFIG_SHARED_MEM_SIZE": (567, 562),
        "MAX_SM_CONFIG_SHARED_MEM_SIZE": (574, 569),
        "QMD_VERSION": (579, 576),
        "QMD_MAJOR_VERSION": (583, 580),
        "CTA_THREAD_DIMENSION0": (607, 592),
        "CTA_THREAD_DIMENSION1": (623, 608),
        "CTA_THREAD_DIMENSION2": (639, 624),
        "REGISTER_COUNT_V": (656, 648),
        "TARGET_SM_CONFIG_SHARED_MEM_SIZE": (662, 657),
        "SHADER_LOCAL_MEMORY_LOW_SIZE": (759, 736),
        "BARRIER_COUNT": (767, 763),
        "RELEASE0_ADDRESS_LOWER": (799, 768),
        "RELEASE0_ADDRESS_UPPER": (807, 800),
        "RELEASE0_MEMBAR_TYPE": (819, 819),
        "RELEASE0_ENABLE": (823, 823),
        "RELEASE0_PAYLOAD64B": (829, 829),
        "RELEASE0_STRUCTURE_SIZE": (831, 830),
        "RELEASE0_PAYLOAD_LOWER": (863, 832),
        "RELEASE0_PAYLOAD_UPPER": (895, 864),
        "PROGRAM_ADDRESS_LOWER": (1567, 1536),
        "PROGRAM_ADDRESS_UPPER": (1584, 1568),
        "SHADER_LOCAL_MEMORY_HIGH_SIZE": (1623, 1600),
        "PROGRAM_PREFETCH_ADDR_UPPER_SHIFTED": (1640, 1632),
        "PROGRAM_PREFETCH_SIZE": (1649, 1641),
        "PROGRAM_PREFETCH_TYPE": (1651, 1650),
        "SASS_VERSION": (1663, 1656),
    }.items()
} | {
    "CONSTANT_BUFFER_VALID": (640, 640, 1),
    "CONSTANT_BUFFER_ADDR_LOWER": (1055, 1024, 64),
    "CONSTANT_BUFFER_ADDR_UPPER": (1072, 1056, 64),
    "CONSTANT_BUFFER_PREFETCH_POST": (1073, 1073, 64),
    "CONSTANT_BUFFER_INVALIDATE": (1074, 1074, 64),
    "CONSTANT_BUFFER_SIZE_SHIFTED4": (1087, 1075, 64),
}
# VALID(8) would be the first bit of REGISTER_COUNT_V.
_CONSTANT_BUFFERS = 8


def qmd(**fields: int | Mapping[int, int]) -> bytes:
    """A launch; of a field that stands in a row, the values by their number.

    Raises ValueError for a value that does not fit, KeyError for a field that is not there.
    """
    bits = 0
    for name, given in {"QMD_MAJOR_VERSION": 3, **fields}.items():
        high, low, step = QMD[name]
        values = {0: given} if isinstance(given, int) else given
        if bool(step) == isinstance(given, int):
            raise ValueError(f"{name}: {'a value for each number' if step else 'one value'}")
        for number, value in values.items():
            if not 0 <= number < _CONSTANT_BUFFERS:
                raise ValueError(f"{name}: there is no number {number}")
            bits |= _field(value, high + number * step, low + number * step, name)
    return bits.to_bytes(QMD_BYTES, "little")


def gp_entry(address: int, words: int, *, waits: bool = False) -> bytes:
    """A segment of `words` words at `address`; with `waits`, it is read once the channel has taken
    all of the segment before (dev_pbdma.ref, "GP-Entry Memory Format").

    Raises ValueError for no words, which would be another kind of entry, and for a segment that
    touches the end of the addresses.
    """
    if not 1 <= words <= _MOST_WORDS:
        raise ValueError(f"segment: {words} words, most {_MOST_WORDS}")
    if address % 4 or not 0 <= address < (1 << _ADDRESS_BITS) - 4 * words:
        raise ValueError(f"segment: {words} words at {address:#x}")
    upper, lower = _halves(address)
    return struct.pack("<2I", lower, upper | words << 10 | waits << 31)


# Of each request the number (nv_escape.h) and the structure (nvos.h, release 515.43.04): object
# handles and classes, then pointers of 64 bits, then the driver's answer.
REQUESTS: dict[str, tuple[int, struct.Struct]] = {
    "RM_FREE": (0x29, struct.Struct("<4I")),
    "RM_CONTROL": (0x2A, struct.Struct("<4IQ2I")),
    "RM_ALLOC": (0x2B, struct.Struct("<4IQI4x")),
}
# hObjectError, hObjectBuffer, gpFifoOffset, gpFifoEntries, flags, hContextShare, hVASpace,
# hUserdMemory[8], userdOffset[8], engineType, cid, subDeviceId, hObjectEccError; then six
# descriptions of memory and six words that the driver fills or reserves.
_CHANNEL = struct.Struct("<2IQ4I8I8Q4I96x2I48x2I")
_SUBDEVICES = 8


def request_number(name: str) -> int:
    """The number of an ioctl: Linux's layout, letter F (nv-ioctl-numbers.h), read and written."""
    number, layout = REQUESTS[name]
    return 3 << 30 | layout.size << 16 | ord("F") << 8 | number


def channel_parameters(
    *, ring: int, entries: int, space: int, userd: Iterable[int], engine: int, error: int = 0
) -> bytes:
    """What RM_ALLOC of a channel points to (NV_CHANNELGPFIFO_ALLOCATION_PARAMETERS): the address of
    its ring, which has a power of two of entries, and handles of the address space and of USERD's
    memory, one for each GPU of the device.
    """
    if entries < 2 or entries & entries - 1:
        raise ValueError(f"channel: a ring of {entries} entries is no power of two")
    memory = [*userd]
    if not 1 <= len(memory) <= _SUBDEVICES:
        raise ValueError(f"channel: USERD for {len(memory)} GPUs, most {_SUBDEVICES}")
    memory += [0] * (_SUBDEVICES - len(memory))
    return _CHANNEL.pack(
        error, 0, ring, entries, 0, 0, space, *memory, *[0] * _SUBDEVICES,
        engine, 0, 0, 0, 0, 0, 0, 0,
    )  # fmt: skip
