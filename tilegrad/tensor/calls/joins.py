"""`cat` and `stack` of many small tensors that are in memory copy at once.

A batch drawn from a list of samples joins other tensors at each step, and now and then one twice:
as a graph it would be another one at each step. Tensors in memory are copied to new memory, as
`tensor.calls.uploads` does with data of the host. A few parts whose values are still to be computed
are computed for that, if others of them are there.

A loop that lengthens a tensor at each step, as one that generates tokens does, computes what waits
before it joins the next part: the graph of all of its steps would have each of them in another
size, where one plan serves all sizes of a step. A tensor that grows so and is known to the host (a
mask that gets one more column of ones, positions) is joined at once: as a graph it would be a
longer one at each step. Few integers or truth values, as masks and positions are, are joined at
once from the first time on if the host has them or makes them in few steps: else each of the first
steps of a loop would be a graph of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tilegrad.base.origin import call_site
from tilegrad.tensor.calls.uploads import can_upload, uploaded
from tilegrad.tensor.handle.core import device_of
from tilegrad.tensor.handle.waiting import Call, this_thread
from tilegrad.tensor.storage.host_constants import constant_elements
from tilegrad.tensor.storage.host_graphs import computed_elements
from tilegrad.tensor.storage.host_readable import known_elements
from tilegrad.tensor.storage.memory import needs_no_run
from tilegrad.tensor.storage.segment_take import stands_on_memory
from tilegrad.tensor.storage.signatures import is_computed
from tilegrad.tensor.storage.unread_states import goes_on

__all__ = ["catted", "stacked"]

# The fewest tensors that are joined at once, and the most bytes: a kernel joins larger results.
_FEWEST, _MOST_BYTES = 4, 1 << 20
# The most bytes of integers that are joined at once, however few they are.
_MOST_BYTES_OF_INDICES = 1 << 16
_NO_TENSOR = object()
# Steps of a loop with fewer nodes are run together.
_FEWEST_NODES = 128


def catted(tensors: Sequence[Any], dim: int) -> Any | None:
    """`tensors` one after the other along axis `dim`, in memory; None where a graph says it."""
    is_growing = False
    if len(tensors) < _FEWEST:
        indices = _indices(tensors, dim)
        if indices is not None:
            return indices
        is_growing = _is_growing(tensors)
        if not is_growing:
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
    whole = *before, length, *after
    if is_growing:
        return _copied(tensors, axis, whole, is_new=False, elements_of=_bits_of)
    return _copied(tensors, axis, whole, is_new=False)


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


def _indices(tensors: Sequence[Any], dim: int) -> Any | None:
    """Few integers or truth values along axis `dim`, where the host has them, or makes them in few
    steps; otherwise None.
    """
    first = tensors[0]
    dtype, shape = first.dtype, first.shape
    if dtype.is_float or not getattr(first, "_at_once", False) or this_thread.stand_ins:
        return None
    if dim.__class__ is not int or not -len(shape) <= dim < len(shape):
        return None
    nbytes = 0
    for each in tensors:
        if each.__class__ is not first.__class__ or each.dtype is not dtype:
            return None
        if each._symbols or each._requires_grad:
            return None
        nbytes += dtype.itemsize * prod(each.shape)
    device = device_of(first)
    if not 0 < nbytes <= _MOST_BYTES_OF_INDICES or device != "CPU" or not can_upload(device):
        return None
    arrays: list[Any] = []
    # A tensor that waits is last, as a rule.
    for each in reversed(tensors):
        found = _bits_of(each)
        if found is None:
            found = computed_elements(each)
            if found is None:
                return None
            found = found.view(f"u{dtype.itemsize}")
        arrays.append(found)
    arrays.reverse()
    axis = dim % len(shape)
    beside = {(each.ndim, *each.shape[:axis], *each.shape[axis + 1 :]) for each in arrays}
    if len(beside) > 1:
        return None
    import numpy

    made = uploaded(first, numpy.concatenate(arrays, axis), dtype)
    if made is not None and any(goes_on(each._call) for each in tensors):
        # The result goes on to the next step, as an operand did.
        made._call.is_state = True
    return made


def _end_step(tensors: Sequence[Any]) -> None:
    """Compute `tensors` where one of them waits that the same line of the user has joined before,
    and takes much: a loop whose steps differ in a size.
    """
    if this_thread.pool.count < _FEWEST_NODES or this_thread.stand_ins:
        return
    here = call_site(sys._getframe(2))
    waiting = [
        each
        for each in tensors
        if (call := getattr(each, "_call", None)) is not None and not _is_there(call)
    ]
    for each in waiting:
        call = each._call
        if (
            not call.requires_grad
            and here in call.entry
            and can_upload(device_of(each))
            and _take_many_nodes([other._call for other in waiting])
        ):
            for operand in reversed(waiting):
                operand.realize()
            return


def _is_there(call: Call) -> bool:
    """Whether the value of a call is computed, or it is a view of one that is: keys of a first step
    that were joined to nothing are a slice of a tensor of that step.
    """
    each: Any = call
    while each.__class__ is Call and not is_computed(each):
        if not each.inputs or not each.template.is_view_at(each.slot):
            return False
        each = each.inputs[0]
    return each.__class__ is Call or needs_no_run(each)


def _take_many_nodes(calls: list[Call]) -> bool:
    """Whether calls that wait, and those that they need, stand for half of such nodes or more."""
    count = 0
    seen = set(calls)
    # The list grows while it is walked.
    for each in calls:
        count += each.template.size
        if 2 * count >= _FEWEST_NODES:
            return True
        for below in each.inputs or ():
            if below.__class__ is Call and below not in seen and not is_computed(below):
                seen.add(below)
                calls.append(below)
    return False


def _is_growing(tensors: Sequence[Any]) -> bool:
    """Whether `tensors` are constants or computed, and the line at hand has joined one before."""
    if this_thread.stand_ins:
        return False
    origins: list[Any] = []
    for each in tensors:
        call: Any = getattr(each, "_call", _NO_TENSOR)
        if call is _NO_TENSOR:
            return False
        if call is not None:
            if call.value is None or call.requires_grad:
                return False
            origins += call.entry
        else:
            if not each._node.is_constant and not stands_on_memory(each):
                return False
            origins += each._node.origin or ()
    here = call_site(sys._getframe(2))[:2]
    return any(entry[:2] == here for entry in origins)


def _bits_of(tensor: Any) -> Any | None:
    """As `known_elements`, also of constants that a graph says."""
    found = known_elements(tensor)
    if found is not None or tensor._call is not None or not tensor._node.is_constant:
        return found
    import numpy

    array = constant_elements(tensor._node)
    return None if array is None else numpy.array(array).view(f"u{tensor.dtype.itemsize}")


def _copied(
    tensors: Sequence[Any],
    axis: int,
    shape: tuple[Any, ...],
    *,
    is_new: bool,
    elements_of: Callable[[Any], Any | None] = known_elements,
) -> Any:
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
    arrays: list[Any] = [elements_of(each) for each in tensors]
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
