"""Tensors on `NULL:<device>` are compiled for a device that is not here, and not run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilegrad import Context, Device, Tensor, Variable
from tilegrad.base.errors import DeviceError
from tilegrad.base.trace import counters
from tilegrad.tools.show import run_recorded

# What opens a kernel in each language, and where it says which lane it is.
HEADS = {
    "CUDA": ('extern "C" __global__ void', "threadIdx.x"),
    "CUDA:sm_90": ('extern "C" __global__ void', "threadIdx.x"),
    "OPENCL": ("__kernel void", "get_local_id(0)"),
    "METAL": ("kernel void", "lid.x"),
    "HIP": ("__attribute__((global)) void", "__ockl_get_local_id(0)"),
    "HIP:gfx942": ("__attribute__((global)) void", "__ockl_get_local_id(0)"),
    "AMD": ("define amdgpu_kernel void", "call i32 @llvm.amdgcn.workitem.id.x()"),
    "AMD:gfx942": ("define amdgpu_kernel void", "call i32 @llvm.amdgcn.workitem.id.x()"),
    "NV": (".visible .entry r_", "%tid.x"),
    "NV:sm_90": (".target sm_90\n", "%tid.x"),
    "NV:sm_100a": (".target sm_100a\n", "%tid.x"),
    "WEBGPU": ("@compute", "local_invocation_id"),
    "CLANG": ("void r_", "entry_of_r_"),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_tensor_is_compiled_and_shown_and_reads_as_zeros(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "CLANG" and Device.why_not("CLANG"):
        pytest.skip("there is no C compiler")
    x = Tensor.ones(64, 64, device=f"NULL:{name}").contiguous()
    before = counters.compiles
    with Context(DEBUG=4):
        found = (x @ x).softmax(1).tolist()
    head, lane = HEADS[name]
    printed = capsys.readouterr().out
    assert head in printed and lane in printed
    assert counters.compiles > before
    assert found == [[0.0] * 64] * 64


def test_the_architecture_decides_what_the_text_has(capsys: pytest.CaptureFixture[str]) -> None:
    """`mma.m16n8k16` came with sm_80; sm_75 has `mma.m16n8k8`, sm_70 neither."""
    found = {}
    for arch in ("sm_70", "sm_75", "sm_80"):
        x = Tensor.empty(128, 128, dtype="half", device=f"NULL:CUDA:{arch}")
        with Context(DEBUG=4):
            x.matmul(x, dtype="float").realize()
        found[arch] = set(re.findall(r"m16n8k\d+", capsys.readouterr().out))
    assert found == {"sm_70": set(), "sm_75": {"m16n8k8"}, "sm_80": {"m16n8k16"}}


# Parameters of a kernel: 31 entries of Metal's argument table, 4096 bytes of CUDA's (CUDA C++
# Programming Guide, function parameters), and 1024 that OpenCL promises (CL_DEVICE_MAX_PARAMETER_
# SIZE). WebGPU promises eight buffers; its integers are in one of another kind.
MOST = {"METAL": 31, "CUDA": 512, "NV": 512, "CL": 128, "WEBGPU": 8}


@pytest.mark.parametrize("name", MOST)
def test_no_kernel_takes_more_than_the_device_binds(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sum of 600 tensors, some at offsets that the run gives, and an update of 60."""
    device = f"NULL:{name}"
    many = [Tensor.empty(64, device=device).realize() for _ in range(600)]
    long = [Tensor.empty(128, device=device).realize() for _ in range(4)]
    starts = [Variable(f"i{number}", 0, 64).bind(7) for number in range(4)]
    weights, slopes = many[:60], many[60:120]
    capsys.readouterr()
    with Context(DEBUG=4, DISABLE_COMPILER_CACHE=1, TEMPLATES=1, SEGMENTS=1):
        moved = [x[start : start + 64] for x, start in zip(long, starts)]
        sum(moved + many, Tensor.zeros(64, device=device)).realize()
        for weight, slope in zip(weights, slopes):
            weight.assign(weight - slope * 0.1)
        Tensor.realize(*weights)
    printed = capsys.readouterr().out
    pattern = {
        "METAL": r"^kernel void \w+\((.*?), uint3 gid",
        "CUDA": r"^extern \"C\" .*?\) \w+\((.*)\) {$",
        "NV": r"^\.visible \.entry \w+\((.*?)\)",
        "CL": r"^__kernel void .*?(\(.*\)) {$",
        "WEBGPU": r"((?:^@group\(0\).*\n)+)",
    }[name]
    mark = "@group" if name == "WEBGPU" else ","
    counts = [
        found.count(mark) + (name != "WEBGPU")
        for found in re.findall(pattern, printed, re.M | re.S if name == "NV" else re.M)
    ]
    assert len(counts) > 2 and max(counts) > MOST["WEBGPU"] // 2
    assert max(counts) <= MOST[name]


@pytest.mark.row("S1.5", "S1.6")
@pytest.mark.parametrize(
    ("name", "lane", "block"),
    [
        ("METAL", "int lidx0 = lid.x; /* 4 */", "int gidx0 = gid.x; /* 16 */"),
        ("CUDA", "int lidx0 = threadIdx.x; /* 4 */", "int gidx0 = blockIdx.x; /* 16 */"),
    ],
)
def test_sixteen_sums_have_four_lanes_of_four_or_plainly_sixteen_blocks(
    name: str, lane: str, block: str, capsys: pytest.CaptureFixture[str]
) -> None:
    x = Tensor(list(range(16)), dtype="float", device=f"NULL:{name}").realize()
    for plain in (0, 1):
        with Context(DEBUG=4, NOOPT=plain):
            (x + x.flip(0)).realize()
        printed = capsys.readouterr().out
        assert (lane in printed) == (not plain) and (block in printed) == bool(plain)
        assert ("alu0 = (lidx0<<2);" in printed) == (not plain)
        assert ("float4 val0 = *((" in printed) == (not plain)
        if name == "CUDA":
            assert f"__launch_bounds__({1 if plain else 4})" in printed


def test_show_has_the_text_of_the_device_that_a_script_names(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from tilegrad import Tensor\n"
        "x = Tensor.ones(32, 33, device='NULL:METAL').contiguous().realize()\n"
        "y = (x + 3).sqrt().realize()\n"
    )
    kernels = run_recorded(str(script))
    assert kernels
    assert all("#include <metal_stdlib>" in kernel.after("render") for kernel in kernels)


@pytest.mark.parametrize("name", ["NULL:XPU", "EMU:XPU:3", "NULL:HOST", "NULL:NULL"])
def test_what_has_no_code_is_refused_with_what_has(name: str) -> None:
    with pytest.raises(DeviceError, match=f"{name!r} is unknown") as caught:
        Tensor([1.0], device=name)
    wrapper = name.split(":")[0]
    known = caught.value.details["known"]
    assert f"{wrapper}:CUDA" in known and f"{wrapper}:CL" in known and "HOST" not in known


@pytest.mark.parametrize("name", ["CUDA:sm_99", "HIP:gfx1", "METAL:m1", "CL:full"])
def test_an_unknown_architecture_is_refused(name: str) -> None:
    with pytest.raises(DeviceError, match="is no architecture"):
        Device[f"NULL:{name}"]
