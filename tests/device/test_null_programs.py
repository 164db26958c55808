"""Ordinary programs on `NULL:<device>`: each of their kernels is printed, shown, and taken by a
compiler of the vendor's, or by what stands for one on this machine.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.device.shim.device import SHIMS, ShimRuntime
from tilegrad import Context, Device, Tensor, nn
from tilegrad.base.dtype import dtypes
from tilegrad.base.trace import recording
from tilegrad.compile import nvrtc
from tilegrad.compile.ptxas import assemble, find_ptxas
from tilegrad.device.amd import backend as amd_backend
from tilegrad.device.null import NullRuntime
from tilegrad.render.cuda import CUDARenderer
from tilegrad.runtime.code_object import kernel_facts
from tilegrad.tools.show import run_recorded

Check = Callable[[str], None]
ARCH = "sm_90a"
TARGETS = {"NV": f"NV:{ARCH}", "CUDA": f"CUDA:{ARCH}", "AMD": "AMD:gfx942",
           "METAL": "METAL", "CL": "CL", "WEBGPU": "WEBGPU"}  # fmt: skip
# What stands in each text behind which its name is.
NAME = re.compile(r"(?:\.entry|void(?: __launch_bounds__\(\d+\))?|fn|void @)\s*@?([ErC]\d*_\w*)\(")


def empty(*shape: int, dtype: str = "float") -> Tensor:
    return Tensor.empty(*shape, dtype=dtype).realize()


def attention(dtype: str) -> Tensor:
    q, k, v = (empty(2, 128, 64, dtype=dtype) for _ in range(3))
    return q.scaled_dot_product_attention(k, v, is_causal=True)


def training_step() -> list[Tensor]:
    """A convolution, normalisation, its gradients and Adam."""
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8 * 8 * 8, 10)]
    weights = [each for layer in layers for each in nn.state.get_parameters(layer)]
    step = nn.optim.Adam(weights, lr=1e-3)
    image, labels = empty(4, 3, 16, 16), Tensor.randint(4, low=0, high=10)
    with Tensor.train():
        hidden = layers[1](layers[0](image)).relu().max_pool2d(2).flatten(1)
        loss = layers[2](hidden).sparse_categorical_crossentropy(labels)
        step.zero_grad()
        loss.backward()
        step.step()
    return [loss, *weights]


def dropped() -> Tensor:
    with Tensor.train():
        return empty(64, 100).dropout(0.3)


def integers(dtype: str) -> list[Tensor]:
    x, y = empty(64, dtype=dtype), empty(64, dtype=dtype)
    return [x * y, x // 7 % 5 << 3, x // y, x.sum(), x.cumsum(0), x.sort(0)[0], x.cast("float")]


def bytes_of_floats() -> list[Tensor]:
    x, y = (empty(64, 96, dtype="fp8e4m3") for _ in range(2))
    return [x.float() @ y.float().T, x.cast("fp8e5m2"), x.float().exp().cast("fp8e4m3")]


PROGRAMS: dict[str, Callable[[], Tensor | Sequence[Tensor]]] = {
    "matmul": lambda: (empty(130, 70) @ empty(70, 90) + empty(90)).relu(),
    "softmax": lambda: empty(20, 1003).softmax(1),
    "attention": lambda: attention("float"),
    "training step": training_step,
    "layernorm": lambda: empty(16, 300).layernorm(),
    "cumsum": lambda: [empty(8, 1000).cumsum(1), empty(1 << 17).cumsum(0)],
    "indexing": lambda: [
        empty(100, 16)[empty(33, dtype="int64")],
        empty(5, 8).index_add(0, empty(40, dtype="int"), empty(40, 8)),
    ],
    "sort": lambda: [*empty(8, 100).sort(1), *empty(4, 50).topk(3)],
    "dropout": dropped,
    "int64": lambda: integers("int64"),
    "bfloat16": lambda: [attention("bfloat16"), empty(9, 70, dtype="bfloat16").softmax(1).sin()],
    "half": lambda: [attention("half"), empty(130, 70, dtype="half") @ empty(70, 90, dtype="half")],
    "fp8": bytes_of_floats,
}


@functools.cache
def checks() -> dict[str, Check]:
    """What takes or refuses a text, by device, where it is here."""
    found: dict[str, Check] = {"AMD": as_code_object}
    if ptxas := find_ptxas():
        found["NV"] = lambda text: void(assemble(text.partition("\n")[2], ARCH, ptxas))
    if not nvrtc.why_not():
        found["CUDA"] = lambda text: void(nvrtc.compile_cuda(text, ARCH, CUDARenderer.flags))
    if not Device.why_not("WEBGPU"):
        found["WEBGPU"] = lambda text: void(Device["WEBGPU"].compile(text))
    if not Device.why_not("CL"):
        found["CL"] = as_opencl
    return found


def void(made: object) -> None:
    assert made


def as_code_object(text: str) -> None:
    """LLVM makes code that needs no scratch memory."""
    binary = amd_backend("AMD:gfx942", NullRuntime()).compile(text)
    name = re.findall(r"define amdgpu_kernel void @(\w+)", text)[0]
    assert kernel_facts(binary, name)[".private_segment_fixed_size"] == 0


def as_opencl(text: str) -> None:
    """Of texts with halves the driver says that it has none."""
    if "half" in text and not Device["CL"].target.supports(dtypes.float16):
        return
    void(Device["CL"].compile(text))


def cases() -> Iterator[object]:
    """In each run each program for one device, two or three for each; in the nightly one all."""
    for first, target in enumerate(TARGETS):
        for number, program in enumerate(PROGRAMS):
            marks = (
                [] if number % len(TARGETS) == (first + 1) % len(TARGETS) else [pytest.mark.nightly]
            )
            yield pytest.param(target, program, id=f"{target}-{program}", marks=marks)


@pytest.mark.row("S1.5", "P.6")
@pytest.mark.parametrize(("target", "program"), [*cases()])
def test_each_kernel_of_a_program_is_printed_and_compiled(
    target: str, program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        Context(DEVICE=f"NULL:{TARGETS[target]}", DISABLE_COMPILER_CACHE=1),
        Context(TEMPLATES=1, SEGMENTS=1, SIZES=1),
    ):
        capsys.readouterr()
        with recording() as record, Context(DEBUG=4):
            made = PROGRAMS[program]()
            Tensor.realize(*([made] if isinstance(made, Tensor) else made))
    printed = capsys.readouterr().out
    texts = {str(each.after) for each in record if each.name == "render"}
    assert texts
    check = checks().get(target)
    if target == "METAL" and SHIMS["METAL"].is_here:
        runtime = ShimRuntime(SHIMS["METAL"], tmp_path)
        check = lambda text: void(runtime.compile(text))  # noqa: E731
    for text in texts:
        names = NAME.findall(text)
        assert names and names[0] in printed, text[:300]
        if check is not None:
            check(text)


SCRIPT = """
from tilegrad import Tensor
x = Tensor.empty(40, 50, dtype="half", device={device!r}).realize()
y = (x @ x.T).softmax(1).realize()
z = y.float().cumsum(1).realize()
"""


@pytest.mark.row("S1.5")
@pytest.mark.parametrize("target", TARGETS)
def test_show_has_the_kernels_of_a_script_for_the_device(target: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(device=f"NULL:{TARGETS[target]}"))
    kernels = run_recorded(str(script))
    assert len(kernels) >= 2
    mark = {
        "NV": f".target {ARCH}", "CUDA": "__global__", "AMD": "amdgpu_kernel",
        "METAL": "#include <metal_stdlib>", "CL": "__kernel", "WEBGPU": "@compute",
    }[target]  # fmt: skip
    assert all(mark in kernel.after("render") for kernel in kernels)
