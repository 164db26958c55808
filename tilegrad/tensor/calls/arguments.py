"""The signature of a call: all that its graph depends on, as one flat list that can be a key.

It holds the method, and of each operand class, dtype, shape, device and whether a gradient is
recorded. Arguments that are plain values are in it by value. A tensor made of constants alone has
no data that could be another in the next call, so its node is in it.

before   x.sum(axis, keepdim=True)
after    [37, Tensor, float32, (4, 8), None, "CPU", (float32, int32, None), None,
          int, 1, "keepdim", bool, True]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Any

from tilegrad.base.config import gradients
from tilegrad.base.dtype import DType, dtypes
from tilegrad.tensor.calls.recorded import TELLING
from tilegrad.tensor.handle.core import Core
from tilegrad.tensor.handle.tracing import transforms
from tilegrad.tensor.handle.waiting import Call, Pool

__all__ = ["DEFAULTS", "HEAD", "PLAIN", "add_arguments", "records_gradients", "signature_of"]

# Entries of a signature that describe the method and its tensor, before those of the arguments.
HEAD = 8
# The index of the default dtypes and modes among them.
DEFAULTS = 6
# Classes of arguments that are in a signature by value.
PLAIN = frozenset({int, str, bool, type(None), type(Ellipsis), DType})
_DOUBLE = Struct("<d")
records_gradients = gradients.get


def signature_of(
    number: int,
    first: Any,
    call: Call | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    pool: Pool,
) -> tuple[list[Any], list[Any], list[Any]] | None:
    """The signature of method `number` of the tensor `first`, which `call` made, if one did; the
    operands, each once; and of those that are no constants the call of `pool` or the node that
    gives the value. None if the method has to look at an argument itself.
    """
    constant = None
    if call is None or call.pool is not pool:
        node = first._node if call is None else first.uop
        dtype, shape = node.dtype, node._shape or node.shape
        if node._is_constant is not False and node.is_constant:
            constant = node
        elif node.op in TELLING or first._symbols:
            return None
        inputs: list[Any] = [] if constant is not None else [node]
    else:
        dtype, shape = call.dtype, call.shape
        inputs = [call]
    wants_grad = first._requires_grad and (records_gradients() or "none recorded")
    defaults = dtypes.default_float, dtypes.default_int, transforms.mode
    kind, device = type(first), first._device
    key = [number, kind, dtype, shape, wants_grad, device, defaults, constant]
    operands = [first]
    if args and not add_arguments(args, key, operands, inputs, pool):
        return None
    if kwargs:
        key += kwargs
        if not add_arguments(kwargs.values(), key, operands, inputs, pool):
            return None
    # A holder of the signature of constants alone would keep these, and the user's lines, alive.
    return (key, operands, inputs) if inputs else None


def add_arguments(
    values: Iterable[Any], key: list[Any], operands: list[Any], inputs: list[Any], pool: Pool
) -> bool:
    """Add the signature of arguments to `key`, and the tensors among them to `operands` and
    `inputs`; False if the method has to look at one itself.
    """
    for value in values:
        # An attribute of a tensor is slower to read than its type.
        kind = type(value)
        if kind in PLAIN:
            key += kind, value
        elif kind is float:
            # 0.0 and -0.0 are two arguments, NaN is one.
            key.append(_DOUBLE.pack(value))
        elif isinstance(value, Core):
            number = 0
            while number < len(operands) and operands[number] is not value:
                number += 1
            is_new = number == len(operands)
            if is_new:
                operands.append(value)
            wants_grad = value._requires_grad and (records_gradients() or "none recorded")
            call = value._call
            if call is not None and call.pool is pool:
                key += kind, number, call.dtype, call.shape, wants_grad, value._device
                if is_new:
                    inputs.append(call)
                continue
            node = value._node if call is None else value.uop
            key += kind, number, node.dtype, node._shape or node.shape, wants_grad, value._device
            if node._is_constant is not False and node.is_constant:
                key.append(node)
            elif node.op in TELLING or value._symbols:
                return False
            elif is_new:
                inputs.append(node)
        elif kind is tuple or kind is list or _is_sizes(value):
            key += kind, len(value)
            if not add_arguments(value, key, operands, inputs, pool):
                return False
        elif kind is slice:
            start, stop, step = value.start, value.stop, value.step
            for end in (start, stop, step):
                if end is not None and end.__class__ is not int:
                    return False
            key += slice, start, stop, step
        else:
            return False
    return True


def _is_sizes(value: Any) -> bool:
    """Whether an argument is a tuple of a class of its own, such as the sizes of `tilegrad.torch`,
    that is no more than its elements.
    """
    return isinstance(value, tuple) and not hasattr(value, "_fields")
