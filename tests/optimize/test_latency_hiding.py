"""Reductions that would wait for their own last step have results side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.optimize.test_stage import WIDE, kernel_of
from tilegrad import Tensor
from tilegrad.ir.op import Axis
from tilegrad.optimize.generators.heuristic import shape
from tilegrad.optimize.opts.opt import Opt, OptOps, axes_of

UPCAST, THREAD = OptOps.UPCAST, OptOps.THREAD


def results(value: Tensor, **target: Any) -> int:
    """How many vectors of results one iteration has."""
    shaped = shape(kernel_of(value), replace(WIDE, **target))
    unrolled = [axis for axis in axes_of(shaped) if axis.arg[1] is Axis.UPCAST]
    return int(np.prod([axis.src[0].arg for axis in unrolled])) // WIDE.lanes_of(value.dtype)


def test_short_rows_across_memory_have_several_accumulators() -> None:
    assert results(Tensor.empty(448, 464, 16).max(1), threads=0) >= 4
    assert results(Tensor.empty(16, 1632, 16).square().sum(1), threads=0) >= 4


def test_threads_are_left_what_they_share() -> None:
    ast = kernel_of(Tensor.empty(8, 1 << 16).sum(1))
    opts: list[Opt] = list(shape(ast, replace(WIDE, threads=8)).arg.opts)
    (unrolled,) = [opt.arg for opt in opts if opt.op is UPCAST]
    (chunks,) = [opt.arg for opt in opts if opt.op is THREAD]
    assert unrolled * chunks == 8


def test_all_columns_are_results_where_registers_hold_them() -> None:
    """All eleven vectors of four fit the registers: no last chunk overlaps. Eight would hide the
    latency.
    """
    narrow = {"vector_bytes": 16, "registers": 16, "has_mask": False, "threads": 0}
    opts = shape(kernel_of(Tensor.empty(187, 57, 41).sum(1)), replace(WIDE, **narrow)).arg.opts
    assert list(opts) == [Opt(OptOps.OVERLAP, 1, 4), Opt(UPCAST, 2, 0), Opt(UPCAST, 1, 11)]


def test_a_padded_vector_is_chosen_once_others_hide_its_waiting() -> None:
    """Five columns of a filter's gradient, in vectors of eight: alone, they wait for the sum."""
    x = Tensor.empty(4, 63, 28, 24)
    w = Tensor.empty(63, 1, 5, 5)
    value = x.conv2d(w, stride=2, groups=63)
    (gradient,) = Tensor.gradient(value, w, gradient=Tensor.empty(*value.shape))
    narrow = replace(WIDE, vector_bytes=32, registers=16, threads=0)
    opts = shape(kernel_of(gradient), narrow).arg.opts
    assert list(opts[:3]) == [Opt(OptOps.PADTO, 2, 8), Opt(UPCAST, 2, 8), Opt(UPCAST, 1, 5)]


def test_steps_along_a_row_are_combined_before_they_wait() -> None:
    """A row of 129 times two vectors: six of them wait for the sum as long as two."""
    x = Tensor.empty(28, 2064)
    narrow = replace(WIDE, vector_bytes=32, registers=16, threads=0)
    opts = shape(kernel_of(x / x.square().sum(1, keepdim=True)), narrow).arg.opts
    assert Opt(OptOps.UNROLL, 0, 16) in opts
    assert opts[-1] == Opt(OptOps.UNROLL, 0, 3)


def test_rows_one_after_another_stay_a_stream_of_memory() -> None:
    """What the next row overlaps with is no reason to read several rows side by side."""
    value = (Tensor.empty(50257, 768) * Tensor.empty(768)).sum(1)
    opts = shape(kernel_of(value), replace(WIDE, threads=8)).arg.opts
    assert not [opt for opt in opts if opt.op in (UPCAST, OptOps.OVERLAP)]


def test_what_takes_no_time_or_has_no_vectors_stays() -> None:
    assert results(Tensor.empty(4, 8, 16).sum(1), threads=0) == 1
    assert results(Tensor.empty(448, 464, 16).max(1), threads=0, vector_bytes=0) == 0


@pytest.mark.parametrize("shape", [(152, 40, 13), (37, 1632, 3), (131, 96, 16), (7, 2311, 5)])
def test_values(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    wide = x.astype(np.float64)
    t = Tensor(x)
    np.testing.assert_array_equal(t.max(1).numpy(), x.max(1))
    np.testing.assert_allclose(t.square().sum(1).numpy(), (wide**2).sum(1), rtol=2e-6)
    np.testing.assert_allclose(t.var(1).numpy(), wide.var(1, ddof=1), rtol=4e-6)
    np.testing.assert_allclose(
        t.logsumexp(-1).numpy(), np.log(np.exp(wide).sum(-1)), rtol=4e-6, atol=2e-6
    )
