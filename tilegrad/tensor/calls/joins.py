"""`cat` and `stack` of many small tensors that are in memory copy at once.

A batch drawn from a list of samples joins other tensors at each step, and now and then one twice:
as a graph it would be another one at each step. What is in memory is copied to new memory, as
`tensor.calls.uploads` does with what the host gives. A few parts whose values are still to be
computed are computed for that, if others of them are there.

A loop that lengthens a tensor at each step, as one that generates tokens does, computes what waits
before it joins the next part: the graph of all of its steps would have each of them in another
size, where one plan serves all sizes of a step.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from tilegrad.base.origin import call_site
from tilegrad.tensor.calls.uploads import can_upload, uploaded
from tilegrad.tensor.handle.core import device_of
from tilegrad.tensor.handle.waiting import this_thread
from tilegrad.tensor.storage.host_readable import known_elements

__all__ = ["catted", "stacked"]

# The fewest tensors that are joined at once, and the most bytes: a kernel joins larger results.
_FEWEST, _MOST_BYTES = 4, 1 << 20
# Steps of a loop with fewer nodes are run together.
_FEWEST_NODES = 128


def catted(tensors: Sequence[Any], dim: int) -> Any | None:
    """`tensors` one after the other along axis `dim`, in memory; None where a graph says it."""
    if len(tensors) < _FEWEST:
        _end_step(tensors)
        return None
    shape = tensors[0].shape
    ndim = len(shape)
    if dim.__class__ is not int or not -ndim <= dim < ndim:
        return None
    axis = dim % ndim
    before, after = shape[:axis], shape[axis + 1 :]
    length = 0
    for each in tensors:
        if each.__class__ is not tensors[0].__class__:
            return None
        other = each.shape
        if len(other) != ndim or other[:axis] != before or other[axis + 1 :] != after:
            return None
        length += other[axis]
    return _copied(tensors, axis, (*before, length, *after), is_new=False)


def stacked(tensors: Sequence[Any], dim: int) -> Any | None:
    """`tensors` one after the other along a new axis, in memory; None where a graph says it."""
    if len(tensors) < _FEWEST:
        return None
    shape = tensors[0].shape
    ndim = len(shape) + 1
    if dim.__class__ is not int or not -ndim <= dim < ndim:
        return None
    kind = tensors[0].__class__
    if any(each.__class__ is not kind or each.shape != shape for each in tensors):
        return None
    axis = dim % ndim
    return _copied(tensors, axis, (*shape[:axis], len(tensors), *shape[axis:]), is_new=True)


def _end_step(tensors: Sequence[Any]) -> None:
    """Compute `tensors` where one of them waits that the same line of the user has joined before,
    and much has waited since the last read: a loop whose steps differ in a size.
    """
    if this_thread.pool.count < _FEWEST_NODES or this_thread.stand_ins:
        return
    here = call_site(sys._getframe(2))
    waiting = [
        each
        for each in tensors
        if (call := getattr(each, "_call", None)) is not None and call.value is None
    ]
    for each in waiting:
        call = each._call
        if not call.requires_grad and here in call.entry and can_upload(device_of(each)):
            for operand in reversed(waiting):
                operand.realize()
            return


def _copied(tensors: Sequence[Any], axis: int, shape: tuple[Any, ...], *, is_new: bool) -> Any:
    first = tensors[0]
    device, dtype = device_of(first), first.dtype
    nbytes: int = dtype.itemsize
    for length in shape:
        if length.__class__ is not int:
            return None
        nbytes *= length
    if not 0 < nbytes <= _MOST_BYTES or not can_upload(device):
        return None
    for each in tensors:
        if (
            each.dtype is not dtype
            or each._symbols
            or each._requires_grad
            or device_of(each) != device
        ):
            return None
    arrays: list[Any] = [known_elements(each) for each in tensors]
    lacking = [at for at, array in enumerate(arrays) if array is None]
    if lacking:
        if 2 * len(lacking) > len(tensors):
            return None
        for at in lacking:
            tensors[at]._become_known()
            arrays[at] = known_elements(tensors[at])
            if arrays[at] is None:
                return None
    import numpy

    whole: Any = numpy.stack(arrays, axis) if is_new else numpy.concatenate(arrays, axis)
    return uploaded(first, whole, dtype)
