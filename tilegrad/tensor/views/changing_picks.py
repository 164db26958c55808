"""Elements of values that are not computed yet, picked at positions that change from step to step:
`scores[action]`, `states[t : t + 5]`. The positions are inputs of one graph, as other numbers that
change are; as constants, each position would make a graph of its own.

    x[i]            GATHER of row i
    x[i : i + 5]    GATHER of the rows i, i + 1, ..., which are row i of a table of such rows

The result is a view: a write to it, or to its base, is seen by both.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from types import FrameType
from typing import Any, NamedTuple

from tilegrad.base.config import current_config, gradients
from tilegrad.base.dtype import dtypes
from tilegrad.base.origin import Entry, call_site, composing
from tilegrad.base.recent import Bounded, Recent
from tilegrad.engine.realize.changing_numbers import will_change
from tilegrad.ir.graph_templates import record
from tilegrad.ir.op import Ops
from tilegrad.tensor.calls.postponed import can_postpone, postponed
from tilegrad.tensor.calls.recorded import Result, WaitingKind, stand_in
from tilegrad.tensor.handle.aliases import Away, Move, look_of_call, shared
from tilegrad.tensor.handle.kinds import next_number
from tilegrad.tensor.handle.waiting import Input, Number, this_thread
from tilegrad.tensor.views.in_memory import named_key, view_of_memory

__all__ = ["is_scalar", "picked_at_inputs", "unchanged_line", "viewed_at"]

# Positions of an axis that are known at a line, and positions that fit 32 bits.
_MOST_POSITIONS, _MOST_ELEMENTS = 256, 1 << 31


class _Pick(NamedTuple):
    """Indices that a key picks along an axis.

    Attributes:
        start: the first index.
        length: the number of indices.
        is_number: whether it is one index, so that the axis is none of the result.
    """

    start: int
    length: int
    is_number: bool


class _Line:
    """Where a line of the user's has picked along each axis, and the axes where that changes.

    Positions that a step picks one after the other are the same in the next step. So positions
    change if new ones come after the first read since the line was met. A position is known by its
    distance from the first or from the last index: `x[len(x) - 1]` follows from the size.
    """

    __slots__ = (
        "changing", "code", "first_read", "has_prefixes", "is_told", "lengths", "starts", "various",
    )  # fmt: skip

    def __init__(self, axes: int, read: int, code: Any):
        self.code = code
        self.first_read, self.is_told = read, False
        self.starts: list[set[tuple[bool, int]]] = [set() for _ in range(axes)]
        # For each axis the last length of a slice, and the size of the axis.
        self.lengths: list[tuple[int, int] | None] = [None] * axes
        self.changing: set[int] = set()
        # The axes where the lengths of slices change: these are sizes.
        self.various: set[int] = set()
        # Whether the length of a slice has changed where the axis has not.
        self.has_prefixes = False

    def note(self, picks: Sequence[_Pick], sizes: Sequence[int], read: int) -> None:
        for axis, (pick, size) in enumerate(zip(picks, sizes, strict=True)):
            if pick.length == size:
                continue
            if not pick.is_number:
                before = self.lengths[axis]
                if before is not None and before[0] != pick.length:
                    self.various.add(axis)
                    if before[1] == size:
                        self.has_prefixes = True
                self.lengths[axis] = pick.length, size
            ends = (True, pick.start), (False, size - pick.start)
            known = self.starts[axis]
            if read == self.first_read:
                if len(known) < _MOST_POSITIONS:
                    known.update(ends)
            elif known.isdisjoint(ends):
                self.changing.add(axis)

    @property
    def inputs(self) -> set[int]:
        """The axes whose positions are inputs."""
        return self.changing - self.various


# The lines by their instructions, and by where these are in the code.
_known: Recent[tuple[Any, ...], tuple[Any, _Line]] = Recent(lambda: 1024)
_lines: Recent[tuple[Any, ...], _Line] = Recent(lambda: 1024)
_kinds: Recent[tuple[Any, ...], WaitingKind] = Recent(lambda: 1024)
# By instruction, what it has picked, and sizes, the line, where it picks at positions that it had
# picked at: as long as none of them changes, there is nothing new to note. A line knows its code.
_unchanged: Bounded[tuple[Any, ...], _Line] = Bounded(1024)
_PLAIN = frozenset({int, type(None)})
# The lines that wrote to what is read up to one length after the other.
_writers: Bounded[Entry, bool] = Bounded(1024)


def is_read_by_prefixes() -> bool:
    """Whether what was written at the user's line was then read up to one length after the other,
    as a cache is: then it is to be memory before it is read.
    """
    return bool(_writers) and _writers.get(composing.entry or call_site()) is not None


def is_scalar(number: Any) -> bool:
    """Whether `number` is an integer of NumPy's."""
    if number.__class__.__module__ != "numpy":
        return False
    return getattr(number, "shape", None) == () and getattr(number, "dtype", number).kind in "iu"


