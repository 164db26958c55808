"""Slices of tensors in memory, written on the host when they are asked for: caches of keys and
values, where a program writes a row or a slice a step and reads those so far.

    cache[:, at : at + 1] = keys        the keys are computed now, and copied to the memory
    cache[:, : at + 1]                  a view of the memory, which a segment has as a leaf

So neither the position nor the length is part of any plan, and all layers of a network run the same
segments. The memory is written in place where Python's counts of references say that there is no
other holder: no call that waits, no result whose graph is kept, no node. Else the tensor and its
    views stand on a copy from then on, and other holders keep the old value.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

from tilegrad.base.origin import call_site, composing
from tilegrad.base.references import ONE_ATTRIBUTE
from tilegrad.ir.op import Ops
from tilegrad.runtime.buffer import Buffer
from tilegrad.tensor.calls.uploads import can_upload, moves_to, new_memory
from tilegrad.tensor.handle.aliases import is_alone, same_storage
from tilegrad.tensor.handle.core import Core, device_of
from tilegrad.tensor.handle.replaced import exchange, stands_on_memory
from tilegrad.tensor.handle.threads import is_only_thread
from tilegrad.tensor.handle.waiting import Value, this_thread
from tilegrad.tensor.storage import writes
from tilegrad.tensor.storage.host_readable import known_elements
from tilegrad.tensor.storage.segment_take import give_back

__all__ = ["may_write", "own_memory", "write_to_memory"]

# Larger memory is not copied for one who looks at the old value: nodes write to it.
_MOST_COPIED = 1 << 24
# Larger values are written by kernels, which have more threads.
_MOST_WRITTEN = 1 << 20


def write_to_memory(tensor: Any, key: Any, value: Any, picked: Sequence[int]) -> bool:
    """Write `value`, a tensor or a number, to what `key`, of numbers and slices inside, picks of
    `tensor`, of shape `picked`; False, and nothing was written, where that cannot be done here.
    """
    if not may_write(tensor):
        return False
    given = _elements(value, tensor, picked)
    memory = None if given is None else own_memory(tensor, _MOST_COPIED)
    if memory is None:
        return False
    memory[key] = given
    return True


def may_write(tensor: Any) -> bool:
    """Whether `tensor` is all of its storage, of this thread's, and in memory or a constant."""
    call = tensor._call
    if tensor._requires_grad or tensor._symbols or not is_only_thread():
        return False
    if tensor._alias is not None and tensor._alias[1] != 0:
        return False
    if call is not None and (call.value is None or call.pool is not this_thread.pool):
        return False
    return can_upload(device_of(tensor)) and writes.is_memory_unknown(tensor)


def _elements(value: Any, tensor: Any, picked: Sequence[int]) -> Any | None:
    """The elements of `value`, computed now, as bits of the dtype of `tensor`, with as many axes as
    are `picked` or fewer; None where they do not stretch to these, or require a gradient.
    """
    one: Any = value if isinstance(value, Core) else tensor._as_tensor(value)
    if one._requires_grad or one._symbols or device_of(one) != device_of(tensor):
        return None
    extra = one.ndim - len(picked)
    if any(size != 1 for size in one.shape[: max(extra, 0)]) or one.numel() == 0:
        return None
    if any(size not in (1, wanted) for size, wanted in zip(reversed(one.shape), reversed(picked))):
        return None
    if math.prod(one.shape) * tensor.dtype.itemsize > _MOST_WRITTEN:
        return None
    if one.dtype is not tensor.dtype:
        one = one.cast(tensor.dtype)
    found = known_elements(one)
    if found is None:
        one._become_known()
        found = known_elements(one)
    if found is None:
        return None
    # The memory may be that which is written.
    found = found.copy() if same_storage(one, tensor) else found
    return found.reshape(found.shape[max(extra, 0) :])


def own_memory(tensor: Any, most: int, but: Any = None) -> Any | None:
    """The elements of `tensor`, which one `may_write`, as an array of bits to be written to, on
    which it and its views stand from now on, except `but`, which its caller looks after; None where
    somebody would see a difference, or more than `most` bytes have to be copied.
    """
    members = _members(tensor, but)
    if members is None:
        return None
    if tensor._call is not None and not _is_in_order(tensor._call):
        return None
    if tensor._call is not None and tensor._call.value.leaf is None:
        holders = members if but is None else [*members, but]
        if not _is_theirs_alone(holders):
            _give_back_others()
        if _is_theirs_alone(holders):
            return _same_memory(members)
    return _copied(members, most)


