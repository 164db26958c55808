"""Tiles whose last vector is cut short: where nothing is copied it overlaps, as masks would stand
in all iterations; and steps of a contraction that are unrolled, where registers hold what they
read.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.optimize.test_stage import WIDE, kernel_of
from tilegrad import Tensor, jit
from tilegrad.optimize.generators.heuristic import heuristic
from tilegrad.optimize.opts.opt import Opt, OptOps

ALONE = replace(WIDE, vector_bytes=64, registers=32, threads=0)


def opts_of(*sizes: int, batch: tuple[int, ...] = (), registers: int = 32) -> list[Opt]:
    """The Opts of a product of sizes m, k and n."""
    m, k, n = sizes
    value = Tensor.empty(*batch, m, k) @ Tensor.empty(*batch, k, n)
    return heuristic(kernel_of(value), replace(ALONE, registers=registers))


def moves(opts: list[Opt]) -> set[OptOps]:
    return {opt.op for opt in opts}


@pytest.mark.parametrize(("batch", "sizes"), [((), (9, 862, 665)), ((9,), (16, 210, 799))])
def test_a_tile_that_copies_nothing_has_no_masks(
    batch: tuple[int, ...], sizes: tuple[int, int, int]
) -> None:
    """The copy of the right side would be used once or twice only."""
    opts = opts_of(*sizes, batch=batch)
    assert moves(opts).isdisjoint({OptOps.PADTO, OptOps.STAGE})
    assert Opt(OptOps.OVERLAP, len(batch) + 1, 32) in opts


def test_a_tiled_contraction_is_padded() -> None:
    """Its results are added to memory, which must not happen twice."""
    opts = opts_of(512, 8192, 1000)
    assert {OptOps.STAGE, OptOps.TILE} <= moves(opts)
    assert OptOps.OVERLAP not in moves(opts)


def test_two_steps_are_unrolled_where_registers_hold_their_operands() -> None:
    assert opts_of(778, 624, 16)[-1] == Opt(OptOps.UNROLL, 0, 2)
    for others in ((778, 625, 16), (40, 16, 16)):
        assert OptOps.UNROLL not in moves(opts_of(*others))
    assert OptOps.UNROLL not in moves(opts_of(778, 624, 16, registers=16))


@pytest.mark.parametrize("sizes", [(9, 862, 665), (778, 624, 16), (33, 352, 77)])
def test_values_of_such_tiles(sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    numbers = np.random.default_rng(0)
    a = numbers.standard_normal((m, k), dtype=np.float32)
    b = numbers.standard_normal((k, n), dtype=np.float32)
    product = jit(lambda x, y: (x @ y).realize())
    for _ in range(3):
        found = product(Tensor(a).realize(), Tensor(b).realize())
    np.testing.assert_allclose(found.numpy(), a.astype(float) @ b, rtol=1e-4, atol=1e-4)


def test_all_vectors_of_a_short_row_are_in_its_tile() -> None:
    """Thirty columns are two vectors of sixteen that overlap by two columns."""
    value = Tensor.empty(3, 112, 32, 32).conv2d(Tensor.empty(6, 112, 3, 3))
    opts = heuristic(kernel_of(value), ALONE)
    assert OptOps.PADTO not in moves(opts)
    assert opts[:3] == [Opt(OptOps.OVERLAP, 3, 16), *(Opt(OptOps.UPCAST, n, 0) for n in (4, 3))]
