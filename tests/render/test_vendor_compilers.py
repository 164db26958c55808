"""The vendors' compilers take the texts: NVIDIA's make a cubin of CUDA C++ for three generations,
and LLVM an AMD GPU's machine code of HIP C++. Neither needs a GPU.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.cases import SAMPLE
from tests.device.collected import CLANG, amdgpu_errors, collected, nvrtc_errors
from tilegrad import Tensor
from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import CompileError
from tilegrad.compile import nvrtc

BENCH = Path(__file__).parents[2] / "bench"
# The benchmark's programs in this fraction of their sizes: networks in a few minutes.
SCALE = 2
NVIDIA = ("sm_80", "sm_90a", "sm_100a")
AMD = ("gfx90a", "gfx942", "gfx1100", "gfx1201")
has_nvrtc = pytest.mark.skipif(bool(why := nvrtc.why_not()), reason=why)
has_clang = pytest.mark.skipif(not CLANG, reason="no clang-19 for AMD's GPUs")


def empty(*shape: int, dtype: DType = dtypes.float32) -> Tensor:
    return Tensor.empty(*shape, dtype=dtype).realize()


def half() -> Tensor:
    return empty(128, 128, dtype=dtypes.half)


def brain() -> Tensor:
    return empty(128, 128, dtype=dtypes.bfloat16)


def scattered() -> Tensor:
    where, values = empty(64, dtype=dtypes.int32), empty(64, 32)
    return empty(100, 32).index_add(0, where, values)


WORK: dict[str, Callable[[], Tensor]] = {
    "elementwise": lambda: (empty(1000) * 2 + empty(1000)).exp().sin(),
    "product": lambda: empty(128, 96) @ empty(96, 128),
    "product of half": lambda: half() @ half(),
    "product of bfloat16": lambda: brain().matmul(brain(), dtype=dtypes.float32),
    "softmax": lambda: empty(64, 1000).softmax(-1),
    "layernorm": lambda: empty(64, 384).layernorm(-1),
    "convolution": lambda: empty(2, 16, 30, 30).conv2d(empty(32, 16, 3, 3), padding=1),
    "gather": lambda: empty(100, 32)[empty(64, dtype=dtypes.int32)],
    "scatter": scattered,
    "random": lambda: Tensor.rand(1000),
    "int64": lambda: (empty(100, dtype=dtypes.int64) * 3 // 7).cumsum(),
    "fp8": lambda: empty(1000, dtype=dtypes.fp8e4m3).float().sum(),
    "to fp8": lambda: empty(1000).cast(dtypes.fp8e5m2),
    "float64": lambda: empty(1000, dtype=dtypes.float64).log().sum(),
}  # fmt: skip


@functools.cache
def texts_of(device: str) -> list[str]:
    with collected(device) as texts:
        for work in WORK.values():
            work().realize()
    return texts


@has_nvrtc
@pytest.mark.parametrize(
    "arch", ["sm_80", *(pytest.param(each, marks=pytest.mark.nightly) for each in NVIDIA[1:])]
)
def test_a_sample_becomes_cubins(arch: str) -> None:
    texts = texts_of(f"CUDA:{arch}")
    assert len(texts) >= len(WORK)
    assert {"f16.f16", "bf16.bf16"} <= {
        kind for kind in ("f16.f16", "bf16.bf16") for text in texts if f".{kind}." in text
    }, "no matrix unit"
    assert not nvrtc_errors(texts, arch)


@has_clang
def test_a_sample_becomes_code_for_amd() -> None:
    texts = texts_of("HIP:gfx942")
    assert len(texts) >= len(WORK)
    assert not amdgpu_errors(texts, "gfx942")


@has_nvrtc
def test_a_text_that_nvidia_refuses_is_an_error_with_its_message() -> None:
    with pytest.raises(CompileError, match='identifier "undeclared" is undefined'):
        nvrtc.compile_cuda('extern "C" __global__ void f(int* x) { *x = undeclared; }', "sm_80")
    with pytest.raises(CompileError, match="invalid value for --gpu-architecture"):
        nvrtc.compile_cuda('extern "C" __global__ void f() {}', "sm_1")


@has_nvrtc
def test_a_refused_text_among_others_is_found() -> None:
    texts = texts_of("CUDA:sm_80")[:4]
    broken = texts[2].replace("blockIdx", "blockIds")
    assert broken != texts[2]
    (found,) = nvrtc_errors([*texts[:2], broken, *texts[3:]], "sm_80")
    assert found.startswith(broken) and "blockIds" in found


@has_clang
def test_a_refused_text_among_others_is_found_for_amd() -> None:
    texts = texts_of("HIP:gfx942")[:4]
    broken = texts[2].replace("__ockl_get_group_id(0)", "__ockl_group(0)")
    assert broken != texts[2]
    (found,) = amdgpu_errors([*texts[:2], broken, *texts[3:]], "gfx942")
    assert found.startswith(broken) and "__ockl_group" in found


def conformance_texts(device: str) -> list[str]:
    with collected(device) as texts:
        for case in SAMPLE:
            try:
                case.check()
            except AssertionError:
                continue  # what is read are zeros
    return texts


@pytest.mark.nightly
@has_nvrtc
@pytest.mark.parametrize("arch", NVIDIA)
def test_every_op_becomes_a_cubin(arch: str) -> None:
    texts = conformance_texts(f"CUDA:{arch}")
    print(f"{len(texts)} kernels for {arch}")
    assert len(texts) >= len({case.op for case in SAMPLE})
    assert not nvrtc_errors(texts, arch)


@pytest.mark.nightly
@has_clang
@pytest.mark.parametrize("arch", AMD)
def test_every_op_becomes_code_for_amd(arch: str) -> None:
    texts = conformance_texts(f"HIP:{arch}")
    print(f"{len(texts)} kernels for {arch}")
    assert len(texts) >= len({case.op for case in SAMPLE})
    assert not amdgpu_errors(texts, arch)


def model_texts(device: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels of every program of the benchmark, networks and training steps among them."""
    monkeypatch.syspath_prepend(str(BENCH))
    rows: Any = importlib.import_module("rows").rows(SCALE)
    inputs: Any = importlib.import_module("models.inputs").inputs
    programs = {(row.kind, repr(row.sizes)): row for row in rows}
    with collected(device) as texts:
        library: Any = importlib.import_module("models.with_tilegrad").Tilegrad(2)
        for row in programs.values():
            made = library.make(row.kind, inputs(row.kind, row.sizes), row.sizes, "")
            for _ in range(2):
                made.run()
    print(f"{len(programs)} programs, {len(texts)} kernels for {device}")
    assert len(programs) > 30 and len(texts) > 150
    return texts


@pytest.mark.nightly
@has_nvrtc
def test_the_models_of_the_benchmark_become_cubins(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = model_texts("CUDA:sm_80", monkeypatch)
    wrong = {arch: nvrtc_errors(texts, arch) for arch in NVIDIA}
    assert not any(wrong.values()), wrong


@pytest.mark.nightly
@has_clang
def test_the_models_of_the_benchmark_become_code_for_amd(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = model_texts("HIP:gfx942", monkeypatch)
    wrong = {arch: amdgpu_errors(texts, arch) for arch in AMD}
    assert not any(wrong.values()), wrong
