"""Objects for other processors: laid out and relocated, and what is no such object refused."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from tests.device.helpers import needs
from tilegrad import Device
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DataError, DeviceError
from tilegrad.device.processors import AARCH64, RISCV, WASM, Processor
from tilegrad.runtime import link
from tilegrad.runtime.webassembly import module

EMULATED = [pytest.param(name, marks=needs(name)) for name in ("AARCH64", "RISCV")]
KINDS = {"AARCH64": (AARCH64["neon"], link.AARCH64), "RISCV": (RISCV["rvv"], link.RISCV)}


def compiled(found: Processor, text: str) -> bytes:
    from tilegrad.compile.llvm import compile_ir

    return compile_ir(text, cpu=found.cpu, features=found.features, triple=found.triple)


def ran(device: str, text: str, data: bytes) -> bytes:
    """The bytes that the kernel `@kernel(ptr args, i64 chunk)` leaves of `data`, its argument."""
    backend = Device[device]
    buffer = backend.buffer(len(data), dtypes.uint8).copy_in(data)
    program = backend.runtime.load("kernel", backend.compile(text))
    backend.runtime.launch(program, [buffer.handle], [], (1, 1, 1), (1, 1, 1))
    return bytes(buffer.copy_out())


# One constant of each size of access, at an index that is known when it runs.
CONSTANTS = """
@bytes = internal constant [4 x i8] c"\\01\\02\\03\\04"
@shorts = internal constant [4 x i16] [i16 5, i16 6, i16 7, i16 8]
@words = internal constant [4 x i32] [i32 9, i32 10, i32 11, i32 12]
@longs = internal constant [4 x i64] [i64 13, i64 14, i64 15, i64 16]
@wide = internal constant <4 x i32> <i32 17, i32 18, i32 19, i32 20>
define void @kernel(ptr %args, i64 %chunk) nounwind {
  %out = load ptr, ptr %args
  %i = load i64, ptr %out
  %pa = getelementptr i8, ptr @bytes, i64 %i
  %pb = getelementptr i16, ptr @shorts, i64 %i
  %pc = getelementptr i32, ptr @words, i64 %i
  %pd = getelementptr i64, ptr @longs, i64 %i
  %a = load volatile i8, ptr %pa
  %b = load volatile i16, ptr %pb
  %c = load volatile i32, ptr %pc
  %d = load volatile i64, ptr %pd
  %a0 = load volatile i8, ptr @bytes
  %b0 = load volatile i16, ptr @shorts
  %c0 = load volatile i32, ptr @words
  %d0 = load volatile i64, ptr @longs
  %v = load volatile <4 x i32>, ptr @wide
  %aw = zext i8 %a to i64
  %bw = zext i16 %b to i64
  %cw = zext i32 %c to i64
  %a0w = zext i8 %a0 to i64
  %b0w = zext i16 %b0 to i64
  %c0w = zext i32 %c0 to i64
  %vw = zext <4 x i32> %v to <4 x i64>
  %q = getelementptr i64, ptr %out, i64 1
  store i64 %aw, ptr %q
  %q2 = getelementptr i64, ptr %out, i64 2
  store i64 %bw, ptr %q2
  %q3 = getelementptr i64, ptr %out, i64 3
  store i64 %cw, ptr %q3
  %q4 = getelementptr i64, ptr %out, i64 4
  store i64 %d, ptr %q4
  %q5 = getelementptr i64, ptr %out, i64 5
  store i64 %a0w, ptr %q5
  %q6 = getelementptr i64, ptr %out, i64 6
  store i64 %b0w, ptr %q6
  %q7 = getelementptr i64, ptr %out, i64 7
  store i64 %c0w, ptr %q7
  %q8 = getelementptr i64, ptr %out, i64 8
  store i64 %d0, ptr %q8
  %q9 = getelementptr i64, ptr %out, i64 9
  store <4 x i64> %vw, ptr %q9, align 8
  ret void
}
"""


@pytest.mark.parametrize("device", EMULATED)
def test_constants_of_every_size_are_read_where_they_lie(device: str) -> None:
    found = struct.unpack("<13Q", ran(device, CONSTANTS, struct.pack("<13Q", 2, *[0] * 12)))
    assert found == (2, 3, 7, 11, 15, 1, 5, 9, 13, 17, 18, 19, 20)


# Bytes 8 to 24 are moved by two, upwards and then downwards; 32 to 48 are set, 48 to 56 copied.
CALLS = """
declare ptr @memmove(ptr, ptr, i64)
declare ptr @memset(ptr, i32, i64)
declare ptr @memcpy(ptr, ptr, i64)
define void @kernel(ptr %args, i64 %chunk) nounwind {
  %p = load ptr, ptr %args
  %from = getelementptr i8, ptr %p, i64 8
  %up = getelementptr i8, ptr %p, i64 10
  %down = getelementptr i8, ptr %p, i64 9
  %set = getelementptr i8, ptr %p, i64 32
  %copy = getelementptr i8, ptr %p, i64 48
  call ptr @memmove(ptr %up, ptr %from, i64 16)
  call ptr @memmove(ptr %down, ptr %up, i64 16)
  call ptr @memset(ptr %set, i32 255, i64 16)
  call ptr @memset(ptr %set, i32 7, i64 0)
  call ptr @memcpy(ptr %copy, ptr %p, i64 8)
  ret void
}
"""


@pytest.mark.parametrize("device", EMULATED)
def test_a_kernel_that_copies_and_clears_takes_the_functions_along(device: str) -> None:
    data = bytes(range(64))
    wanted = bytearray(data)
    wanted[10:26] = data[8:24]
    wanted[9:25] = bytes(wanted[10:26])
    wanted[32:48] = b"\xff" * 16
    wanted[48:56] = data[:8]
    assert ran(device, CALLS, data) == bytes(wanted)


OTHER = """
declare void @other()
define void @kernel(ptr %a, i64 %c) {
  call void @other()
  ret void
}
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_symbol_that_is_nowhere_is_named(kind: str) -> None:
    found, machine = KINDS[kind]
    with pytest.raises(DeviceError, match="needs the symbol 'other', which is nowhere"):
        link.link([compiled(found, OTHER)], machine, 1 << 32, {"memset": 1})


