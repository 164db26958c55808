"""Short signatures: what tells the calls of one method apart, quick to compute.

A signature (`arguments.py`) says all that a graph depends on. For a call that came before, it is
enough to know which one that was: the result of a call has a number for its dtype and shape, and
the state that all calls share at one time (the default dtypes, modes, whether gradients are
recorded) is compared with the last one (`recent_calls.py`).

before   x.sum(axis, keepdim=True)
after    (51, Tensor, None, "CPU", int, 1, bool, True, "keepdim")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.arguments import PLAIN
from tilegrad.tensor.calls.recorded import TELLING
from tilegrad.tensor.handle.core import Core
from tilegrad.tensor.handle.kinds import kind_of, known_kind
from tilegrad.tensor.handle.waiting import Pool

__all__ = ["short_signature", "without_numbers", "without_sizes"]


def short_signature(
    first: Any, args: Sequence[Any], kwargs: Mapping[str, Any], pool: Pool
) -> tuple[tuple[Any, ...] | None, tuple[Any, ...]]:
    """A signature that is quick to compute, and for each operand, once, the call of `pool` or the
    node that gives the value. None if an argument is neither a plain value, a slice, a tuple of
    these, nor a tensor on the device of `first`; or if a tensor is more than its dtype and shape,
    as a constant is.

    First come the operands: the `kind` of a call or a node, a number for its dtype and shape. The
        rest begins with a class, so that no two calls have one signature.
    """
    try:
        call = first._call
    except AttributeError:
        # No tensor, as `self` of `Tensor.cat([x, y])`.
        return None, ()
    own: Any
    if call is None:
        node: UOp = first._node
        own = node.kind or _kind_of_node(node)
        if own < 0 or first._symbols:
            return None, ()
        inputs: tuple[Any, ...] = (node,)
    elif call.pool is pool:
        own, inputs = call.kind, (call,)
    else:
        return None, ()
    kind, grad, device = type(first), first._requires_grad, first._device
    if not kwargs:
        if not args:
            return (own, kind, grad, device), inputs
        if len(args) == 1:
            value = args[0]
            value_kind = type(value)
            # 0.0 is equal to -0.0, and NaN to nothing.
            if value_kind in PLAIN or (value_kind is float and value and value == value):
                return (own, kind, grad, device, value_kind, value), inputs
            if value is first:
                return (own, kind, grad, device, kind, 0), inputs
            if value_kind is kind:
                other, more = value._call, value._requires_grad
                if value._device != device:
                    return None, ()
                if other is None:
                    node = value._node
                    found = node.kind or _kind_of_node(node)
                    if found < 0 or value._symbols:
                        return None, ()
                    return (own, found, kind, grad, device, kind, more), (*inputs, node)
                if other.pool is pool:
                    return (own, other.kind, kind, grad, device, kind, more), (*inputs, other)
                return None, ()
    return _of_several(first, [own], [*inputs], args, kwargs, pool)


def _kind_of_node(node: UOp) -> int:
    """The number of a node's dtype and shape, at least 1; less if it is more than these."""
    if node.op in TELLING or (node._is_constant is not False and node.is_constant):
        node.kind = -1
    else:
        key = node.dtype, node._shape or node.shape
        node.kind = known_kind(key) or kind_of(*key)
    return node.kind


def _of_several(
    first: Any,
    kinds: list[Any],
    inputs: list[Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    pool: Pool,
) -> tuple[tuple[Any, ...] | None, tuple[Any, ...]]:
    """As `short_signature`, of any arguments; what there is of `first` is in the lists."""
    device = first._device
    rest = [type(first), first._requires_grad, device]
    operands = [first]
    for value in (*args, *kwargs.values()) if kwargs else args:
        kind = type(value)
        if kind in PLAIN:
            rest += kind, value
        elif kind is float:
            # 0.0 is equal to -0.0, and NaN to nothing.
            if not value or value != value:
                return None, ()
            rest += kind, value
        elif kind is tuple or kind is slice:
            if not _add_plain(value, rest):
                return None, ()
        elif isinstance(value, Core):
            number = 0
            while number < len(operands) and operands[number] is not value:
                number += 1
            rest += kind, number
            if number < len(operands):
                continue
            operands.append(value)
            call = value._call
            if value._device != device:
                return None, ()
            if call is None:
                node: UOp = value._node
                found = node.kind or _kind_of_node(node)
                if found < 0 or value._symbols:
                    return None, ()
                kinds.append(found)
                inputs.append(node)
            elif call.pool is pool:
                kinds.append(call.kind)
                inputs.append(call)
            else:
                return None, ()
            rest.append(value._requires_grad)
        else:
            return None, ()
    return (*kinds, *rest, *kwargs), (*inputs,)


def _add_plain(value: Any, rest: list[Any]) -> bool:
    """Add a slice, or a tuple of slices and plain values, to a signature, if it is that."""
    if type(value) is slice:
        ends = value.start, value.stop, value.step
        rest += slice, *ends
        return all(end is None or type(end) is int for end in ends)
    rest += tuple, len(value)
    for each in value:
        kind = type(each)
        if kind in PLAIN:
            rest += kind, each
        elif kind is not slice or not _add_plain(each, rest):
            return False
    return True


def without_numbers(short: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[float]]:
    """A short signature without the numbers among its arguments, and these."""
    rest = [*short]
    numbers: list[float] = []
    for at, each in enumerate(short):
        if each is float or each is int:
            numbers.append(rest[at + 1])
            rest[at + 1] = None
    return (*rest,), numbers


def without_sizes(
    short: tuple[Any, ...], inputs: Sequence[Any]
) -> tuple[tuple[Any, ...], tuple[tuple[int, ...], ...]]:
    """A short signature without the sizes of its operands and the integers among its arguments,
    and these.
    """
    count = len(inputs)
    rest = [*short[count:]]
    integers: list[int] = []
    if int in rest:
        for at, each in enumerate(rest):
            if each is int:
                integers.append(rest[at + 1])
                rest[at + 1] = None
    shapes = tuple([each.shape for each in inputs])
    kinds = [(each.dtype, len(shape)) for each, shape in zip(inputs, shapes)]
    return (*kinds, *rest), (*shapes, (*integers,))
