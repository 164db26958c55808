"""Calls that go on, in a loop, from what the same line of the user gave in the step before."""

from __future__ import annotations

from math import prod

from tilegrad.tensor.handle.waiting import Call, Input, Number

__all__ = ["goes_on", "lengthens"]


def lengthens(call: Call) -> bool:
    """Whether a call extends the result that the same line of the user gave before."""
    if call.inputs is None or call.is_write or call.is_loss or call.requires_grad:
        return False
    if len(call.entry) != 1:
        return False
    (entry,), count = call.entry, prod(call.shape)
    for each in call.inputs:
        if isinstance(each, Number) or each.dtype is not call.dtype or prod(each.shape) >= count:
            continue
        if entry in (each.entry if isinstance(each, Call) else each.origin or ()):
            return True
    return False


def goes_on(call: Call) -> bool:
    """Whether a call stands on a result that the same line of the user gave before, of the same
    dtype and number of axes.
    """
    if call.inputs is None or call.is_write or call.is_loss or call.requires_grad:
        return False
    entry, dtype, ndim = call.entry, call.dtype, len(call.shape)
    if not entry:
        return False
    below: list[Input] = [*call.inputs]
    seen = {*below}
    # The list grows while it is walked.
    for each in below:
        if each.__class__ is not Call:
            continue
        if each.entry == entry and each.dtype is dtype and len(each.shape) == ndim:
            return True
        if each.value is None:
            for source in each.inputs or ():
                if source not in seen:
                    seen.add(source)
                    below.append(source)
    return False
