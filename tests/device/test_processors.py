"""Kernels for processors of another kind: their instructions, and their values where an emulator or
an engine is here. `.ci/run` installs qemu-user and nodejs.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.device.helpers import needs
from tests.device.loops import inner_loops, listings
from tilegrad import Context, Device, Tensor, jit, no_grad
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DeviceError, OutOfMemoryError
from tilegrad.runtime.webassembly import NodeRuntime
from tilegrad.tools.show import run_recorded

RUN = ("AARCH64", "AARCH64:SVE", "RISCV", "WASM")
# An instruction of each that only its vectors have.
VECTORS = {
    "AARCH64": "fmla\tv",
    "AARCH64:SVE": "/m, z",
    "AARCH64:SVE512": "vscale_range(4,16)",
    "RISCV": "vfmacc.vf",
    "RISCV:RVV256": "vfmacc.vf",
    "WASM": "f32x4.mul",
}


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@pytest.mark.parametrize("name", VECTORS)
def test_null_compiles_and_shows_its_source_and_instructions(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from tilegrad import Tensor\n"
        f"x = Tensor.ones(64, 64, device='NULL:{name}').contiguous().realize()\n"
        "print((x @ x).tolist()[63][63])\n"
    )
    with Context(DEBUG=4):
        kernel = run_recorded(str(script))[-1]
    printed = capsys.readouterr().out
    assert f"define void @{kernel.name}" in printed and printed.rstrip().endswith("0.0")
    assert VECTORS[name] in kernel.after("render") + kernel.after("assembly")


@pytest.mark.parametrize("name", ["AARCH64:SVE3", "RISCV:NEON", "WASM:AVX2"])
def test_an_unknown_architecture_is_refused_with_those_that_are_known(name: str) -> None:
    with pytest.raises(DeviceError, match="is no architecture") as caught:
        Device[f"NULL:{name}"]
    assert caught.value.details["known"]


@pytest.mark.parametrize(
    ("kind", "package"),
    [("AARCH64", "qemu-user"), ("RISCV", "qemu-user"), ("WASM", "nodejs")],
)
def test_without_emulator_the_device_says_what_to_install(
    kind: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(DeviceError, match="is not on the path") as caught:
        Device._factory(kind)(kind)
    assert package in caught.value.details["remedy"]


# Share of the instructions of the innermost loop of a product of 512 that multiply and add, at
# least; an instruction that only multiplies or only adds is half of one.
SHARES = {
    "AARCH64": (("fmla",), 16 / 30),
    "AARCH64:SVE": (("fmla",), 16 / 32),
    "RISCV": (("vfmacc.vf",), 16 / 34),
    "RISCV:RVV256": (("vfmacc.vf",), 16 / 34),
}


@pytest.mark.parametrize("name", SHARES)
def test_the_loop_of_a_product_multiplies_and_adds_and_moves_no_vector_to_the_stack(
    name: str,
) -> None:
    names, least = SHARES[name]
    x = Tensor.empty(512, 512, device=f"NULL:{name}").realize()
    ((source, text),) = listings(x @ x)
    loop = max(inner_loops(text), key=lambda each: sum(each[word] for word in names))
    assert sum(loop[word] for word in names) >= 16
    assert sum(loop[word] for word in names) / loop.total() >= least
    spills = Device[f"NULL:{name}"].spills
    assert spills is not None and spills(source) == 0


def test_the_loop_of_a_product_on_wasm_loads_less_than_it_multiplies() -> None:
    """Reading and writing locals are no instructions of the machine behind."""
    x = Tensor.empty(512, 512, device="NULL:WASM").realize()
    ((_, text),) = listings(x @ x)
    loop = max(inner_loops(text), key=lambda each: each["f32x4.mul"])
    assert loop["f32x4.mul"] == loop["f32x4.add"] >= 8
    assert not loop["v128.store"]
    assert loop["v128.load"] + loop["v128.load32_splat"] < loop["f32x4.mul"]


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


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("device", [pytest.param(name, marks=needs(name)) for name in RUN])
def test_values(device: str, case: str) -> None:
    compute, expected, arrays, tolerance = CASES[case]
    found = compute(*[Tensor(array, device=device) for array in arrays]).numpy()
    wide = [array.astype("d") if array.dtype == np.float32 else array for array in arrays]
    wanted = expected(*(arrays if tolerance == 0 else wide))
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("device", [pytest.param(name, marks=needs(name)) for name in RUN])
def test_sizes_that_are_known_when_it_runs(device: str) -> None:
    """The variable's value is a word after the addresses of the buffers."""
    from tilegrad import Variable

    x = Tensor(np.arange(12, dtype=np.float32), device=device).realize()
    length = Variable("length", 1, 12)
    for size in (3, 11):
        assert x[: length.bind(size)].sum().item() == sum(range(size))


