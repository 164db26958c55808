"""PTX that NVIDIA's own assembler accepts: a sample of kernels in each run, the nightly one all of
the conformance sample and of the benchmark's networks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conformance.cases import SAMPLE
from tests.device.ptx.kernels import kernel_texts
from tilegrad import Context, Tensor
from tilegrad.base.errors import CompileError
from tilegrad.base.trace import recording
from tilegrad.compile.ptxas import Usage, assemble, find_ptxas, ptxas_release

PTXAS = find_ptxas() or ""
pytestmark = pytest.mark.skipif(not PTXAS, reason="ptxas is not here; pip install nvidia-cuda-nvcc")
ARCHES = ("sm_80", "sm_90a", "sm_100a")
EVERY = ("sm_75", *ARCHES, "sm_120")


def empty(*shape: int, dtype: str = "float") -> Tensor:
    return Tensor.empty(*shape, dtype=dtype).realize()


def product(dtype: str) -> Callable[[], Tensor]:
    return lambda: empty(256, 256, dtype=dtype) @ empty(256, 256, dtype=dtype)


def scattered() -> Tensor:
    rows = empty(40, dtype="int")
    return empty(5, 8).index_add(0, rows, empty(40, 8))


# What each shows is its name.
KERNELS: dict[str, Callable[[], Tensor]] = {
    "elementwise": lambda: (empty(100, 100) * 2).sin() + 1,
    "exponential": lambda: empty(1000).exp(),
    "product-f32": product("float"),
    "product-f16": product("half"),
    "product-bf16": product("bfloat16"),
    "product-f64": product("double"),
    "softmax": lambda: empty(32, 500).softmax(1),
    "reduction": lambda: empty(1 << 16).sum(),
    "running": lambda: empty(8, 300).cumsum(1),
    "convolution": lambda: empty(1, 8, 32, 32).conv2d(empty(16, 8, 3, 3), padding=1),
    "gather": lambda: empty(100, 16)[empty(10, dtype="int")],
    "scatter": scattered,
    "bfloat16": lambda: (empty(300, dtype="bfloat16") * 2).sqrt().cast("int64").cast("bfloat16"),
    "int64": lambda: empty(100, dtype="int64") // 7 % 5 << 3,
    "uint64": lambda: (empty(100, dtype="uint64") // 3).cast("float"),
    "small-integers": lambda: empty(64, dtype="int8") * 3 // empty(64, dtype="int8"),
    "fp8": lambda: empty(100, dtype="fp8e4m3").cast("float") + 1,
    "random": lambda: Tensor.rand(1000),
    "bool": lambda: (empty(64) < 0) & (empty(64) > -1),
    "bits": lambda: (empty(64, dtype="uint") & 5) ^ empty(64, dtype="uint") | 9,
}


def sources(arch: str, makers: Iterable[Callable[[], Tensor]]) -> list[str]:
    """The distinct texts of their kernels."""
    return list(dict.fromkeys(text for make in makers for text in kernel_texts(make(), arch)))


def case_sources(arch: str) -> dict[str, None]:
    """Those of the conformance sample."""
    found: dict[str, None] = {}
    with Context(DEVICE=f"NULL:NV:{arch}", DISABLE_COMPILER_CACHE=1), recording() as record:
        for case in SAMPLE:
            try:
                case.check()
            except AssertionError:
                # Nothing runs, so values are zeros.
                continue
    for each in record:
        if each.name == "render" and ".version" in str(each.after):
            found.setdefault(str(each.after))
    return found


def network_sources(arch: str) -> dict[str, None]:
    """Those of the benchmark's rows, with bench/ on the path as its own tests have it."""
    from tests.bench.test_captured import SMALL, inputs, with_tilegrad

    found: dict[str, None] = {}
    with Context(DEVICE=f"NULL:NV:{arch}", DISABLE_COMPILER_CACHE=1), recording() as record:
        for kind, sizes in SMALL.items():
            with_tilegrad.Tilegrad(1).make(kind, inputs(kind, sizes), sizes, "").run()
    for each in record:
        if each.name == "render" and ".version" in str(each.after):
            found.setdefault(str(each.after))
    return found


def assembled(arch: str, texts: Iterable[str]) -> Iterator[tuple[str, Usage]]:
    """Each kernel's name and what it uses; raises CompileError for one that is refused."""

    def one(text: str) -> tuple[str, Usage]:
        head, _, source = text.partition("\n")
        return head, assemble(source, arch, PTXAS)[1]

    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(one, texts)


@pytest.mark.row("M9.10", "P.6")
@pytest.mark.parametrize("arch", ARCHES)
def test_a_sample_of_kernels_is_assembled(arch: str) -> None:
    """All of them for the first, every fourth for the others."""
    makers = [*KERNELS.values()][:: 1 if arch == ARCHES[0] else 4]
    texts = sources(arch, makers)
    assert len(texts) >= len(makers)
    assert len([*assembled(arch, texts)]) == len(texts)


@pytest.mark.row("M9.4", "R11.2")
def test_instructions_that_fuse_are_assembled() -> None:
    texts = "".join(sources("sm_80", [KERNELS["product-f16"], KERNELS["bits"]]))
    assert "mma.sync.aligned.m16n8k16" in texts and "lop3.b32" in texts


@pytest.mark.parametrize("dtype", ["float", "half"])
def test_a_product_moves_nothing_to_the_stack(dtype: str) -> None:
    def make() -> Tensor:
        return empty(1024, 1024, dtype=dtype) @ empty(1024, 1024, dtype=dtype)

    ((_, usage),) = assembled("sm_80", sources("sm_80", [make]))
    assert usage.spill_loads == usage.spill_stores == 0
    assert 0 < usage.registers <= 255


@pytest.mark.parametrize(("rows", "size"), [(4096, 768), (64, 8192), (64, 32768)])
def test_a_row_stays_in_registers(rows: int, size: int) -> None:
    """Of a warp, of 256 lanes and of 1,024, which have 64 registers each."""
    makers = [lambda: empty(rows, size).softmax(1), lambda: empty(rows, size).layernorm()]
    texts = sources("sm_80", makers)
    assert all("shfl.sync.bfly.b32" in text for text in texts)
    for _, usage in assembled("sm_80", texts):
        assert usage.spill_loads == usage.spill_stores == 0
        assert usage.registers <= 64


def test_what_the_assembler_refuses_is_told_with_its_source() -> None:
    source = (
        ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k() {\n  nonsense;\n}\n"
    )
    with pytest.raises(CompileError, match="ptxas: ") as caught:
        assemble(source, "sm_80", PTXAS)
    assert caught.value.details["kernel"] == "k"
    path = str(caught.value.details["source"])
    with open(path, encoding="utf-8") as file:
        assert file.read() == source


def test_the_assembler_says_its_release() -> None:
    major, _ = ptxas_release(PTXAS)
    assert major >= 12


@pytest.mark.nightly
@pytest.mark.parametrize("arch", EVERY)
def test_every_kernel_of_the_sample_is_assembled(arch: str) -> None:
    texts = case_sources(arch)
    assert len([*assembled(arch, texts)]) == len(texts) > 400


@pytest.mark.nightly
@pytest.mark.parametrize("arch", ARCHES)
def test_every_kernel_of_the_networks_is_assembled(arch: str) -> None:
    """The rows of the benchmark at small sizes, training steps of whole networks among them."""
    texts = network_sources(arch)
    assert len([*assembled(arch, texts)]) == len(texts) > 200
