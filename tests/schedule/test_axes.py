"""Neighbouring ranges that become one, held against the merge of each pair."""

from __future__ import annotations

import random

import pytest

from tilegrad.base.dtype import dtypes
from tilegrad.ir.args import KernelInfo
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp
from tilegrad.schedule import axes


def kernel_of(draw: random.Random) -> tuple[UOp, UOp, UOp]:
    """A copy over two loops and perhaps a third, whose strides fit each other or not."""
    sizes = [draw.choice((1, 2, 3, 4, 8)) for _ in range(3)]
    outer, inner, other = (UOp.range(size, n, Axis.LOOP) for n, size in enumerate(sizes))

    def index() -> UOp:
        step = draw.choice((1, 2, 5))
        steps = draw.choice(((step * sizes[1], step), (step, step), (step, 0), (0, 0), (7, 2)))
        position = outer * steps[0] + inner * steps[1] + draw.choice((0, 3))
        return position + other * 64 if draw.random() < 0.5 else position

    memories = [UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(4096), (), slot) for slot in range(3)]
    value = memories[1].load(index()) + memories[2].load(index())
    store = memories[0].store(other * 64 + outer * sizes[1] + inner, value)
    return UOp.sink(store, arg=KernelInfo("E", (0, 1, 2))), outer, inner


def test_what_is_told_to_be_apart_cannot_be_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    apart, draw = axes._are_apart, random.Random(7)
    monkeypatch.setattr(axes, "_are_apart", lambda *_: False)
    merged = told = 0
    for _ in range(200):
        ast, outer, inner = kernel_of(draw)
        is_merged = axes._merge(ast, outer, inner) is not None
        is_told = any(apart(node, outer, inner) for node in ast.toposort())
        assert not (is_merged and is_told)
        merged, told = merged + is_merged, told + is_told
    assert merged > 10 and told > 50