@pytest.mark.parametrize("device", [pytest.param(name, marks=needs(name)) for name in RUN])
def test_a_captured_training_step_fits_a_line(device: str) -> None:
    """Five steps down the gradient of a mean square, beside the same in NumPy."""
    x, y = numbers(40, 3), numbers(40, 1, seed=1)
    weights = Tensor(np.zeros((3, 1), np.float32), device=device, requires_grad=True)
    inputs, wanted = Tensor(x, device=device).realize(), Tensor(y, device=device).realize()

    @jit
    def step() -> Tensor:
        weights.grad = None
        loss = (inputs @ weights - wanted).square().mean()
        loss.backward()
        assert weights.grad is not None
        with no_grad():
            weights.assign(weights - 0.1 * weights.grad).realize()
        return loss.realize()

    expected = np.zeros((3, 1))
    for _ in range(5):
        rest = x @ expected - y
        assert step().item() == pytest.approx(float((rest**2).mean()), rel=1e-5)
        expected -= 0.1 * 2 * x.T @ rest / rest.size
    np.testing.assert_allclose(weights.numpy(), expected, rtol=1e-4, atol=1e-6)


CRASH = """
define void @crash(ptr noalias %args, i64 %chunk) {
  store volatile i32 1, ptr inttoptr (i64 16 to ptr)
  ret void
}
"""


@pytest.mark.parametrize("device", [pytest.param(n, marks=needs(n)) for n in ("AARCH64", "RISCV")])
def test_a_kernel_that_crashes_is_an_error_and_memory_outlives_it(device: str) -> None:
    backend = Device[device]
    x = Tensor([1.0, 2.0], device=device).realize()
    program = backend.runtime.load("crash", backend.compile(CRASH))
    with pytest.raises(DeviceError, match="crash: the emulator ended by SIGSEGV"):
        backend.runtime.launch(program, [], [], (1, 1, 1), (1, 1, 1))
    assert (x + 1).tolist() == [2.0, 3.0]


TRAP = """
declare void @llvm.trap()
define void @trap(ptr noalias %args, i64 %chunk) {
  call void @llvm.trap()
  unreachable
}
"""


@needs("WASM")
def test_a_trap_is_an_error_of_its_launch_only() -> None:
    backend = Device["WASM"]
    x = Tensor([1.0, 2.0], device="WASM").realize()
    program = backend.runtime.load("trap", backend.compile(TRAP))
    with pytest.raises(DeviceError, match="trap: node: RuntimeError: unreachable"):
        backend.runtime.launch(program, [], [], (1, 1, 1), (1, 1, 1))
    assert (x + 1).tolist() == [2.0, 3.0]


@needs("WASM")
def test_an_engine_that_has_ended_says_that_memory_went_with_it() -> None:
    runtime = NodeRuntime(shutil.which("node") or "node")
    place = runtime.allocate(16)
    runtime.copy_in(place, memoryview(bytes(16)))
    assert runtime._process is not None
    runtime._process.kill()
    runtime._process.wait()
    for _ in range(2):
        with pytest.raises(DeviceError, match="node: the process has ended") as caught:
            runtime.copy_out(memoryview(bytearray(16)), place)
        assert "is lost" in str(caught.value.details["rule"])
        assert caught.value.details["remedy"] == "start this process anew"


@pytest.mark.parametrize("device", [pytest.param(n, marks=needs(n)) for n in ("AARCH64", "WASM")])
def test_more_memory_than_there_is_is_refused_and_freed_memory_used_again(device: str) -> None:
    backend = Device[device]
    for _ in range(6):
        buffer = backend.buffer(1 << 28, dtypes.float32)
        assert bytes(buffer.view(4, 1).copy_in(b"abcd").copy_out()) == b"abcd"
        buffer.deallocate()
    with pytest.raises(OutOfMemoryError, match=f"{4 << 32} bytes do not fit on {device}"):
        backend.buffer(1 << 32, dtypes.float32).to_write()
    assert (Tensor([1.0], device=device) + 1).tolist() == [2.0]
