"""What a tensor graph computes, by NumPy, and derivatives by central differences.

Written apart from the interpreter and the compiler, so that a gradient test rests on neither.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tilegrad.base.dtype import DType, dtypes
from tilegrad.engine.run.leaf_memory import buffer_of
from tilegrad.grad import gradients
from tilegrad.ir.args import BufferArg
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, prod, toposort

Array = npt.NDArray[Any]

_UNARY: dict[Ops, Callable[..., Any]] = {
    Ops.NEG: np.negative,
    Ops.EXP: np.exp,
    Ops.EXP2: np.exp2,
    Ops.LOG2: np.log2,
    Ops.SIN: np.sin,
    Ops.COS: np.cos,
    Ops.TANH: np.tanh,
    Ops.SIGMOID: lambda x: 1.0 / (1.0 + np.exp(-x)),
    Ops.SQRT: np.sqrt,
    Ops.RECIP: lambda x: 1.0 / x,
    Ops.TRUNC: np.trunc,
    Ops.ADD: np.add,
    Ops.SUB: np.subtract,
    Ops.MUL: np.multiply,
    Ops.FDIV: np.divide,
    Ops.FLOORDIV: np.floor_divide,
    Ops.FLOORMOD: np.mod,
    Ops.FMOD: np.fmod,
    Ops.MAX: np.maximum,
    Ops.CMPLT: np.less,
    Ops.CMPNE: np.not_equal,
    Ops.CMPEQ: np.equal,
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor,
    Ops.SHL: np.left_shift,
    Ops.SHR: np.right_shift,
    Ops.WHERE: np.where,
    Ops.MULACC: lambda x, y, z: x * y + z,
}
_REDUCE: dict[Ops, Any] = {Ops.ADD: np.sum, Ops.MUL: np.prod, Ops.MAX: np.max}
_slots = iter(range(1_000_000, 2_000_000))


def leaf(*shape: int, dtype: DType = dtypes.float64, device: str = "CPU") -> UOp:
    """A new buffer, in `shape`."""
    buffer = UOp(Ops.BUFFER, dtype, (), BufferArg(next(_slots), device, prod(shape)))
    return UOp(Ops.RESHAPE, dtype, (buffer,), shape)


def _compute(node: UOp, src: list[Array]) -> Array:
    op, arg = node.op, node.arg
    kind = np.dtype(node.dtype.name)
    if op is Ops.CONST:
        return np.array(arg, kind)
    if op in _UNARY:
        return np.asarray(_UNARY[op](*src)).astype(kind)
    if op is Ops.CAST:
        return src[0].astype(kind)
    if op is Ops.BITCAST:
        return src[0].view(kind)
    if op is Ops.RESHAPE:
        return src[0].reshape(arg)
    if op is Ops.EXPAND:
        return np.broadcast_to(src[0], arg)
    if op is Ops.PERMUTE:
        return src[0].transpose(arg)
    if op is Ops.PAD:
        return np.pad(src[0], arg)
    if op is Ops.SHRINK:
        return src[0][tuple(slice(*part) for part in arg)]
    if op is Ops.FLIP:
        return np.flip(src[0], [axis for axis, is_flipped in enumerate(arg) if is_flipped])
    if op is Ops.REDUCE_AXIS:
        return np.asarray(_REDUCE[arg[0]](src[0], axis=arg[1], keepdims=True)).astype(kind)
    if op is Ops.PREFIX_AXIS:
        running = {Ops.ADD: np.add, Ops.MUL: np.multiply, Ops.MAX: np.maximum}[arg[0]]
        return np.asarray(running.accumulate(src[0], axis=arg[1])).astype(kind)
    if op is Ops.GATHER:
        table, index = src
        inside = (index >= 0) & (index < len(table))
        rows = table[np.where(inside, index, 0)]
        return np.where(inside.reshape(index.shape + (1,) * (table.ndim - 1)), rows, 0).astype(kind)
    if op is Ops.SCATTER_ADD:
        table, index = src[0].copy(), src[1]
        inside = (index >= 0) & (index < len(table))
        np.add.at(table, index[inside], src[2][inside])
        return table
    if op is Ops.ASSIGN:
        return src[1]
    if op is Ops.BUFFER:
        return np.frombuffer(buffer_of(node).copy_out(), kind)
    assert op in (Ops.CONTIGUOUS, Ops.DETACH, Ops.COPY), op
    return src[0]


def evaluate(root: UOp, values: Mapping[UOp, Array]) -> Array:
    """The value of `root`, given those of its leaves; lists are leaves that know their own."""
    done = {node: np.asarray(value, node.dtype.name) for node, value in values.items()}
    for node in toposort([root], stop=lambda node: node in done):
        if node not in done:
            with np.errstate(all="ignore"):
                done[node] = _compute(node, [done[source] for source in node.src])
    return done[root]


def ones(node: UOp) -> UOp:
    return UOp.const(node.dtype, 1.0)


def total(x: UOp) -> UOp:
    """The sum of all elements, of shape ()."""
    axes = tuple(range(len(x.shape)))
    summed = UOp(Ops.REDUCE_AXIS, x.dtype, (x,), (Ops.ADD, axes))
    return UOp(Ops.RESHAPE, x.dtype, (summed,), ())


def weighted(x: UOp, values: dict[UOp, Array]) -> UOp:
    """A loss that gives each element of `x` a gradient of its own; the weights join `values`."""
    weights = leaf(*x.shape, dtype=x.dtype)
    values[weights] = np.sin(3.0 * np.arange(math.prod(x.shape)) + 1.0).reshape(x.shape)
    return total(x * weights)


def difference(loss: UOp, target: UOp, values: Mapping[UOp, Array], step: float = 1e-5) -> Array:
    """The gradient of `loss` with respect to `target` by central differences."""
    at = np.asarray(values[target], np.float64)
    slopes = np.zeros_like(at)
    for index in np.ndindex(at.shape):
        sides = []
        for sign in (1, -1):
            moved = at.copy()
            moved[index] += sign * step
            sides.append(float(evaluate(loss, {**values, target: moved})))
        slopes[index] = (sides[0] - sides[1]) / (2 * step)
    return slopes


def check(
    result: UOp,
    values: Mapping[UOp, Array],
    *,
    order: int = 1,
    rtol: float = 1e-6,
) -> None:
    """The derivatives of `result` up to `order` by the floats of `values`: central differences."""
    targets = [node for node in values if node.dtype.is_float]
    values = dict(values)
    loss = weighted(result, values)
    for _ in range(order):
        following = UOp.const(loss.dtype, 0.0)
        for target, made in zip(targets, gradients(loss, ones(loss), targets), strict=True):
            wanted = difference(loss, target, values)
            if made is None:
                assert not wanted.any()
                continue
            assert made.shape == target.shape
            assert made.dtype is target.dtype
            np.testing.assert_allclose(evaluate(made, values), wanted, rtol=rtol, atol=1e-7)
            following = following + weighted(made, values)
        loss = following
