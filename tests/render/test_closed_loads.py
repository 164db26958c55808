"""A masked load with all lanes closed is of the start of its memory, whose page is there."""

from __future__ import annotations

import re

from tests.schedule.plans import kernels, plan
from tilegrad import Tensor
from tilegrad.engine.program.stages import to_program
from tilegrad.optimize.opts.opt import Opt, OptOps
from tilegrad.render.llvm import LLVMRenderer
from tilegrad.target import Target

TARGET = Target("rows", vector_bytes=64, registers=32, has_mask=True)


def text_of(padding: tuple[int, ...], opts: list[Opt]) -> str:
    x = Tensor.empty(6, 64)
    (item,) = kernels(plan(x.pad(padding).contiguous()))
    _, program = to_program(item.ast, TARGET, opts)
    return LLVMRenderer(64, 1 << 20).render("k", program)


def test_rows_of_padding_read_the_start() -> None:
    text = text_of((0, 0, 2, 1), [Opt(OptOps.UPCAST, 1, 32)])
    addresses = re.findall(r"masked\.load[^(]*\(ptr (%\w+)", text)
    assert len(addresses) == 2
    for address in addresses:
        assert re.search(rf"{address} = select i1 %\w+, ptr %\w+, ptr %\w+\n", text)


def test_lanes_of_padding_have_a_mask_alone() -> None:
    text = text_of((3, 0), [Opt(OptOps.PADTO, 1, 80), Opt(OptOps.UPCAST, 1, 16)])
    assert "masked.load" in text
    assert not re.search(r"select i1 %\w+, ptr", text)
