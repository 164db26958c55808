"""The texts of CUDA, HIP and Metal run on this processor, through C++ with the headers of this
folder, and agree with NumPy: blocks, barriers and matrix units too.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.conformance.case import Case
from tests.conformance.cases import SAMPLE
from tests.device.shim.device import SHIMS, shimmed
from tilegrad import Context, Device, Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import CompileError, InternalError
from tilegrad.base.trace import recording

KINDS = [
    pytest.param(
        kind, marks=pytest.mark.skipif(not shim.is_here, reason=f"no compiler for {kind}'s texts")
    )
    for kind, shim in SHIMS.items()
]
# In each run: a compiler takes half a second of a processor for a kernel.
STEP = 260
CHUNKS = 8


def check_all(kind: str, cases: list[Case]) -> None:
    wrong, ran = {}, 0
    with shimmed(kind) as name:
        assert Device.DEFAULT == name
        for case in cases:
            ran += 1
            try:
                case.check()
            except CompileError as error:
                # Metal has no float64, and says so.
                if not (kind == "METAL" and "no values of float64" in error.headline):
                    wrong[case.name] = str(error)
            except Exception as error:  # all of them are reported
                wrong[case.name] = f"{type(error).__name__}: {error}"
    # Computed in float64 where there is one (docs/devices.md).
    if kind == "METAL":
        wrong = {n: e for n, e in wrong.items() if n not in LOOSER}
    text = "\n\n".join(f"{name}: {error}" for name, error in wrong.items())
    assert not wrong, f"{len(wrong)} of {ran} on {kind}\n{text}"


LOOSER = {"erfc-special-float32", "pow-special-float32"}


@pytest.mark.row("P.8")
@pytest.mark.parametrize("kind", KINDS)
def test_a_part_of_the_sample_agrees(kind: str) -> None:
    check_all(kind, SAMPLE[5::STEP])


@pytest.mark.nightly
@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("kind", KINDS)
def test_the_sample_agrees(kind: str, chunk: int) -> None:
    check_all(kind, SAMPLE[chunk::CHUNKS])


@pytest.mark.parametrize("kind", KINDS)
def test_products_on_matrix_units_agree(kind: str) -> None:
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal(size, np.float32) for size in ((64, 48), (48, 64)))
    with shimmed(kind), recording() as record:
        x, y = (Tensor(each).cast(dtypes.half).realize() for each in (left, right))
        found = x.matmul(y, dtype=dtypes.float32).numpy()
        expected = x.float().numpy().astype(float) @ y.float().numpy().astype(float)
    # float32 sums of 48 products of halves, which are exact.
    assert np.abs(found - expected).max() < 48 * 2.0**-24 * np.abs(expected).max() * 4
    texts = [each.after for each in record if each.name == "render"]
    assert any("__WMMA_" in text for text in texts) == bool(Device.describe(
        SHIMS[kind].device, Device["EMU"].runtime).target.matrix_units)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_a_block_reduces_agree(kind: str) -> None:
    values = np.random.default_rng(1).standard_normal((4, 3000)).astype(np.float32)
    with shimmed(kind), recording() as record:
        found = Tensor(values).softmax(1).numpy()
    shifted = np.exp(values.astype(float) - values.max(1, keepdims=True))
    np.testing.assert_allclose(found, shifted / shifted.sum(1, keepdims=True), rtol=1e-5)
    meets = SHIMS[kind].meets[0]
    assert any(meets in each.after for each in record if each.name == "render"), "no barrier"


@pytest.mark.skipif(not SHIMS["CUDA"].is_here, reason="no g++")
def test_lanes_that_wait_at_different_barriers_are_reported() -> None:
    """And so would be a barrier that not all lanes reach."""
    source = """extern "C" __global__ void __launch_bounds__(4) apart(int* data0) {
  if (threadIdx.x == 2) {
    __syncthreads();
  }
  data0[threadIdx.x] = threadIdx.x;
}"""
    with shimmed("CUDA") as name:
        backend = Device[name]
        program = backend.runtime.load("apart", backend.compile(source))
        memory = backend.runtime.allocate(16)
        with pytest.raises(InternalError, match="apart: lane 2 waits where lane 0 does not"):
            backend.runtime.launch(program, [memory], [], (1, 1, 1), (4, 1, 1))
        good = backend.compile(re.sub(r"  if .*?\}\n", "  __syncthreads();\n", source, flags=re.S))
        backend.runtime.launch(
            backend.runtime.load("apart", good), [memory], [], (1, 1, 1), (4, 1, 1)
        )
        assert list(memory.cast("i")) == [0, 1, 2, 3]


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_attention_agrees(kind: str, dtype: str) -> None:
    """Lanes exchange values, and both products of half precision run on matrix units."""
    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 64, 16)).astype(dtype)
    with shimmed(kind), Context(SIZES=0):
        found = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), is_causal=True).numpy()
    wide = [x.astype(np.float64) for x in (q, k, v)]
    scores = np.where(np.tri(64) > 0, wide[0] @ wide[1].transpose(0, 2, 1) / 4, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ wide[2]
    np.testing.assert_allclose(found, expected, atol=2e-3 if dtype == "float16" else 2e-6)
