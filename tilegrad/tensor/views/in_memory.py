"""Numbers and slices of tensors in memory: views of the memory, made without a node or a template.

A loop picks a batch, a row or an element of its data at another position in each step. Such a view
is a leaf of the graphs that read it, as the data is: its call has the memory as its value, with the
movement ops to the picked elements, and its nodes are made when they are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType, FrameType
from typing import Any

from tilegrad.base.config import current_config
from tilegrad.base.dtype import DType
from tilegrad.base.errors import TransformError
from tilegrad.base.origin import call_site, composing, users
from tilegrad.base.recent import Bounded
from tilegrad.engine.realize import realize as engine
from tilegrad.engine.run import leaf_memory as store
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.postponed import alias, can_postpone
from tilegrad.tensor.calls.uploads import can_upload
from tilegrad.tensor.handle.aliases import shared
from tilegrad.tensor.handle.core import device_of
from tilegrad.tensor.handle.kinds import kind_of
from tilegrad.tensor.handle.replaced import stands_on_memory
from tilegrad.tensor.handle.waiting import Call, Moves, Value, this_thread
from tilegrad.tensor.storage.memory import needs_no_run

__all__ = [
    "named_key", "numbers_of_memory", "rows_of_memory", "view_moves", "view_of_all",
    "view_of_memory", "views_of_memory",
]  # fmt: skip

blank = object.__new__
# Arrays of the host that are copied when a part is picked. Larger ones may stay where they are.
_MOST_BYTES = 1 << 24
# By the user's line, the first positions at which it picked from a constant: once these are
# `_MANY`, positions are no longer numbers in the graph.
_picked_at: Bounded[Any, set[str]] = Bounded(4096)
_MANY = 4
# Results of `numbers_of_memory`, by the kind of its memory and the key: the moves, the shape and
# the kind.
_Cut = tuple[Moves, tuple[int, ...], int]
_cuts: Bounded[Any, _Cut] = Bounded(1 << 13)
# More of them are better told by a node.
_MOST_MOVES, _MOST_STEPS = 12, 1024


def views_of_memory(tensor: Any, keys: Sequence[Any]) -> list[Any] | None:
    """The views that `keys`, each a number, a slice without a step, or a tuple of these, pick of a
    tensor in memory that requires no gradient; None for other keys, and for positions outside.
    """
    requires_grad = tensor._requires_grad
    if requires_grad or tensor._symbols:
        return None
    pool = this_thread.pool
    if this_thread.stand_ins or not can_postpone(pool, current_config(), None):
        return None
    found = _memory(tensor, keys[0])
    if found is None:
        return None
    value, below = found
    whole = below[-1][2] if below else (value.buffer.size,)
    storage, path = tensor._alias or shared(tensor)
    if path.__class__ is not int:
        return None
    entry = (composing.entry or call_site(),)
    device, dtype, is_shared = device_of(tensor), value.buffer.dtype, tensor._is_shared
    views: list[Any] = []
    for key in keys:
        picked = _picked(key, whole)
        if picked is None:
            return None
        ranges, sizes, shape = picked
        # As `view_moves`.
        moves = below
        if sizes is not None:
            moves += ((Ops.SHRINK, ranges, sizes),)
        if shape != (sizes or whole):
            moves += ((Ops.RESHAPE, shape, shape),)
        if len(moves) > _MOST_MOVES:
            return None
        made = blank(tensor.__class__)
        made._device = device
        stands_on_memory(made, value, moves, dtype, shape, entry)
        # It has None and False.
        if requires_grad is False:
            made._requires_grad = False
        if is_shared:
            made._is_shared = True
        made._alias = storage, path + len(moves) - len(below)
        if len(moves) == len(below):
            # All of it, which somebody may train or write to as to the tensor itself.
            storage.note(made)
        views.append(made)
    return views


def numbers_of_memory(tensor: Any, key: Any, frame: FrameType, code: CodeType) -> Any | None:
    """As `view_of_memory`, of a tensor that a call or a host has put in memory, by a number or a
    tuple of numbers and plain slices, for `code` that `frame` calls; None where that is to be
    looked at more closely. The moves of a key on a shape are worked out once.
    """
    if tensor._requires_grad or tensor._symbols:
        return None
    call, alias = tensor._call, tensor._alias or shared(tensor)
    if alias[1].__class__ is not int:
        return None
    pool = this_thread.pool
    if this_thread.stand_ins or not can_postpone(pool, current_config(), None):
        return None
    if call is None:
        node = tensor._node
        moves: Moves = ()
        if node.op is Ops.RESHAPE:
            moves = ((Ops.RESHAPE, node.arg, node.arg),)
            node = node.src[0]
        if node.op is not Ops.BUFFER:
            return None
        dtype, size = node.dtype, moves[0][2] if moves else node.shape
        kind = kind_of(dtype, size)
    else:
        is_memory = call.value is not None and call.inputs is None
        if not is_memory or call.requires_grad or call.pool is not pool:
            return None
        dtype, size, kind, moves = call.dtype, call.shape, call.kind, call.moves
    cut = kind, key if key.__class__ is int else named_key(key)
    found = _cuts.get(cut)
    if found is None:
        found = _new_cut(cut, key, dtype, size)
        if found is None:
            return None
    more, shape, kind = found
    moves += more
    if len(moves) > _MOST_MOVES:
        return None
    if call is not None:
        value = call.value
    else:
        try:
            value = Value(store.buffer_of(node), node)
        except (store.OverwrittenError, TransformError):
            return None
    made = blank(tensor.__class__)
    made._device = tensor._device
    user = frame.f_code
    # As `call_site`, without its frame, where the user's own line calls.
    entry = composing.entry or (
        (user, frame.f_lasti, code) if user.co_filename in users else call_site(frame, code)
    )
    stands_on_memory(made, value, moves, dtype, shape, (entry,), kind)
    if tensor._requires_grad is False:
        made._requires_grad = False
    if tensor._is_shared:
        made._is_shared = True
    made._alias = alias[0], alias[1] + len(more)
    return made


def _new_cut(cut: Any, key: Any, dtype: DType, size: tuple[int, ...]) -> _Cut | None:
    """The moves of a key; None where it does more than pick, or picks all there is, which the
    storage has to know.
    """
    picked = None if cut[1] is None else _picked(key, size)
    if picked is None:
        return None
    ranges, sizes, shape = picked
    if sizes is None and shape == size:
        return None
    moves: Moves = () if sizes is None else ((Ops.SHRINK, ranges, sizes),)
    if shape != (sizes or size):
        moves += ((Ops.RESHAPE, shape, shape),)
    return _cuts.put(cut, (moves, shape, kind_of(dtype, shape)))


def named_key(key: Any) -> Any | None:
    """A name that tells a key of numbers and plain slices from any other such key; None for
    others.
    """
    kind = key.__class__
    if kind is int:
        return key
    names: list[Any] = []
    for each in key if kind is tuple else (key,):
        if each.__class__ is int:
            names.append(each)
        elif each.__class__ is slice and each.step is None:
            start, stop = each.start, each.stop
            for end in (start, stop):
                if end is not None and end.__class__ is not int:
                    return None
            names.append((start, stop))
        else:
            return None
    return tuple(names)


def view_of_memory(tensor: Any, key: Any) -> Any | None:
    """As `views_of_memory`, of one key."""
    found = views_of_memory(tensor, (key,))
    return None if found is None else found[0]


def rows_of_memory(tensor: Any) -> list[Any] | None:
    """The rows of a tensor in memory: `for row in x`."""
    size = tensor.shape[0] if tensor.shape else 0
    is_known = size.__class__ is int and size > 0
    return views_of_memory(tensor, range(size)) if is_known else None


def view_moves(key: Any, shape: tuple[Any, ...]) -> Moves | None:
    """The moves by which `view_of_memory` looks at what `key` picks of a tensor of `shape`."""
    whole = tuple(shape)
    picked = _picked(key, whole)
    if picked is None:
        return None
    ranges, sizes, left = picked
    moves: Moves = () if sizes is None else ((Ops.SHRINK, ranges, sizes),)
    return moves if left == (sizes or whole) else (*moves, (Ops.RESHAPE, left, left))


def view_of_all(tensor: Any, key: Any) -> Any | None:
    """An alias of a tensor whose call waits, where slices pick all of it, as `words[:, -128:]` does
    while there are fewer words; None for anything else.
    """
    if tensor._call is None or tensor._requires_grad or this_thread.stand_ins:
        return None
    keys = key if key.__class__ is tuple else (key,)
    shape = tensor._call.shape
    if len(keys) > len(shape):
        return None
    for entry, size in zip(keys, shape):
        if entry.__class__ is not slice or entry.step not in (None, 1):
            return None
        start, stop = entry.start, entry.stop
        begins = start is None or (start.__class__ is int and (start == 0 or start <= -size))
        if not begins or not (stop is None or (stop.__class__ is int and stop >= size)):
            return None
    return alias(tensor)


def _memory(tensor: Any, key: Any) -> tuple[Value, Moves] | None:
    """The memory that a tensor views, and the movement ops above it; None for a computed value. An
    array of the host becomes memory, and so does a constant if `key` picks one of many slices.
    """
    call = tensor._call
    if call is not None:
        if call.requires_grad or call.pool is not this_thread.pool:
            return None
        # A gradient goes to what a number was computed from by way of its call.
        has_way = call.inputs is not None and _may_have_gradient(tensor)
        if call.value is None and not has_way and _is_copy(call) and _is_small(tensor):
            tensor.realize()
            call = tensor._call
        if call is not None:
            return None if call.value is None or has_way else (call.value, call.moves)
    node = tensor._node
    moves: list[tuple[Ops, Any, tuple[Any, ...]]] = []
    is_made = False
    while node.op is not Ops.BUFFER:
        # The graph of a number that was computed is the way of its gradients.
        is_computed = node.stored is not None and not _may_have_gradient(tensor)
        if is_computed and (stored := engine.realized(node)) is not None:
            node = stored
        elif node.op.is_movement and len(moves) < _MOST_MOVES:
            moves.append((node.op, node.arg, node.shape))
            node = node.src[0]
        elif not is_made and _is_small(tensor) and _becomes_memory(tensor, node, key):
            tensor.realize()
            node, is_made = tensor.uop, True
            moves.clear()
        else:
            return None
    # As `Value(...)`, without its frame.
    value = blank(Value)
    try:
        value.buffer, value.leaf, value.past = store.buffer_of(node), node, None
    except (store.OverwrittenError, TransformError):
        return None
    return value, tuple(moves[::-1])


def _may_have_gradient(tensor: Any) -> bool:
    """Whether somebody may ask for the gradient of a tensor's graph."""
    return tensor._requires_grad is not False and bool(tensor.dtype.is_float)