def viewed_at(tensor: Any, key: Any) -> Any | None:
    """The elements that `key`, of numbers, slices, None and Ellipsis, picks of a tensor: a view of
    its memory, or of a call that waits with an input for each position that changes; None for other
    keys, and outside.
    """
    found = view_of_memory(tensor, key)
    return picked_at_inputs(tensor, key) if found is None else found


def picked_at_inputs(tensor: Any, key: Any) -> Any | None:
    """The elements that `key`, of numbers, slices without steps and Ellipsis, picks of a tensor,
    with positions that change as inputs; None where none does, and where the tensor's nodes have to
    be made.
    """
    if tensor._symbols or this_thread.stand_ins:
        return None
    pool = this_thread.pool
    call = tensor._call
    if tensor._requires_grad and not gradients.get():
        # The result is detached, which is another call.
        return None
    if not can_postpone(pool, current_config(), tensor._requires_grad):
        return None
    if tensor._node.is_constant if call is None else call.pool is not pool:
        return None
    own: Input = tensor._node if call is None else call
    sizes = tensor.shape
    entry = composing.entry or call_site()
    seen = _seen_key(key, sizes, entry)
    line = None if seen is None else _unchanged.get(seen)
    if line is not None and not line.changing and pool.reads != line.first_read:
        return None
    picks = _picks(key, sizes)
    if picks is None:
        return None
    line = _line(entry, picks, sizes, pool.reads)
    if line.has_prefixes and call is not None and call.is_write and call.value is None:
        # Each length would be a graph of its own; of memory it is a leaf.
        for each in call.entry:
            _writers.put(each, True)
        tensor.realize()
        return view_of_memory(tensor, key)
    inputs = sorted(line.inputs)
    if not line.changing and seen is not None:
        _unchanged.put(seen, line)
    if not inputs or math.prod([sizes[axis] for axis in inputs]) >= _MOST_ELEMENTS:
        return None
    alias = tensor._alias or shared(tensor)
    away = _away(tensor, alias[1], picks)
    if away is None:
        return None
    kind = _kind(tensor, picks, inputs)
    if not line.is_told:
        line.is_told = True
        for op in (Ops.GATHER, Ops.SCATTER_ADD):
            will_change(op, entry)
    starts = [picks[axis].start for axis in inputs]
    positions = [Number(start, dtypes.int32, start) for start in starts]
    made = postponed(pool, kind, tensor, (own, *positions), entry, None)
    made._alias, made._is_shared = (alias[0], away), tensor._is_shared
    return made


def unchanged_line(frame: FrameType, key: Any, sizes: tuple[Any, ...]) -> Any | None:
    """The entry of the line that `frame` is at, if it has picked `key` of some sizes at positions
    that do not change.
    """
    seen = _seen_key(key, sizes, (frame.f_code, frame.f_lasti, frame.f_code))
    return None if seen is None else _unchanged.get(seen)


def _seen_key(key: Any, sizes: Any, entry: Entry) -> tuple[Any, ...] | None:
    """A key of the numbers and slices that a line has picked of some sizes."""
    kind = key.__class__
    if kind is int:
        return id(entry[0]), entry[1], key, tuple(sizes)
    if kind is slice:
        start, stop = key.start, key.stop
        if not (_PLAIN.issuperset((start.__class__, stop.__class__)) and key.step is None):
            return None
        return id(entry[0]), entry[1], start, stop, tuple(sizes)
    if kind is tuple:
        named = named_key(key)
        return None if named is None else (id(entry[0]), entry[1], named, tuple(sizes))
    return None


def _picks(key: Any, sizes: tuple[Any, ...]) -> list[_Pick] | None:
    """The indices that `key` picks along each axis; None for keys that are no numbers or slices,
    and outside.
    """
    entries = key if key.__class__ is tuple else (key,)
    picks: list[_Pick] = []
    dots = len(sizes) - len(entries) + 1
    for entry in entries:
        if entry is Ellipsis and dots >= 0:
            picks += [_Pick(0, size, False) for size in sizes[len(picks) : len(picks) + dots]]
            dots = -1
            continue
        if len(picks) == len(sizes) or (size := sizes[len(picks)]).__class__ is not int:
            return None
        if entry.__class__ is int and -size <= entry < size:
            picks.append(_Pick(entry % size, 1, True))
            continue
        if entry.__class__ is not slice or (entry.step is not None and entry.step != 1):
            return None
        if not (_is_number(entry.start) and _is_number(entry.stop)):
            return None
        start, stop, _ = entry.indices(size)
        if stop <= start:
            return None
        picks.append(_Pick(start, stop - start, False))
    picks += [_Pick(0, size, False) for size in sizes[len(picks) :]]
    return picks if all(pick.length.__class__ is int for pick in picks) else None


