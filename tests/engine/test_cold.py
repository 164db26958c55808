"""How much work a kernel takes that was never made before, in counts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.schedule.plans import plan
from tilegrad import Context, Tensor
from tilegrad.engine.program.stages import to_program
from tilegrad.ir.uop import UOp
from tilegrad.lower import peel
from tilegrad.optimize.generators import shaper
from tilegrad.optimize.generators.heuristic import heuristic
from tilegrad.optimize.opts import opts
from tilegrad.target import Target

TARGET = Target(name="wide", vector_bytes=64, registers=32, has_fma=True, has_mask=True, threads=2)


def product() -> UOp:
    return kernel(Tensor.empty(64, 64) @ Tensor.empty(64, 64))


def convolution() -> UOp:
    return kernel(Tensor.empty(2, 16, 14, 14).conv2d(Tensor.empty(32, 16, 3, 3), padding=1))


def normalised() -> UOp:
    x = Tensor.empty(40, 64)
    return kernel((x - 0.5) * (x.exp() + 1).sqrt())


def kernel(value: Tensor) -> UOp:
    found = [item.ast for item in plan(value).items if item.ast is not None]
    assert len(found) == 1
    return found[0]


def calls(function: Callable[[], Any]) -> int:
    """Calls of Python functions and of C functions."""
    count = 0

    def seen(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("make", [product, convolution, normalised])
def test_an_opt_of_the_heuristic_is_applied_once(
    make: Callable[[], UOp], monkeypatch: pytest.MonkeyPatch
) -> None:
    applied: list[Any] = []
    apply = opts.apply_opt

    def seen(ast: UOp, opt: Any, target: Any) -> UOp:
        applied.append((ast, opt))
        return apply(ast, opt, target)

    for module in (opts, shaper):
        monkeypatch.setattr(module, "apply_opt", seen)
    ast = make()
    chosen = to_program(ast, TARGET)[0].ast.arg.opts
    tried = len(applied)
    assert chosen
    heuristic(opts.start(ast, TARGET), TARGET)
    assert len(applied) == 2 * tried


def test_a_loop_without_gates_is_not_copied_to_be_peeled(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[UOp] = []
    copy = peel._copied
    monkeypatch.setattr(
        peel, "_copied", lambda node, mapping: copied.append(node) or copy(node, mapping)
    )
    to_program(product(), TARGET)
    assert copied == []


@pytest.mark.parametrize(
    ("make", "most"), [(product, 48_000), (convolution, 300_000), (normalised, 9_200)]
)
def test_calls_of_a_cold_kernel(make: Callable[[], UOp], most: int) -> None:
    """With walks that tables and closures made slow, they were 58,845, 328,855 and 12,022."""
    ast = make()
    with Context(VERIFY=1):
        # What is compiled, imported or cached at the first kernel is no work of this one.
        to_program(ast, TARGET)
        assert calls(lambda: to_program(ast, TARGET)) <= most
