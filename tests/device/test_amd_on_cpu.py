"""The LLVM text of AMD's kernels gives the values of NumPy, lane by lane on this processor."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.conformance.cases import SAMPLE
from tests.device.amd_on_cpu import amd_on_cpu, can_compile
from tilegrad import Context, Tensor

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="its own loader is for x86-64"
)


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with amd_on_cpu():
        yield


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


Sample = tuple[Callable[..., Tensor], Callable[..., Any], list[Any]]
CASES: dict[str, Sample] = {
    "elementwise, ragged": (lambda x: x.exp() + 1, lambda x: np.exp(x) + 1, [numbers(7, 37)]),
    "softmax by blocks": (lambda x: x.softmax(1), softmax, [numbers(3, 700)]),
    "product": (lambda a, b: a @ b, lambda a, b: a @ b, [numbers(33, 65), numbers(65, 47)]),
    "sum of all": (lambda x: x.sum(), lambda x: x.sum(), [numbers(3000)]),
    "running sum": (lambda x: x.cumsum(1), lambda x: x.cumsum(1), [numbers(3, 200)]),
    "padded": (
        lambda x: x.pad((1, 2, 3, 0)), lambda x: np.pad(x, ((3, 0), (1, 2))), [numbers(5, 6)],
    ),
    "whole numbers": (
        lambda x: x // 7 % 5, lambda x: x // 7 % 5, [np.arange(-90, 90, dtype=np.int32)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    compute, expected, arrays = CASES[name]
    found = compute(*[Tensor(array, device="AMDONCPU") for array in arrays]).numpy()
    wide = [array.astype("d") if array.dtype == np.float32 else array for array in arrays]
    np.testing.assert_allclose(found, expected(*wide), rtol=2e-6, atol=2e-5)


def check(step: int) -> None:
    wrong, ran = [], 0
    with Context(DEVICE="AMDONCPU"):
        for case in SAMPLE[::step]:
            if not can_compile(case):
                continue
            ran += 1
            try:
                case.check()
            except Exception as error:  # all of them are reported
                wrong.append(f"{case.name}: {type(error).__name__}: {error}")
    assert not wrong, "\n\n".join(wrong)
    assert ran > len(SAMPLE[::step]) // 2


def test_a_part_of_the_conformance_sample() -> None:
    check(101)


@pytest.mark.nightly
def test_the_conformance_sample() -> None:
    check(1)
