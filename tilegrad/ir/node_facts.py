"""Facts that a node caches: its shape, the open ranges around it, its digest, whether it is
constant, and the value of a bound variable.

Each function finds these for its sources in place, as `UOp._lazy` leaves them.
"""

from __future__ import annotations

import hashlib
from typing import Any, NoReturn, Self

from tilegrad.base.errors import DTypeError, InternalError, NotBoundError
from tilegrad.ir.op import Axis, Ops

__all__ = ["BoundVariables", "Shape", "constant_of", "digest_of", "ranges_of", "shape_of"]

_NO_RANGES: frozenset[Any] = frozenset()
_MET = (Axis.LOCAL, Axis.GROUP, Axis.UPCAST)


def ranges_of(node: Any) -> frozenset[Any]:
    """The ranges around `node`: those it needs and that no END has closed."""
    op = node.op
    if op is Ops.SINK:
        return _NO_RANGES
    if op is Ops.RANGE:
        return node.src[0].ranges | {node} if node.src else frozenset({node})
    found: frozenset[Any] = _NO_RANGES
    for source in node.src:
        inner = source._ranges
        assert inner is not None
        if inner is not found and not inner <= found:
            found = found | inner if found else inner
    if op is Ops.END or op is Ops.REDUCE:
        found = found.difference(source for source in node.src if source.op is Ops.RANGE)
    if op is Ops.BARRIER:
        # After a barrier all lanes have arrived, and all unrolled copies.
        found = frozenset(inner for inner in found if inner.axis not in _MET)
    return found


def digest_of(node: Any) -> bytes:
    """A digest of the graph below `node`, the same in every process."""
    state = hashlib.blake2b(f"{node.op.name} {node.dtype!r} {node.arg!r}".encode(), digest_size=16)
    for source in node.src:
        state.update(source._digest)
    return state.digest()


def constant_of(node: Any) -> bool:
    """Whether `node` is made of constants alone."""
    for source in node.src:
        if not source._is_constant:
            return False
    return node.op not in (
        Ops.BUFFER, Ops.RAND, Ops.CUSTOM, Ops.LOOP, Ops.SCATTER_ADD, Ops.SHARD
    )  # fmt: skip


class BoundVariables:
    """The parts of a node that is a variable with a value.

    Its value is the one that `bind` gave, and no other.
    """

    __slots__ = ()
    op: Ops
    src: tuple[Self, ...]
    arg: Any

    def unbind(self) -> tuple[Self, int]:
        """The variable and the value that `bind` joined.

        Raises ShapeError if the node is not bound.
        """
        if self.op is not Ops.BIND:
            raise NotBoundError(f"unbind: a {self.op} node has no bound value")
        return self.src[0], self.src[1].arg

    @property
    def val(self) -> int:
        """The value of a variable that `bind` gave it.

        Raises ShapeError if the node is not bound.
        """
        return self.unbind()[1]

    @property
    def expr(self) -> str:
        """The name of a variable.

        Raises ShapeError if the node is none.
        """
        if self.op is not Ops.DEFINE_VAR:
            raise NotBoundError(f"expr: a {self.op} node is no variable")
        return str(self.arg[0])

    def __int__(self) -> int:
        self._no_number("int")

    def __float__(self) -> float:
        self._no_number("float")

    def _no_number(self, name: str) -> NoReturn:
        raise DTypeError(
            f"{name}: a symbolic integer has a value only where a kernel runs",
            remedy="use it as it is, as a size or an operand; v.unbind()[1] is what v was bound to",
        )


Shape = tuple[Any, ...]


def shape_of(node: Any) -> Shape:
    """The shape of `node`, whose sources have theirs.

    A shape is a tuple of sizes: integers, or index nodes where a `Variable` takes part. Nodes of
    kernels and programs have no shape; asking for one is an error of ours.
    """
    op, arg, src = node.op, node.arg, node.src
    if op.is_alu:
        return _widest(src)
    if op is Ops.RESHAPE or op is Ops.EXPAND:
        return tuple(arg)
    if op is Ops.REDUCE_AXIS:
        axes = arg[1]
        return tuple([1 if axis in axes else size for axis, size in enumerate(src[0].shape)])
    if op is Ops.PERMUTE:
        shape = src[0].shape
        return tuple([shape[axis] for axis in arg])
    if op in _AS_SOURCE:
        return _widest(src)
    if op is Ops.PAD:
        padded = zip(src[0].shape, arg, strict=True)
        return tuple(_plus(_plus(size, before), after) for size, (before, after) in padded)
    if op is Ops.SHRINK:
        return tuple(_between(start, end) for start, end in arg)
    if op is Ops.PREFIX_AXIS:
        return tuple(src[0].shape)
    if op is Ops.BUFFER:
        return (arg.size,)
    if op is Ops.RAND:
        return tuple(arg.shape)
    if op is Ops.GATHER:
        return (*src[1].shape, *src[0].shape[1:])
    if op in (Ops.CONST, Ops.DEFINE_VAR, Ops.BIND):
        return ()
    if op is Ops.CUSTOM:
        return tuple(node.arg.shape)
    if op is Ops.LOOP:
        return ()
    if op is Ops.LOOP_OUTPUT:
        return tuple(src[0].arg.shape(arg))
    raise InternalError(f"infer: a {op} node has no shape", node=repr(node)[:200])


_AS_SOURCE = frozenset({
    Ops.CAST, Ops.BITCAST, Ops.CONTIGUOUS, Ops.DETACH, Ops.COPY, Ops.SHARD, Ops.ASSIGN, Ops.AFTER,
    Ops.FLIP, Ops.SCATTER_ADD,
})  # fmt: skip


def _between(start: Any, end: Any) -> Any:
    """The distance from `start` to `end`: a number for a slice of fixed size at a variable
    offset.
    """
    if not isinstance(end, int) and end.op is Ops.ADD and end.src[0] is start:
        size = end.src[1]
        return int(size.arg) if size.op is Ops.CONST else size
    return _plus(end, -1 * start)


def _plus(size: Any, amount: Any) -> Any:
    """The sum; adding 0 keeps the identical node `n`."""
    return size if isinstance(amount, int) and amount == 0 else size + amount


def _widest(src: tuple[Any, ...]) -> Shape:
    """The common shape of an elementwise op's sources; constants of shape () fit any shape."""
    for source in src:
        shape: Shape = source.shape
        if shape:
            return shape
    return ()
