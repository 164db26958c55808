"""Kernels written by hand as nodes of a graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.tensor.helpers import close, numbers
from tilegrad import Tensor, TinyJit, UOp, dtypes
from tilegrad.base.errors import DeviceError, DTypeError, InternalError, ShapeError
from tilegrad.ir import Ops


def double(made: UOp, x: UOp) -> UOp:
    """made[i] = 2 * x[i]"""
    i = UOp.range(x.dtype.size, 0)  # type: ignore[attr-defined]
    return UOp.sink(made.store(i, x.load(i) * 2))


def test_a_kernel_stands_among_others() -> None:
    array = numbers(3, 4)
    x = Tensor(array)
    made, same = Tensor.empty(4, 3).custom_kernel((x + 1).T, fxn=double)
    close(made - 1, 2 * (array.T + 1) - 1)
    close(same, array.T + 1)


def test_its_gradient_is_what_the_author_says() -> None:
    def gradient(g: UOp, node: UOp) -> list[UOp]:
        return [g * 2.0 + node.src[0] * 0.0]

    x = Tensor([1.0, 2.0])
    (y, _) = Tensor.empty(2).custom_kernel(x, fxn=double, grad_fxn=gradient)
    assert (y * y).sum().gradient(x)[0].tolist() == [8.0, 16.0]
    (silent, _) = Tensor.empty(2).custom_kernel(x, fxn=double)
    assert (silent + x).sum().gradient(x)[0].tolist() == [1.0, 1.0]


def test_it_is_captured() -> None:
    @TinyJit
    def step(x: Tensor) -> Tensor:
        return Tensor.empty(2).custom_kernel(x, fxn=double)[0].realize()

    for at in range(4):
        assert step(Tensor([at, 1.0]).realize()).tolist() == [2.0 * at, 2.0]


def test_what_is_no_kernel_raises() -> None:
    x = Tensor([1.0, 2.0])
    made = Tensor.empty(2)

    def outside(made: UOp, x: UOp) -> UOp:
        i = UOp.range(3, 0)
        return UOp.sink(made.store(i, UOp.const(dtypes.float32, 0)))

    def nothing(made: UOp, x: UOp) -> Any:
        return x

    with pytest.raises(DTypeError, match="custom_kernel: nothing gave"):
        made.custom_kernel(x, fxn=nothing)
    with pytest.raises(ShapeError, match="custom_kernel: double reads no tensor"):
        made.custom_kernel(fxn=double)
    with pytest.raises(ShapeError, match="custom_kernel: double has an operand without elements"):
        made.custom_kernel(Tensor.zeros(0), fxn=double)
    with pytest.raises(DeviceError, match="custom_kernel: operands are on two devices"):
        made.custom_kernel(x, Tensor([1.0], device="CPU:1"), fxn=double)
    with pytest.raises(InternalError, match="is not below 2"):
        made.custom_kernel(x, fxn=outside)[0].realize()
    assert np.isfinite(x.numpy()).all()
    assert Ops.CUSTOM in {node.op for node in made.custom_kernel(x, fxn=double)[0].uop.toposort()}
