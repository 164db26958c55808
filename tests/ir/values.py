"""Helpers of these tests: what a small graph of arithmetic computes, for one assignment or many,
and that a graph is accepted.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilegrad.base.config import config
from tilegrad.base.dtype import DType, as_const, truncate
from tilegrad.ir import Ops, Stage, UOp
from tilegrad.ir.shape_tracker import ShapeTracker
from tilegrad.ir.spec import verify


def accept(graph: UOp | Sequence[UOp], stage: Stage, after: str) -> None:
    """`verify`, which raises for a wrong graph and looks at none where it is switched off."""
    assert config.VERIFY
    verify(graph, stage, after)


def evaluate(root: UOp, values: Mapping[UOp, Any]) -> Any:
    """The number that `root` comes to; leaves stand in `values`, every step is rounded to its
    dtype.
    """
    known: dict[UOp, Any] = dict(values)
    for node in root.toposort():
        if node in known:
            continue
        if node.op is Ops.CONST:
            known[node] = node.arg
        elif node.op is Ops.CAST:
            known[node] = as_const(known[node.src[0]], node.dtype.scalar)
        else:
            assert node.op.evaluate is not None, node.op
            number = node.op.evaluate(*[known[source] for source in node.src])
            known[node] = truncate(number, node.dtype.scalar)
    return known[root]


def same_bits(a: Any, b: Any, dtype: DType) -> bool:
    """Equality that tells -0.0 from 0.0 and finds a NaN equal to a NaN."""
    if not dtype.is_float:
        return bool(a == b)
    if a != a or b != b:
        return bool(a != a and b != b)
    return struct.pack("<d", a) == struct.pack("<d", b)


_GRID: dict[Ops, Any] = {
    Ops.ADD: np.add,
    Ops.MUL: np.multiply,
    Ops.FLOORDIV: np.floor_divide,
    Ops.FLOORMOD: np.mod,
    Ops.MAX: np.maximum,
    Ops.CMPLT: np.less,
    Ops.CMPNE: np.not_equal,
    Ops.CMPEQ: np.equal,
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor,
    Ops.WHERE: np.where,
}


def evaluate_grid(root: UOp, values: Mapping[UOp, Any]) -> Any:
    """As `evaluate`, for arrays of values of index and bool nodes."""
    known: dict[UOp, Any] = dict(values)
    for node in root.toposort():
        if node not in known:
            known[node] = (
                np.array(node.arg)
                if node.op is Ops.CONST
                else _GRID[node.op](*[known[source] for source in node.src])
            )
    return known[root]


def positions(moved: ShapeTracker) -> np.ndarray[Any, Any]:
    """The memory position of each element, -1 where there is none, by the lowered index."""
    shape: Any = moved.shape
    loops = [UOp.range(size, axis) for axis, size in enumerate(shape)]
    index, valid = moved.to_indexed_uops(loops)
    grid = dict(zip(loops, np.indices(shape, sparse=True)))
    found = np.where(evaluate_grid(valid, grid), evaluate_grid(index, grid), -1)
    return np.broadcast_to(found, shape)
