"""Assignments to slices of small tensors that wait, as those to whole tensors do
(`tensor.storage.writes`): the tensor takes a copy of itself with the value in the slice.

    x[1:-1] = v    where(one, v padded, x)         `one` is true in the slice, and a constant
    x[i] = v       where(indices == i, v, x)        `i` is an input: one graph for all positions

So a loop that writes to slices is made of values alone, and its steps are equal segments. A result
that is in no memory yet, and has no other holder, is another result from then on. The host writes
to memory (`memory_writes`) where slices begin at many positions, as each would be a graph of its
own; where a tensor is large; and where it is read up to one length after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import InternalError
from tilegrad.base.origin import call_site, composing
from tilegrad.base.recent import Recent
from tilegrad.engine.realize.launch_numbers import bits_of, may_change
from tilegrad.ir.args import CustomArg
from tilegrad.ir.graph_templates import Template, record
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.postponed import postponed
from tilegrad.tensor.calls.recorded import Result, WaitingKind
from tilegrad.tensor.handle.core import Core
from tilegrad.tensor.handle.device import canonical
from tilegrad.tensor.handle.kinds import next_number
from tilegrad.tensor.handle.waiting import Call, Input, Number, this_thread
from tilegrad.tensor.storage import writes
from tilegrad.tensor.views.changing_picks import is_read_by_prefixes
from tilegrad.tensor.writing.at_once import become_memory
from tilegrad.tensor.writing.memory_writes import write_to_memory
from tilegrad.tensor.writing.recorded_writes import become_another, can_become_another

__all__ = ["take_slice"]

# Slices at one line that wait: each is a graph of its own.
_MOST_SLICES = 4
# Assignments over one another that may wait: each copies all of the tensor in their graph.
_MOST_WAITING = 8
# Those that gradients flow through, which are results and not computed one by one.
_MOST_RECORDED = 64
# Smaller numbers are floats of any kind.
_PLAIN = 1e30
# 0 and 1 shape code, so positions are counted from a number that does not.
_FIRST = 2
_INTEGERS = frozenset({int, type(None)})

# An axis of a slice: its ends, or None for one element whose position is an input.
_Axes = tuple[tuple[int, int] | None, ...]


class _Slice(NamedTuple):
    """The elements that numbers and slices pick: how along each axis, and where, where that is one
    element.
    """

    axes: _Axes
    positions: tuple[int, ...]

    @property
    def shape(self) -> list[int]:
        return [_length(axis) for axis in self.axes if axis is not None]


def _length(axis: tuple[int, int] | None) -> int:
    """How many elements a slice has along an axis."""
    return 1 if axis is None else axis[1] - axis[0]


_templates: Recent[tuple[Any, ...], tuple[int, Template]] = Recent(lambda: 1024)
_kinds: Recent[tuple[Any, ...], WaitingKind] = Recent(lambda: 1024)
# By line and shapes, the slices there, up to one more than those that wait.
_slices: Recent[tuple[Any, ...], set[Any]] = Recent(lambda: 1024)


class _Given(NamedTuple):
    """A value: an input of `shape`, or a `constant` that shapes code."""

    input: Input | None
    shape: tuple[int, ...]
    constant: Any = None
    wants_grad: bool = False


def take_slice(tensor: Any, key: Any, value: Any) -> bool:
    """Let `tensor` take `value` where `key` picks after the next run; False, and nothing has
    happened, if that is to be written in place, or is an error.
    """
    found = _slice_of(key, tensor.shape)
    if found is None:
        return False
    if can_become_another(tensor, value):
        given = _given(tensor, value, found.shape)
        return given is not None and _take_recorded(tensor, found, given)
    if _is_for_the_host(tensor, found) and write_to_memory(tensor, key, value, found.shape):
        return True
    become_memory(tensor)
    is_result = writes.is_result(tensor)
    if is_result and _is_deep(tensor._call, _MOST_WAITING):
        tensor.realize()
        is_result = False
    can_take = writes.can_take_slice if is_result else writes.can_wait_for_slice
    if not can_take(tensor, value):
        return False
    given = _given(tensor, value, found.shape)
    if given is None:
        return False
    if not _is_of_few(tensor, found.axes, given.shape):
        if tensor._call is not None and tensor._call.value is None:
            tensor.realize()
        return write_to_memory(tensor, key, value, found.shape)
    if writes.are_waiting(tensor, _MOST_WAITING):
        tensor.realize()
    own = tensor._call or tensor._node
    inputs: list[Input] = [own] if given.input is None else [own, given.input]
    inputs += [Number(at + _FIRST, dtypes.int32, at + _FIRST) for at in found.positions]
    if is_result:
        kind = _kind(tensor, found.axes, given)
        entry = composing.entry or call_site()
        made = postponed(this_thread.pool, kind, tensor, tuple(inputs), entry, None)
        return writes.take_over(tensor, made)
    number, template = _template(tensor, found.axes, given)
    writes.take(tensor, number, template, tuple(inputs))
    return True


def _take_recorded(tensor: Any, found: _Slice, given: _Given) -> bool:
    """Let `tensor` be the result of a write that a gradient flows through."""
    call = tensor._call
    if call is not None and call.value is not None and not call.requires_grad:
        # Gradients end at this memory, and its tensor is another one from now on.
        call = call.of_memory()
    if not _is_of_few(tensor, found.axes, given.shape) or _is_deep(call, _MOST_RECORDED):
        return False
    constant = tensor._node if call is None and tensor._node.is_constant else None
    inputs: list[Input] = [] if constant is not None else [call or tensor._node]
    inputs += [] if given.input is None else [given.input]
    inputs += [Number(at + _FIRST, dtypes.int32, at + _FIRST) for at in found.positions]
    entry = composing.entry or call_site()
    kind = _kind(tensor, found.axes, given, constant, requires_grad=True)
    made = postponed(this_thread.pool, kind, tensor, tuple(inputs), entry, None)
    return become_another(tensor, made)


def _is_for_the_host(tensor: Any, found: _Slice) -> bool:
    """Whether a slice is better written at once, in place: a waiting write copies the whole tensor,
    which is large here or read up to another length in each step.
    """
    if writes.is_worth_a_copy(tensor):
        return is_read_by_prefixes()
    return bool(tensor._at_once) or not _is_of_few(tensor, found, ())


def _is_deep(call: Any, most: int) -> bool:
    """Whether a call that waits is a slice's over as many others as may wait."""
    for _ in range(most):
        if call.__class__ is not Call or call.value is not None or not call.inputs:
            return False
        steps = call.template.steps
        # As `_replaced`, of the first input.
        if not steps or steps[-1][0] is not Ops.WHERE or steps[-1][3](range(call.slot))[2]:
            return False
        call = call.inputs[0]
    return True