def _is_copy(call: Call) -> bool:
    """Whether a call that waits makes a copy of memory in another order."""
    template, slot = call.template, call.slot
    first = template.count + len(template.constants)
    if slot < first or call.is_write or call.inputs is None:
        return False
    op, _, _, pick, *_ = template.steps[slot - first]
    if op is not Ops.CONTIGUOUS:
        return False
    slot = pick(range(slot))
    below: Any = call
    for _ in range(_MOST_MOVES):
        if not below.template.is_view_at(slot) and slot >= below.template.count:
            return False
        slot = below.template.moves(slot, _MOST_STEPS)[1]
        below = below.inputs[slot]
        if below.__class__ is UOp:
            return needs_no_run(below)
        if below.__class__ is not Call or below.is_write:
            return False
        if below.value is not None or below.inputs is None:
            return below.value is not None
        slot = below.slot
    return False


def _becomes_memory(tensor: Any, below: UOp, key: Any) -> bool:
    """Whether a tensor, movement of `below`, becomes memory: an array of the host that a run would
    copy whole; a copy of memory in another order, which each run of a slice would make again; or a
    constant, whose slices would be a graph each.
    """
    if below.op is Ops.COPY:
        return below.src[0].op is Ops.BUFFER
    if below.op is Ops.CONTIGUOUS:
        return not _may_have_gradient(tensor) and needs_no_run(below.src[0])
    node = tensor._node
    return node.is_constant and node.op is not Ops.CONST and _changes(key)


