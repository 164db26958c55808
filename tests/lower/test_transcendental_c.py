"""The polynomials as C, scalar and in vectors, compiled: what the C back end runs, without fused
multiply-adds; and the casts of short floats.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.optimize.kernels import buffer, kernel, program
from tests.render.programs import gcc
from tilegrad.base.dtype import dtypes
from tilegrad.hardware import clang_target
from tilegrad.ir.op import Ops
from tilegrad.render.cstyle import ClangRenderer

SIZE = 1024
FUNCTIONS = {Ops.EXP: np.exp, Ops.LOG2: np.log2, Ops.SIN: np.sin, Ops.COS: np.cos}
TARGETS = {"scalar": clang_target(0), "vectors": clang_target(32)}
KINDS = {
    dtypes.bfloat16: (ml_dtypes.bfloat16, np.uint16),
    dtypes.fp8e4m3: (ml_dtypes.float8_e4m3fn, np.uint8),
    dtypes.fp8e5m2fnuz: (ml_dtypes.float8_e5m2fnuz, np.uint8),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    above: dict[str, None] = {}
    kernels = []
    for label, target in TARGETS.items():
        values = {
            f"{label}_{op.name}_{dtype.name}": buffer(0, SIZE, dtype=dtype).alu(op)
            for op in FUNCTIONS
            for dtype in (dtypes.float32, dtypes.float64)
        }
        values |= {f"{label}_{d.name}": buffer(0, SIZE).cast(d) for d in KINDS}
        for name, value in values.items():
            found = program(kernel(value, target=target), None, target)
            if label == "vectors":
                assert any(node.dtype.lanes > 1 for node in found), name
            head, text = ClangRenderer(target).render(name, found).split("\nvoid ")
            above |= dict.fromkeys(head.splitlines())
            kernels.append(f"void {text}")
    ordered = sorted(above, key=lambda line: (line.startswith("static"), "vector_size" in line))
    path: Path = tmp_path_factory.mktemp("c") / "all.so"
    flags = ("-w", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-o", str(path), "-lm")
    gcc(*flags, source="\n".join([*ordered, *kernels]))
    return ctypes.CDLL(str(path))


def aligned(count: int, dtype: Any) -> Any:
    """An empty array at a multiple of 64 bytes."""
    size = np.dtype(dtype).itemsize * count
    memory = np.empty(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(dtype)


def call(library: ctypes.CDLL, name: str, x: Any, result: Any) -> Any:
    given, out = aligned(SIZE, x.dtype), aligned(SIZE, result)
    given[:] = x
    library[name](ctypes.c_void_p(out.ctypes.data), ctypes.c_void_p(given.ctypes.data), 0)
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda op: op.name)
@pytest.mark.parametrize("label", TARGETS)
def test_functions(library: ctypes.CDLL, label: str, op: Ops, dtype: Any) -> None:
    generator = np.random.default_rng(8)
    x = generator.uniform(-80, 80, SIZE).astype(dtype)
    if op is Ops.LOG2:
        x = np.abs(x)
    elif op is not Ops.EXP:
        most = 38 if dtype is np.float32 else 300
        x[::5] = 10.0 ** generator.uniform(8, most, len(x[::5]))
    found = call(library, f"{label}_{op.name}_{np.dtype(dtype).name}", x, dtype)
    exact = FUNCTIONS[op](x.astype(np.float64))
    _, exponent = np.frexp(exact)
    digits = 24 if dtype is np.float32 else 53
    distance = np.abs(found.astype(np.float64) - exact) / np.ldexp(1.0, exponent - digits)
    assert distance.max() <= (2.0 if dtype is np.float32 else 4.0)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("label", TARGETS)
def test_casts(library: ctypes.CDLL, label: str, kind: Any) -> None:
    theirs, bits = KINDS[kind]
    x = np.random.default_rng(9).standard_cauchy(SIZE).astype(np.float32) * 100
    x[:6] = [np.inf, -np.inf, np.nan, -0.0, 464, -465]
    found = call(library, f"{label}_{kind.name}", x, bits).view(theirs).astype(np.float64)
    if kind.name == "fp8e4m3":
        # It has no infinity: what is beyond its largest number is that.
        x = np.clip(x, -448, 448)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, x.astype(theirs).astype(np.float64))
