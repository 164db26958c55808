"""Rows that vectors do not divide: without masks chunks overlap; short rows and rows that wait are
taken several at a time.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.schedule.plans import kernels, plan
from tilegrad import Tensor
from tilegrad.optimize.generators.heuristic import heuristic
from tilegrad.optimize.model.model import estimate
from tilegrad.optimize.opts.opt import Opt, OptOps
from tilegrad.optimize.opts.opts import apply_opts
from tilegrad.target import Target

WIDE = Target("rows", vector_bytes=64, registers=32, threads=0, has_mask=True)
NARROW = replace(WIDE, vector_bytes=16, registers=16, has_mask=False, has_fma=False)


def opts_of(value: Tensor, target: Target) -> list[Opt]:
    ast = max((item.ast for item in kernels(plan(value))), key=lambda ast: len(ast.toposort()))
    return heuristic(ast, target)


def gain_of(value: Tensor, target: Target, opts: list[Opt]) -> float:
    """The estimate of a value's kernel without `opts`, over that with them."""
    (item,) = kernels(plan(value))
    found = heuristic(item.ast, target)
    others = [opt for opt in found if opt not in opts]
    with_all, without = (
        estimate(apply_opts(item.ast, each, target), target).cycles for each in (found, others)
    )
    return without / with_all


@pytest.mark.parametrize("name", ["flip", "sum", "slice"])
def test_results_are_not_padded_where_there_are_no_masks(name: str) -> None:
    x = Tensor.empty(141, 34, 39)
    made = {"flip": x.flip(2), "sum": x.sum(1), "slice": x[:, :, 1:]}
    opts = opts_of(made[name].contiguous(), NARROW)
    ops = [opt.op for opt in opts]
    assert OptOps.OVERLAP in ops or OptOps.UPCAST in ops
    assert OptOps.PADTO not in ops


@pytest.mark.parametrize("columns", [15, 50])
def test_a_short_sum_without_masks_is_vectors_whose_padding_is_known(columns: int) -> None:
    """Of a loop over them each lane of padding would be a branch."""
    opts = opts_of(Tensor.empty(1803, columns).square().sum(1), NARROW)
    padded = -(-columns // 4) * 4
    assert opts[:2] == [Opt(OptOps.PADTO, 1, padded), Opt(OptOps.UNROLL, 0, padded)]
    # A vector of the sum's own terms, where they are whole vectors.
    assert Opt(OptOps.UNROLL, 0, 16) in opts_of(Tensor.empty(1803, 16).square().sum(1), NARROW)
    # With masks the padding is in the last vector alone.
    whole = [Opt(OptOps.PADTO, 1, 68), Opt(OptOps.UNROLL, 0, 68)]
    assert opts_of(Tensor.empty(1803, 67).square().sum(1), WIDE)[:2] != whole


@pytest.mark.parametrize("columns", [60, 55])
def test_rows_made_of_several_loads_are_unrolled_without_masks_too(columns: int) -> None:
    """A loop would choose between two loads for each lane: it is known which one a vector is."""
    opts = opts_of(Tensor.empty(3296, columns).roll(7, 1).contiguous(), NARROW)
    vectors = [opt for opt in opts if opt.op is OptOps.UPCAST]
    if columns % 4 == 0:
        assert vectors == [Opt(OptOps.UPCAST, 1, columns)]
    else:
        assert opts == [
            Opt(OptOps.OVERLAP, 1, 4),
            Opt(OptOps.UPCAST, 2, 0),
            Opt(OptOps.UPCAST, 1, 0),
        ]


def test_all_rows_of_few_are_joined_where_each_has_no_loop() -> None:
    """The gradient of a pooling: which of three rows are zero is known then."""
    x, g = Tensor.empty(2, 24, 42, 42), Tensor.empty(2, 24, 14, 14)
    (gradient,) = Tensor.gradient(x.max_pool2d(2, 3), x, gradient=g)
    narrow = replace(NARROW, vector_bytes=32, has_mask=True)
    asts = [item.ast for item in kernels(plan(gradient))]
    opts = heuristic(asts[-1], narrow)
    assert opts[-1] == Opt(OptOps.UPCAST, 1, 3)
    timed = [
        estimate(apply_opts(asts[-1], each, narrow), narrow).cycles for each in (opts, opts[:-1])
    ]
    assert 1.1 * timed[0] < timed[1]


def test_short_rows_are_joined() -> None:
    opts = opts_of(Tensor.empty(203, 160, 6).pad((0, 0, 5, 2)).contiguous(), WIDE)
    assert opts[:2] == [Opt(OptOps.PADTO, 2, 8), Opt(OptOps.UPCAST, 2, 8)]
    assert [opt for opt in opts[2:] if opt.op in (OptOps.OVERLAP, OptOps.UPCAST)]


def test_rows_of_a_prime_number_hide_the_latency_too() -> None:
    x = Tensor.empty(367, 96)
    value = (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True) + 1e-5).sqrt()
    opts = opts_of(value, WIDE)
    assert [opt for opt in opts if opt.op is OptOps.OVERLAP and opt.axis == 0]


def test_the_rows_of_a_filters_gradient_are_loaded_once() -> None:
    x, g = Tensor.empty(4, 16, 16, 15), Tensor.empty(4, 16, 10, 9)
    w = Tensor.empty(16, 1, 7, 7)
    (gradient,) = Tensor.gradient(x.conv2d(w, groups=16), w, gradient=g)
    opts = opts_of(gradient, WIDE)
    assert opts[-1] == Opt(OptOps.UNROLL, 1, 0)
    assert Opt(OptOps.UPCAST, 1, 7) in opts
    assert gain_of(gradient, WIDE, [opts[-1]]) > 1.2
