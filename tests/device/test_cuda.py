"""The CUDA device: on a recorded driver whose launches run the C++ on this processor, and by
NVIDIA's compiler. No GPU is needed, and none is touched.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.device.fake_cuda import FakeCUDA
from tests.device.helpers import check_a_row_softmax, registered
from tests.device.shim.device import SHIMS
from tests.optimize.kernels import program
from tests.schedule.plans import kernel_of
from tilegrad import Context, Device, Tensor, jit
from tilegrad.base.errors import CompileError, DeviceError
from tilegrad.base.trace import recording
from tilegrad.compile import nvrtc
from tilegrad.device import cuda
from tilegrad.device.backend import Backend
from tilegrad.hardware import cuda_target
from tilegrad.optimize.generators import heuristic_units
from tilegrad.render.cuda import CUDARenderer
from tilegrad.runtime.interface import compiled_below_heading
from tilegrad.runtime.protocol import Runtime
from tilegrad.tools.gpu_listings import compiled

has_compiler = pytest.mark.skipif(not SHIMS["CUDA"].is_here, reason="no C++ compiler is here")
has_nvrtc = pytest.mark.skipif(bool(why := nvrtc.why_not()), reason=why)


def as_it_is(source: str, arch: str) -> bytes:
    return source.encode()


@pytest.fixture
def fake() -> FakeCUDA:
    return FakeCUDA(arch=(9, 0))


@pytest.fixture
def device(fake: FakeCUDA) -> Iterator[str]:
    """A name under which the fake is a device, which is the default meanwhile."""
    with registered("FAKECUDA", lambda name: cuda.opened(name, fake, as_it_is, (13, 0))) as name:
        yield name


@has_compiler
def test_products_and_rows_are_those_of_numpy(device: str, fake: FakeCUDA) -> None:
    check_a_row_softmax()
    assert "cuLaunchKernel" in fake.names()


@has_compiler
def test_captured_steps_are_launched_as_a_graph(device: str, fake: FakeCUDA) -> None:
    """Integers, such as the seed of a draw, arrive too."""
    weight = Tensor(np.ones((64, 64), np.float32)).realize()

    @jit
    def step(x: Tensor) -> Tensor:
        return ((x @ weight).relu().sum(1) + 0.0 * Tensor.rand(64).sum()).realize()

    for size in range(6):
        x = np.full((64, 64), size, np.float32)
        np.testing.assert_allclose(step(Tensor(x).realize()).numpy(), 64.0 * 64 * size)
    assert "cuGraphLaunch" in fake.names()


def test_the_target_is_that_of_the_gpu(fake: FakeCUDA) -> None:
    found = cuda.opened("CUDA", fake, as_it_is, (13, 0))
    assert found.target.name == "CUDA" and found.hardware == "Imaginary GPU"
    assert found.compiler == "NVRTC 13.0"


def test_a_driver_older_than_the_compiler(fake: FakeCUDA) -> None:
    with pytest.raises(DeviceError, match="too old for the compiler") as caught:
        cuda.opened("CUDA", FakeCUDA(version=12080), as_it_is, (13, 5))
    assert caught.value.details["needed"] == "CUDA 13.0, for NVRTC 13.5"
    assert caught.value.details["found"] == "it loads what CUDA 12.8 makes"


def test_no_second_gpu(fake: FakeCUDA) -> None:
    with pytest.raises(DeviceError, match="CUDA: there is no device 1"):
        cuda.opened("CUDA:1", fake, as_it_is, (13, 0))


def test_an_architecture_is_asked_of_the_gpu() -> None:
    with pytest.raises(DeviceError, match="'sm_90' is no number of a device"):
        _ = Device["CUDA:sm_90"]


@has_nvrtc
def test_what_the_compiler_says_is_told() -> None:
    source = '// add: 0 | 0 | 1 1 1\nextern "C" __global__ void add(int* x) { *x = unknown; }'
    with pytest.raises(CompileError, match='cuda: identifier "unknown" is undefined') as caught:
        compiled_below_heading("cuda", "cu", "sm_90", cuda._cubin, source)
    assert caught.value.details["kernel"] == "add"
    assert str(caught.value.details["source"]).endswith("failed.cu")


@has_nvrtc
def test_a_text_becomes_machine_code_behind_its_heading(fake: FakeCUDA) -> None:
    opened = cuda.opened("CUDA", fake, cuda._cubin, nvrtc.release())
    source = '// add: 0 | 0 | 1 1 1\nextern "C" __global__ void add(int* x) { *x = 1; }'
    head, _, code = opened.compile(source).partition(b"\n")
    assert head == b"// add: 0 | 0 | 1 1 1" and code.startswith(b"\x7fELF")


# tiles in shared memory


def transposed_product(left: bool, right: bool, terms: int = 96) -> tuple[Tensor, np.ndarray]:
    """A product of halves with operands as they are or transposed, and its values."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, size).astype(np.float16) for size in ((64, terms), (terms, 80)))
    x = Tensor(a.T.copy()).T if left else Tensor(a)
    y = Tensor(b.T.copy()).T if right else Tensor(b)
    return x.matmul(y, dtype="float32"), a.astype(np.float32) @ b.astype(np.float32)


