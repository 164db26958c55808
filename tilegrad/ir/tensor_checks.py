"""Checks of the tensor graph: shapes, movement, axes, memory that is assigned to, loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.ir.args import BufferArg, CustomArg, KernelArg, LoopArg, RandArg, Ties
from tilegrad.ir.checks import (
    CHECKS,
    INTEGERS,
    Check,
    as_first_source,
    dtype_text,
    is_reduction,
    mismatch,
    same_dtype,
    types_of,
    void,
)
from tilegrad.ir.op import Ops
from tilegrad.ir.placement import GroupBufferArg, Placement
from tilegrad.ir.queries import base_of, below_reshapes
from tilegrad.ir.uop import UOp, prod

__all__ = ["TENSOR_CHECKS"]


def _custom(node: UOp) -> str | None:
    if not isinstance(node.arg, (CustomArg, KernelArg)):
        return f"{node.arg!r} is no function and no kernel"
    if not node.src:
        return "no input says on which device it is"
    return None


def _loop(node: UOp) -> str | None:
    arg = node.arg
    if not isinstance(arg, LoopArg) or (isinstance(arg.length, int) and arg.length < 1):
        return f"its argument is {arg!r}"
    if len(node.src) < max(arg.carries + arg.stacks, 1):
        return f"{len(node.src)} sources for {arg.carries} carries and {arg.stacks} stacks"
    for source, value in zip(node.src[: arg.carries], arg.body.src):
        if source.dtype is not value.dtype or _shapes_differ(source.shape, value.shape):
            return f"a carry {source.shape} of {types_of((source, value))} becomes {value.shape}"
    for stack in node.src[arg.carries : arg.carries + arg.stacks]:
        if not stack.shape or _differ(stack.shape[0], arg.length):
            return f"a stack {stack.shape} for {arg.length} steps"
    return None


def _output(node: UOp) -> str | None:
    (loop,) = node.src
    if loop.op is not Ops.LOOP or not 0 <= node.arg < loop.arg.outputs:
        return f"it has no output {node.arg!r}"
    same = node.dtype is loop.arg.value(node.arg).dtype
    return None if same else f"{dtype_text(node.dtype)} of {types_of((loop.arg.value(node.arg),))}"


# the tensor graph


def _differ(left: Any, right: Any) -> bool:
    """Whether two sizes are different integers; symbolic sizes are compared elsewhere."""
    return left != right and isinstance(left, int) and isinstance(right, int)


def _shapes_differ(left: Sequence[Any], right: Sequence[Any]) -> bool:
    if left == right:
        return False
    return len(left) != len(right) or any(_differ(a, b) for a, b in zip(left, right))


def _elementwise(check: Check) -> Check:
    """As `check`, and the sources have one shape; constants fit any shape."""

    def with_shapes(node: UOp) -> str | None:
        shape: Any = None
        for source in node.src:
            other = source.shape
            if other == ():
                continue
            if shape is None:
                shape = other
            elif other != shape and _shapes_differ(other, shape):
                return f"of shapes {shape} and {other}"
        return check(node)

    return with_shapes


def _movement(problem: Callable[[UOp, Sequence[Any]], str | None]) -> Check:
    """The dtype is that of the source, and `problem` finds that the argument fits the source's
    shape.
    """

    def check(node: UOp) -> str | None:
        if node.src[0].dtype is not node.dtype:
            return mismatch(node)
        if not isinstance(node.arg, tuple):
            return f"its argument is {node.arg!r}"
        return problem(node, node.src[0].shape)

    return check


def _reshape(node: UOp, shape: Sequence[Any]) -> str | None:
    old, new = prod(shape), prod(node.arg)
    return f"{shape} has {old} elements, {node.arg} has {new}" if _differ(old, new) else None


def _permute(node: UOp, shape: Sequence[Any]) -> str | None:
    is_order = sorted(node.arg) == list(range(len(shape)))
    return None if is_order else f"{node.arg} does not name each axis of {shape} once"


def _expand(node: UOp, shape: Sequence[Any]) -> str | None:
    fits = len(node.arg) == len(shape) and not any(
        _differ(old, new) and old != 1 for old, new in zip(shape, node.arg)
    )
    return None if fits else f"{shape} to {node.arg}"


def _pad(node: UOp, shape: Sequence[Any]) -> str | None:
    counts = [count for pair in node.arg for count in pair if isinstance(count, int)]
    fits = len(node.arg) == len(shape) and all(count >= 0 for count in counts)
    return None if fits else f"{shape} by {node.arg}"


def _shrink(node: UOp, shape: Sequence[Any]) -> str | None:
    wrong = len(node.arg) != len(shape)
    for size, (start, end) in zip(shape, node.arg):
        numbers = [number for number in (0, start, end, size) if isinstance(number, int)]
        wrong = wrong or numbers != sorted(numbers)
    return f"{shape} to {node.arg}" if wrong else None


def _flip(node: UOp, shape: Sequence[Any]) -> str | None:
    return None if len(node.arg) == len(shape) else f"{shape} by {node.arg}"


def _of_axes(node: UOp) -> str | None:
    """The check of a REDUCE_AXIS, whose argument has several axes, or a PREFIX_AXIS."""
    if node.src[0].dtype is not node.dtype:
        return mismatch(node)
    shape, arg = node.src[0].shape, node.arg
    if (
        node.op is Ops.REDUCE_AXIS
        and len(arg) == 3
        and arg[0] is Ops.MAX
        and arg[2].__class__ is Ties
    ):
        arg = arg[:2]
    fits = is_reduction(arg) and all(
        0 <= axis < len(shape) for axis in (arg[1] if node.op is Ops.REDUCE_AXIS else arg[1:])
    )
    return None if fits else f"{arg!r} of {shape}"


def _gather(node: UOp) -> str | None:
    table, rows = node.src[:2]
    if rows.dtype.kind not in INTEGERS or table.dtype is not node.dtype or not table.shape:
        return mismatch(node)
    return None


def _scatter_add(node: UOp) -> str | None:
    table, rows, values = node.src
    if values.dtype is not node.dtype:
        return mismatch(node)
    if _shapes_differ(values.shape, (*rows.shape, *table.shape[1:])):
        return f"rows {rows.shape} of {table.shape} from {values.shape}"
    return _gather(node)


def _buffer(node: UOp) -> str | None:
    is_buffer = isinstance(node.arg, (BufferArg, GroupBufferArg)) and (
        isinstance(node.arg.size, UOp) or node.arg.size >= 0
    )
    return None if is_buffer else f"its argument is {node.arg!r}"


def _shard(node: UOp) -> str | None:
    if not isinstance(node.arg, Placement):
        return f"its argument is {node.arg!r}"
    return same_dtype(node)


def _rand(node: UOp) -> str | None:
    is_draw = isinstance(node.arg, RandArg) and node.dtype is dtypes.uint32
    return None if is_draw else f"{dtype_text(node.dtype)} by {node.arg!r}"


def _bind(node: UOp) -> str | None:
    return "a bound value stands beside a graph, never in it"


def _tensor_assign(node: UOp) -> str | None:
    target, value = node.src[0].shape, node.src[1].shape
    if value != () and _shapes_differ(target, value):
        return f"of shapes {target} and {value}"
    return same_dtype(node)


def _tensor_after(node: UOp) -> str | None:
    if len(node.src) != 2 or node.src[1].op is not Ops.ASSIGN:
        return "what has happened is no assignment"
    # The target of an assignment is in memory once it was computed, perhaps with another shape.
    memory, target = below_reshapes(node.src[0]), base_of(node.src[1].src[0])
    return as_first_source(node) if target is memory else "the assignment is to other memory"


TENSOR_CHECKS: dict[Ops, Check] = {
    **{op: _elementwise(check) for op, check in CHECKS.items() if op.is_alu},
    Ops.BUFFER: _buffer,
    Ops.RAND: _rand,
    Ops.BIND: _bind,
    Ops.RESHAPE: _movement(_reshape),
    Ops.PERMUTE: _movement(_permute),
    Ops.EXPAND: _movement(_expand),
    Ops.PAD: _movement(_pad),
    Ops.SHRINK: _movement(_shrink),
    Ops.FLIP: _movement(_flip),
    **dict.fromkeys((Ops.REDUCE_AXIS, Ops.PREFIX_AXIS), _of_axes),
    Ops.GATHER: _gather,
    Ops.SCATTER_ADD: _scatter_add,
    **dict.fromkeys((Ops.CONTIGUOUS, Ops.DETACH, Ops.COPY), same_dtype),
    Ops.SHARD: _shard,
    Ops.ASSIGN: _tensor_assign,
    Ops.AFTER: _tensor_after,
    Ops.CUSTOM: _custom,
    Ops.LOOP: _loop,
    Ops.LOOP_OUTPUT: _output,
    Ops.SINK: void,
}
