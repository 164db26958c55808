"""Writes to small tensors of `tilegrad.torch`, done by the host when they are asked for: elements,
rows, slices, what a mask or indices pick, and updates (`x[i] += y`, `w -= step`).

Where only the tensor can see its memory, the elements are written in place; else to a copy, which
the tensor stands on from then on. The written value may wait: a few steps over a few elements are
computed for it (`host_runs`). A write that is more than that, or an error, is left to those who run
it.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.origin import call_site, composing
from tilegrad.base.references import ONE_ATTRIBUTE
from tilegrad.engine.realize import realize as engine
from tilegrad.ir.op import Ops
from tilegrad.tensor.handle.aliases import Away, is_alone, moves_to, same_storage
from tilegrad.tensor.handle.core import Core, device_of
from tilegrad.tensor.handle.living import leave
from tilegrad.tensor.handle.replaced import stands_on_memory
from tilegrad.tensor.handle.threads import is_only_thread
from tilegrad.tensor.handle.waiting import Moves, Value, this_thread
from tilegrad.tensor.storage import host_memory, host_runs, writes
from tilegrad.tensor.storage.host_evaluators import DTYPES, NotOfHostError, number_of
from tilegrad.tensor.storage.memory import needs_no_run
from tilegrad.tensor.storage.new_memory import new_memory
from tilegrad.tensor.writing import undo

__all__ = ["update_on_host", "write_on_host"]

# Larger tensors, in bytes, are written to by kernels.
_MOST_BYTES = 1 << 14
# Numbers below are rounded to any float dtype without a word.
_PLAIN = 1e30
_NUMBERS = frozenset({operator.add, operator.sub, operator.mul})
_BITS = frozenset({operator.and_, operator.or_, operator.xor})
_MOVES = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.SHRINK, Ops.FLIP, Ops.DETACH})
# Steps to what is written, and to what is added to all of a tensor.
_MOST_STEPS, _FEW_STEPS = 20, 4
_PLAIN_ENDS = frozenset({int, type(None)})
_exclusive = engine.exclusive()


def write_on_host(tensor: Any, key: Any, value: Any) -> bool:
    """Write `value`, a number or a tensor, to the part of `tensor` that `key` picks; False, and
    nothing has happened, where that cannot be done here.
    """

    def write(seen: Any, given: Any) -> bool:
        try:
            seen[picked] = given
        except (IndexError, ValueError, TypeError):
            return False
        return True

    with _exclusive:
        if not _is_fit(tensor):
            return False
        picked = _key(key)
        # Evaluating the value may give the tensor a node, so it comes before all that looks at it.
        given = None if picked is None else _given(value, tensor.dtype)
        return given is not None and _change(tensor, write, given)


def update_on_host(tensor: Any, operation: Callable[[Any, Any], Any], other: Any) -> bool:
    """Let `tensor`, which may be a view, take what `operation` makes of it and of `other`, a number
    or a tensor; as `write_on_host`.
    """
    if not _is_fit(tensor):
        return False
    is_whole = tensor._alias is None or tensor._alias[1] == 0
    if is_whole and _is_unread(tensor):
        # The update waits with it, as one more step.
        return False
    # Other updates of all of a tensor can wait, and run with the next operation.
    given = _operand(other, tensor.dtype, _FEW_STEPS if is_whole else None)
    if given is None:
        return False
    return _change(tensor, lambda seen, given: _update(seen, operation, given), given)


def _is_unread(tensor: Any) -> bool:
    """Whether a tensor is a result that waits, and no assignment, or a constant."""
    call = tensor._call
    return not (call is not None and call.is_write) and not host_runs.is_in_memory(tensor)


def _change(tensor: Any, write: Callable[[Any, Any], bool], given: Any) -> bool:
    """Let `write` change the elements of a tensor, and of those that share its storage."""
    if tensor._call is None or tensor._call.value is None:
        # The tensor waits, or has a node.
        if not is_alone(tensor):
            return _change_by(tensor, write, given)
        if writes.is_expanded(tensor):
            # One element here is several there.
            return False
        array = host_runs.elements_of(tensor)
        call = tensor._call
        if array is None and call is not None and call.is_write:
            # A chain of assignments.
            tensor._become_known()
            array = host_runs.elements_of(tensor)
        if array is None:
            return False
        import numpy

        array = numpy.array(array)
        if not write(array, given) or not _stand_anew(tensor, array):
            return False
        # How it looked at what it was made of is no matter any more.
        tensor._alias = None
        return True
    members = _members(tensor)
    if members is None:
        return _change_by(tensor, write, given)
    is_sole = _is_sole(tensor, members)
    try:
        flat = host_runs.elements_in(tensor._call.value.buffer)
    except NotOfHostError:
        return False
    if not is_sole:
        buffer = tensor._call.value.buffer
        if flat.nbytes > _MOST_BYTES or buffer.is_watched or not buffer.is_private:
            # Or somebody looks for it by its address.
            return False
        flat = flat.copy()
    seen = flat
    for op, arg, _ in tensor._call.moves:
        if op is Ops.EXPAND:
            return False
        seen = host_memory.moved(seen, op, arg)
    is_seen = len(tensor._call.moves) < 2 or seen.base is flat or _shares(seen, flat)
    if not is_seen or not write(seen, given):
        return False
    return is_sole or _move(members, flat)


def _change_by(view: Any, write: Callable[[Any, Any], bool], given: Any) -> bool:
    """As `_change`, of the only view of a tensor that waits or has a node, and becomes memory."""
    alias = view._alias
    members = [each for each in alias[0].noted() if same_storage(each, view)]
    if len(members) != 1 or members[0] is view or not is_alone(view, 2):
        return False
    whole = members.pop()
    if whole._alias[1] != 0 or not _is_fit(whole):
        return False
    moves = _moves_of(view)
    array = host_runs.elements_of(whole)
    if array is None and whole._call is not None:
        # Its elements are written one by one: each write would be part of the graph.
        call, waiting = view._call, this_thread.pool.waiting
        is_waiting = call is not None and call.handle in waiting
        if is_waiting:
            # It looks elsewhere from step to step.
            waiting.discard(call.handle)
        whole._become_known()
        if is_waiting:
            waiting.add(call.handle)
        array = host_runs.elements_of(whole)
    if array is None or any(op not in _MOVES for op, _ in moves):
        return False
    import numpy

    array = numpy.array(array)
    seen, more = array, []
    for op, arg in moves:
        seen = host_memory.moved(seen, op, arg)
        if op is not Ops.DETACH:
            more.append((op, arg, seen.shape))
    if not _shares(seen, array) or not write(seen, given) or not _stand_anew(whole, array):
        return False
    own, dtype = whole._call, view.dtype
    if view._call is None:
        leave(view, view._node)
        del view._node
    whole._alias = alias[0], 0
    _stand(view, own.value, (*own.moves, *more), dtype, tuple(seen.shape), None)
    # A detached view stays so, which memory does not show.
    is_shown = len(more) == len(moves)
    view._alias = alias[0], len(more) if is_shown else Away(tuple(whole.shape), tuple(moves))
    return True


def _moves_of(view: Any) -> Sequence[tuple[Ops, Any]]:
    """The moves from the storage of a view to the view."""
    call, count = view._call, view._alias[1]
    if call is not None and call.inputs is None and count.__class__ is int:
        # As a rule: of memory that was never anything else.
        if count <= len(call.moves):
            return [(op, arg) for op, arg, _ in call.moves[len(call.moves) - count :]]
    return moves_to(view)


def _shares(seen: Any, flat: Any) -> bool:
    """Whether a view looks at the memory: a reshape may have copied."""
    import numpy

    return bool(numpy.may_share_memory(seen, flat))


def _members(tensor: Any) -> list[Any] | None:
    """The tensors that share the storage of `tensor`, which is in memory: itself, and others that
    look there without a call that waits, a node or a gradient; None where others do.
    """
    alias = tensor._alias
    if tensor._call.inputs is not None:
        # It is still known what it was computed from.
        return [tensor] if alias is None or (alias[1] == 0 and is_alone(tensor)) else None
    if alias is None or is_alone(tensor):
        return [tensor]
    value = tensor._call.value
    members: dict[int, Any] = {}
    for handle in tensor._call.pool.computed:
        each = handle()
        if each is not None and each._alias is not None and each._alias[0] is alias[0]:
            call = each._call
            if call is None or call.value is not value or call.inputs is not None:
                return None
            if call.node is not None or each._requires_grad or each._symbols:
                return None
            members[id(each)] = each
    return [*members.values()] if is_alone(tensor, len(members)) else None


def _update(seen: Any, operation: Callable[[Any, Any], Any], given: Any) -> bool:
    """Let elements of memory take the result of an operation; False for another dtype or shape."""
    kind = seen.dtype.kind
    if operation in _BITS:
        is_known = kind != "f"
    elif operation is operator.truediv:
        is_known = kind == "f"
    else:
        is_known = operation in _NUMBERS and kind != "b"
    if not is_known:
        return False
    try:
        found = host_runs.quietly(operation, seen, given)
        if found.dtype != seen.dtype or found.shape != seen.shape:
            return False
        seen[...] = found
    except (ValueError, OverflowError, TypeError):
        return False
    return True


def _is_sole(tensor: Any, members: list[Any]) -> bool:
    """Whether only `members` can see the memory that `tensor` stands on, which has no past: no call
    that waits, no node, no array.
    """
    for each in members:
        if sys.getrefcount(each._call) != ONE_ATTRIBUTE or each._call.inputs is not None:
            return False
    if sys.getrefcount(tensor._call.value) != ONE_ATTRIBUTE + len(members) - 1:
        return False
    value = tensor._call.value
    if (
        value.leaf is not None
        or value.past is not None
        or sys.getrefcount(value.buffer) != ONE_ATTRIBUTE
    ):
        return False
    buffer = value.buffer
    return bool(buffer.is_private and not buffer.is_watched and buffer.base is None)


def _is_fit(tensor: Any) -> bool:
    """Whether a tensor is small, of a dtype that the host writes, and of this thread alone."""
    call = tensor._call
    if call is not None:
        if call.node is not None or call.requires_grad:
            return False
        if call.pool is not this_thread.pool:
            return False
    elif not (
        tensor._node.is_constant or needs_no_run(tensor._node)
    ) or not writes.is_memory_unknown(tensor):
        return False
    if tensor._requires_grad or tensor._symbols or not tensor._at_once:
        return False
    one = call or tensor._node
    if one.dtype not in DTYPES or device_of(tensor) != "CPU" or undo.is_noting():
        return False
    if not 0 < prod(one.shape) * one.dtype.itemsize <= _MOST_BYTES:
        return False
    return is_only_thread() and host_runs.may_compute()


def _move(members: list[Any], flat: Any) -> bool:
    """Let tensors that look at one memory look at new memory, with the elements of an array."""
    call = members[0]._call
    buffer = new_memory(flat, call.value.buffer.dtype, flat.size)
    if buffer is None:
        return False
    value = Value(buffer)
    for each in members:
        call = each._call
        _stand(each, value, call.moves, call.dtype, call.shape, call.kind)
    return True


def _stand_anew(tensor: Any, array: Any) -> bool:
    """Let a tensor that waits, or has a node, stand on memory with the elements of an array."""
    call = tensor._call
    one = call or tensor._node
    dtype, shape = one.dtype, tuple(one.shape)
    buffer = new_memory(array, dtype, array.size)
    if buffer is None:
        return False
    if call is None:
        leave(tensor, one)
        del tensor._node
    moves: Moves = () if len(shape) == 1 else ((Ops.RESHAPE, shape, shape),)
    _stand(tensor, Value(buffer), moves, dtype, shape, None if call is None else call.kind)
    return True


def _stand(
    tensor: Any, value: Value, moves: Moves, dtype: DType, shape: tuple[int, ...], kind: int | None
) -> None:
    """Let a tensor stand on memory; who it is stays."""
    call = tensor._call
    if call is not None:
        call.pool.forget(call.handle)
    entry = (composing.entry or call_site(),) if call is None else call.entry
    rest = tensor._alias, tensor._is_leaf, tensor._gradient, tensor._requires_grad
    stands_on_memory(tensor, value, moves, dtype, shape, entry, kind)
    tensor._alias, tensor._is_leaf, tensor._gradient, tensor._requires_grad = rest


def _key(key: Any) -> Any | None:
    """A key as NumPy takes it; None for one that means something else there."""
    kind = key.__class__
    if kind is int or key is Ellipsis:
        return key
    if kind is slice:
        is_plain = key.start.__class__ in _PLAIN_ENDS and key.stop.__class__ in _PLAIN_ENDS
        step = key.step
        return key if is_plain and (step is None or (step.__class__ is int and step > 0)) else None
    if kind is list:
        return key if key and all(each.__class__ is int for each in key) else None
    if kind is tuple:
        entries = [_key(each) for each in key]
        is_known = all(each is not None for each in entries)
        # NumPy gives the axes of arrays among slices in another order.
        return tuple(entries) if is_known and not any(map(_is_many, entries)) else None
    if not isinstance(key, Core) or key.dtype not in (dtypes.bool, dtypes.int32, dtypes.int64):
        return None
    found = host_runs.elements_of(key)
    return None if found is None or not found.shape else found


def _is_many(entry: Any) -> bool:
    return entry.__class__ is not int and entry.__class__ is not slice and entry is not Ellipsis


def _given(value: Any, dtype: DType, most: int | None = None) -> Any | None:
    """The written value, as a number or an array of a dtype; None for one that the dtype does not
    hold, or that takes more than `most` steps, if that is a number.
    """
    if isinstance(value, Core):
        return _elements(value, dtype, most)
    kind = value.__class__
    if kind is not int and kind is not float and kind is not bool:
        return None
    if dtype.is_float:
        if -_PLAIN < value < _PLAIN:
            return value
        try:
            return host_runs.quietly(number_of(dtype), value)
        except OverflowError:
            return None
    if dtype is dtypes.bool:
        return bool(value)
    return value if kind is not float and dtype.min <= value <= dtype.max else None


def _operand(value: Any, dtype: DType, most: int | None) -> Any | None:
    """As `_given`, of an operand that meets elements of a dtype."""
    if not isinstance(value, Core) and dtype is dtypes.bool and value.__class__ is not bool:
        return None
    return _given(value, dtype, most)


def _elements(value: Any, dtype: DType, most: int | None) -> Any | None:
    if value.dtype is not dtype or value._requires_grad:
        return None
    if most is not None:
        return host_runs.elements_of(value, most)
    found = host_runs.elements_of(value, _MOST_STEPS)
    if found is None and _is_small(value) and not host_runs.is_in_memory(value):
        # The first calls of a method, which make nodes, or a longer way.
        value._become_known()
        found = host_runs.elements_of(value)
    return found


def _is_small(tensor: Any) -> bool:
    return bool(0 < prod(tensor.shape) * tensor.dtype.itemsize <= _MOST_BYTES)