def _is_in_order(call: Any) -> bool:
    """Whether the result of a call is all of its memory in its order, whose address was not given
    out.
    """
    buffer = call.value.buffer
    return (
        all(op is Ops.RESHAPE for op, *_ in call.moves)
        and buffer.size == math.prod(call.shape)
        and buffer.base is None
        and buffer.is_private
    )


def _members(tensor: Any, but: Any) -> list[Any] | None:
    """`tensor`, then the other tensors alive of its storage, which are views of the same memory;
    None where one is more than that.
    """
    members = [tensor]
    if is_alone(tensor):
        return members
    known = 1 if but is None else 2
    found = {id(tensor), id(but)}
    for reference in [] if is_alone(tensor, known) else this_thread.pool.computed:
        each = reference()
        if each is not None and id(each) not in found and same_storage(each, tensor):
            found.add(id(each))
            members.append(each)
    if not is_alone(tensor, known + len(members) - 1):
        return None
    for each in members[1:]:
        is_view = tensor._call is not None and each._call is not None
        if each._requires_grad or not is_view or each._call.value is not tensor._call.value:
            return None
    return members


def _is_theirs_alone(holders: Sequence[Any]) -> bool:
    """Whether only these tensors have the memory of the first: no call has one of their calls as an
    input.
    """
    for each in holders:
        if sys.getrefcount(each._call) > ONE_ATTRIBUTE:
            return False
    value = holders[0]._call.value
    several = sum(each._call.value is value for each in holders)
    del value
    return (
        sys.getrefcount(holders[0]._call.value) < ONE_ATTRIBUTE + several
        and sys.getrefcount(holders[0]._call.value.buffer) == ONE_ATTRIBUTE
    )


def _give_back_others() -> None:
    """Let computed values stand on their memory alone, as they would some runs later: their
    operands have no holder any more.
    """
    for reference in this_thread.pool.computed:
        each = reference()
        call = None if each is None else each._call
        if call is None or call.value is None or call.inputs is None:
            continue
        if not (call.requires_grad or call.is_write):
            give_back(call)


def _same_memory(members: Sequence[Any]) -> Any | None:
    """The memory of `members` itself, which all of them see written."""
    import numpy

    tensor = members[0]
    buffer: Buffer = tensor._call.value.buffer
    buffer.before_write()
    view = buffer.host_view()
    if view is None or view.readonly:
        return None
    _stand_on(members, Value(buffer))
    array: Any = numpy.frombuffer(view, f"u{tensor.dtype.itemsize}")
    return array.reshape(tensor.shape)


def _copied(members: Sequence[Any], most: int) -> Any | None:
    """A copy of the memory at which `members` look, on which they stand from now on."""
    tensor = members[0]
    if math.prod(tensor.shape) * tensor.dtype.itemsize > most:
        return None
    found = known_elements(tensor)
    if found is None or not writes.is_memory_unknown(tensor):
        return None
    if tensor._call is not None and tensor._call.value.buffer.is_watched:
        # By a capture, which has the address.
        return None
    fresh = new_memory(found, tensor.dtype, found.size, device_of(tensor))
    view = None if fresh is None else fresh.host_view()
    if fresh is None or view is None:
        return None
    import numpy

    _stand_on(members, Value(fresh))
    array: Any = numpy.frombuffer(view, f"u{tensor.dtype.itemsize}")
    return array.reshape(tensor.shape)


def _stand_on(members: Sequence[Any], value: Value) -> None:
    """Let tensors look at other memory of the same content as they looked at what they had."""
    for each in members:
        moves = moves_to(each.shape) if each._call is None else each._call.moves
        made = object.__new__(each.__class__)
        made._device = device_of(each)
        entry = composing.entry or call_site()
        stands_on_memory(made, value, moves, each.dtype, each.shape, (entry,))
        rest = each._alias, each._requires_grad, each._is_shared
        exchange(each, made)
        each._alias, each._requires_grad, each._is_shared = rest
        made._alias = None
