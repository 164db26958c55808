"""Linearization: each instruction in the innermost loop that it needs.

The ranges that a value needs are the loops it must be in; loops nest in the kernel's loop order. So
loop-invariant values are computed outside of the loop without a further pass.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import InternalError
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import loops_of, nesting_depth
from tilegrad.ir.uop import UOp

__all__ = ["linearize"]

# The order within a loop: definitions first, stores last, other nodes as soon as their sources are
# ready.
_EARLY = {
    Ops.DEFINE_GLOBAL: -50, Ops.DEFINE_VAR: -40, Ops.DEFINE_LOCAL: -30, Ops.SPECIAL: -25,
    Ops.DEFINE_ACC: -20, Ops.CONST: -10, Ops.COPY_ASYNC: -2, Ops.LOAD: -1, Ops.RANGE: 5,
    Ops.STORE: 10, Ops.BARRIER: 11, Ops.SINK: 20,
}  # fmt: skip


def linearize(ast: UOp) -> list[UOp]:
    """The program of a lowered kernel: every source before its users, each loop opened by its RANGE
    and closed by an END.
    """
    nodes = list(ast.toposort())
    depth = nesting_depth(ast)
    depth_of = {node: depth(node) for node in nodes if node.op is Ops.RANGE}
    # Most nodes share a few sets of loops.
    innermost: dict[frozenset[UOp], UOp | None] = {}
    home: dict[UOp, UOp | None] = {}
    members: dict[UOp | None, list[UOp]] = {None: []}
    for node in nodes:
        inside = node.ranges
        if inside not in innermost:
            innermost[inside] = max(inside, key=depth_of.__getitem__) if inside else None
        home[node] = innermost[inside]
    home |= _accumulating(nodes, home, depth_of)
    parent = _parents(innermost, depth_of)
    home |= parent
    for node in nodes:
        if node.op is Ops.END:
            home[node] = None
        elif node.op is not Ops.RANGE:
            members.setdefault(home[node], []).append(node)
    return _Emitter(nodes, home, parent, members).run()


def _accumulating(
    nodes: list[UOp], home: dict[UOp, UOp | None], depth_of: dict[UOp, int]
) -> dict[UOp, UOp | None]:
    """The loop of each value between an accumulator and its assignment: that of the assignment. One
    that is made of the accumulator and an invariant value, such as padding, needs no loop by its
    ranges, but it is another one in each iteration.
    """
    assigned = {
        node: home[node]
        for node in nodes
        if node.op is Ops.ASSIGN and node.src[0].op is Ops.DEFINE_ACC
    }
    for node in nodes:
        # An assignment of invariant values alone is in the loops that it closes.
        loops = [source for source in node.src if source.op is Ops.RANGE]
        for source in node.src if node.op is Ops.END and loops else ():
            if source in assigned and assigned[source] is None:
                assigned[source] = max(loops, key=depth_of.__getitem__)
    inside: dict[UOp, UOp | None] = {node.src[0]: loop for node, loop in assigned.items()}
    accumulators = frozenset(inside)
    for node in nodes:
        if node.op not in (Ops.AFTER, Ops.ASSIGN, Ops.END):
            found = next((source for source in node.src if source in inside), None)
            if found is not None:
                inside[node] = inside[found]
    found_in = {node: loop for node, loop in inside.items() if node not in accumulators}
    return assigned | found_in


def _parents(sets: Iterable[frozenset[UOp]], depth_of: dict[UOp, int]) -> dict[UOp, UOp | None]:
    """The parent of each loop: the deepest outer range that any node inside the loop needs."""
    outer: dict[UOp, set[UOp]] = {loop: set() for loop in depth_of}
    for inside in sets:
        ranges = sorted(inside, key=depth_of.__getitem__)
        for position, loop in enumerate(ranges):
            outer[loop].update(ranges[:position])
    for loop in sorted(depth_of, key=depth_of.__getitem__):
        for other in list(outer[loop]):
            outer[loop] |= outer[other]
    return {
        loop: max(found, key=depth_of.__getitem__) if found else None
        for loop, found in outer.items()
    }


class _Emitter:
    """Emits the body of each loop in an order that respects data and effects."""

    def __init__(
        self,
        nodes: list[UOp],
        home: dict[UOp, UOp | None],
        parent: dict[UOp, UOp | None],
        members: dict[UOp | None, list[UOp]],
    ):
        self.home, self.parent, self.members = home, parent, members
        self.rank = {node: number for number, node in enumerate(nodes)}
        self.program: list[UOp] = []
        self.ends: dict[UOp, UOp] = {}
        self.alias: dict[UOp, UOp] = {}
        self.emitted: set[UOp] = set()
        self.early = _EARLY
        if any(node.op is Ops.WMMA and not node.arg.synchronous for node in nodes):
            # Such units work while the lanes copy, and are waited for last.
            self.early = {**_EARLY, Ops.COPY_ASYNC: 1, Ops.WAIT: 2}
        elif any(node.op is Ops.COPY_ASYNC for node in nodes):
            # Copies to all arrays follow each other: `ptxas` puts three idle loads before those
            # that come after another access of shared memory.
            self.early = {**_EARLY, Ops.AFTER: -3}
        if any(node.op is Ops.COPY_TILE for node in nodes):
            # The copies of a single lane stand behind a branch, and the branch before the units:
            # `ptxas` orders the registers of units anew behind each branch.
            self.early = {**self.early, Ops.AFTER: -3, Ops.ARRIVE: -2, Ops.COPY_TILE: -2}
        self.loops_at: dict[UOp | None, list[UOp]] = {}
        for loop, outer in parent.items():
            self.loops_at.setdefault(outer, []).append(loop)

    def run(self) -> list[UOp]:
        # The items of a body are its own nodes and the loops in it; an item needs the operands of
        # any node inside it.
        needs: dict[UOp, set[UOp]] = {}
        around: dict[UOp | None, tuple[UOp, ...]] = {None: ()}
        for loop in self.parent:
            chain = [loop]
            while (outer := self.parent[chain[-1]]) is not None:
                chain.append(outer)
            around[loop] = tuple(reversed(chain))
        home = self.home
        for node in self.rank:
            if node.op is Ops.END:
                continue
            here = home[node]
            for source in node.src:
                for target in self._effects(source) if source.op is Ops.END else (source,):
                    if home[target] is here:
                        if target is not here:
                            needs.setdefault(node, set()).add(target)
                        continue
                    # The outermost loops, or nodes, that hold one of the two but not both.
                    mine, other = (*around[here], node), (*around[home[target]], target)
                    for ours, theirs in zip(mine, other, strict=False):
                        if ours is not theirs:
                            needs.setdefault(ours, set()).add(theirs)
                            break
        self._body(None, needs)
        return self.program

    def _effects(self, end: UOp) -> list[UOp]:
        """The effects that an END stands for, and the loops that it closes."""
        found: list[UOp] = []
        for source in end.src:
            found += self._effects(source) if source.op is Ops.END else [source]
        return found

    def _body(self, loop: UOp | None, needs: dict[UOp, set[UOp]]) -> None:
        stack: list[
            tuple[UOp | None, list[tuple[int, int, UOp]], dict[UOp, int], dict[UOp, list[UOp]]]
        ] = []
        stack.append(self._open(loop, needs))
        while stack:
            here, ready, waiting, _ = stack[-1]
            if not ready:
                if waiting:
                    stuck = next(iter(waiting))
                    raise InternalError("lower.linearize found no order", node=repr(stuck)[:400])
                stack.pop()
                if here is not None:
                    self._close(here)
                    if stack:
                        self._done(here, stack[-1])
                continue
            item = heapq.heappop(ready)[2]
            if item.op is Ops.RANGE:
                self._emit(item)
                stack.append(self._open(item, needs))
            else:
                self._emit(item)
                self._done(item, stack[-1])

    def _open(self, loop: UOp | None, needs: dict[UOp, set[UOp]]):  # type: ignore[no-untyped-def]
        items = [node for node in self.members.get(loop, ()) if node.op is not Ops.RANGE]
        items += self.loops_at.get(loop, [])
        inside = set(items)
        # How many items of this body each one still waits for.
        waiting: dict[UOp, int] = {}
        users: dict[UOp, list[UOp]] = {}
        ready: list[tuple[int, int, UOp]] = []
        for item in items:
            left = needs.get(item, set()) & inside
            if left:
                waiting[item] = len(left)
                for source in left:
                    users.setdefault(source, []).append(item)
            else:
                heapq.heappush(ready, (self.early.get(item.op, 0), self.rank[item], item))
        return loop, ready, waiting, users

    def _done(self, item: UOp, frame) -> None:  # type: ignore[no-untyped-def]
        _, ready, waiting, users = frame
        for user in users.get(item, ()):
            left = waiting[user] - 1
            if left:
                waiting[user] = left
            else:
                del waiting[user]
                heapq.heappush(ready, (self.early.get(user.op, 0), self.rank[user], user))

    def _emit(self, node: UOp) -> None:
        """Append `node` with its sources in the program; an END among them becomes the program's
        END of its loop.
        """
        alias = self.alias
        src: list[UOp] = []
        for source in node.src:
            if source.op is Ops.END:
                src += self._feet(source)
            else:
                src.append(alias[source])
        new = tuple(dict.fromkeys(src) if node.op in (Ops.AFTER, Ops.SINK) else src)
        made = node.over(new)
        alias[node] = made
        # Nodes that differ only in the effects that one loop closes are equal in the program.
        if made not in self.emitted:
            self.emitted.add(made)
            self.program.append(made)

    def _feet(self, end: UOp) -> list[UOp]:
        """The program's nodes for an END: the ENDs of its loops, or its effects where it closes
        none.
        """
        loops = loops_of(end)
        if loops:
            return [self.ends[loop] for loop in loops]
        return [
            made
            for source in end.src
            for made in (self._feet(source) if source.op is Ops.END else [self.alias[source]])
        ]

    def _close(self, loop: UOp) -> None:
        foot = UOp(Ops.END, dtypes.void, (self.alias[loop],))
        self.ends[loop] = foot
        self.program.append(foot)