def _is_small(tensor: Any) -> bool:
    size = tensor.numel() * tensor.dtype.itemsize
    return 0 < size <= _MOST_BYTES and can_upload(device_of(tensor))


def _changes(key: Any) -> bool:
    """Whether the user's line has picked at several positions."""
    entry = composing.entry or call_site()
    line = entry[0], entry[1]
    found = _picked_at.get(line)
    if found is None:
        found = _picked_at.put(line, set())
    if len(found) < _MANY:
        found.add(repr(key))
    return len(found) >= _MANY


def _picked(
    key: Any, shape: tuple[Any, ...]
) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...] | None, tuple[int, ...]] | None:
    """The range along each axis, the sizes of these, None where all is picked, and the shape that
    is left without the axes of numbers.
    """
    keys = key if key.__class__ is tuple else (key,)
    if len(keys) > len(shape):
        return None
    ranges: list[tuple[int, int]] = []
    sizes: list[int] = []
    left: list[int] = []
    is_all = True
    for entry, size in zip(keys, shape):
        if size.__class__ is not int:
            return None
        kind = entry.__class__
        if kind is int:
            if not -size <= entry < size:
                return None
            start = entry + size if entry < 0 else entry
            stop = start + 1
        elif kind is slice:
            if entry.step is not None and entry.step != 1:
                return None
            try:
                start, stop, _ = entry.indices(size)
            except TypeError:
                return None
            if stop <= start:
                return None
            left.append(stop - start)
        else:
            return None
        if start or stop != size:
            is_all = False
        ranges.append((start, stop))
        sizes.append(stop - start)
    for size in shape[len(keys) :]:
        if size.__class__ is not int:
            return None
        ranges.append((0, size))
        sizes.append(size)
        left.append(size)
    return tuple(ranges), None if is_all else tuple(sizes), tuple(left)
