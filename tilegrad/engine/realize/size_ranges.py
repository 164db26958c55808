"""Plans for a range of sizes, for a graph that comes with one size after the other.

The first graph of a kind is planned with its sizes, as these make the best kernels. When it comes
with others, relations between these are looked for (`unknowns` beside this file), and one plan with
variables for them serves all further sizes: the third plan at most, of a range that is longer than
that before. A size that keeps coming has a plan of its own again.

Where the first size came several times in a row, another one is likely to be that of the last
batch, which comes again in each epoch: it has a plan of its own as well, and so has the step behind
it, which meets both. A range begins with the next number that is new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any

from tilegrad.base.config import Config, config
from tilegrad.base.origin import user_line
from tilegrad.base.recent import Recent
from tilegrad.device.registry import Device
from tilegrad.engine.realize.bindings import (
    Binding,
    Bindings,
    BindingsKey,
    Sized,
    binding_among,
    constants_of,
    key_of_bindings,
    runs_of,
)
from tilegrad.engine.realize.explained import Explained
from tilegrad.engine.realize.request import Request
from tilegrad.engine.realize.resembling import EarlierKind, sizes_elsewhere, taken_apart
from tilegrad.engine.realize.skeleton import sizes_of, split, with_sizes
from tilegrad.engine.realize.unknowns import explain
from tilegrad.engine.run.leaf_memory import VALUE_ERRORS
from tilegrad.ir.lengths import length_name, length_variable
from tilegrad.ir.op import Ops
from tilegrad.ir.polynomial import Polynomial
from tilegrad.ir.size_patterns import Sizes
from tilegrad.ir.sizes import of_products
from tilegrad.ir.uop import UOp, sint

__all__ = ["SizeCounts", "binding_for_sizes"]

# The least upper bound of sizes: of the first plan, the second, and those after it.
_REACHES = (1 << 10, 1 << 16, 1 << 22)
# Uses of a size, beside others, from which it has a plan of its own; the number doubles with each
# such plan, so that not all of many recurring sizes have one.
_OFTEN = 8
# The most sizes of a graph that are counted.
_COUNTED = 64
# Earlier graphs that an explanation must fit.
_MOST_GRAPHS = 3
# The explained kinds of graphs that a new one is compared with.
_MOST_KNOWN = 8
# Runs in a row from which on a first size is one that stays, and the most plans beside its own for
# sizes that may come again.
_STAYED, _MOST_RECURRING = 2, 3
# After this many explanations that did not hold, graphs of a kind are planned with their sizes.
_MOST_GUESSES = 4


class SizeCounts:
    """How often sizes come, beside others: those that keep coming have a plan of their own."""

    __slots__ = ("_counts", "_own")

    def __init__(self) -> None:
        self._counts: Counter[Sizes] = Counter()
        self._own: set[Sizes] = set()

    def recur_often(self, sizes: Sizes) -> bool:
        """Count a run; whether these sizes have come so often that they are to have a plan of their
        own.
        """
        if sizes in self._own:
            return True
        self._counts[sizes] += 1
        if self._counts[sizes] >= _OFTEN << len(self._own):
            del self._counts[sizes]
            self._own.add(sizes)
            return True
        if len(self._counts) > _COUNTED:
            del self._counts[next(iter(self._counts))]
        return False

    def recur_again(self, sizes: Sizes) -> bool:
        """Count a run that knows its binding. Not where these sizes now come so often that they are
        to have a plan of their own: then the binding has to be asked for.
        """
        if sizes in self._own or self._counts[sizes] + 1 >= _OFTEN << len(self._own):
            return False
        self._counts[sizes] += 1
        return True


class _Family:
    """Graphs that differ in sizes only, and the plan for a range of them, if there is one."""

    def __init__(self) -> None:
        self.graphs: list[tuple[Sizes, tuple[Hashable, ...]]] = []
        self.explained: Explained | None = None
        self.bindings: Bindings | None = None
        self.sized: Sized | None = None
        self.guesses = self.reach = self.recurring = 0
        self.counts = SizeCounts()
        # The key of the first graph, with its sizes.
        self.first: BindingsKey | None = None

    def note(self, sizes: Sizes, constants: tuple[Hashable, ...]) -> None:
        """Remember a graph: the first one, and the last ones."""
        if all(sizes != other for other, _ in self.graphs):
            self.graphs.append((sizes, constants))
            if len(self.graphs) > _MOST_GRAPHS:
                del self.graphs[1]

    def may_recur(self, sizes: Sizes) -> bool:
        """Whether new sizes are likely to come again: those of a last batch behind others, and then
        those in which both meet.
        """
        if self.explained is not None or self.first is None or self.recurring >= _MOST_RECURRING:
            return False
        if len(self.graphs) == 1:
            return runs_of(self.first) >= _STAYED
        known = {size for graph, _ in self.graphs for size in graph}
        return self.recurring > 0 and known.issuperset(sizes)


_Key = tuple[Config, str, tuple[Any, ...], tuple[int, ...]]
_families: Recent[_Key, _Family] = Recent(lambda: config.KEEP_KERNELS)
# By signature and switches, the kinds of graphs whose sizes were explained last.
_explained_last: Recent[_Key, EarlierKind] = Recent(lambda: _MOST_KNOWN)


def binding_for_sizes(request: Request) -> Binding | None:
    """The binding of `request` by a plan for a range of sizes; None if it is to be planned with its
    own.
    """
    if not config.SIZES or config.BEAM:
        return None
    found = split(request)
    if found is None:
        return None
    signature, sizes = found
    key = config.current(), Device.DEFAULT, signature, request.needed_later
    family = _families.get(key)
    if family is None or family.explained is None:
        apart = _binding_apart(request, signature)
        if apart is not None:
            return apart
    if family is None:
        family = _families.setdefault(key, _Family())
        _note_resembling(family, request, signature)
    return _binding_in(family, request, signature, sizes)


def _binding_apart(request: Request, signature: tuple[Any, ...]) -> Binding | None:
    """The binding of a graph in which several lengths are equal by chance, by the plan for graphs
    in which they differ. `request` is one of these graphs then.
    """
    now = config.current(), Device.DEFAULT
    for known in reversed(_explained_last.values()):
        switches, device, _, needed_later = known.key
        family = _families.get(known.key)
        if family is None or family.explained is None or (switches, device) != now:
            continue
        other = taken_apart(request, signature, known)
        if other is None or other.needed_later != needed_later:
            continue
        sizes = tuple([size for node in other.nodes for size in sizes_of(node)])
        if family.explained.values(sizes) is None:
            continue
        binding = _binding_in(family, other, known.signature, sizes)
        if binding is not None:
            request.become(other)
            return binding
    return None


def _note_resembling(family: _Family, request: Request, signature: tuple[Any, ...]) -> None:
    """For a new family, note its graph at other sizes, if it resembles one whose sizes are
    explained.
    """
    for known in reversed(_explained_last.values()):
        sizes = sizes_elsewhere(request, signature, known)
        if sizes is not None:
            family.note(sizes, constants_of(request))
            return


def _binding_in(
    family: _Family,
    request: Request,
    signature: tuple[Any, ...],
    sizes: Sizes,
) -> Binding | None:
    constants = constants_of(request)
    values = None if family.explained is None else family.explained.values(sizes)
    if family.may_recur(sizes):
        family.recurring += 1
        family.note(sizes, constants)
        return None
    if not family.graphs:
        family.first = key_of_bindings(request)
    if values is None:
        values = _explained(family, request, sizes)
        family.note(sizes, constants)
        if values is not None and family.explained is not None:
            key = config.current(), Device.DEFAULT, signature, request.needed_later
            kind = EarlierKind.of(key, signature, request, family.explained)
            _explained_last.put(key, kind)
    if values is None or family.bindings is None:
        return None
    if family.counts.recur_often(sizes):
        if config.DEBUG >= 1:
            print(f"SIZES stay, {_line(request)}: a plan for {values}")
        return None
    try:
        binding = binding_among(family.bindings, request, may_vary=True, sized=family.sized)
    except VALUE_ERRORS:
        if config.SIZES > 1:
            raise
        # The plan of the longest size may find no room. Then each size has a plan of its own, which
        # raises the errors that are the user's.
        family.explained, family.guesses = None, _MOST_GUESSES
        return None
    request.lengths = {length_name(number): value for number, value in enumerate(values)}
    request.comes_again = partial(family.counts.recur_again, sizes)
    if family.sized is not None:
        request.explained = frozenset(family.sized.nodes)
    request.lengths_of = partial(_lengths_of, family.explained, signature)
    return binding


def _lengths_of(
    explained: Explained | None, signature: tuple[Any, ...], other: Request
) -> Mapping[str, int] | None:
    """The lengths at which a plan for graphs of a `signature` is that of `other`, if it is."""
    found = split(other)
    if explained is None or found is None or found[0] != signature:
        return None
    values = explained.values(found[1])
    if values is None:
        return None
    return {length_name(number): value for number, value in enumerate(values)}


def _explained(family: _Family, request: Request, sizes: Sizes) -> list[int] | None:
    """Find a new explanation, of the sizes of earlier graphs and these; the values of its unknowns
    if there is one.
    """
    others = [(graph, numbers) for graph, numbers in family.graphs if graph != sizes]
    if not others or family.guesses >= _MOST_GUESSES:
        return None
    beyond = 0 if family.explained is None else family.explained.beyond(sizes)
    if beyond < 0:
        return None
    if beyond > 0:
        family.reach += 1
    elif family.explained is not None:
        family.guesses += 1
    reach = _REACHES[min(family.reach, len(_REACHES) - 1)]
    # The first graphs may be others by chance: those of a loop's first steps, or guesses from a
    # kind that resembles it.
    found = values = None
    while others and values is None:
        found = explain(request, [*[graph for graph, _ in others], sizes], reach)
        values = None if found is None else found.values(sizes)
        (_, first), *others = others
    if found is None or values is None:
        family.guesses += found is None and family.explained is None
        return None
    family.explained, family.bindings = found, Bindings(first)
    family.sized = _sized(request, found)
    if config.DEBUG >= 1:
        ranges = " and ".join(f"{low} to {high}" for low, high in zip(found.low, found.high))
        print(f"SIZES change, {_line(request)}: one plan for {ranges}, here {values}")
    return values


def _line(request: Request) -> str:
    """Where the user asked for the last node of the graph that has a line."""
    found = (user_line(node.origin) for node in reversed(request.nodes) if node.origin)
    return next(found, "unknown line")


def _sized(request: Request, explained: Explained) -> Sized:
    """The nodes of `request` whose sizes depend on lengths."""
    lengths = [
        length_variable(number, low, high)
        for number, (low, high) in enumerate(zip(explained.low, explained.high, strict=True))
    ]
    arguments: dict[int, Any] = {}
    shapes: dict[int, tuple[sint, ...]] = {}
    nodes: dict[int, UOp] = {}
    slices: set[int] = set()
    position = 0
    for number, node in enumerate(request.nodes):
        numbers = sizes_of(node)
        own = explained.sizes[position : position + len(numbers)]
        position += len(numbers)
        if not any(size is not None and any(size) for size in own):
            continue
        new = [
            old if size is None else _size(size, lengths)
            for old, size in zip(numbers, own, strict=True)
        ]
        if node.op is Ops.CONST:
            (length,) = new
            assert isinstance(length, UOp)
            nodes[number] = length.cast(node.dtype)
            continue
        arguments[number] = with_sizes(node, new)
        shapes[number] = tuple([_size(size, lengths) for size in explained.shapes[number]])
        if node.op is Ops.SHRINK:
            slices.add(number)
    return Sized(arguments, shapes, nodes, frozenset(slices), explained.paddings)


def _size(size: Polynomial, lengths: Sequence[UOp]) -> Any:
    """A polynomial of lengths as a size."""
    return of_products(
        {
            tuple([lengths[number] for number in sorted(factors, key=length_name)]): by
            for factors, by in size.items()
        }
    )
