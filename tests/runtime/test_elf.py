"""Objects into memory, by the loader of ours and by LLVM's."""

from __future__ import annotations

import ctypes
import random
import subprocess
import sys
from collections.abc import Callable

import pytest

from tilegrad.base.errors import DataError, DeviceError, InternalError
from tilegrad.compile.llvm import compile_ir
from tilegrad.runtime import elf

IS_SERVED = elf._is_served()
pytestmark = pytest.mark.skipif(not IS_SERVED, reason="the loader serves x86-64")

# Code, constants, data with addresses in it, zeroed data, a call out, an address from outside.
TEXT = """
@counter = global i64 5
@calls = internal global [1000 x i64] zeroinitializer
@primes = constant [4 x i64] [i64 2, i64 3, i64 5, i64 7]
@places = global [2 x ptr] [ptr @counter, ptr @primes]
declare ptr @memcpy(ptr, ptr, i64)

define i64 @mixed(i64 %i) nounwind {
  %prime_at = getelementptr [4 x i64], ptr @primes, i64 0, i64 %i
  %prime = load i64, ptr %prime_at
  %before = load i64, ptr @counter
  %after = add i64 %before, 1
  store i64 %after, ptr @counter
  %calls_at = getelementptr [1000 x i64], ptr @calls, i64 0, i64 999
  %calls = load i64, ptr %calls_at
  %more = add i64 %calls, 100
  store i64 %more, ptr %calls_at
  %second = getelementptr [2 x ptr], ptr @places, i64 0, i64 1
  %table = load ptr, ptr %second
  %two = load i64, ptr %table
  %a = mul i64 %prime, 100000
  %b = add i64 %after, %more
  %c = add i64 %a, %b
  %d = mul i64 %c, %two
  ret i64 %d
}

define double @constants(double %x) nounwind {
  %a = fmul double %x, 0x400921FB54442D18
  %b = fadd double %a, 0x3FF3AE147AE147AE
  ret double %b
}

define ptr @copy(ptr %to, ptr %from, i64 %size) nounwind {
  %end = call ptr @memcpy(ptr %to, ptr %from, i64 %size)
  ret ptr %end
}

define ptr @outside() nounwind {
  ret ptr @memcpy
}
"""

Load = Callable[[bytes], elf.LoadedObject]
LOADERS: dict[str, Load] = {
    "own": elf.load,
    "llvm": lambda data: elf._load_by_llvm(data, elf.libc_symbols()),
}


@pytest.fixture(scope="module")
def data() -> bytes:
    return compile_ir(TEXT, cpu="x86-64", features="")


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
def test_code_and_data_work(data: bytes, load: Load) -> None:
    loaded = load(data)
    mixed = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.address("mixed"))
    assert [mixed(i) for i in range(4)] == [
        2 * (p * 100000 + 6 + i + 100 * (i + 1)) for i, p in enumerate((2, 3, 5, 7))
    ]
    constants = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(loaded.address("constants"))
    assert constants(2.0) == 2.0 * 3.141592653589793 + 1.23


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
def test_functions_outside_are_reached(data: bytes, load: Load) -> None:
    loaded = load(data)
    source, target = ctypes.create_string_buffer(b"twelve bytes"), ctypes.create_string_buffer(16)
    kind = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    kind(loaded.address("copy"))(ctypes.addressof(target), ctypes.addressof(source), 12)
    assert target.value == b"twelve bytes"
    assert (
        ctypes.CFUNCTYPE(ctypes.c_void_p)(loaded.address("outside"))()
        == elf.libc_symbols()["memcpy"]
    )


def test_two_loads_share_nothing(data: bytes) -> None:
    first, second = elf.load(data), elf.load(data)
    ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(first.address("mixed"))(0)
    counters = [
        ctypes.c_int64.from_address(one.address("counter")).value for one in (first, second)
    ]
    assert counters == [6, 5]


