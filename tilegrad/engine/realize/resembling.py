"""Sizes of a new kind of graph at another length, told by a kind that resembles it.

The first steps of a loop are several kinds of graph: constants become memory, computed values are
stored. If sizes changed in one of them, so they will in the next. So a graph of a new kind is laid
over one whose sizes are explained (`unknowns` beside this file), from the results down. Nodes that
agree have the sizes that the other one has at some other value of its unknowns; the sizes of a node
without a partner follow from its users. The outcome stands for a graph that was seen at another
length. As every explanation it is checked to be a graph at all lengths, and compared with each
graph that comes.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from tilegrad.engine.realize.explained import Explained
from tilegrad.engine.realize.launch_numbers import may_be_number
from tilegrad.engine.realize.request import Request
from tilegrad.engine.realize.skeleton import sizes_of, twins_of
from tilegrad.ir import polynomial as poly
from tilegrad.ir.op import Ops
from tilegrad.ir.size_patterns import Sizes

__all__ = ["EarlierKind", "sizes_elsewhere", "taken_apart"]

Shape = tuple[int, ...]

# How much larger than at hand the first unknown is made, and the next ones beside it.
_FURTHER, _APART = 5, 4
# Added to a number that is no size, so that no size explains it.
_UNEXPLAINED = 7919
# The share of nodes with partners from which graphs resemble each other.
_ENOUGH = 0.75
# In a row, the number of sizes or another fact that counts, and the sources.
_COUNT, _SOURCES = 2, 3


class EarlierKind(NamedTuple):
    """A kind of graph whose sizes are explained: the key of its family, its rows without sizes and
    then its roots (`skeleton.split`), and for each row the position of its first size.
    """

    key: tuple[Any, ...]
    signature: tuple[Any, ...]
    length: int
    first: tuple[int, ...]
    explained: Explained

    @staticmethod
    def of(
        key: tuple[Any, ...], signature: tuple[Any, ...], request: Request, explained: Explained
    ) -> EarlierKind:
        lengths = (len(sizes_of(node)) for node in request.nodes)
        first = tuple(itertools.accumulate(lengths, initial=0))
        return EarlierKind(key, signature, len(request.nodes), first, explained)


class _NotFound(Exception):
    """The sizes at another length do not follow."""


def sizes_elsewhere(
    request: Request, signature: tuple[Any, ...], known: EarlierKind
) -> Sizes | None:
    """The sizes that `request`, whose `signature` is new, would have where the unknowns of `known`
    are others than now; None if it is too different.
    """
    count = len(request.nodes)
    enough = _ENOUGH * max(count, known.length)
    if min(count, known.length) < enough:
        return None
    partner = _partners(signature, count, known)
    if len(partner) < enough:
        return None
    try:
        return _OtherSizes(request, known, partner).sizes()
    except _NotFound:
        return None


def _partners(signature: tuple[Any, ...], count: int, known: EarlierKind) -> dict[int, int]:
    """For rows of a signature the rows of a known one that are equal but for sizes and sources, and
    that equal users have as the same source.
    """
    rows, others = signature[:count], known.signature[: known.length]
    partner: dict[int, int] = {}
    stack = list(zip(signature[count:], known.signature[known.length :]))
    while stack:
        number, other = stack.pop()
        if number in partner:
            continue
        mine, theirs = rows[number], others[other]
        if _are_equal(mine, theirs):
            partner[number] = other
            stack += zip(mine[_SOURCES], theirs[_SOURCES])
    return partner


def _are_equal(mine: tuple[Any, ...], theirs: tuple[Any, ...]) -> bool:
    """Whether two rows are equal but for the numbers of their sources."""
    return (
        mine[: _COUNT + 1] == theirs[: _COUNT + 1]
        and len(mine[_SOURCES]) == len(theirs[_SOURCES])
        and mine[_SOURCES + 1 :] == theirs[_SOURCES + 1 :]
    )


def taken_apart(request: Request, signature: tuple[Any, ...], known: EarlierKind) -> Request | None:
    """`request` as a graph of a known kind, which has more constants: where two of its sizes are
    equal by chance, the constants of these sizes are one node here, and two there.
    """
    count = len(request.nodes)
    if not count < known.length or len(signature) - count != len(known.signature) - known.length:
        return None
    rows, others = signature[:count], known.signature[: known.length]
    partner = [-1] * known.length
    stack = list(zip(known.signature[known.length :], signature[count:]))
    while stack:
        other, number = stack.pop()
        if partner[other] >= 0:
            if partner[other] != number:
                return None
            continue
        mine, theirs = rows[number], others[other]
        if not _are_equal(mine, theirs):
            return None
        partner[other] = number
        stack += zip(theirs[_SOURCES], mine[_SOURCES])
    uses = Counter(partner)
    shared = [number for number, several in uses.items() if several > 1]
    if -1 in uses or len(uses) < count:
        return None
    if not all(request.nodes[number].is_constant for number in shared):
        return None
    return request.apart(partner, [row[_SOURCES] for row in others])


class _OtherSizes:
    """The sizes of a graph at another length: of nodes with partners by these, of the others by the
    shapes that their users need.
    """

    def __init__(self, request: Request, known: EarlierKind, partner: dict[int, int]):
        self.request, self.known, self.partner = request, known, partner
        self.here = self._unknowns()
        explained = known.explained
        self.there: list[int] = []
        # Nodes of two lengths that are equal here may be one node, which has one length there.
        others: dict[int, int] = {}
        for number, (value, high) in enumerate(zip(self.here, explained.high)):
            further = others.setdefault(value, value + _FURTHER + _APART * number)
            if further > high:
                raise _NotFound
            self.there.append(further)
        self.shapes: dict[int, Shape] = {}

    def _unknowns(self) -> list[int]:
        """The unknowns at hand: the values that most sizes give for them."""
        explained = self.known.explained
        votes: list[Counter[int]] = [Counter() for _ in explained.high]
        single = [poly.unknown(number) for number in range(len(votes))]
        for number, other in self.partner.items():
            first = self.known.first[other]
            for position, size in enumerate(sizes_of(self.request.nodes[number]), first):
                what = explained.sizes[position]
                if what in single:
                    votes[single.index(what)][size] += 1
        if not votes or not all(votes):
            raise _NotFound
        return [each.most_common(1)[0][0] for each in votes]

    def sizes(self) -> Sizes:
        """The sizes of all nodes, in order."""
        nodes = self.request.nodes
        found: list[Sequence[int]] = [()] * len(nodes)
        for number in range(len(nodes) - 1, -1, -1):
            other = self.partner.get(number)
            if other is None:
                found[number] = self._below(number)
            else:
                found[number] = self._by_partner(number, other)
        # Nodes that are one at this length are one at the other.
        with_partner: dict[int, int] = {}
        twins = twins_of(self.request)
        for number in self.partner:
            with_partner[twins[number]] = number
        for number, twin in enumerate(twins):
            if number not in self.partner and twin in with_partner:
                found[number] = found[with_partner[twin]]
        return tuple([size for sizes in found for size in sizes])

    def _by_partner(self, number: int, other: int) -> list[int]:
        explained, node = self.known.explained, self.request.nodes[number]
        self._tell_sources(number, other)
        first = self.known.first[other]
        found: list[int] = []
        for position, size in enumerate(sizes_of(node)):
            what = explained.sizes[first + position]
            if what is not None:
                found.append(self._size_at(what, size))
            else:
                is_number = node.op is Ops.CONST and may_be_number(size)
                found.append(size + _UNEXPLAINED if is_number else size)
        return found

    def _tell_sources(self, number: int, other: int) -> None:
        """Sources without partners have the shapes that those of the partner have, or that the node
        needs.
        """
        theirs = self.known.signature[other][_SOURCES]
        for source, its in zip(self.request.sources[number], theirs):
            if source in self.partner:
                continue
            shape = self._at(its, self._shape(source))
            if shape is not None:
                self._tell(source, shape)
            elif (own := self._at(other, self._shape(number))) is not None:
                self.shapes[number] = own
                self._below(number)
                return
            else:
                raise _NotFound

    def _at(self, other: int, here: Shape) -> Shape | None:
        """The shape of row `other` in the other graph; None if it has other axes."""
        shape = self.known.explained.shapes[other]
        if len(shape) != len(here):
            return None
        return tuple([self._size_at(what, size) for what, size in zip(shape, here)])

    def _size_at(self, what: poly.Polynomial, size: int) -> int:
        is_so = poly.evaluate(what, self.here) == size
        return poly.evaluate(what, self.there) if is_so else size

    def _shape(self, number: int) -> Shape:
        return self.request.nodes[number].shape

    def _tell(self, number: int, shape: Shape) -> None:
        """A node has that shape elsewhere."""
        if self.shapes.setdefault(number, shape) != shape:
            raise _NotFound

    def _below(self, number: int) -> Sequence[int]:
        """The sizes of a node without a partner; its sources are told their shapes."""
        node, sources = self.request.nodes[number], self.request.sources[number]
        here = self._shape(number)
        there = self.shapes.get(number, here)
        op = node.op
        if op is Ops.CONST:
            return sizes_of(node)
        if op is Ops.BUFFER:
            return (math.prod(there),)
        if op is Ops.RAND:
            return there
        if op in (Ops.RESHAPE, Ops.EXPAND):
            below = self._shape(sources[0])
            if op is Ops.RESHAPE:
                shape = _before_reshape(below, here, there)
            else:
                shape = tuple([old if old == 1 else new for old, new in zip(below, there)])
            self._source(sources[0], shape)
            return there
        if op is Ops.PERMUTE:
            self._source(sources[0], tuple([there[node.arg.index(n)] for n in range(len(there))]))
        elif op is Ops.PAD:
            return self._padded(number, here, there)
        elif op is Ops.SHRINK:
            return self._cut(number, here, there)
        elif op is Ops.GATHER:
            table, index = (self._shape(source) for source in sources)
            self._source(sources[0], (table[0], *there[len(index) :]))
            self._source(sources[1], there[: len(index)])
        elif op.is_alu or op in (Ops.CAST, Ops.BITCAST, Ops.CONTIGUOUS, Ops.DETACH, Ops.COPY):
            for source in sources:
                if self._shape(source):
                    self._source(source, there)
        elif here != there:
            raise _NotFound
        return sizes_of(node)

    def _source(self, number: int, shape: Shape) -> None:
        if number not in self.partner:
            self._tell(number, shape)

    def _padded(self, number: int, here: Shape, there: Shape) -> list[int]:
        """The axis grew in the source, or in the padding before or behind it: whichever is above 1,
        as 0 and 1 stretch nothing.
        """
        (source,) = self.request.sources[number]
        amounts = list(sizes_of(self.request.nodes[number]))
        below = list(self._shape(source))
        for axis, (now, then) in enumerate(zip(here, there)):
            if now == then:
                continue
            grown = [
                (of, at)
                for of, at in ((below, axis), (amounts, 2 * axis), (amounts, 2 * axis + 1))
                if of[at] > 1
            ]
            if len(grown) != 1:
                raise _NotFound
            of, at = grown[0]
            of[at] += then - now
        self._source(source, tuple(below))
        return amounts

    def _cut(self, number: int, here: Shape, there: Shape) -> list[int]:
        """A slice that is all of an axis stays it, another one is of memory that stays."""
        (source,) = self.request.sources[number]
        numbers = list(sizes_of(self.request.nodes[number]))
        below = list(self._shape(source))
        for axis, (now, then) in enumerate(zip(here, there)):
            if now == below[axis]:
                below[axis] = then
            elif then > below[axis]:
                raise _NotFound
            numbers[2 * axis + 1] = then
        self._source(source, tuple(below))
        return numbers


def _before_reshape(below: Shape, here: Shape, there: Shape) -> Shape:
    """The shape that becomes `there` by the reshape of `below` to `here`."""
    found: list[int] = []
    low = high = 0
    while low < len(below) or high < len(here):
        first, last = low, high
        old, new = math.prod(below[low : low + 1]), math.prod(here[high : high + 1])
        low, high = min(low + 1, len(below)), min(high + 1, len(here))
        while old != new:
            if old < new and low < len(below):
                old, low = old * below[low], low + 1
            elif high < len(here):
                new, high = new * here[high], high + 1
            else:
                raise _NotFound
        found += _in_group(below[first:low], here[last:high], there[last:high])
    return tuple(found)


def _in_group(below: Shape, here: Shape, there: Shape) -> Shape:
    """As `_before_reshape`, for axes that hold the same elements before and after it."""
    changed = [(now, then) for now, then in zip(here, there) if now != then]
    if not changed:
        return below
    large = [axis for axis, size in enumerate(below) if size != 1]
    if len(large) == 1:
        total = math.prod(there)
        return tuple([total if axis == large[0] else size for axis, size in enumerate(below)])
    of = dict(changed)
    found = tuple([of.get(size, size) for size in below])
    if math.prod(found) != math.prod(there):
        raise _NotFound
    return found
