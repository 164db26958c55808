"""Matrix units of a tile that begin before those of the last one are waited for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.optimize.kernels import (
    FLOAT,
    HALF,
    buffer,
    good_opts,
    kernel,
    matmul,
    program,
    shaped,
)
from tilegrad import Context
from tilegrad.base.dtype import dtypes
from tilegrad.device.emulator import execute
from tilegrad.device.nv import nv_target
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.lower import levels
from tilegrad.lower.lower import PASSES, lower
from tilegrad.lower.units_behind import wait_behind
from tilegrad.optimize.generators import heuristic_units
from tilegrad.target import Target

TARGET = nv_target("sm_90a")
BY_LANES = replace(TARGET, has_tile_copies=False)


@pytest.fixture(autouse=True)
def few_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small products have the tiles of large ones."""
    monkeypatch.setattr(heuristic_units, "BUSY", 1)
    with Context(DISABLE_COMPILER_CACHE=1):
        yield


def product(k: int, target: Target = TARGET) -> UOp:
    left, right = buffer(0, 64, k, dtype=HALF), buffer(1, k, 64, dtype=HALF)
    return kernel(matmul(left, right, total=FLOAT), target=target)


def steps(found: list[UOp]) -> list[str]:
    """What lanes wait for and begin in the loop over tiles, in its order."""
    start = next(at for at, node in enumerate(found) if node.op is Ops.WAIT_TILE)
    names = {
        Ops.WAIT_TILE: "tile", Ops.BARRIER: "barrier", Ops.COPY_TILE: "copy", Ops.WMMA: "unit",
    }  # fmt: skip
    made: list[str] = []
    for node in found[start:]:
        name = names.get(node.op, "")
        if node.op is Ops.WAIT and node.dtype is not dtypes.void:
            name = f"wait {node.arg or 0}"
        # Boxes, and steps along a tile, follow each other.
        if name and name != made[-1:]:
            made += [name] if made[-1:] != [name] else []
    return made


@pytest.mark.row("M9.1")
def test_units_of_the_next_tile_begin_before_the_last_ones_are_waited_for() -> None:
    first = ["tile", "barrier", "copy", "unit", "wait 1"]
    later = ["tile", "unit", "wait 1", "barrier", "copy"]
    assert steps(program(product(512), None, TARGET)) == [*first, *later * 3, "wait 0"]
    assert steps(program(product(256), None, TARGET)) == [*first, *later, "wait 0"]


def test_iterations_that_are_not_unrolled_wait_for_their_own() -> None:
    """Three tiles are no whole number of rounds of two."""
    found = steps(program(product(192), None, TARGET))
    assert found == ["tile", "barrier", "copy", "unit", "wait 0"]


def test_tiles_that_lanes_copy_are_read_behind_the_barrier() -> None:
    """Nobody else knows when they are there."""
    waits = [
        node.arg
        for node in program(product(512, BY_LANES), None, BY_LANES)
        if node.op is Ops.WAIT and node.dtype is not dtypes.void
    ]
    assert waits == [None] * 4


def test_a_program_without_such_units_stays_as_it_is() -> None:
    target = nv_target("sm_80")
    left, right = buffer(0, 64, 64, dtype=HALF), buffer(1, 64, 64, dtype=HALF)
    found = program(kernel(matmul(left, right, total=FLOAT), target=target), None, target)
    assert wait_behind(found, target) == found


def test_what_other_nodes_read_on_the_way_is_waited_for() -> None:
    """A sum that is stored between two tiles cannot be one behind."""
    before: dict[str, Any] = {}
    ast = product(512)
    shaped_ast = shaped(ast, good_opts(ast, TARGET), TARGET)
    lower(shaped_ast, TARGET, lambda state, name: before.setdefault(name, state))
    state = before["lower.unroll_tiles"]
    assigned = [node for node in state if node.op is Ops.ASSIGN]
    out = next(node for node in state if node.op is Ops.DEFINE_GLOBAL)
    zero = UOp.const(dtypes.int32, 0)
    value = UOp(Ops.AFTER, assigned[0].dtype, (assigned[0].src[0], assigned[0])).gep(0)
    store = out.store(zero, value)
    at = state.index(assigned[0]) + 1
    changed = list(dict.fromkeys([*state[:at], zero, *value.src, value, store, *state[at:]]))
    waits = [
        node.arg
        for node in wait_behind(changed, TARGET)
        if node.op is Ops.WAIT and node.dtype is not dtypes.void
    ]
    # The first stays; the others are a run of their own.
    assert waits == [None, 1, 1, 1, None]


def test_the_pass_comes_before_sums_are_split() -> None:
    names = [step.name for step in PASSES]
    assert names.index("lower.unroll_tiles") < names.index("lower.units_behind")
    assert names.index("lower.units_behind") < names.index("lower.levels")


@pytest.mark.nightly
def test_sums_of_two_levels_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 16 products of a unit each, as if more were too many for an accumulator."""
    monkeypatch.setattr(levels, "MOST_TERMS", 16)
    monkeypatch.setattr(levels, "_LEAST_BLOCK", 16)
    k = 512
    found = program(product(k), None, TARGET)
    assert sum(node.op is Ops.DEFINE_ACC for node in found) == 2
    assert steps(found).count("wait 1") == 4 and steps(found).count("wait 0") == 1
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-2, 3, size).astype(np.float16) for size in ((64, k), (k, 64)))
    out = np.zeros((64, 64), np.float32)
    execute(found, [memoryview(out).cast("B"), *(bytearray(each.tobytes()) for each in (x, y))])
    np.testing.assert_array_equal(out, x.astype(float) @ y.astype(float))
