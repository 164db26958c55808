"""Kernels for another processor: compiled for AArch64 and run by an emulator of its instructions.

The tests need `qemu-aarch64` and a cross compiler, which only links a driver in C; `.ci/run`
installs both.
"""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.schedule.plans import kernel_of
from tilegrad import Device, Tensor
from tilegrad.compile.llvm import assembly, compile_ir
from tilegrad.engine.stages import to_program
from tilegrad.ir import Ops, UOp
from tilegrad.render.llvm import LLVMRenderer
from tilegrad.target import Target

QEMU, GCC = shutil.which("qemu-aarch64"), shutil.which("aarch64-linux-gnu-gcc")
AARCH64 = {"triple": "aarch64-linux-gnu", "cpu": "generic", "features": "+neon"}
# Files hold one array each: the result, then the operands. Arguments: chunks, sizes in bytes.
DRIVER = """
#include <stdio.h>
#include <stdlib.h>
#include <stdint.h>
void kernel(void **args, int64_t chunk);
int main(int count, char **words) {
  void *args[16];
  int chunks = atoi(words[1]);
  for (int i = 2; i < count; i++) {
    char name[32];
    size_t size = (size_t)atol(words[i]);
    args[i - 2] = aligned_alloc(64, (size + 63) / 64 * 64);
    sprintf(name, "data%d", i - 2);
    FILE *file = fopen(name, "rb");
    if (!file || fread(args[i - 2], 1, size, file) != size) return 2;
    fclose(file);
  }
  for (int64_t chunk = 0; chunk < chunks; chunk++) kernel(args, chunk);
  FILE *file = fopen("data0", "wb");
  return fwrite(args[0], 1, (size_t)atol(words[2]), file) == (size_t)atol(words[2]) ? 0 : 3;
}
"""


def neon() -> Target:
    """What is known of a processor with NEON."""
    here = Device["CPU"].target
    return dataclasses.replace(
        here,
        vector_bytes=16,
        registers=32,
        has_mask=False,
        has_fma=True,
        has_scale=False,
        matrix_units=(),
        isa="neon",
    )


def program(tensor: Tensor) -> list[UOp]:
    return to_program(kernel_of(tensor, neon()), neon())[1]


def source(tensor: Tensor) -> tuple[str, int]:
    """The text of the one kernel behind `tensor`, and its chunks."""
    uops = program(tensor)
    chunks = max((node.arg[1] for node in uops if node.op is Ops.SPECIAL), default=1)
    return LLVMRenderer(vector_bytes=16).render("kernel", uops), int(chunks)


def run(folder: Path, text: str, chunks: int, arrays: list[Any]) -> Any:
    """The first array after the kernel ran on all of them."""
    assert QEMU is not None
    assert GCC is not None
    (folder / "driver.c").write_text(DRIVER)
    (folder / "kernel.o").write_bytes(compile_ir(text, **AARCH64))
    for number, array in enumerate(arrays):
        (folder / f"data{number}").write_bytes(array.tobytes())
    link = [GCC, "-O1", "-static", "driver.c", "kernel.o", "-o", "program"]
    subprocess.run(link, cwd=folder, check=True)
    sizes = [str(array.nbytes) for array in arrays]
    subprocess.run([QEMU, "./program", str(chunks), *sizes], cwd=folder, check=True, timeout=60)
    found = np.frombuffer((folder / "data0").read_bytes(), arrays[0].dtype)
    return found.reshape(arrays[0].shape)


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


Case = tuple[Callable[..., Tensor], Callable[..., Any], list[Any], float]
CASES: dict[str, Case] = {
    "exponentials, ragged": (lambda x: x.exp() + 1, lambda x: np.exp(x) + 1, [numbers(37)], 1e-6),
    "sines": (lambda x: x.sin(), np.sin, [numbers(64) * 100], 1e-6),
    "rows of softmax": (lambda x: x.softmax(1), softmax, [numbers(19, 33)], 1e-6),
    "matrix product": (
        lambda a, b: a @ b, lambda a, b: a @ b, [numbers(33, 65), numbers(65, 47, seed=1)], 1e-5,
    ),
    "every second, backwards": (
        lambda x: x.flip(1)[:, ::2] * 2, lambda x: x[:, ::-2] * 2, [numbers(9, 40)], 0,
    ),
    "padded maximum": (
        lambda x: x.pad((1, 2, 0, 0)).reshape(8, 9, 3).max(2),
        lambda x: np.pad(x, ((0, 0), (1, 2))).reshape(8, 9, 3).max(2), [numbers(8, 24)], 0,
    ),
    "halves": (
        lambda x: x.half() * 3, lambda x: x.astype(np.float16) * np.float16(3),
        [numbers(45)], 0,
    ),
    "bytes": (
        lambda x: (x // 7).cast("int8"), lambda x: (x // 7).astype(np.int8),
        [np.arange(-300, 300, dtype=np.int32)], 0,
    ),
}  # fmt: skip


@pytest.mark.skipif(QEMU is None or GCC is None, reason="no qemu-aarch64 or no cross compiler")
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, tmp_path: Path) -> None:
    compute, expected, arrays, tolerance = CASES[name]
    tensors = [Tensor(array).realize() for array in arrays]
    text, chunks = source(compute(*tensors))
    wide = [array.astype("d") if array.dtype == np.float32 else array for array in arrays]
    wanted = expected(*(arrays if tolerance == 0 else wide))
    out = np.zeros(wanted.shape, wanted.dtype if tolerance == 0 else np.float32)
    found = run(tmp_path, text, chunks, [out, *arrays])
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def test_vectors_are_of_the_processor() -> None:
    """A multiply-add of four lanes: nothing is run, so no emulator is needed."""
    text, _ = source(Tensor.empty(64, 64).realize() @ Tensor.empty(64, 64).realize())
    assert "fmla\tv" in assembly(text, **AARCH64)
