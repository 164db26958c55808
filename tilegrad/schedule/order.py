"""Drafts of steps, and their order: data first, and before a buffer is overwritten all who read its
old value; who cannot reads a copy of it. Then updates and folds of equal shape are joined.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilegrad.ir.args import KernelInfo
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.slices import is_number, offset_number, renamed
from tilegrad.ir.uop import UOp
from tilegrad.schedule.items import BufferSpec
from tilegrad.schedule.join import MOST_BUFFERS, Update, has_folds, is_update, join_updates
from tilegrad.schedule.loop import Loop
from tilegrad.schedule.versions import Versions

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
    result = [drafts[place] for place in _sorted(order.before)]
    assert len(result) == len(drafts), "the schedule has a cycle"
    return result


class _Order:
    """Edges between drafts, by their places: `before` has for each those that run before it."""

    def __init__(self, drafts: list[Draft], buffers: list[BufferSpec], memory: Mapping[UOp, int]):
        self.drafts, self.buffers, self.memory = drafts, buffers, memory
        self.before: list[set[int]] = []
        self.versions = Versions(draft.value for draft in drafts if draft.value.op is Ops.ASSIGN)
        # Who writes to a buffer that was there before, and the place of each assignment.
        self.writers: dict[int, list[int]] = {}
        self.place_of: dict[UOp, int] = {}
        for place, draft in enumerate(drafts):
            if draft.value.op is Ops.ASSIGN:
                self.writers.setdefault(draft.writes, []).append(place)
                self.place_of[draft.value] = place

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
        wanted = self.readers_of_old()
        if not wanted:
            return
        given = [set(needed) for needed in self.before]
        for writer, reader in wanted:
            self.before[writer].add(reader)
        if len(_sorted(self.before)) == len(self.drafts):
            return
        # Some stand in each other's way: one by one, those who can.
        self.before = given
        ranks = _Ranks(given)
        for writer, reader in wanted:
            written = self.drafts[writer].writes
            if written not in self.drafts[reader].reads:
                # It reads a copy by now.
                continue
            if not ranks.put_before(reader, writer):
                copied, later = self.read_aside(reader, written)
                ranks.insert(copied, later)

    def readers_of_old(self) -> list[tuple[int, int]]:
        """The pairs (writer, reader) where the reader wants what a buffer held before the writer.
        Where each version of a buffer is overwritten once, it is enough that it runs before the
        first writer after the version that it reads.
        """
        found: list[tuple[int, int]] = []
        for reader, draft in enumerate(self.drafts):
            for written in dict.fromkeys(draft.reads):
                found += [
                    (writer, reader)
                    for writer in self.nearest_writers(draft, written)
                    if writer != reader and self.reads_old(reader, writer)
                ]
        return sorted(found)

    def nearest_writers(self, draft: Draft, written: int) -> Sequence[int]:
        """Those who write to the buffer `written`; of a chain of versions, who made the one that a
        draft reads, and who overwrites that.
        """
        writers = self.writers.get(written, ())
        if len(writers) < 3 or not self.versions.are_a_chain:
            return writers
        named = [
            version
            for version in draft.needs
            if version.op is Ops.ASSIGN and self.memory[version] == written
        ]
        if named:
            newest = max(named, key=self.versions.number)
        else:
            newest = self.versions.first(self.drafts[writers[0]].value)
        near = (newest, self.versions.after(newest))
        return [self.place_of[each] for each in near if each in self.place_of]

    def reads_old(self, reader: int, writer: int) -> bool:
        """Whether `reader` wants what the buffer held before `writer`: it names neither that
        assignment nor a later one to the same memory.
        """
        assign = self.drafts[writer].value
        return not any(
            self.versions.is_from(version, assign)
            for version in self.drafts[reader].needs
            if version.op is Ops.ASSIGN
        )

    def read_aside(self, reader: int, written: int) -> tuple[int, list[int]]:
        """Copy the value of a buffer that `reader` wants before anything overwrites it, and let it
        read the copy; the places of the copy, and of those that run after it.
        """
        draft = self.drafts[reader]
        copied = self.add_copy(draft, written)
        aside = self.drafts[copied].writes
        draft.reads = [aside if buffer == written else buffer for buffer in draft.reads]
        self.before[reader].add(copied)
        later = [reader]
        for place in self.nearest_writers(self.drafts[copied], written):
            if self.reads_old(copied, place):
                self.before[place].add(copied)
                later.append(place)
            else:
                self.before[copied].add(place)
        return copied, later

    def add_copy(self, draft: Draft, written: int) -> int:
        """The place of a draft that copies the buffer `written` as `draft` wants it."""
        spec = self.buffers[written]
        self.buffers.append(replace(spec, source=None))
        loop = UOp.range(spec.extent if spec.extent is not None else spec.size, 0, Axis.LOOP)
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


class _Ranks:
    """Numbers for drafts that grow along the edges `before`, as far as they can be added without a
    cycle. Only what stands between two drafts is looked at, and numbered anew, to put one of them
    before the other (Pearce and Kelly, A dynamic topological sort algorithm, 2006).
    """

    def __init__(self, before: list[set[int]]):
        self._before = before
        self._after: list[set[int]] = [set() for _ in before]
        for place, needed in enumerate(before):
            for other in needed:
                self._after[other].add(place)
        self._rank = [0] * len(before)
        for number, place in enumerate(_sorted(before)):
            self._rank[place] = number

    def put_before(self, first: int, then: int) -> bool:
        """Add an edge from `first` to `then`; False, and no edge, if it would close a cycle."""
        rank = self._rank
        low, high = rank[then], rank[first]
        if high >= low:
            ahead = _reached(first, self._before, lambda place: rank[place] >= low)
            if then in ahead:
                return False
            behind = _reached(then, self._after, lambda place: rank[place] <= high)
            numbers = sorted([rank[place] for place in (*ahead, *behind)])
            order = sorted(ahead, key=rank.__getitem__) + sorted(behind, key=rank.__getitem__)
            for place, number in zip(order, numbers, strict=True):
                rank[place] = number
        self._before[then].add(first)
        self._after[first].add(then)
        return True

    def insert(self, place: int, later: Iterable[int]) -> None:
        """Number a new draft, whose edges were added, and which the drafts `later` follow."""
        needed = self._before[place]
        self._rank.append(max([self._rank[other] for other in needed], default=-1))
        self._after.append(set(later))
        for other in needed:
            self._after[other].add(place)


def _reached(start: int, edges: list[set[int]], may: Callable[[int], bool]) -> set[int]:
    stack, seen = [start], {start}
    while stack:
        fresh = [each for each in edges[stack.pop()] if each not in seen and may(each)]
        seen.update(fresh)
        stack += fresh
    return seen


def _sorted(before: list[set[int]]) -> list[int]:
    """The drafts in their own order as far as the edges allow; without those in a cycle, and behind
    one.
    """
    waiting = [len(needed) for needed in before]
    after: dict[int, list[int]] = {}
    for place, needed in enumerate(before):
        for other in needed:
            after.setdefault(other, []).append(place)
    ready = [place for place, count in enumerate(waiting) if not count]
    result: list[int] = []
    while ready:
        place = heapq.heappop(ready)
        result.append(place)
        for user in after.get(place, ()):
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, user)
    return result


def join_drafts(order: list[Draft], limits: Mapping[str, int]) -> list[Draft]:
    """Updates and folds of equal shape joined, each moved up to an earlier one that nothing in
    between stands in the way of. `limits` has the buffers that a kernel of each device may use, 0
    for any number.
    """
    result: list[Draft] = []
    for draft in order:
        host = _host(draft, result, limits[draft.device] or MOST_BUFFERS)
        if host is None:
            result.append(draft)
            continue
        place, joined, numbers = host
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
            places=numbers,
        )
    return result


def _host(
    draft: Draft, earlier: list[Draft], most_buffers: int
) -> tuple[int, Update, tuple[str, ...]] | None:
    """The nearest earlier kernel that `draft` can join, both as one, and the numbers that change in
    both: an update another one or what makes the value it takes, a fold one that takes the same
    pass over memory.
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
            numbers = tuple(dict.fromkeys([*other.places, *draft.places]))
            joined = join_updates(
                Update(other.ast, [*other.written, *other.reads], len(other.written)),
                replace(mine, ast=_renumbered(draft.ast, draft.places, numbers)),
                min(most_buffers, MOST_BUFFERS),
            )
            if joined is not None:
                return place, joined, numbers
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


def _renumbered(ast: UOp, own: Sequence[str], numbers: Sequence[str]) -> UOp:
    """A kernel whose variables, numbered as `own`, are numbered as `numbers`."""
    if not own or own == numbers:
        return ast
    fresh: dict[UOp, UOp] = {}
    for node in ast.toposort():
        if node.op is Ops.DEFINE_VAR and (number := offset_number(node.arg[0])) is not None:
            name = renamed(node.arg[0], numbers.index(own[number]))
            fresh[node] = node.replace(arg=(name, *node.arg[1:]))
    return ast.substitute(fresh)


def _is_whole(draft: Draft) -> bool:
    """Whether a kernel writes whole values and neither draws nor reads slices whose offsets change:
    such are long, and on their own most likely the same as others. Numbers that change may be.
    """
    has_slices = not all(is_number(name) for name in draft.places)
    return not (draft.draws or has_slices) and draft.ast is not None and is_update(draft.ast)
