"""The elements of a constant graph (`torch.arange(n)`, a triangle of ones, a mask of these) as an
array, computed by NumPy: without a kernel, where a loop makes another one at each step.

Integers, truth values and whatever is only moved are the same bits as a run would leave. Floats are
neither added nor multiplied here, as a kernel may round otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from tilegrad.base.dtype import DType
from tilegrad.base.recent import Recent
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.ir.walks import toposort
from tilegrad.tensor.storage import host_memory

__all__ = ["constant_elements", "is_filled"]

# Nodes of a graph, and elements of a value on its way: what is larger is better told by a graph.
_MOST_NODES, _MOST_ELEMENTS = 256, 1 << 20
# Arrays that are known, and elements of one.
_MOST_ARRAYS, _MOST_KNOWN_ELEMENTS = 8, 1 << 16
_EXACT = frozenset({
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32",
    "float64",
})  # fmt: skip
_BITWISE = frozenset({Ops.AND, Ops.OR, Ops.XOR})


# The constants that came last: each layer of a network makes the mask of its step anew.
_lately: Recent[UOp, Any] = Recent(lambda: _MOST_ARRAYS)


def constant_elements(root: UOp) -> Any | None:
    """The elements of a constant graph in its shape and dtype, as an array that is not to be
    written to; None where that takes more than exact operations, or many of them.
    """
    known = _lately.get(root)
    if known is not None:
        return known
    found = _computed(root)
    if found is not None and found.size <= _MOST_KNOWN_ELEMENTS:
        _lately.put(root, found)
    return found


def is_filled(node: UOp) -> bool:
    """Whether all elements of a constant are one number."""
    while node.src and node.op.is_movement and node.op is not Ops.PAD:
        node = node.src[0]
    return not node.src


def _computed(root: UOp) -> Any | None:
    import numpy

    nodes = toposort([root])
    if len(nodes) > _MOST_NODES:
        return None
    values: dict[UOp, Any] = {}
    # Integers wrap around, as they do in kernels.
    with numpy.errstate(all="ignore"):
        for node in nodes:
            if node.dtype.name not in _EXACT or prod(node.shape) > _MOST_ELEMENTS:
                return None
            found = _value(node, [values[each] for each in node.src])
            if found is None:
                return None
            values[node] = found
    array = values[root]
    return numpy.broadcast_to(array, root.shape) if array.shape != root.shape else array


def _value(node: UOp, sources: list[Any]) -> Any | None:
    """The value of one node; None for an op that is not exact, or none of these."""
    import numpy

    op, dtype = node.op, node.dtype
    if op is Ops.CONST:
        return numpy.asarray(node.arg, dtype.name)
    if op.is_movement or op is Ops.DETACH:
        return host_memory.moved(sources[0], op, node.arg)
    if op is Ops.CONTIGUOUS:
        return sources[0]
    if op is Ops.WHERE:
        return numpy.where(*sources).astype(dtype.name, copy=False)
    if op is Ops.CAST:
        is_exact = not node.src[0].dtype.is_float or dtype is node.src[0].dtype
        return sources[0].astype(dtype.name) if is_exact else None
    compute = _COMPARISONS.get(op)
    if compute is not None:
        return compute(*sources)
    if dtype.is_float:
        return None
    return _integers(node, dtype, sources)


def _integers(node: UOp, dtype: DType, sources: list[Any]) -> Any | None:
    """The value of an operation on integers or truth values."""
    import numpy

    op, is_bool = node.op, dtype.kind == "bool"
    if op is Ops.REDUCE_AXIS:
        kind, axes = node.arg[:2]
        if kind is Ops.MAX and 0 not in sources[0].shape:
            return sources[0].max(axis=tuple(axes)).reshape(node.shape)
        if kind is not Ops.ADD or is_bool:
            return None
        return sources[0].sum(axis=tuple(axes), dtype=dtype.name).reshape(node.shape)
    if op is Ops.PREFIX_AXIS:
        kind, axis = node.arg
        if kind is Ops.MAX:
            return numpy.maximum.accumulate(sources[0], axis=axis)
        if kind is not Ops.ADD or is_bool:
            return None
        return sources[0].cumsum(axis=axis, dtype=dtype.name)
    compute = _INTEGERS.get(op)
    if compute is None or (is_bool and op not in _BITWISE):
        return None
    return compute(*sources)


def _table(*names: tuple[Ops, str]) -> dict[Ops, Callable[..., Any]]:
    """Operations by the names that NumPy has for them, which is imported by the first call."""

    def function(name: str) -> Callable[..., Any]:
        def call(*sources: Any) -> Any:
            import numpy

            return getattr(numpy, name)(*sources)

        return call

    return {op: function(name) for op, name in names}


_COMPARISONS = _table((Ops.CMPLT, "less"), (Ops.CMPNE, "not_equal"), (Ops.CMPEQ, "equal"))
_INTEGERS = _table(
    (Ops.ADD, "add"), (Ops.SUB, "subtract"), (Ops.MUL, "multiply"), (Ops.MAX, "maximum"),
    (Ops.FLOORDIV, "floor_divide"), (Ops.FLOORMOD, "mod"),
    (Ops.AND, "bitwise_and"), (Ops.OR, "bitwise_or"), (Ops.XOR, "bitwise_xor"),
)  # fmt: skip