@pytest.mark.row("M9.1")
@has_compiler
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_tiles_come_by_asynchronous_copies_and_ldmatrix(
    device: str, left: bool, right: bool
) -> None:
    """What a lane copies lands when it waits, and the lanes of a warp load matrices together."""
    with recording() as record:
        found, expected = transposed_product(left, right)
        np.testing.assert_array_equal(found.numpy(), expected)
    (text,) = [each.after for each in record if each.name == "render"]
    assert text.count("__copy_16(") > 2 and "__fragment_half8" in text
    assert (".trans.shared" in text) == (left or not right)


@pytest.mark.row("M9.1")
@has_compiler
def test_a_launch_asks_for_shared_memory_that_no_array_may_have(
    device: str, fake: FakeCUDA, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four tiles of 128x32 halves of each operand, rows padded by 16 bytes: 80 KiB."""
    monkeypatch.setattr(heuristic_units, "BUSY", 1)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, size).astype(np.float16) for size in ((128, 256), (256, 128)))
    with recording() as record, Context(SIZES=0, DISABLE_COMPILER_CACHE=1):
        found = Tensor(a).matmul(Tensor(b), dtype="float32").numpy()
    np.testing.assert_array_equal(found, a.astype(np.float32) @ b.astype(np.float32))
    (text,) = [each.after for each in record if each.name == "render"]
    assert text.count("extern __shared__") == 1 and "__wait_for_copies_but_2" in text
    nbytes = 4 * 128 * 80 + 4 * 32 * (256 + 16)
    (asked,) = [call[-1] for call in fake.calls if call[0] == "cuFuncSetAttribute"]
    assert asked == nbytes


def test_a_small_kernel_declares_its_arrays() -> None:
    value = Tensor.empty(64, 64, dtype="half") @ Tensor.empty(64, 64, dtype="half")
    target = cuda_target("sm_80")
    text = CUDARenderer("sm_80").render("product", program(kernel_of(value, target), None, target))
    assert "extern __shared__" not in text and text.count("__shared__ __align__(16)") == 2


@has_compiler
def test_a_copy_that_nobody_waits_for_does_not_arrive(fake: FakeCUDA) -> None:
    """In a kernel of its own, as a device keeps what it has loaded."""
    gone = "__wait_for_copies();"

    def broken(source: str, arch: str) -> bytes:
        assert gone in source
        return source.replace(f"  {gone}\n", "").encode()

    def factory(called: str, given: Runtime | None = None) -> Backend:
        return cuda.opened(called, fake, broken, (13, 0))

    Device.register("BROKENCUDA", factory)
    try:
        with Context(DEVICE="BROKENCUDA", DISABLE_COMPILER_CACHE=1):
            found, expected = transposed_product(left=False, right=False, terms=128)
            assert not np.array_equal(found.numpy(), expected)
    finally:
        Device.unregister("BROKENCUDA")


@has_nvrtc
@pytest.mark.row("S1.5", "M9.1")
@pytest.mark.parametrize("arch", ["sm_80", pytest.param("sm_90a", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("dtype", ["half", "float"])
def test_a_product_of_4096_meets_the_marks_of_ptx(arch: str, dtype: str) -> None:
    """By NVIDIA's compiler of C++, with two blocks or 8 warps on a multiprocessor."""
    target = cuda_target(arch)
    value = Tensor.empty(4096, 4096, dtype=dtype) @ Tensor.empty(4096, 4096, dtype=dtype)
    ast = kernel_of(value, target)
    made = compiled(CUDARenderer(arch).render("product", program(ast, None, target)), arch)
    issued = sum(made.loop.values())
    assert made.spilled_bytes == 0 and made.registers <= 255
    if dtype == "half":
        assert issued - made.loop["HMMA"] <= 0.9 * made.loop["HMMA"]
    else:
        assert made.loop["FFMA"] >= 0.85 * issued