def _kind(
    tensor: Any,
    axes: _Axes,
    given: _Given,
    constant: UOp | None = None,
    *,
    requires_grad: bool | None = None,
) -> WaitingKind:
    """As `_template`, of a tensor that is in no memory yet: what the call is that makes it. A
    `constant` is no input.
    """
    key = *_key(tensor, axes, given), constant, requires_grad
    found = _kinds.get(key)
    if found is None:
        made, inputs = _graph(tensor, axes, given, constant)
        template = record([made], inputs)
        assert template is not None
        result = Result(template.results[0], requires_grad, None, None, tensor.shape, tensor.dtype)
        found = _kinds.put(key, WaitingKind(template, result, next_number()))
    return found


def _key(tensor: Any, axes: _Axes, given: _Given) -> tuple[Any, ...]:
    constant = repr(given.constant), given.input is None
    return tensor.shape, tensor.dtype, tensor.device, axes, given.shape, constant


def _given(tensor: Any, value: Any, picked: Sequence[int]) -> _Given | None:
    """`value` as one of the dtype of `tensor`; None unless it stretches to `picked`."""
    if isinstance(value, Core):
        one: Any = value
        if not _fits(one.shape, picked):
            return None
        if one.dtype is not tensor.dtype:
            one = one.cast(tensor.dtype)
        return _Given(one._call or one._node, one.shape, None, bool(one._requires_grad))
    dtype, kind = tensor.dtype, value.__class__
    if dtype is dtypes.float32 and (kind is float or kind is int) and -_PLAIN < value < _PLAIN:
        # As below, without a tensor.
        node = UOp.const(dtype, float(value))
    else:
        node = tensor._as_tensor(value).cast(dtype).uop
    if node.op is not Ops.CONST:
        return None
    if may_change(node):
        return _Given(Number(node.arg, node.dtype, bits_of(node)), ())
    return _Given(None, (), node.arg)


def _slice_of(key: Any, shape: tuple[Any, ...]) -> _Slice | None:
    """The part of a tensor of `shape` that `key` picks; None if it is empty or all of it, lies
    outside, or has a step.
    """
    entries = key if key.__class__ is tuple else (key,)
    dots = len(shape) - len(entries) + 1
    axes: list[tuple[int, int] | None] = []
    positions: list[int] = []
    for entry in entries:
        if entry is Ellipsis and dots >= 0:
            axes += [(0, size) for size in shape[len(axes) : len(axes) + dots]]
            dots = -1
            continue
        if len(axes) == len(shape) or (size := shape[len(axes)]).__class__ is not int:
            return None
        if entry.__class__ is int and -size <= entry < size:
            axes.append(None)
            positions.append(entry % size)
            continue
        if entry.__class__ is not slice or (entry.step is not None and entry.step != 1):
            return None
        if not _INTEGERS.issuperset((entry.start.__class__, entry.stop.__class__)):
            return None
        start, stop, _ = entry.indices(size)
        if start >= stop:
            return None
        axes.append((start, stop))
    axes += [(0, size) for size in shape[len(axes) :]]
    is_all = axes == [(0, size) for size in shape]
    return None if is_all else _Slice(tuple(axes), tuple(positions))


