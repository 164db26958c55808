"""Who holds a node: looked up in a block that no other thread enters."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from tilegrad.base.dtype import dtypes
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.living import hold_also


class _Tensor:
    """A tensor that went on to another value, which waits or is a node."""

    def __init__(self, call: Any, node: UOp | None):
        self._call, self._node = call, node

    @property
    def uop(self) -> UOp:
        pytest.fail("a node was asked for, which would be noted in the same block")


def test_tensors_that_wait_are_asked_for_no_node() -> None:
    """A constant that many tensors had keeps references to those that have other values now."""
    constant = UOp.const(dtypes.float32, 2.75)
    other = UOp.const(dtypes.float32, 3.75)
    here = [_Tensor(None, constant) for _ in range(7)]
    waiting = [_Tensor(SimpleNamespace(node=None), None) for _ in range(7)]
    gone = [_Tensor(None, other), _Tensor(SimpleNamespace(node=other), None)]
    everyone = [*here, *waiting, *gone]
    for each in everyone:
        hold_also(constant, weakref.ref(each))
    assert [each() for each in constant.holders] == here
