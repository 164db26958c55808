"""The request of a run, found in one walk: the graph with numbers for its nodes, and its signature.

Equal graphs over other memory share the signature, and the run follows from it (`bindings` beside
this file). So a graph whose signature has run before is not made again, not even the graph in which
memory stands for computed values: its nodes are found here by number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from typing import Any

from tilegrad.base.trace import counters
from tilegrad.engine.realize.launch_numbers import INDEXED, is_index, may_change
from tilegrad.engine.run.leaf_memory import is_overwritten
from tilegrad.ir.args import KernelArg
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, alive

__all__ = ["Request", "is_compared"]

_FLOAT_BITS = Struct("<d")
# Ops between memory and a slice of it (ir.slices).
_ORDER = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.DETACH})
_SPECIAL = _ORDER | {Ops.CONST, Ops.BUFFER, Ops.RAND, Ops.SHRINK, Ops.ASSIGN, Ops.AFTER}
_CONSTANT = Ops.CONST.serial
# Arguments that are equal only if they mean the same, and cost nothing to keep.
_PLAIN = frozenset({type(None), tuple, str, int, bool, Ops})


class Request:
    """The graphs of some roots, each node once, sources first. Nodes that were computed before
    count as the memory that holds their values.

    `stored` gives [movement of] the BUFFER that holds a node's value, if it was computed.

    Attributes:
        nodes: the nodes by number.
        sources: for each number, those of its sources.
        numbers: the number of a node; of one that was computed, that of its memory.
        roots: the numbers of the requested nodes.
        assigns: the numbers of assignments, and `versions` those of memory that they leave.
        slices: the numbers of slices of memory whose offsets are integers.
        needed_later: the numbers of nodes that other graphs use as well: values that the plan
            stores anyway, and that these can be computed from, are results too.
        lengths: the values of the lengths of the plan that computes it (`ir.lengths`).
        comes_again: of such a plan, counts a run that does not ask for its binding; False where the
            sizes are to have a plan of their own.
        lengths_of: of such a plan, the lengths of another graph that differs in sizes only; None if
            the plan is not for these.
        constants: the numbers of constants whose values may be variables of the launches, one for
            each use.
        explained: of such a plan, the constants that follow from the lengths.
        bindings: those among which it has its binding, if equal requests have the same.
    """

    __slots__ = (
        "_arguments", "_signature", "_stored", "_targets", "_views", "assigns", "bindings",
        "comes_again", "constants", "explained", "lengths", "lengths_of", "needed_later",
        "nodes", "numbers", "roots", "slices", "sources", "versions",
    )  # fmt: skip

    def __init__(self, stored: Callable[[UOp], UOp | None]):
        self._stored = stored
        self.nodes: list[UOp] = []
        self.sources: list[tuple[int, ...]] = []
        self.numbers: dict[UOp, int] = {}
        self.roots: list[int] = []
        self.assigns: list[int] = []
        self.versions: list[int] = []
        self.slices: list[int] = []
        self.constants: list[int] = []
        self.needed_later: tuple[int, ...] = ()
        self.lengths: Mapping[str, int] = {}
        self.comes_again: Callable[[], bool] | None = None
        self.explained: frozenset[int] = frozenset()
        self.lengths_of: Callable[[Request], Mapping[str, int] | None] | None = None
        self.bindings: Any = None
        self._arguments: dict[Any, int] = {}
        self._signature: list[Any] = []
        self._views: set[int] = set()
        # By assignments, the memory after them.
        self._targets: dict[int, int] = {}

    def __contains__(self, node: UOp) -> bool:
        return node in self.numbers

    def want(self, roots: Iterable[UOp]) -> None:
        """Ask for `roots` too."""
        known = len(self.nodes)
        for root in roots:
            self._walk(root)
            self.roots.append(self.numbers[root])
        counters.visits += len(self.nodes) - known

    def signature(self) -> tuple[Any, ...]:
        """The key that equal graphs over other memory share: all but the offsets of slices of
        memory, the numbers of random draws, and the values of most float constants.
        """
        return (*self._signature, *self.roots)

    @property
    def rows(self) -> list[Any]:
        """The row of each node in the signature."""
        return self._signature

    def lost(self) -> dict[int, None]:
        """The numbers of the nodes that are computed from memory which was overwritten, that memory
        first.
        """
        lost = dict.fromkeys(
            number
            for number, node in enumerate(self.nodes)
            if node.op is Ops.BUFFER and is_overwritten(node)
        )
        if lost:
            for number, sources in enumerate(self.sources):
                if any(source in lost for source in sources):
                    lost[number] = None
        return lost

    def target_of(self, assign: int) -> int:
        """The memory that assignment number `assign` writes to."""
        return self._targets[assign]

    def version_of(self, assign: int) -> int:
        """The memory that assignment number `assign` writes to, as the one before left it."""
        position = self.sources[assign][0]
        while self.nodes[position].op.is_movement:
            position = self.sources[position][0]
        return position

    def _memory_of(self, number: int) -> int:
        """The memory that a node views, whatever was written to it."""
        while number not in self._targets and self.nodes[number].op is not Ops.BUFFER:
            number = self.sources[number][0]
        return self._targets.get(number, number)

    def apart(self, rows: Sequence[int], sources: Sequence[tuple[int, ...]]) -> Request:
        """The same graph, in which constants that several nodes share are one for each.

        Args:
            rows: for each number there, the one here; each number here stands at least once.
            sources: the sources there.
        """
        first: dict[int, int] = {}
        for there, here in enumerate(rows):
            first.setdefault(here, there)

        def moved(numbers: Iterable[int]) -> list[int]:
            return [first[number] for number in numbers]

        made = Request(self._stored)
        made.nodes, made.sources = [self.nodes[here] for here in rows], [*sources]
        made.numbers = {node: first[number] for node, number in self.numbers.items()}
        made.roots, made.needed_later = moved(self.roots), tuple(moved(self.needed_later))
        made.assigns, made.versions = moved(self.assigns), moved(self.versions)
        made.slices, uses = moved(self.slices), {*self.constants}
        made.constants = [there for there, here in enumerate(rows) if here in uses]
        made._arguments = self._arguments
        made._signature = [
            (*self._signature[here][:-1], own) for here, own in zip(rows, sources, strict=True)
        ]
        made._views = {*moved(self._views)}
        made._targets = {first[one]: first[two] for one, two in self._targets.items()}
        return made

    def become(self, other: Request) -> None:
        """Be as another request for the same nodes."""
        for name in Request.__slots__:
            setattr(self, name, getattr(other, name))

    def _walk(self, root: UOp) -> None:
        numbers, nodes, all_sources, signature = (
            self.numbers,
            self.nodes,
            self.sources,
            self._signature,
        )
        stored, number_of = self._stored, self.numbers.get
        # A node waits here for its sources, under None.
        stack: list[UOp | None] = [root]
        while stack:
            node = stack.pop()
            if node is None:
                node = stack.pop()
                assert node is not None
                src = node.src
            else:
                if node in numbers:
                    continue
                if node.stored is not None and (memory := stored(node)) is not None:
                    if memory in numbers:
                        numbers[node] = numbers[memory]
                    else:
                        stack += (node, memory)
                    continue
                src = node.src
                waits = False
                for each in src if node.op not in INDEXED else _without_number(src):
                    if each not in numbers and (each.op is not Ops.CONST or not may_change(each)):
                        if not waits:
                            stack += (node, None)
                            waits = True
                        stack.append(each)
                if waits:
                    continue
            op, arg = node.op, node.arg
            if op in INDEXED and is_index(src[1]):
                first, rest = numbers[src[0]], [numbers[each] for each in src[2:]]
                sources = first, self._used(src[1]), *rest
            else:
                # A source without a number by now is a constant that may change.
                sources = tuple(
                    [self._used(each) if (at := number_of(each)) is None else at for each in src]
                )
            number = numbers[node] = len(nodes)
            nodes.append(node)
            all_sources.append(sources)
            if op in _SPECIAL or arg.__class__ not in _PLAIN:
                arg = self._shared(number, node, sources)
                if op is Ops.LOOP:
                    # Outputs that live nodes need are computed by the same run.
                    stack += _outputs_alive(node)
            signature.append((op.serial, node.dtype, arg, sources))

    def _used(self, constant: UOp) -> int:
        """A number for the use of a constant that may change: it has one for each, as two that are
        equal in this graph may differ in the next.
        """
        number = len(self.nodes)
        self.nodes.append(constant)
        self.sources.append(())
        self.constants.append(number)
        self._signature.append((_CONSTANT, constant.dtype, None, ()))
        return number

    def _shared(self, number: int, node: UOp, sources: tuple[int, ...]) -> Any:
        """The argument of a node as far as equal graphs over other memory share it."""
        op, arg = node.op, node.arg
        if op in _ORDER:
            if sources[0] in self._views:
                self._views.add(number)
            # Not the mark of an output of a region, which is another one each time.
            return arg if is_compared(arg) else None
        elif op is Ops.CONST:
            if may_change(node):
                self.constants.append(number)
                return None
            return _FLOAT_BITS.pack(arg) if node.dtype.is_float else arg
        elif op is Ops.BUFFER:
            self._views.add(number)
            return arg.device, arg.size
        elif op is Ops.RAND:
            return arg.device, arg.shape
        elif op is Ops.SHRINK:
            if sources[0] in self._views and all(
                type(start) is int is type(end) for start, end in arg
            ):
                self.slices.append(number)
                return tuple([end - start for start, end in arg])
        elif op is Ops.ASSIGN:
            self.assigns.append(number)
            self.versions.append(number)
            self._targets[number] = self._memory_of(sources[0])
        elif op is Ops.AFTER:
            self.versions.append(number)
            self._targets[number] = self._memory_of(sources[0])
        elif type(arg) is KernelArg and arg.family is not None:
            return arg.family, arg.sizes
        elif type(arg) not in _PLAIN:
            # A Python function may hold anything: it is known by its name, and by where it recurs.
            return repr(arg), self._arguments.setdefault(arg, number)
        return arg


def is_compared(arg: Any) -> bool:
    """Whether the argument of a view or of a DETACH tells graphs apart. A region's mark does not:
    it says where gradients go, and no two are equal.
    """
    return arg.__class__ in _PLAIN or isinstance(arg, tuple)


def _without_number(src: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """The sources of an op with an index, but for an index that is a number."""
    return (src[0], *src[2:]) if is_index(src[1]) else src


def _outputs_alive(loop: UOp) -> list[UOp]:
    """The outputs of a loop that live nodes need."""
    values = [(number, loop.arg.value(number)) for number in range(loop.arg.outputs)]
    found = [alive(Ops.LOOP_OUTPUT, value.dtype, (loop,), number) for number, value in values]
    return [output for output in found if output is not None]
