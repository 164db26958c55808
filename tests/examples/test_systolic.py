"""The systolic array of examples/systolic.py: fewer cycles with each Opt, by the written model."""

from __future__ import annotations

import pytest

from examples.systolic import (
    BYTES_A_CYCLE,
    MOVED,
    SIDE,
    STEPS,
    TILE_CYCLES,
    TRANSFER_START,
    main,
    product,
)
from tilegrad.optimize.opts.opt import Opt

# Cycles to move a tile: some numbers of each lane at once.
TILE = SIDE // MOVED * (TRANSFER_START + 4 * SIDE * MOVED // BYTES_A_CYCLE)


def test_each_opt_takes_fewer_cycles(capsys: pytest.CaptureFixture[str]) -> None:
    """That the numbers are right is asserted there."""
    cycles = list(main().values())
    assert cycles == sorted(cycles, reverse=True) and len(set(cycles)) == len(STEPS)
    assert cycles[0] > 100 * cycles[1]
    assert capsys.readouterr().out.count("cycles") == len(STEPS)


@pytest.mark.parametrize(("number", "high", "wide"), [(1, 1, 1), (2, 2, 1), (3, 2, 2)])
def test_the_cycles_are_those_of_the_transfers_and_tiles(number: int, high: int, wide: int) -> None:
    """A block of high x wide tiles brings high + wide for each step along the sums, and multiplies
    high * wide. What is left is index arithmetic.
    """
    opts: tuple[Opt, ...] = list(STEPS.values())[number]
    size, tiles = 32, 32 // SIDE
    cycles, _, _ = product(size, opts)
    blocks = (tiles // high) * (tiles // wide)
    moved = blocks * (tiles * (high + wide) + high * wide) * TILE
    least = moved + tiles**3 * TILE_CYCLES
    assert least <= cycles < 1.35 * least
