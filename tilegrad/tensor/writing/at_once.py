"""Writes of numbers to small tensors in memory, done on the host when they are asked for.

A program of `tilegrad.torch` that fills a table element by element (`table[i, j] += 1`, `best[s] =
0.5`) writes a number a line: to wait for each write, and to run it, takes longer than all elements
take to copy. Memory at which somebody else looks is copied first (`memory_writes`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.op import Ops
from tilegrad.tensor.calls.uploads import can_upload
from tilegrad.tensor.handle.aliases import Away, is_alone, moves_to, same_storage
from tilegrad.tensor.handle.core import Core, device_of
from tilegrad.tensor.handle.replaced import exchange, stands_on_memory
from tilegrad.tensor.handle.waiting import this_thread
from tilegrad.tensor.storage import host_memory
from tilegrad.tensor.storage.host_readable import known_elements
from tilegrad.tensor.views.in_memory import view_moves
from tilegrad.tensor.writing.memory_writes import may_write, own_memory

__all__ = ["become_memory", "has_written", "update_at_once", "write_at_once"]

# Larger tensors, in bytes, are written to by kernels.
_MOST_BYTES = 1 << 14
# Their arithmetic is the same in NumPy: IEEE's, or modulo two to the number of bits.
_DTYPES = frozenset({
    dtypes.float32, dtypes.float64, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64,
    dtypes.uint8,
})  # fmt: skip
# Smaller numbers are rounded to any float dtype here without a word.
_PLAIN = 1e30
_WRITTEN = _DTYPES | {dtypes.bool}
_MOVES = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.SHRINK, Ops.FLIP, Ops.DETACH})


def write_at_once(tensor: Any, key: Any, value: Any) -> bool:
    """Write `value`, a number or a tensor without axes, to the part of `tensor` that `key` picks,
    by integers and slices inside; False, and nothing has happened, where that cannot be done here.
    """
    if not tensor._at_once or (isinstance(value, Core) and value.shape != ()):
        return False
    if not (_is_small(tensor) and may_write(tensor)):
        return False
    number = _number(value, tensor.dtype)
    array = None if number is None else own_memory(tensor, _MOST_BYTES)
    if array is None:
        return False
    array.view(tensor.dtype.name)[key] = number
    return True


def become_memory(tensor: Any) -> None:
    """Let a small constant be memory before it is first written to: from then on it is written to
    as any tensor is (`rows = torch.zeros(8, 3); rows[i] = row`).
    """
    is_constant = tensor._call is None and tensor._node.is_constant
    if is_constant and _is_small(tensor) and may_write(tensor):
        own_memory(tensor, _MOST_BYTES)


def update_at_once(view: Any, operation: Any, number: Any) -> bool:
    """Let `view`, a part of a tensor that has no other view, take what `operation`, which is one of
    `operator`'s, makes of it and `number`; as `write_at_once`.
    """
    alias = view._alias
    if not view._at_once or alias is None or alias[1] == 0 or view._requires_grad:
        return False
    if view.dtype not in _DTYPES:
        return False
    if operation.__name__ not in ("add", "sub", "mul") or view._symbols:
        return False
    members = [each for each in alias[0].noted() if same_storage(each, view)]
    if len(members) != 1 or members[0] is view or not is_alone(view, 2):
        return False
    (whole,) = members
    other = _number(number, view.dtype)
    if other is None or whole._alias[1] != 0:
        return False
    if whole._call is not None and whole._call.value is None and _is_small(whole):
        # Its elements are written one by one: each write would be part of the graph.
        _realize_without(whole, view)
    path = tuple(_moves_of(view))
    moves = _seen_through(whole, view) if may_write(whole) else None
    array = None if moves is None else own_memory(whole, _MOST_BYTES, view)
    if moves is None or array is None:
        return False
    import numpy

    seen = array.view(view.dtype.name)
    for op, arg, _ in moves:
        seen = host_memory.moved(seen, op, arg)
    with numpy.errstate(all="ignore"):
        seen[...] = operation(seen, other)
    # The view looks at the new memory of the whole.
    own = whole._call
    made = object.__new__(view.__class__)
    made._device = device_of(view)
    stands_on_memory(made, own.value, (*own.moves, *moves), view.dtype, seen.shape, own.entry)
    exchange(view, made)
    # What was detached stays so, which memory does not show.
    is_shown = len(moves) == len(path)
    view._alias = alias[0], len(moves) if is_shown else Away(tuple(whole.shape), path)
    return True


def _seen_through(whole: Any, view: Any) -> list[tuple[Ops, Any, tuple[int, ...]]] | None:
    """The moves from `whole`, in memory, to its `view`; None where one of them copies."""
    import numpy

    array = known_elements(whole)
    if array is None:
        return None
    moves: list[tuple[Ops, Any, tuple[int, ...]]] = []
    seen = array
    for op, arg in _moves_of(view):
        if op not in _MOVES:
            return None
        seen = host_memory.moved(seen, op, arg)
        if op is not Ops.DETACH:
            moves.append((op, arg, seen.shape))
    return moves if numpy.may_share_memory(seen, array) else None


def _moves_of(view: Any) -> Sequence[tuple[Ops, Any]]:
    """The moves from the storage of a view to the view."""
    call, count = view._call, view._alias[1]
    if call is not None and call.inputs is None and count.__class__ is int:
        # As a rule: of memory that was never anything else.
        if count <= len(call.moves):
            return [(op, arg) for op, arg, _ in call.moves[len(call.moves) - count :]]
    return moves_to(view)


def _realize_without(whole: Any, view: Any) -> None:
    """Compute `whole`, but not its `view`, which looks elsewhere from step to step."""
    call, waiting = view._call, this_thread.pool.waiting
    is_waiting = call is not None and call.handle in waiting
    if is_waiting:
        waiting.discard(call.handle)
    try:
        whole.realize()
    finally:
        if is_waiting:
            waiting.add(call.handle)


def has_written(tensor: Any, key: Any, value: Any) -> bool:
    """Whether `value` is a view of the part of `tensor` that `key` picks, as after `x[key] += 1`,
    which has updated the view before it sets the part to it.
    """
    if not isinstance(value, Core) or value is tensor or not same_storage(tensor, value):
        return False
    own, call = tensor._call, value._call
    if own is None or call is None or own.value is None or call.value is not own.value:
        return False
    if tensor._alias[1] != 0 or call.inputs is not None:
        return False
    count = len(own.moves)
    moves = view_moves(key, own.shape)
    if moves is not None:
        return call.moves == (*own.moves, *moves)
    if math.prod(own.shape) * tensor.dtype.itemsize > _MOST_BYTES:
        return False
    import numpy

    indices: Any = numpy.arange(math.prod(own.shape)).reshape(own.shape)
    seen = indices
    for op, arg, _ in call.moves[count:]:
        seen = host_memory.moved(seen, op, arg)
    try:
        return call.moves[:count] == own.moves and numpy.array_equal(indices[key], seen)
    except (IndexError, TypeError):
        return False


def _is_small(tensor: Any) -> bool:
    """Whether numbers are written to a tensor here."""
    is_plain = tensor.dtype in _WRITTEN and all(size.__class__ is int for size in tensor.shape)
    return is_plain and math.prod(tensor.shape) * tensor.dtype.itemsize <= _MOST_BYTES


def _number(value: Any, dtype: DType) -> Any | None:
    """A number, or a tensor without axes, as an array without axes, of a dtype that holds it. What
    waits is computed: the part that is written next would be another one, and so its graph.
    """
    kind = value.__class__
    if kind is float and dtype is dtypes.float32 and -_PLAIN < value < _PLAIN:
        # Rounded as it is written, or beside elements of the dtype.
        return value
    import numpy

    if isinstance(value, Core):
        one: Any = value
        if one.dtype is not dtype or one.shape != () or one._requires_grad or one._symbols:
            return None
        found = known_elements(one)
        if found is None and can_upload(device_of(one)):
            one._become_known()
            found = known_elements(one)
        return None if found is None else found.view(dtype.name)
    if dtype.is_float:
        if kind is not int and kind is not float and kind is not bool:
            return None
        with numpy.errstate(over="ignore"):
            try:
                return numpy.asarray(value, dtype.name)
            except OverflowError:
                return None
    if dtype is dtypes.bool:
        is_number = kind is bool or kind is int or kind is float
        return numpy.asarray(value, bool) if is_number else None
    is_whole = kind is bool or (kind is int and dtype.min <= value <= dtype.max)
    return numpy.asarray(value, dtype.name) if is_whole else None
