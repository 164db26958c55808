"""The order of items: data first, and before a buffer is overwritten all readers of its old value;
a reader that cannot run before reads a copy. Then updates and reductions of equal shape are joined.
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
from tilegrad.schedule.join import (
    MOST_BUFFERS,
    Update,
    has_reductions,
    is_update,
    join_updates,
    kernel_ranges,
)
from tilegrad.schedule.loop_steps import Loop
from tilegrad.schedule.versions import Versions
from tilegrad.target import Target, slices_of

__all__ = ["UnorderedItem", "join_items", "order_items"]

# Limits of compile time.
# The most positions that an update may move up to join another.
_REACH = 16


@dataclass
class UnorderedItem:
    """An item before it is ordered: its reads, its writes, and the value it computes. `also` and
    `values` are the further outputs of an item with several, and their values.
    """

    value: UOp
    device: str
    writes: int
    reads: list[int] = field(default_factory=list)
    needs: list[UOp] = field(default_factory=list)
    ast: UOp | None = None
    nodes: tuple[int, ...] = ()
    draws: tuple[int, ...] = ()
    offset_names: tuple[str | int, ...] = ()
    also: list[int] = field(default_factory=list)
    values: list[UOp] = field(default_factory=list)
    loop: Loop | None = None

    @property
    def written(self) -> list[int]:
        return [self.writes, *self.also]


def order_items(
    items: list[UnorderedItem], buffers: list[BufferSpec], memory: Mapping[UOp, int]
) -> list[UnorderedItem]:
    """The items in an order that gives every reader the value it wants. `memory` has the buffer of
    each value. Copies of values that are overwritten too early are added to `items` and `buffers`.
    """
    order = _Order(items, buffers, memory)
    order.before = order.makers_first()
    order.readers_first()
    result = [items[position] for position in _sorted(order.before)]
    assert len(result) == len(items), "the schedule has a cycle"
    return result


class _Order:
    """Edges between items, by their positions: `before` has for each those that run before it."""

    def __init__(
        self, items: list[UnorderedItem], buffers: list[BufferSpec], memory: Mapping[UOp, int]
    ):
        self.items, self.buffers, self.memory = items, buffers, memory
        self.before: list[set[int]] = []
        self.versions = Versions(item.value for item in items if item.value.op is Ops.ASSIGN)
        # By buffer from before: the items that write to it; and the position of each assignment.
        self.writers: dict[int, list[int]] = {}
        self.position_of: dict[UOp, int] = {}
        for position, item in enumerate(items):
            if item.value.op is Ops.ASSIGN:
                self.writers.setdefault(item.writes, []).append(position)
                self.position_of[item.value] = position

    def makers_first(self) -> list[set[int]]:
        """For each item the makers of its inputs, and the earlier items of its own value."""
        makers: dict[UOp, list[int]] = {}
        for position, item in enumerate(self.items):
            for value in (item.value, *item.values):
                makers.setdefault(value, []).append(position)
        found: list[set[int]] = []
        for position, item in enumerate(self.items):
            needed = {
                maker
                for value in item.needs
                for maker in makers.get(value, ())
                if maker != position
            }
            found.append(needed | {maker for maker in makers[item.value] if maker < position})
        return found

    def readers_first(self) -> None:
        """Let readers of the old value of a buffer run before the item that overwrites it, or read
        a copy.
        """
        wanted = self.readers_of_old()
        if not wanted:
            return
        given = [set(needed) for needed in self.before]
        for writer, reader in wanted:
            self.before[writer].add(reader)
        if len(_sorted(self.before)) == len(self.items):
            return
        # Some stand in each other's way: one by one, those who can.
        self.before = given
        ranks = _ItemRanks(given)
        for writer, reader in wanted:
            written = self.items[writer].writes
            if written not in self.items[reader].reads:
                # It reads a copy by now.
                continue
            if not ranks.put_before(reader, writer):
                copied, later = self.read_aside(reader, written)
                ranks.insert(copied, later)

    def readers_of_old(self) -> list[tuple[int, int]]:
        """The pairs (writer, reader) where the reader needs the value from before the writer. If
        each version of a buffer is overwritten once, it is enough that the reader runs before the
        first writer after the version that it reads.
        """
        found: list[tuple[int, int]] = []
        for reader, item in enumerate(self.items):
            for written in dict.fromkeys(item.reads):
                found += [
                    (writer, reader)
                    for writer in self.nearest_writers(item, written)
                    if writer != reader and self.reads_old(reader, writer)
                ]
        return sorted(found)

    def nearest_writers(self, item: UnorderedItem, written: int) -> Sequence[int]:
        """The writers of the buffer `written`. If its versions are a chain, only the writer of the
        version that an item reads, and the next one.
        """
        writers = self.writers.get(written, ())
        if len(writers) < 3 or not self.versions.are_a_chain:
            return writers
        named = [
            version
            for version in item.needs
            if version.op is Ops.ASSIGN and self.memory[version] == written
        ]
        if named:
            newest = max(named, key=self.versions.number)
        else:
            newest = self.versions.first(self.items[writers[0]].value)
        near = (newest, self.versions.after(newest))
        return [self.position_of[each] for each in near if each in self.position_of]

    def reads_old(self, reader: int, writer: int) -> bool:
        """Whether `reader` wants the buffer's value before `writer`: it names neither that
        assignment nor a later one to the same memory.
        """
        assign = self.items[writer].value
        return not any(
            self.versions.is_from(version, assign)
            for version in self.items[reader].needs
            if version.op is Ops.ASSIGN
        )

    def read_aside(self, reader: int, written: int) -> tuple[int, list[int]]:
        """Copy the value of a buffer that `reader` wants before anything overwrites it, and let it
        read the copy; the positions of the copy, and of those that run after it.
        """
        item = self.items[reader]
        copied = self.add_copy(item, written)
        aside = self.items[copied].writes
        item.reads = [aside if buffer == written else buffer for buffer in item.reads]
        self.before[reader].add(copied)
        later = [reader]
        for position in self.nearest_writers(self.items[copied], written):
            if self.reads_old(copied, position):
                self.before[position].add(copied)
                later.append(position)
            else:
                self.before[copied].add(position)
        return copied, later

    def add_copy(self, item: UnorderedItem, written: int) -> int:
        """The position of an item that copies the buffer `written` as `item` wants it."""
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
            for value in item.needs
            if value.op is Ops.ASSIGN and self.memory[value] == written
        ]
        aside = len(self.buffers) - 1
        self.items.append(
            UnorderedItem(item.value, spec.device, aside, [written], wanted, ast, item.nodes)
        )
        self.before.append(set())
        return len(self.items) - 1


class _ItemRanks:
    """Numbers for items that grow along the edges `before`, as far as they can be added without a
    cycle. Only items between two items are looked at, and numbered anew, to put one of them before
    the other (Pearce and Kelly, A dynamic topological sort algorithm, 2006).
    """

    def __init__(self, before: list[set[int]]):
        self._before = before
        self._after: list[set[int]] = [set() for _ in before]
        for position, needed in enumerate(before):
            for other in needed:
                self._after[other].add(position)
        self._rank = [0] * len(before)
        for number, position in enumerate(_sorted(before)):
            self._rank[position] = number

    def put_before(self, first: int, then: int) -> bool:
        """Add an edge from `first` to `then`; False, and no edge, if it would close a cycle."""
        rank = self._rank
        low, high = rank[then], rank[first]
        if high >= low:
            ahead = _reached(first, self._before, lambda item: rank[item] >= low)
            if then in ahead:
                return False
            behind = _reached(then, self._after, lambda item: rank[item] <= high)
            numbers = sorted([rank[item] for item in (*ahead, *behind)])
            order = sorted(ahead, key=rank.__getitem__) + sorted(behind, key=rank.__getitem__)
            for position, number in zip(order, numbers, strict=True):
                rank[position] = number
        self._before[then].add(first)
        self._after[first].add(then)
        return True

    def insert(self, position: int, later: Iterable[int]) -> None:
        """Number a new item, whose edges were added, and which the items `later` follow."""
        needed = self._before[position]
        self._rank.append(max([self._rank[other] for other in needed], default=-1))
        self._after.append(set(later))
        for other in needed:
            self._after[other].add(position)


def _reached(start: int, edges: list[set[int]], may: Callable[[int], bool]) -> set[int]:
    stack, seen = [start], {start}
    while stack:
        fresh = [each for each in edges[stack.pop()] if each not in seen and may(each)]
        seen.update(fresh)
        stack += fresh
    return seen


def _sorted(before: list[set[int]]) -> list[int]:
    """The items in their own order as far as the edges allow; without those in a cycle, and behind
    one.
    """
    waiting = [len(needed) for needed in before]
    after: dict[int, list[int]] = {}
    for position, needed in enumerate(before):
        for other in needed:
            after.setdefault(other, []).append(position)
    ready = [number for number, count in enumerate(waiting) if not count]
    result: list[int] = []
    while ready:
        position = heapq.heappop(ready)
        result.append(position)
        for user in after.get(position, ()):
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, user)
    return result


def join_items(
    order: list[UnorderedItem], targets: Mapping[str, Target], bytes_of: Callable[[int], int]
) -> list[UnorderedItem]:
    """Updates and reductions of equal shape joined, each moved up to an earlier one that nothing in
    between stands in the way of. `targets` are those of the devices, and `bytes_of` gives the size
    of a buffer.
    """
    result: list[UnorderedItem] = []
    facts = _JoiningFacts()
    for item in order:
        host = _host(item, result, targets[item.device], bytes_of, facts)
        if host is None:
            result.append(item)
            continue
        position, joined, numbers = host
        old = result[position]
        nodes = tuple(dict.fromkeys([*old.nodes, *item.nodes]))
        needs = [
            *old.needs,
            *(value for value in item.needs if value is not old.value and value not in old.values),
        ]
        first, *also = joined.written
        result[position] = replace(
            old,
            writes=first,
            also=also,
            reads=joined.buffers[joined.outputs :],
            needs=needs,
            ast=joined.ast,
            nodes=nodes,
            values=[*old.values, item.value, *item.values],
            offset_names=numbers,
        )
    return result


class _JoiningFacts:
    """Facts of kernels that each attempt to join them needs, found once."""

    def __init__(self) -> None:
        self._reduces: dict[UOp, bool] = {}
        self._is_whole: dict[UOp, bool] = {}
        self._loops: dict[UOp, tuple[tuple[int | None, Axis], ...]] = {}

    def reduces(self, ast: UOp) -> bool:
        """Whether the kernel has a reduction."""
        found = self._reduces.get(ast)
        if found is None:
            found = self._reduces[ast] = has_reductions(ast)
        return found

    def have_other_loops(self, one: UOp, other: UOp) -> bool:
        """Whether two kernels have loops of other extents, so that they cannot be joined."""
        mine, theirs = self._loops_of(one), self._loops_of(other)
        if mine == theirs:
            return False
        return len(mine) != len(theirs) or any(
            loop != beside and None not in (loop[0], beside[0])
            for loop, beside in zip(mine, theirs, strict=True)
        )

    def _loops_of(self, ast: UOp) -> tuple[tuple[int | None, Axis], ...]:
        """The extents of a kernel's loops, where they are numbers, and their axes."""
        found = self._loops.get(ast)
        if found is None:
            found = self._loops[ast] = tuple(
                (loop.extent.arg if loop.extent.op is Ops.CONST else None, loop.axis)
                for loop in kernel_ranges(ast)
            )
        return found

    def is_whole(self, item: UnorderedItem) -> bool:
        """Whether a kernel writes whole values and neither draws nor reads slices whose offsets
        change: such are long, and on their own most likely the same as others. Numbers that change
        may be.
        """
        has_slices = not all(
            isinstance(name, str) and is_number(name) for name in item.offset_names
        )
        if item.draws or has_slices or item.ast is None:
            return False
        found = self._is_whole.get(item.ast)
        if found is None:
            found = self._is_whole[item.ast] = is_update(item.ast)
        return found

    def may_join(self, item: UnorderedItem) -> bool:
        """Whether a kernel may move up and join another: an update or a reduction. Other
        elementwise values were stored by themselves for a reason.
        """
        has_state = any(_is_state(value) for value in (item.value, *item.values))
        return self.is_whole(item) and (
            has_state or (item.ast is not None and self.reduces(item.ast))
        )


