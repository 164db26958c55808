"""The CLANG device: kernels as C, compiled and loaded."""

from __future__ import annotations

import gc
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.device.helpers import needs
from tilegrad import Context, Device, Tensor, Variable, jit
from tilegrad.base.errors import CompileError, DeviceError
from tilegrad.compile.clang import Compiler, compile_c, find_compiler
from tilegrad.device.clang import ClangProgram
from tilegrad.device.registry import Devices

pytestmark = needs("CLANG")


def array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_products_and_rows_are_those_of_numpy() -> None:
    a, b = array(100, 70), array(70, 90, seed=1)
    found = (Tensor(a, device="CLANG") @ Tensor(b, device="CLANG")).softmax(1)
    assert found.device == "CLANG"
    scores = a.astype(np.float64) @ b
    powers = np.exp(scores - scores.max(1, keepdims=True))
    np.testing.assert_allclose(found.numpy(), powers / powers.sum(1, keepdims=True), atol=1e-5)


def test_half_and_double_and_bfloat16() -> None:
    """C has no bfloat16, so it is held in float32; a third is rounded to each."""
    thirds = {"half": 0.333251953125, "double": 1 / 3, "bfloat16": 0.333984375}
    for dtype, value in thirds.items():
        x = Tensor([1.0, 2.0, 4.0], device="CLANG").cast(dtype)
        assert (x / 3).cast("double").tolist() == [value, 2 * value, 4 * value], dtype


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_have_the_bits_that_they_have_on_the_processor(dtype: str) -> None:
    """Both devices evaluate one polynomial, in fused steps where the processor has them."""
    if not Device["CPU"].target.has_fma or "-march=native" not in str(Device["CLANG"].compiler):
        pytest.skip("no fused multiply-add, or a compiler that does not know of it")
    values = (array(20_000) * 10).astype(dtype)
    for name in ("exp", "log2", "sin", "tanh", "erf", "gelu"):
        given = np.abs(values) if name == "log2" else values
        c, llvm = (getattr(Tensor(given, device=on), name)().numpy() for on in ("CLANG", "CPU"))
        np.testing.assert_array_equal(c.view(f"i{c.itemsize}"), llvm.view(f"i{c.itemsize}"), name)


def test_a_launch_over_threads_does_every_chunk() -> None:
    x = Tensor.ones(1 << 22, device="CLANG").contiguous().realize()
    assert ((x + 2).numpy() == 3).all()


def test_a_bound_variable_is_passed() -> None:
    x = Tensor(np.arange(10, dtype=np.int32), device="CLANG").realize()
    rows = Variable("rows", 1, 10)
    for count in (3, 7):
        assert x[: rows.bind(count)].sum().item() == count * (count - 1) // 2


def test_a_captured_function_replays() -> None:
    step = jit(lambda x: (x * 2 + 1).realize())
    for value in range(5):
        x = Tensor([float(value)] * 3, device="CLANG").realize()
        assert step(x).tolist() == [2.0 * value + 1] * 3


def test_each_compiler_on_the_path_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """gcc and clang, where both are."""
    a = array(33, 17)
    wanted = (a.astype(np.float64) ** 2).sum(1)
    for name in filter(shutil.which, ("gcc", "clang")):
        monkeypatch.setenv("CC", name)
        found = find_compiler()
        assert found is not None and Path(found.command[0]).name == name
        Device.unregister("CLANG")
        with Context(DISABLE_COMPILER_CACHE=1):
            x = Tensor(a, device="CLANG")
            np.testing.assert_allclose((x * x).sum(1).numpy(), wanted, rtol=1e-6)
    Device.unregister("CLANG")


def test_a_missing_compiler_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DeviceError, match="no C compiler on the path") as caught:
        Devices()["CLANG"]
    assert "apt-get install gcc" in str(caught.value)


def test_a_source_that_is_refused_names_kernel_fault_and_file() -> None:
    compiler = find_compiler()
    assert isinstance(compiler, Compiler)
    with pytest.raises(CompileError) as caught:
        compile_c("void E_4(float* data0) {\n  *data0 = unknown;\n}\n", compiler, [])
    assert "unknown" in caught.value.headline
    assert caught.value.details["kernel"] == "E_4"
    kept = Path(str(caught.value.details["source"]))
    assert "*data0 = unknown" in kept.read_text()


def test_a_program_is_unloaded_with_its_last_reference() -> None:
    compiler = find_compiler()
    assert compiler is not None
    text = "int state_of_kernel = 0;\nvoid entry_of_E(const long long* a, long long c) {}\n"
    program = ClangProgram("E", compile_c(text, compiler, []))
    address = program.address

    def is_mapped() -> bool:
        for line in Path("/proc/self/maps").read_text().splitlines():
            low, high = (int(part, 16) for part in line.split()[0].split("-"))
            if low <= address < high:
                return True
        return False

    assert is_mapped()
    del program
    gc.collect()
    assert not is_mapped()


def test_padding_of_a_column_that_has_nothing_else_is_summed_in_its_loops() -> None:
    """A lane whose values are all padding needs no loop, but is added in each iteration."""
    x = np.arange(125, dtype=np.int32).reshape(5, 5, 5)
    padding = ((0, 2), (1, 0), (0, 2))
    found = Tensor(x, device="CLANG").pad(padding, value=1).sum((0, 2))
    assert found.tolist() == np.pad(x, padding, constant_values=1).sum((0, 2)).tolist()
