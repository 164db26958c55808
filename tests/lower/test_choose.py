"""A select between loads of one memory whose condition is made of loops alone is one load."""

from __future__ import annotations

import numpy as np
import pytest

from tests.optimize.test_stage import SEED, WIDE, kernel_of
from tilegrad import Tensor
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.lower.load_merging import choose_loads
from tilegrad.optimize.generators.heuristic import heuristic
from tilegrad.optimize.opts.opt import Opt, OptOps
from tilegrad.optimize.opts.opts import apply_opts

MODES = {"reflect": "reflect", "circular": "wrap"}


def loads(ast: UOp) -> list[UOp]:
    return [node for node in ast.toposort() if node.op is Ops.LOAD]


@pytest.mark.parametrize("mode", MODES)
def test_a_border_made_of_the_tensor_itself(mode: str) -> None:
    ast = kernel_of(Tensor.empty(3, 20, 36).pad((2, 3, 4, 1), mode=mode))
    shaped = apply_opts(ast, [Opt(OptOps.UPCAST, 2, 41)], WIDE)
    # Rows before, inside and behind, each with its columns before, inside and behind.
    assert len(loads(shaped)) == 9
    assert len(loads(choose_loads(shaped, WIDE))) == 3
    x = SEED.standard_normal((3, 20, 36), np.float32)
    expected = np.pad(x, ((0, 0), (4, 1), (2, 3)), MODES[mode])  # type: ignore[call-overload]
    np.testing.assert_array_equal(Tensor(x).pad((2, 3, 4, 1), mode=mode).numpy(), expected)


def test_what_lanes_choose_stays_two_loads() -> None:
    ast = kernel_of(Tensor.empty(20, 36).roll(5, 1) * 2)
    shaped = apply_opts(ast, [Opt(OptOps.UPCAST, 1, 36)], WIDE)
    assert len(loads(choose_loads(shaped, WIDE))) == len(loads(shaped)) == 2


def test_short_rows_with_borders_are_written_out() -> None:
    ast = kernel_of(Tensor.empty(64, 30, 100).pad((2, 2, 2, 2), mode="reflect"))
    assert Opt(OptOps.UPCAST, 2, 112) in heuristic(ast, WIDE)


def test_an_index_from_loaded_values_stays_behind_its_gate() -> None:
    """Sorted, and as it is: the one is read where ranks say, the other by loops alone."""
    array = np.random.default_rng(0).standard_normal((3, 31, 200), np.float32)
    x = Tensor(array)
    expected = np.concatenate([np.sort(array, 1), array], 1)
    np.testing.assert_array_equal(x.sort(1)[0].cat(x, dim=1).numpy(), expected)