def test_code_is_never_writable() -> None:
    """A write to code kills the process; tried in a child."""
    child = """
import ctypes
from tilegrad.compile.llvm import compile_ir
from tilegrad.runtime import elf
loaded = elf.load(compile_ir("define void @f() nounwind { ret void }", cpu="x86-64", features=""))
print("loaded", flush=True)
ctypes.memset(loaded.address("f"), 0, 1)
print("written", flush=True)
"""
    result = subprocess.run(
        [sys.executable, "-c", child], capture_output=True, text=True, check=False
    )
    assert (result.returncode < 0, result.stdout) == (True, "loaded\n")


def test_an_object_stays_together_where_free_memory_is_scattered() -> None:
    """All of the address space is taken but for pages that lie 3 GB apart, as in a long process.
    An object fits into each group of eight, and its sections must not go to several: LLVM ended
    the process.
    """
    child = """
import ctypes
from tests.runtime.test_elf import LOADERS, TEXT
from tilegrad.compile.llvm import compile_ir
from tilegrad.runtime import elf
data = compile_ir(TEXT, cpu="x86-64", features="")
elf._session()
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
# Private, anonymous, not counted as used; without any access.
reserve = lambda size: libc.mmap(None, size, 0, 0x4022, -1, 0)
span, page = 3 << 30, 4096
large, size = reserve(6 * span), 1 << 46
while size >= page:
    if reserve(size) == 2**64 - 1:
        size >>= 1
for at in range(6):
    # The first pages are too few for an object, and the first that are taken.
    libc.munmap(large + at * span, (1 if at > 3 else 8) * page)
for name, load in LOADERS.items():
    loaded = load(data)
    mixed = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.address("mixed"))
    print(name, mixed(0), flush=True)
"""
    result = subprocess.run(
        [sys.executable, "-c", child], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (0, "own 400212\nllvm 400212\n"), result.stderr


def test_an_unknown_symbol_is_named(data: bytes) -> None:
    with pytest.raises(
        DeviceError,
        match=r"^an object needs the symbol 'memcpy', which the table lacks\n  table: +memset\n",
    ):
        elf.load(data, elf.libc_symbols("memset"))


def test_llvm_reports_an_unknown_symbol() -> None:
    text = "declare void @nowhere()\ndefine void @f() nounwind { call void @nowhere() ret void }"
    with pytest.raises(DeviceError, match="llvm cannot load the object"):
        elf._load_by_llvm(compile_ir(text, cpu="x86-64", features=""), {}).address("f")


def test_an_unknown_function_of_the_c_library_is_named() -> None:
    with pytest.raises(DeviceError, match=r"^the C library has no function 'no_such_function'"):
        elf.libc_symbols("no_such_function")


def test_a_symbol_that_the_object_lacks(data: bytes) -> None:
    with pytest.raises(InternalError, match=r"^the object does not define 'nothing'"):
        elf.load(data).address("nothing")


def test_an_object_for_another_machine_is_refused() -> None:
    text = "define void @f() nounwind { ret void }"
    other = compile_ir(text, cpu="neoverse-n1", features="", triple="aarch64-unknown-linux-gnu")
    with pytest.raises(
        DataError, match=r"^not a relocatable object for x86-64\n  kind: +1\n  machine: +183"
    ):
        elf.load(other)


@pytest.mark.parametrize("size", [5, 63, 64, 200, 700])
def test_a_truncated_object_is_an_error(data: bytes, size: int) -> None:
    with pytest.raises(DataError):
        elf.load(data[:size])


@pytest.mark.parametrize("garbage", [b"", b"\x7fELF", b"MZ", bytes(100)])
def test_what_is_no_object_is_an_error(garbage: bytes) -> None:
    with pytest.raises(DataError):
        elf.load(garbage)


def test_a_damaged_object_is_an_error_or_loads(data: bytes) -> None:
    """Whatever the damage, nothing but an error of ours comes out, and the process lives."""
    generator, refused = random.Random(1), 0
    for _ in range(500):
        damaged = bytearray(data)
        for _ in range(generator.choice((1, 3, 20))):
            damaged[generator.randrange(4, len(data))] = generator.randrange(256)
        try:
            elf.load(bytes(damaged))
        except (DataError, DeviceError):
            refused += 1
    assert refused > 100
