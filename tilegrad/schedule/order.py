"""Drafts of steps, and their order: data first, and before a buffer is overwritten all who read its
old value; who cannot reads a copy of it. Then updates and folds of equal shape are joined.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tilegrad.ir.args import KernelInfo
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp
from tilegrad.schedule.items import BufferSpec
from tilegrad.schedule.join import Update, has_folds, is_update, join_updates
from tilegrad.schedule.loop import Loop
from tilegrad.schedule.versions import overwritten_by

__all__ = ["Draft", "join_drafts", "order_drafts"]

# How far up an update may move to join another.
_WINDOW = 16


@dataclass
class Draft:
    """An item before it is ordered: what it reads, what it writes, and the value it computes;
    `also` and `values` are the further outputs of one with several, and what they are.
    """

    value: UOp
    device: str
    writes: int
    reads: list[int] = field(default_factory=list)
    needs: list[UOp] = field(default_factory=list)
    ast: UOp | None = None
    nodes: tuple[int, ...] = ()
    draws: tuple[int, ...] = ()
    places: tuple[str, ...] = ()
    also: list[int] = field(default_factory=list)
    values: list[UOp] = field(default_factory=list)
    loop: Loop | None = None

    @property
    def written(self) -> list[int]:
        return [self.writes, *self.also]


def order_drafts(
    drafts: list[Draft], buffers: list[BufferSpec], memory: Mapping[UOp, int]
) -> list[Draft]:
    """The drafts in an order that gives every reader the value it wants. `memory` has the buffer of
    each value; copies of what is overwritten too early are added to `drafts` and `buffers`.
    """
    order = _Order(drafts, buffers, memory)
    order.before = order.makers_first()
    order.readers_first()
    return _sorted(drafts, order.before)


class _Order:
    """Edges between drafts, by their places: `before` has for each those that run before it."""

    def __init__(self, drafts: list[Draft], buffers: list[BufferSpec], memory: Mapping[UOp, int]):
        self.drafts, self.buffers, self.memory = drafts, buffers, memory
        self.before: list[set[int]] = []

    def makers_first(self) -> list[set[int]]:
        """For each draft those that make what it needs, and the earlier ones of its own value."""
        makers: dict[UOp, list[int]] = {}
        for place, draft in enumerate(self.drafts):
            for value in (draft.value, *draft.values):
                makers.setdefault(value, []).append(place)
        found: list[set[int]] = []
        for place, draft in enumerate(self.drafts):
            needed = {
                maker for value in draft.needs for maker in makers.get(value, ()) if maker != place
            }
            found.append(needed | {maker for maker in makers[draft.value] if maker < place})
        return found

    def readers_first(self) -> None:
        """Let those who read what a buffer held run before who overwrites it, or read a copy."""
        writers = [place for place, draft in enumerate(self.drafts) if draft.value.op is Ops.ASSIGN]
        for writer in writers:
            written = self.drafts[writer].writes
            readers = [
                place
                for place, draft in enumerate(self.drafts)
                if place != writer and written in draft.reads
            ]
            for reader in readers:
                if self.reads_old(reader, writer) and not self.depends(writer, reader):
                    if self.depends(reader, writer):
                        self.read_aside(reader, written)
                    else:
                        self.before[writer].add(reader)

    def reads_old(self, reader: int, writer: int) -> bool:
        """Whether `reader` wants what the buffer held before `writer`: it names neither that
        assignment nor a later one to the same memory.
        """
        for version in self.drafts[reader].needs:
            while version.op is Ops.ASSIGN:
                if version is self.drafts[writer].value:
                    return False
                version = overwritten_by(version)
        return True

    def depends(self, on: int, what: int) -> bool:
        """Whether draft `on` runs after draft `what` by the edges so far."""
        stack, seen = [on], set()
        while stack:
            place = stack.pop()
            if place == what:
                return True
            if place not in seen:
                seen.add(place)
                stack.extend(self.before[place])
        return False

    def read_aside(self, reader: int, written: int) -> None:
        """Copy the value of a buffer that `reader` wants before anything overwrites it, and let it
        read the copy.
        """
        draft = self.drafts[reader]
        copied = self.add_copy(draft, written)
        aside = self.drafts[copied].writes
        draft.reads = [aside if buffer == written else buffer for buffer in draft.reads]
        self.before[reader].add(copied)
        for place, other in enumerate(self.drafts):
            if other.value.op is Ops.ASSIGN and other.writes == written:
                if self.reads_old(copied, place):
                    self.before[place].add(copied)
                else:
                    self.before[copied].add(place)

    def add_copy(self, draft: Draft, written: int) -> int:
        """The place of a draft that copies the buffer `written` as `draft` wants it."""
        spec = self.buffers[written]
        self.buffers.append(replace(spec, source=None))
        loop = UOp.range(spec.size, 0, Axis.LOOP)
        target, source = (
            UOp(Ops.DEFINE_GLOBAL, spec.dtype.ptr(spec.size), (), slot) for slot in range(2)
        )
        info = KernelInfo(f"C_{spec.size}", (0,))
        ast = UOp.sink(target.store(loop, source.load(loop)), arg=info)
        wanted = [
            value
            for value in draft.needs
            if value.op is Ops.ASSIGN and self.memory[value] == written
        ]
        aside = len(self.buffers) - 1
        self.drafts.append(
            Draft(draft.value, spec.device, aside, [written], wanted, ast, draft.nodes)
        )
        self.before.append(set())
        return len(self.drafts) - 1


def _sorted(drafts: list[Draft], before: list[set[int]]) -> list[Draft]:
    """The drafts in their own order as far as the edges allow."""
    waiting = {place: set(needed) for place, needed in enumerate(before)}
    after: dict[int, list[int]] = {}
    for place, needed in waiting.items():
        for other in needed:
            after.setdefault(other, []).append(place)
    ready = sorted((place for place, needed in waiting.items() if not needed), reverse=True)
    result: list[Draft] = []
    while ready:
        place = ready.pop()
        result.append(drafts[place])
        freed = []
        for user in after.get(place, ()):
            waiting[user].discard(place)
            if not waiting[user]:
                freed.append(user)
        ready.extend(sorted(freed, reverse=True))
        ready.sort(reverse=True)
    assert len(result) == len(drafts), "the schedule has a cycle"
    return result


def join_drafts(order: list[Draft]) -> list[Draft]:
    """Updates and folds of equal shape joined, each moved up to an earlier one that nothing in
    between stands in the way of.
    """
    result: list[Draft] = []
    for draft in order:
        host = _host(draft, result)
        if host is None:
            result.append(draft)
            continue
        place, joined = host
        old = result[place]
        nodes = tuple(dict.fromkeys([*old.nodes, *draft.nodes]))
        needs = [
            *old.needs,
            *(value for value in draft.needs if value is not old.value and value not in old.values),
        ]
        first, *also = joined.written
        result[place] = replace(
            old,
            writes=first,
            also=also,
            reads=joined.buffers[joined.outputs :],
            needs=needs,
            ast=joined.ast,
            nodes=nodes,
            values=[*old.values, draft.value, *draft.values],
        )
    return result


def _host(draft: Draft, earlier: list[Draft]) -> tuple[int, Update] | None:
    """The nearest earlier kernel that `draft` can join, and both as one: an update another one or
    what makes the value it takes, a fold one that takes the same pass over memory.
    """
    if not _may_join(draft):
        return None
    assert draft.ast is not None
    is_fold = has_folds(draft.ast)
    mine = Update(draft.ast, [*draft.written, *draft.reads], len(draft.written))
    touched = {*mine.buffers}
    for place in range(len(earlier) - 1, max(len(earlier) - _WINDOW, -1), -1):
        other = earlier[place]
        if (
            other.ast is not None
            and (_may_join(other) or (other.value in draft.needs and _is_whole(other)))
            and has_folds(other.ast) is is_fold
            and other.device == draft.device
        ):
            joined = join_updates(
                Update(other.ast, [*other.written, *other.reads], len(other.written)), mine
            )
            if joined is not None:
                return place, joined
        # Past this one `draft` may move only if neither touches what the other writes.
        if touched & set(other.written) or set(mine.written) & set(other.reads):
            return None
    return None


def _may_join(draft: Draft) -> bool:
    """Whether a kernel may move up and be one with another: an update or a fold. What else is
    elementwise was stored by itself for a reason.
    """
    has_state = any(value.op is Ops.ASSIGN for value in (draft.value, *draft.values))
    return _is_whole(draft) and (has_state or (draft.ast is not None and has_folds(draft.ast)))


def _is_whole(draft: Draft) -> bool:
    """Whether a kernel writes whole values and neither draws nor looks through windows: such are
    long, and on their own most likely the same as others.
    """
    return not (draft.draws or draft.places) and draft.ast is not None and is_update(draft.ast)
