"""Rows that do not fit go through a kernel in slices, with the results of whole rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.optimize.test_heuristic_stages import attention, one_kernel, random, run
from tests.schedule.plans import kernels, plan
from tilegrad import Tensor
from tilegrad.base.errors import OptError
from tilegrad.device.cpu import cpu_target
from tilegrad.ir.op import Axis
from tilegrad.ir.ranges import slice_loop
from tilegrad.ir.uop import UOp
from tilegrad.optimize.generators.heuristic import heuristic
from tilegrad.optimize.opts.opt import Opt, OptOps, reduce_axes
from tilegrad.optimize.opts.opts import apply_opt
from tilegrad.target import Target

LENGTH, SIZE = 512, 24
# A slice of a row: as many keys and values as fit the second cache, whole vectors, without a rest.
SLICE = 128
NEAR = Target("near", vector_bytes=32, threads=2, cache_bytes=(8 << 10, 40 << 10, 64 << 10))


def slices_of(ast: UOp) -> int:
    loop = slice_loop(ast)
    return 1 if loop is None else loop.src[0].arg


def hidden(kind: str) -> Any:
    rows, keys = np.ogrid[:LENGTH, :LENGTH]
    added = np.where(rows >= keys if kind == "back" else rows <= keys, 0.0, -np.inf)
    if kind == "bias":
        added = random(LENGTH, LENGTH) * 4
        # Nothing is seen in the first slices, or in the last ones.
        added[:, : SLICE + 5] = -np.inf
        added[7, 2 * SLICE :] = -np.inf
    return added.astype(np.float32)


@pytest.mark.parametrize(
    ("kind", "is_shaped"),
    [
        ("back", True),
        ("bias", True),
        ("bias", False),
        pytest.param("forward", True, marks=pytest.mark.nightly),
    ],
)
def test_masked_rows(kind: str, is_shaped: bool) -> None:
    q, k, v = (random(4, LENGTH, SIZE) for _ in range(3))
    added = hidden(kind)

    def compute(q: Tensor, k: Tensor, v: Tensor, *bias: Tensor) -> Tensor:
        if bias:
            return q.scaled_dot_product_attention(k, v, *bias)
        rows = Tensor.arange(LENGTH)
        seen = rows.reshape(LENGTH, 1) >= rows
        return q.scaled_dot_product_attention(k, v, seen if kind == "back" else seen.transpose())

    ast, arrays = one_kernel(compute, q, k, v, *([added] if kind == "bias" else []))
    assert slices_of(ast) == LENGTH // SLICE
    found = run(ast, arrays, heuristic(ast, cpu_target()) if is_shaped else [])
    np.testing.assert_allclose(found, attention(q, k, v, added), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("limit", ["", pytest.param("avx2", marks=pytest.mark.nightly)])
def test_rows_that_vectors_do_not_divide(limit: str) -> None:
    """Nor do slices: the last is shorter."""
    q, k, v = random(4, 83, 20), random(4, 509, 20) * 3, random(4, 509, 36)
    ast, arrays = one_kernel(lambda q, k, v: q.scaled_dot_product_attention(k, v), q, k, v)
    assert slices_of(ast) > 1
    found = run(ast, arrays, heuristic(ast, cpu_target(limit)))
    np.testing.assert_allclose(found, attention(q, k, v), rtol=1e-4, atol=1e-5)


def test_a_row_that_sees_nothing_or_holds_infinity() -> None:
    q, k, v = (random(4, LENGTH, SIZE) for _ in range(3))
    bias = np.zeros((LENGTH, LENGTH), np.float32)
    bias[3], bias[5, 200], bias[6, 7] = -np.inf, np.inf, np.nan

    def compute(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return (q @ k.transpose(1, 2) + bias).softmax(2) @ v

    ast, arrays = one_kernel(compute, q, k, v, bias)
    assert slices_of(ast) > 1
    found = run(ast, arrays, heuristic(ast, cpu_target()))
    is_number = np.isfinite(found).all((0, 2))
    assert np.flatnonzero(~is_number).tolist() == [3, 5, 6]
    assert np.isnan(found[:, [3, 5, 6]]).all()
    scale = np.sqrt(np.float32(SIZE))
    expected = attention((q * scale)[:, is_number], k, v, bias[is_number])
    np.testing.assert_allclose(found[:, is_number], expected, rtol=1e-4, atol=1e-5)


def test_the_error_of_many_slices_is_that_of_one() -> None:
    """A sum that is rescaled in each of 625 slices rounds once: it was off by 60 roundings."""
    keys, rows, size = 100_000, 64, 24
    along = np.linspace(0, 2, keys, dtype=np.float32)[None, :, None]
    q = np.full((2, rows, size), 0.25, np.float32)
    k = np.ones((2, keys, size), np.float32) * along
    v = np.full((2, keys, size), 0.1, np.float32) * (1 + along / 2)
    ast, arrays = one_kernel(lambda q, k, v: q.scaled_dot_product_attention(k, v), q, k, v)
    assert slices_of(ast) > 500
    found = run(ast, arrays, heuristic(ast, cpu_target()))
    error = np.abs(found / attention(q[:, :1], k, v) - 1).max() / 2.0**-24
    assert error < 16


def largest(scores: Tensor) -> Tensor:
    return scores.max(2, keepdim=True)


SCORES: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {
    "relu": (lambda s: s.relu(), True),
    "by its length": (lambda s: s / s.square().sum(2, keepdim=True).sqrt(), True),
    "powers of two": (lambda s: (s - largest(s)).exp2() * 0.5, True),
    "two largest": (lambda s: (s - largest(s)).exp() * s, True),
    # A later slice may hold what makes these overflow, or they are no multiples of what they were.
    "of another": (lambda s: (s * 2 - largest(s)).exp(), False),
    "least": (lambda s: (s - s.min(2, keepdim=True)).exp(), False),
    "apart from their mean": (lambda s: (s - s.mean(2, keepdim=True)).square(), False),
}


@pytest.mark.parametrize("name", SCORES)
def test_what_can_be_corrected_later(name: str) -> None:
    weigh, is_cut = SCORES[name]
    q, k, v = (Tensor.empty(4, length, SIZE) for length in (64, LENGTH, LENGTH))
    schedule = plan(weigh(q @ k.transpose(1, 2)) @ v, target=NEAR)
    assert (len(kernels(schedule)) == 1) is is_cut


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name, (_, is_cut) in SCORES.items() if is_cut])
def test_weights_of_other_kinds(name: str) -> None:
    q, k, v = random(4, 64, SIZE), random(4, LENGTH, SIZE) / 4, random(4, LENGTH, SIZE)
    ast, arrays = one_kernel(lambda q, k, v: SCORES[name][0](q @ k.transpose(1, 2)) @ v, q, k, v)
    assert slices_of(ast) == LENGTH // SLICE
    scores = q.astype(np.float64) @ k.swapaxes(1, 2)
    top = scores.max(2, keepdims=True)
    weights = {
        "relu": np.maximum(scores, 0),
        "by its length": scores / np.sqrt((scores**2).sum(2, keepdims=True)),
        "powers of two": np.exp2(scores - top) * 0.5,
        "two largest": np.exp(scores - top) * scores,
    }[name]
    found = run(ast, arrays, heuristic(ast, cpu_target()))
    np.testing.assert_allclose(found, weights @ v, rtol=1e-4, atol=1e-4)


def test_slices_are_not_unrolled() -> None:
    q, k, v = (random(4, LENGTH, SIZE) for _ in range(3))
    ast, _ = one_kernel(lambda q, k, v: q.scaled_dot_product_attention(k, v), q, k, v)
    axis = [loop.src[0].arg for loop in reduce_axes(ast)].index(LENGTH // SLICE)
    assert reduce_axes(ast)[axis].arg[1] is Axis.REDUCE
    with pytest.raises(OptError, match="one after the other"):
        apply_opt(ast, Opt(OptOps.UNROLL, axis, 2), cpu_target())


def test_short_floats_are_not_rounded_before_they_are_summed() -> None:
    q, k, v = (random(4, LENGTH, SIZE) for _ in range(3))

    def compute(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = (q @ k.transpose(1, 2) / SIZE**0.5).softmax(2).bfloat16()
        return weights.float() @ v

    ast, arrays = one_kernel(compute, q, k, v)
    assert slices_of(ast) == LENGTH // SLICE
    found = run(ast, arrays, heuristic(ast, cpu_target()))
    np.testing.assert_allclose(found, attention(q, k, v), rtol=1e-4, atol=1e-5)