def _host(
    item: UnorderedItem,
    earlier: list[UnorderedItem],
    target: Target,
    bytes_of: Callable[[int], int],
    facts: _JoiningFacts,
) -> tuple[int, Update, tuple[str | int, ...]] | None:
    """The nearest earlier kernel that `item` can join, both as one, and the numbers that change in
    both. An update joins another one, or the maker of a value that it takes; a reduction joins one
    with the same pass over memory.
    """
    if not facts.may_join(item):
        return None
    assert item.ast is not None
    is_reduction = facts.reduces(item.ast)
    mine = Update(item.ast, [*item.written, *item.reads], len(item.written))
    touched = {*mine.buffers}
    for position in range(len(earlier) - 1, max(len(earlier) - _REACH, -1), -1):
        other = earlier[position]
        if (
            other.ast is not None
            and other.device == item.device
            and facts.reduces(other.ast) is is_reduction
            and not facts.have_other_loops(other.ast, item.ast)
            and (facts.may_join(other) or (other.value in item.needs and facts.is_whole(other)))
        ):
            numbers = tuple(dict.fromkeys([*other.offset_names, *item.offset_names]))
            joined = join_updates(
                Update(other.ast, [*other.written, *other.reads], len(other.written)),
                replace(mine, ast=_renumbered(item.ast, item.offset_names, numbers)),
                min(target.most_buffers or MOST_BUFFERS, MOST_BUFFERS),
            )
            if joined is not None and _is_bound(joined, target, bytes_of):
                return position, joined, numbers
        # Past this one `item` may move only if neither touches the other's outputs.
        if touched & set(other.written) or set(mine.written) & set(other.reads):
            return None
    return None