def _is_number(bound: Any) -> bool:
    """Whether a bound of a slice is an integer of Python's or NumPy's, or there is none."""
    return bound.__class__ is int or bound is None or is_scalar(bound)


def _line(entry: Entry, picks: Sequence[_Pick], sizes: Sequence[int], read: int) -> _Line:
    """The entry of the user's line, now with `picks`."""
    code, instruction, _ = entry
    kinds = tuple([pick.is_number for pick in picks])
    # The code is compared by its identity, and kept with its lines.
    known = _known.get((id(code), instruction, kinds))
    if known is None:
        # An index that Python has specialised after some rounds is another instruction, of the same
        # characters.
        where = next(itertools.islice(code.co_positions(), instruction // 2, None), None)
        line = _lines.setdefault((code, where, kinds), _Line(len(picks), read, code))
        known = _known.put((id(code), instruction, kinds), (code, line))
    line = known[1]
    line.note(picks, sizes, read)
    return line


def _away(tensor: Any, path: int | Away, picks: Sequence[_Pick]) -> Away | None:
    """How what is picked looks at the storage; None where only nodes tell how the tensor does."""
    if path == 0:
        shape: tuple[Any, ...] = tensor.shape
        moves: tuple[Move, ...] = ()
    elif isinstance(path, Away):
        shape, moves = path
    else:
        found = look_of_call(tensor)
        if found is None:
            return None
        shape, moves = found.shape, found.moves
    cut = tuple([(pick.start, pick.start + pick.length) for pick in picks])
    left = tuple([pick.length for pick in picks if not pick.is_number])
    return Away(shape, (*moves, (Ops.SHRINK, cut), (Ops.RESHAPE, left)))


def _kind(tensor: Any, picks: Sequence[_Pick], inputs: Sequence[int]) -> WaitingKind:
    """The common kind of the calls of a pick whose positions along the axes `inputs` are inputs, in
    this order, behind the tensor.
    """
    requires_grad = tensor._requires_grad
    fixed = tuple(
        [pick._replace(start=-1) if axis in inputs else pick for axis, pick in enumerate(picks)]
    )
    key = tensor.shape, tensor.dtype, tensor.device, tensor.__class__, fixed, requires_grad
    found = _kinds.get(key)
    if found is not None:
        return found
    old = stand_in(tensor, "operand", tensor.dtype, tensor.shape)
    positions = [stand_in(tensor, f"position {at}", dtypes.int32, ()) for at in inputs]
    made = _picked(old, picks, inputs, positions)
    template = record([made.uop], [old.uop, *[each.uop for each in positions]])
    assert template is not None
    result = Result(template.results[0], requires_grad, None, None, made.shape, tensor.dtype)
    return _kinds.put(key, WaitingKind(template, result, next_number()))


def _picked(x: Any, picks: Sequence[_Pick], inputs: Sequence[int], positions: Sequence[Any]) -> Any:
    """The elements picked of `x`, at `positions` along the axes `inputs`."""
    x = x.shrink([
        (0, size) if axis in inputs else (pick.start, pick.start + pick.length)
        for axis, (pick, size) in enumerate(zip(picks, x.shape, strict=True))
    ])  # fmt: skip
    shape = [pick.length for pick in picks if not pick.is_number]
    # From the last one on, as the axis of a number goes.
    for axis, position in reversed([*zip(inputs, positions, strict=True)]):
        others = [other for other in range(x.ndim) if other != axis]
        pick = picks[axis]
        table = x.permute(axis, *others)
        if pick.is_number:
            x = table._rows(position)
            continue
        # Row p of this table is p, p + 1, ... : the number is an index, whatever it is, and no node
        # is shared with another slice that begins there.
        count = x.shape[axis] - pick.length + 1
        indices = x._iota(count).reshape(count, 1) + x._iota(pick.length)
        rows = table._rows(indices._rows(position))
        order = [axis, *others]
        x = rows.permute([order.index(other) for other in range(rows.ndim)])
    return x.reshape(shape)
