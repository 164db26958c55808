"""Integers of a launch arrive where no element of the last operands is read any more."""

from __future__ import annotations

import numpy as np
import pytest

from tilegrad import Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.device.registry import Device
from tilegrad.engine.program.stages import lowered
from tilegrad.ir.args import KernelInfo
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp


@pytest.mark.parametrize("device", ["CPU", "EMU"])
def test_a_convolution_of_padding_alone_at_changing_sizes(device: str) -> None:
    """Each window lies in the padding: all that is left of the kernel is its length."""
    for count in (3, 4, 5, 6, 3, 7):
        x = Tensor(np.full(5, 2, np.float32), device=device).floor().reshape(1, 1, 5, 1)
        weight = Tensor(np.ones((count, 1, 1, 2), np.float32), device=device)
        found = x.conv2d(weight, padding=1, dilation=2).numpy()
        assert found.shape == (1, count, 7, 1) and not found.any()


def test_the_last_slot_is_named_beside_an_integer() -> None:
    size = UOp.variable("n", 1, 8)
    row = UOp.range(size, 0)
    out, source = (UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(8), (), slot) for slot in (0, 1))
    never = (row < 4) & (row < 4).logical_not()
    zero = UOp.const(dtypes.float32, 0)
    value = source.load(row, zero, never, dtype=dtypes.float32)
    ast = UOp.sink(out.store(row, value).end(row)).replace(arg=KernelInfo("unused", (0,)))
    _, program = lowered(ast, Device["CPU"].target)
    assert {node.arg for node in program if node.op is Ops.DEFINE_GLOBAL} == {0, 1}
