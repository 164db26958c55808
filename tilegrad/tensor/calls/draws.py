"""Random tensors that are memory from the start.

A parameter, and what a program of `tilegrad.torch` draws by itself, are computed when they are
made, as PyTorch computes them: a loop over data that was drawn before it has the same graph in its
first step as in the second. They are drawn in one dimension, so that one kernel serves all shapes.
Draws inside of a method, such as that of `dropout`, stay part of its graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilegrad.base.origin import call_site, composing
from tilegrad.engine.run import leaf_memory as store
from tilegrad.ir.op import Ops
from tilegrad.tensor.calls.uploads import can_upload
from tilegrad.tensor.handle.core import device_of
from tilegrad.tensor.handle.device import canonical
from tilegrad.tensor.handle.replaced import stands_on_memory
from tilegrad.tensor.handle.waiting import Value
from tilegrad.tensor.storage.memory import base_of

__all__ = ["drawn_at_once"]

# Larger ones wait. Parameters that are loaded before they are used are then never drawn.
_MOST_ELEMENTS, _MOST_OF_A_PARAMETER = 1 << 22, 1 << 16


def drawn_at_once(
    sizes: Sequence[Any],
    device: str | None,
    *makers: Callable[[Any], Any],
    is_parameter: bool = False,
) -> Any | None:
    """A tensor of `sizes` in memory: the first of `makers` is given the number of its elements and
    makes a tensor of one axis, each other one what came of the one before; each of their results is
    computed by itself. None where nothing may run now, or there are no elements or many.
    """
    count = math.prod(sizes) if all(size.__class__ is int for size in sizes) else 0
    most = _MOST_OF_A_PARAMETER if is_parameter else _MOST_ELEMENTS
    if not sizes or not 0 < count <= most or not can_upload(canonical(device)):
        return None
    flat: Any = count
    for make in makers:
        flat = make(flat)
        flat._become_known()
    call = flat._call
    if call is not None and call.value is not None:
        value = call.value
    else:
        base = base_of(flat.uop)
        value = Value(store.buffer_of(base), base)
    shape = tuple(sizes)
    made = object.__new__(flat.__class__)
    made.device = device_of(flat)
    moves = () if len(shape) == 1 else ((Ops.RESHAPE, shape, shape),)
    entry = (composing.entry or call_site(),)
    stands_on_memory(made, value, moves, flat.dtype, shape, entry)
    return made