def test_a_function_that_a_module_lacks_is_named() -> None:
    with pytest.raises(DeviceError, match="needs 'other', which is nowhere"):
        module(compiled(WASM["simd128"], OTHER))


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_of_another_processor_is_refused(kind: str) -> None:
    found, machine = KINDS[kind]
    other = link.AARCH64 + link.RISCV - machine
    with pytest.raises(DataError, match="not a relocatable object for this processor"):
        link.link([compiled(found, CONSTANTS)], other, 1 << 32, {})


def test_a_call_beyond_the_reach_of_the_instruction_is_refused() -> None:
    found, machine = KINDS["AARCH64"]
    link.link([compiled(found, OTHER)], machine, 1 << 32, {"other": (1 << 32) + (100 << 20)})
    with pytest.raises(DataError, match="out of an instruction's reach"):
        link.link([compiled(found, OTHER)], machine, 1 << 32, {"other": 1 << 33})


def damaged(data: bytes) -> list[bytes]:
    """`data` cut off, and with bytes of its headers and tables changed, 200 times."""
    source = random.Random(0)
    found = [data[: source.randrange(len(data))] for _ in range(60)]
    for _ in range(140):
        changed = bytearray(data)
        for _ in range(source.randrange(1, 4)):
            changed[source.randrange(len(data))] = source.randrange(256)
        found.append(bytes(changed))
    return found


@pytest.mark.parametrize("kind", [*KINDS, "WASM"])
def test_a_damaged_object_is_a_clear_error_or_is_linked(kind: str) -> None:
    """Damage within code cannot be seen; no other kind of error comes, and none takes long."""

    def attempt(data: bytes) -> Any:
        if kind == "WASM":
            return module(data)
        return link.link([data], KINDS[kind][1], 1 << 32, {"memset": 1, "memcpy": 1, "memmove": 1})

    refused = 0
    found = WASM["simd128"] if kind == "WASM" else KINDS[kind][0]
    text = OTHER.replace("declare void @other()", "define void @other() {\n  ret void\n}")
    for data in damaged(compiled(found, text if kind == "WASM" else CALLS)):
        try:
            attempt(data)
        except (DataError, DeviceError):
            refused += 1
    assert refused > 60
