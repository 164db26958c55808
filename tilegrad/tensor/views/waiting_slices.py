"""Slices of calls that wait, at a line and at positions that came before: their template is known,
and that it serves, so nothing is asked on the way to it.

The pick of a key from a call is a template's view (`Indexing._cut`) unless the line picks at
positions that change, the call is a copy of memory, or an assignment (`changing_picks`,
`in_memory`). All of that is the same for a key that came twice at a line, as long as the line's
positions are.
"""

from __future__ import annotations

from types import CodeType, FrameType
from typing import Any

from tilegrad.base.config import current_config
from tilegrad.base.origin import call_site, composing, users
from tilegrad.base.recent import Bounded
from tilegrad.ir.op import Ops
from tilegrad.tensor.calls.postponed import postponed
from tilegrad.tensor.calls.recent_calls import RecentCall
from tilegrad.tensor.handle.waiting import this_thread
from tilegrad.tensor.views.changing_picks import unchanged_line
from tilegrad.tensor.views.in_memory import named_key

__all__ = ["note_slice", "slice_of_call"]

# By the line, the key, and what it picks from: the call that came, the line's positions, and its
# code, which lives as long as its number is a key.
_known: Bounded[tuple[Any, ...], tuple[RecentCall, Any, CodeType]] = Bounded(1 << 12)


def _spot(tensor: Any, key: Any, code: CodeType, instruction: int) -> tuple[Any, ...] | None:
    """A key of a slice of a call; None where that is not known by this."""
    call = tensor._call
    if call is None or call.value is not None or call.is_write or tensor._requires_grad:
        return None
    name = key if key.__class__ is int else named_key(key)
    if name is None:
        return None
    kind = tensor.__class__, tensor._requires_grad, tensor._device
    return id(code), instruction, name, call.number, call.kind, kind


def slice_of_call(tensor: Any, key: Any, frame: FrameType, code: CodeType) -> Any | None:
    """The view that `key` picks of a tensor whose call waits, for `code` that `frame` calls; None
    where it did not come at this line before.
    """
    user = frame.f_code
    spot = _spot(tensor, key, user, frame.f_lasti)
    found = None if spot is None else _known.get(spot)
    if found is None:
        return None
    last, line, _ = found
    pool = this_thread.pool
    call = tensor._call
    if line.changing or line.first_read == pool.reads or call.pool is not pool or tensor._symbols:
        return None
    if this_thread.stand_ins or not last.holds(current_config(), pool):
        return None
    path = 0 if tensor._alias is None else tensor._alias[1]
    if path and (path.__class__ is not int or last.has_reshape):
        # It may be a copy.
        return None
    entry = composing.entry or (
        (user, frame.f_lasti, code) if user.co_filename in users else call_site(frame, code)
    )
    return postponed(pool, last.kind, tensor, (call,), entry, [tensor])


def note_slice(tensor: Any, key: Any, made: Any, frame: FrameType) -> None:
    """Note what `key` picked of a tensor, if the next one can be made as that was."""
    pool = this_thread.pool
    last: RecentCall | None = pool.last
    call, own = tensor._call, made._call
    if last is None or own is None or own.inputs is None or call.pool is not pool:
        return
    kind = last.kind
    if own.number != kind.number or own.kind != kind.kind or kind.view_of != 0:
        return
    if len(own.inputs) != 1 or own.inputs[0] is not call or call.template.is_view:
        return
    first = call.template.count + len(call.template.constants)
    if call.slot >= first and call.template.steps[call.slot - first][0] is Ops.CONTIGUOUS:
        return
    spot = _spot(tensor, key, frame.f_code, frame.f_lasti)
    line = None if spot is None else unchanged_line(frame, key, call.shape)
    if spot is not None and line is not None:
        _known.put(spot, (last, line, frame.f_code))
