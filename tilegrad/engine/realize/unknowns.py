"""Relations between the sizes of a graph, found from a few graphs that differ in sizes only.

Each size has one number in each graph. A size with the same number in all of them is constant. The
smallest of the others are unknowns, and the rest is explained by these: 12 and 20 beside 3 and 5
are four times the unknown, 4 and 6 are the unknown plus one. Two numbers prove little, so an
explanation is used under two conditions. The graph must be a graph whatever the unknowns are:
operands of one shape, as many elements after a RESHAPE as before. All sizes of each further graph
are compared with the explanation (`Explained.values`). So a wrong guess costs a plan, never a
value.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from enum import Enum

from tilegrad.engine.realize.explained import Explained, Shape
from tilegrad.engine.realize.kernel_shapes import kernel_shapes
from tilegrad.engine.realize.launch_numbers import INDEXED, is_index, may_be_number
from tilegrad.engine.realize.request import Request
from tilegrad.engine.realize.skeleton import role_of, sizes_of, twin_writes
from tilegrad.ir import polynomial as poly
from tilegrad.ir.op import Ops
from tilegrad.ir.polynomial import Polynomial
from tilegrad.ir.size_patterns import Sizes

__all__ = ["explain"]

Seen = tuple[int, ...]

# Elements of one value: beyond, positions need 64 bits.
_MOST_ELEMENTS = 1 << 31
# The most walks of a graph: each may add an equation of the unknowns, from two shapes that must be
# equal.
_MOST_EQUATIONS = 64
# The largest factor and difference by which one size may follow from another.
_MOST_SCALE, _MOST_OFFSET = 16, 64
# From this many sizes of memory on they are taken for unknowns of their own first.
_SEVERAL = 3
_SAME_SHAPE = frozenset({
    Ops.CAST, Ops.BITCAST, Ops.CONTIGUOUS, Ops.DETACH, Ops.COPY, Ops.FLIP
})  # fmt: skip
_ONE = poly.constant(1)


class _Differ(Exception):
    """Two sizes that must be equal are not."""

    def __init__(self, left: Polynomial, right: Polynomial):
        super().__init__()
        self.left, self.right = left, right


class _NoGraph(Exception):
    """The explained sizes give no graph for all values, or none that is planned here."""


def explain(request: Request, graphs: Sequence[Sizes], reach: int) -> Explained | None:
    """How the sizes of `graphs` follow from each other; None if that is not found. The last graph
    is `request`. Unknowns may be up to `reach`, or four times the largest seen, as far as the graph
    allows.
    """
    for guess in _Guess:
        try:
            return _Solver(request, graphs, reach, guess).solve()
        except _NoGraph:
            continue
    return None


class _Guess(Enum):
    """By which rules sizes may follow from others, beside what the graph demands. Between a few
    numbers a relation is hardly chance, but among those of five tensors of lengths of their own two
    differ by as much in both graphs.
    """

    APART = "sizes of memory are unknowns of their own, where there are several"
    RELATED = "multiples, products, sums and differences"
    LOOSE = "multiples and a number more, too"


class _Solver:
    def __init__(self, request: Request, graphs: Sequence[Sizes], reach: int, guess: _Guess):
        self.request, self.graphs = request, graphs
        self.reach, self.guess = reach, guess
        self.seen: list[Seen] = list(zip(*graphs, strict=True))
        # Where the sizes of each node begin.
        self.first = [0, *itertools.accumulate(len(sizes_of(node)) for node in request.nodes)]
        self.known: dict[Seen, Polynomial] = {}
        self.defined: list[int] = []
        self.shapes: list[Shape] = []
        self.is_free = self._free_starts()
        # The sizes that are constants which may be variables of the launches.
        self.is_number = {
            self.first[number]
            for number in self.request.constants
            if self.first[number] < self.first[number + 1]
        }
        # By slice and axis, the elements behind it where these follow from two unknowns.
        self.ends: dict[tuple[int, int], Polynomial] = {}

    def solve(self) -> Explained:
        self._explain_all()
        for _ in range(_MOST_EQUATIONS):
            try:
                self.shapes = []
                self._walk()
            except _Differ as found:
                self._equate(found)
            else:
                self._check_writes()
                return self._bounded()
        raise _NoGraph

    # relations between sizes

    def _explain_all(self) -> None:
        memory: list[int] = []
        numbers: list[int] = []
        shapes: list[int] = []
        for number, node in enumerate(self.request.nodes):
            for position in range(self.first[number], self.first[number + 1]):
                if position in self.is_free or not _varies(self.seen[position]):
                    continue
                role = role_of(node, position - self.first[number])
                (memory if role == "memory" else numbers if role == "number" else shapes).append(
                    position
                )
        shapes.sort(key=lambda position: (max(self.seen[position]), self.seen[position]))
        if self.guess is _Guess.APART:
            self._separate_memory()
        for position in shapes:
            seen = self.seen[position]
            if seen not in self.known:
                self.known[seen] = self._explained(seen) or self._unknown(position)
        self._explain_memory()
        for position in memory:
            seen = self.seen[position]
            if seen not in self.known:
                self.known[seen] = self._explained(seen) or self._unknown(position)
        for position in numbers:
            seen = self.seen[position]
            if seen in self.known:
                continue
            # A value that is no size is an input: a segment has it from its call.
            if position in self.is_number and all(map(may_be_number, seen)):
                self.is_free.add(position)
                continue
            found = self._explained(seen)
            if found is None:
                raise _NoGraph
            self.known[seen] = found

    def _unknown(self, position: int) -> Polynomial:
        self.defined.append(position)
        return poly.unknown(len(self.defined) - 1)

    def _separate_memory(self) -> None:
        """Let each size of a tensor in memory be an unknown."""
        positions: dict[Seen, int] = {}
        for number in self._shapes_of_memory().values():
            for position in range(self.first[number], self.first[number + 1]):
                if _varies(self.seen[position]):
                    positions.setdefault(self.seen[position], position)
        if len(positions) < _SEVERAL:
            raise _NoGraph
        self.known = {seen: self._unknown(position) for seen, position in positions.items()}

    def _explain_memory(self) -> None:
        """Memory has as many elements as the shape that it is seen in."""
        for memory, number in self._shapes_of_memory().items():
            seen = self.seen[self.first[memory]]
            if _varies(seen):
                self.known.setdefault(seen, poly.product(self._sizes(number)))

    def _shapes_of_memory(self) -> dict[int, int]:
        """The first RESHAPE of each BUFFER, which is its shape."""
        nodes, sources = self.request.nodes, self.request.sources
        found: dict[int, int] = {}
        for number, node in enumerate(nodes):
            if node.op is not Ops.RESHAPE:
                continue
            (below,) = sources[number]
            while nodes[below].op in _SAME_SHAPE:
                (below,) = sources[below]
            if nodes[below].op is Ops.BUFFER:
                found.setdefault(below, number)
        return found

    def _explained(self, seen: Seen) -> Polynomial | None:
        """The polynomial of the sizes known so far that explains the numbers `seen`."""
        known = list(self.known.items())
        for other, size in known:
            factor = seen[0] // other[0] if other[0] else 0
            if factor and all(a == factor * b for a, b in zip(seen, other)):
                return poly.scale(size, factor)
        for other, size in known:
            more = seen[0] - other[0]
            if all(a - b == more for a, b in zip(seen, other)):
                return poly.add(size, poly.constant(more))
        for (first, one), (second, two) in itertools.combinations_with_replacement(known, 2):
            both = [a * b for a, b in zip(first, second)]
            factor = seen[0] // both[0] if both[0] else 0
            if factor > 0 and all(a == factor * b for a, b in zip(seen, both)):
                return poly.scale(poly.multiply(one, two), factor)
        for (first, one), (second, two) in itertools.combinations_with_replacement(known, 2):
            more = seen[0] - first[0] - second[0]
            if all(a - b - c == more for a, b, c in zip(seen, first, second)) and first != second:
                return poly.add(poly.add(one, two), poly.constant(more))
        return self._scaled(seen) if self.guess is _Guess.LOOSE else None

    def _scaled(self, seen: Seen) -> Polynomial | None:
        """A multiple of something known, and a number more."""
        for other, size in self.known.items():
            for factor in range(2, _MOST_SCALE + 1):
                more = seen[0] - factor * other[0]
                if abs(more) <= _MOST_OFFSET and all(
                    a - factor * b == more for a, b in zip(seen, other)
                ):
                    return poly.add(poly.scale(size, factor), poly.constant(more))
        return None

    def _equate(self, found: _Differ) -> None:
        """Let two sizes be one."""
        solved = poly.solve(found.left, found.right)
        if solved is None:
            raise _NoGraph
        number, by = solved
        self.known = {seen: poly.replace(size, number, by) for seen, size in self.known.items()}

    # whether it is a graph

    def _sizes(self, number: int) -> list[Polynomial]:
        """The sizes in the argument of a node."""
        found = []
        for position in range(self.first[number], self.first[number + 1]):
            seen = self.seen[position]
            is_size = _varies(seen) and position not in self.is_free
            found.append(self.known[seen] if is_size else poly.constant(seen[-1]))
        return found

    def _free_starts(self) -> set[int]:
        """The offsets of slices of memory whose sizes, and those of the memory, do not change: they
        are no sizes (`ir.slices`); and numbers that are indices.
        """
        found: set[int] = set()
        changing: set[int] = set()
        for number, sources in enumerate(self.request.sources):
            if self.request.nodes[number].op in INDEXED:
                index = sources[1]
                if is_index(self.request.nodes[index]):
                    found.add(self.first[index])
            first, end = self.first[number], self.first[number + 1]
            is_slice = number in self.request.slices and changing.isdisjoint(sources)
            lengths = range(first + 1, end, 2) if is_slice else range(first, end)
            if any(_varies(self.seen[position]) for position in lengths) or not changing.isdisjoint(
                sources
            ):
                changing.add(number)
            elif is_slice:
                found.update(range(first, end, 2))
        return found

    def _walk(self) -> None:
        for number in range(len(self.request.nodes)):
            self.shapes.append(self._shape(number))

    def _shape(self, number: int) -> Shape:
        node, sources = self.request.nodes[number], self.request.sources[number]
        op = node.op
        below = [self.shapes[source] for source in sources]
        if op in (Ops.BUFFER, Ops.RAND):
            return self._sizes(number)
        if op is Ops.CONST:
            return []
        if op is Ops.RESHAPE:
            shape = self._sizes(number)
            _equal([poly.product(below[0])], [poly.product(shape)])
            return shape
        if op is Ops.EXPAND:
            shape = self._sizes(number)
            for old, new in zip(below[0], shape, strict=True):
                if old != _ONE:
                    _equal([old], [new])
            return shape
        if op is Ops.PERMUTE:
            return [below[0][axis] for axis in node.arg]
        if op is Ops.PAD:
            amounts = self._sizes(number)
            around = [poly.add(*pair) for pair in zip(amounts[::2], amounts[1::2])]
            return [poly.add(*pair) for pair in zip(below[0], around, strict=True)]
        if op is Ops.SHRINK:
            return self._sizes(number)[1::2]
        if op is Ops.REDUCE_AXIS:
            axes = node.arg[1]
            return [_ONE if axis in axes else size for axis, size in enumerate(below[0])]
        if op is Ops.PREFIX_AXIS:
            return below[0]
        if op is Ops.GATHER:
            return [*below[1], *below[0][1:]]
        if op is Ops.SCATTER_ADD:
            _equal(below[2], [*below[1], *below[0][1:]])
            return below[0]
        if op in (Ops.ASSIGN, Ops.AFTER):
            if op is Ops.ASSIGN and below[1]:
                _equal(below[0], below[1])
            return below[0]
        if op is Ops.CUSTOM:
            made, *operands = kernel_shapes(node, self._sizes(number))
            for shape, operand in zip(operands, below, strict=True):
                _equal(shape, operand)
            return made
        if op is Ops.LOOP:
            self._check_loop(number, below)
            return []
        if op is Ops.LOOP_OUTPUT:
            loop = node.src[0].arg
            sizes = [poly.constant(size) for size in loop.value(node.arg).shape]
            return sizes if node.arg < loop.carries else [*self._sizes(sources[0]), *sizes]
        if op.is_alu or op in _SAME_SHAPE:
            shaped = [shape for shape in below if shape]
            for other in shaped[1:]:
                _equal(shaped[0], other)
            return shaped[0] if shaped else []
        raise _NoGraph

    def _check_loop(self, number: int, below: Sequence[Shape]) -> None:
        """A loop has as many steps as its stacks have rows. The inputs of a step have sizes that
        are numbers: they are part of its body.
        """
        arg = self.request.nodes[number].arg
        stacks = range(arg.carries, arg.carries + arg.stacks)
        for at, shape in enumerate(below):
            if at in stacks:
                _equal(shape[:1], self._sizes(number))
            if not all(map(poly.is_constant, shape[at in stacks :])):
                raise _NoGraph

    def _check_writes(self) -> None:
        """One write to memory must be one at all sizes: two writes of a version have no order."""
        for number, twin in twin_writes(self.request):
            one, end, two = self.first[number], self.first[number + 1], self.first[twin]
            if self.seen[one:end] != self.seen[two : two + end - one]:
                raise _NoGraph

    # bounds of the unknowns

    def _bounded(self) -> Explained:
        used = sorted(set().union(*[poly.unknowns(size) for size in self.known.values()], set()))
        renamed = {old: new for new, old in enumerate(used)}
        values = [self.seen[self.defined[old]] for old in used]
        low = [min(1, *each) for each in values]
        most = [max(each) for each in values]
        high = [max(4 * seen, self.reach) for seen in most]

        def own(size: Polynomial) -> Polynomial:
            return {
                tuple(renamed[number] for number in factors): value
                for factors, value in size.items()
            }

        not_negative = [own(size) for size in self._not_negative()]
        for size in not_negative:
            poly.narrow(size, low, high)
        for behind in self.ends.values():
            poly.lower_each(own(behind), high)
        shapes = [[own(size) for size in shape] for shape in self.shapes]
        self._bound_elements(shapes, low, high, most)
        for size in not_negative:
            if poly.range_of(size, low, high)[0] < 0:
                raise _NoGraph
        sizes: list[Polynomial | None] = []
        for position, seen in enumerate(self.seen):
            if position in self.is_free:
                sizes.append(None)
            else:
                sizes.append(own(self.known[seen]) if _varies(seen) else poly.constant(seen[-1]))
        for each in (low, high):
            if any(bound < 0 for bound in each):
                raise _NoGraph
        for seen, least, largest in zip(values, low, high):
            if not least <= seen[-1] <= largest:
                raise _NoGraph
        paddings = self._paddings(own, low, high)
        defined = [self.defined[old] for old in used]
        found = Explained(sizes, shapes, low, high, defined, paddings)
        for number, graph in enumerate(self.graphs):
            if not found.is_explained(graph, [seen[number] for seen in values]):
                raise _NoGraph
        return found

    def _not_negative(self) -> list[Polynomial]:
        """Numbers that must not be negative, if they vary: the elements before and behind a slice,
        amounts of padding, and sizes less 1, as an empty value has no memory.
        """
        found: dict[tuple[tuple[tuple[int, ...], int], ...], Polynomial] = {}

        def note(size: Polynomial) -> None:
            if not poly.is_constant(size):
                found[tuple(sorted(size.items()))] = size

        for number, node in enumerate(self.request.nodes):
            for size in self.shapes[number]:
                note(poly.add(size, poly.constant(-1)))
            if node.op in (Ops.PAD, Ops.SHRINK):
                sizes = self._sizes(number)
                for size in sizes:
                    note(size)
                if node.op is Ops.SHRINK:
                    whole = self.shapes[self.request.sources[number][0]]
                    ends = zip(sizes[::2], sizes[1::2], whole, strict=True)
                    for axis, (start, length, full) in enumerate(ends):
                        behind = poly.add(full, poly.scale(poly.add(start, length), -1))
                        if len(poly.unknowns(behind)) > 1 and not self.request.assigns:
                            self.ends[number, axis] = behind
                        else:
                            note(behind)
        return list(found.values())

    def _paddings(
        self, own: Callable[[Polynomial], Polynomial], low: list[int], high: list[int]
    ) -> dict[int, list[int]]:
        """By how much the sources of slices are to be longer along each axis, so that these end
        inside whatever the unknowns are. Two numbers such as those of `x[i:j]` are inside together,
        which bounds of each do not say.
        """
        found: dict[int, list[int]] = {}
        for (number, axis), behind in self.ends.items():
            missing = -poly.range_of(own(behind), low, high)[0]
            if missing > 0:
                lengths = found.setdefault(number, [0] * len(self.shapes[number]))
                lengths[axis] = missing
        return found

    def _bound_elements(
        self, shapes: Sequence[Shape], low: list[int], high: list[int], most: Sequence[int]
    ) -> None:
        """Lower the bounds of sizes until positions fit 32 bits."""
        elements = {
            tuple(sorted(count.items())): count
            for count in map(poly.product, shapes)
            if not poly.is_constant(count)
        }
        while any(
            poly.range_of(count, low, high)[1] >= _MOST_ELEMENTS for count in elements.values()
        ):
            lower = [max(seen, bound // 2) for seen, bound in zip(most, high)]
            if lower == high:
                raise _NoGraph
            high[:] = lower


def _varies(seen: Seen) -> bool:
    return any(number != seen[0] for number in seen)


def _equal(left: Sequence[Polynomial], right: Sequence[Polynomial]) -> None:
    if len(left) != len(right):
        raise _NoGraph
    for one, other in zip(left, right):
        if one != other:
            raise _Differ(one, other)