def _fits(shape: Sequence[int], picked: Sequence[int]) -> bool:
    """Whether a value of `shape` stretches to `picked`; axes of size 1 in front are no matter."""
    extra = len(picked) - len(shape)
    for axis, size in enumerate(shape, extra):
        if size != 1 and (axis < 0 or size != picked[axis]):
            return False
    return True


def _is_of_few(tensor: Any, axes: Any, shape: tuple[int, ...]) -> bool:
    """Whether a loop that writes like this is a few graphs, as far as is known."""
    line = composing.entry or call_site(), tensor.shape, tensor.dtype, shape
    known = _slices.setdefault(line, set())
    if len(known) <= _MOST_SLICES:
        known.add(axes)
    return len(known) <= _MOST_SLICES


def _template(tensor: Any, axes: _Axes, given: _Given) -> tuple[int, Template]:
    """The number and the template of a copy of `tensor` with a slice of another value. Its inputs
    are the tensor, the value unless it is a constant, and the positions.
    """
    is_detached = bool(tensor._requires_grad or given.wants_grad)
    key = (*_key(tensor, axes, given), is_detached)
    found = _templates.get(key)
    if found is not None:
        return found
    made, inputs = _graph(tensor, axes, given)
    source = UOp(Ops.DETACH, tensor.dtype, (made,)) if is_detached else made
    copied = UOp(Ops.CONTIGUOUS, tensor.dtype, (source,), canonical(tensor.device))
    template = record([copied], inputs)
    assert template is not None
    return _templates.put(key, (next_number(), template))


def _graph(
    tensor: Any, axes: _Axes, given: _Given, constant: UOp | None = None
) -> tuple[UOp, list[UOp]]:
    """`tensor`, which may be a `constant`, with a slice of another value, and its inputs, all of
    them stand-ins.
    """
    is_constant = given.input is None
    old = _stand_in("old", tensor.dtype, tensor.shape) if constant is None else constant
    if is_constant:
        value = UOp.const(tensor.dtype, given.constant)
    else:
        value = _stand_in("value", tensor.dtype, given.shape)
    positions = [_stand_in(f"position {at}", dtypes.int32, ()) for at in range(axes.count(None))]
    outer = this_thread.stand_ins
    this_thread.stand_ins = outer.union([old, value, *positions])
    try:
        made = _replaced(tensor._of(old, tensor.device), axes, value, positions)
    finally:
        this_thread.stand_ins = outer
    own = [old] if constant is None else []
    return made, [*own, *([] if is_constant else [value]), *positions]


def _replaced(old: Any, axes: _Axes, value: UOp, positions: Sequence[UOp]) -> UOp:
    """`old` with `value` in a slice."""
    sizes = old.shape
    lengths = [_length(axis) for axis in axes]
    around = [
        (axis[0], size - axis[1]) if isinstance(axis, tuple) else (0, 0)
        for axis, size in zip(axes, sizes)
    ]
    picked = [_length(axis) for axis in axes if axis is not None]
    given = old._of(value, old.device)
    given = given.reshape(given.shape[max(given.ndim - len(picked), 0) :])
    given = given.expand(picked).reshape(lengths)
    inside: Any = None
    if any(pair != (0, 0) for pair in around):
        given = given.pad(around)
        is_cut = [pair != (0, 0) for pair in around]
        ones = old._of(UOp.const(dtypes.bool, True), old.device)
        ones = ones.expand([length if cut else 1 for length, cut in zip(lengths, is_cut)])
        inside = ones.pad(around)
    left = iter(positions)
    for number, (axis, size) in enumerate(zip(axes, sizes)):
        if isinstance(axis, tuple):
            continue
        indices, position = old._iota(size) + _FIRST, old._of(next(left), old.device)
        is_here = (indices == position).reshape(
            [size if at == number else 1 for at in range(old.ndim)]
        )
        inside = is_here if inside is None else inside & is_here
    made: UOp = inside.where(given, old).uop
    return made


def _stand_in(name: str, dtype: DType, shape: tuple[int, ...]) -> UOp:
    return UOp(Ops.CUSTOM, dtype, (), CustomArg(name, shape, _no_call))


def _no_call(data: Any) -> memoryview:
    raise InternalError("a stand-in of an operand was run")