def _is_bound(joined: Update, target: Target, bytes_of: Callable[[int], int]) -> bool:
    """Whether a device binds all memory of a kernel; a large buffer counts as its slices."""
    if not (target.most_buffers and target.bound_bytes):
        return True
    slices = [slices_of(bytes_of(number), target.bound_bytes) for number in joined.buffers]
    return sum(slices) <= target.most_buffers


def _is_state(value: UOp) -> bool:
    """Whether a value is the new value of a tensor: it is written to the tensor's memory, or to new
    memory, and then names its device.
    """
    if value.op is Ops.CONTIGUOUS:
        return isinstance(value.arg, str) and not value.src[0].is_constant
    return value.op is Ops.ASSIGN


def _renumbered(ast: UOp, own: Sequence[str | int], numbers: Sequence[str | int]) -> UOp:
    """A kernel whose variables, numbered as `own`, are numbered as `numbers`."""
    if not own or own == numbers:
        return ast
    fresh: dict[UOp, UOp] = {}
    for node in ast.toposort():
        if node.op is Ops.DEFINE_VAR and (number := offset_number(node.name)) is not None:
            name = renamed(node.name, numbers.index(own[number]))
            fresh[node] = node.replace(arg=(name, *node.arg[1:]))
    return ast.substitute(fresh)
