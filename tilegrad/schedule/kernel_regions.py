"""The graph of one kernel, with a key that equal kernels over other memory share.

Equal layers of a model, and equal steps of a long chain, have equal kernels. Their regions of the
graph are equal too, but for the memory that they read; so one walk finds that a kernel was built
before, in a fraction of the time that it takes to build it.

Regions may differ in where their slices begin: each time step of a recurrent network takes a
slice of a sequence, and has a kernel that is equal but for numbers added to indices.

A slice of memory, or of an elementwise function of memory, reads that memory at a distance that
follows from where it begins. So where memory is read through such slices only, one kernel is built,
and the others have it with another number:

before   SHRINK(x, ((3, 4), (0, 8))), SHRINK(x, ((5, 6), (0, 8)))
after    LOAD(x, i + 24), and the same with 40
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from math import gcd
from typing import Any, NamedTuple

from tilegrad.base.dtype import DType
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import nodes_of
from tilegrad.ir.slices import offset_name, offset_number, renamed
from tilegrad.ir.uop import UOp, pointer_of, prod, toposort
from tilegrad.schedule.order import UnorderedItem

__all__ = [
    "KernelRegion",
    "OffsetRegion",
    "at_offsets",
    "has_offsets",
    "region_of",
    "share_offsets",
    "split_index",
    "without_offsets",
]


class KernelRegion(NamedTuple):
    """The nodes that one kernel computes or reads, sources first, the key of them all, an item for
    each node, and the number of the memory of those that are read. In the key, offsets of slices
    and numbers that change are numbered by first visit; `variables` are these.
    """

    nodes: list[UOp]
    key: tuple[Hashable, ...]
    memory: dict[UOp, int]
    variables: dict[UOp, UOp]

    def without_argument(self, position: int) -> Hashable:
        """The item of a node, as if it had no argument."""
        item: Any = self.key[position]
        serial, dtype, _, sources = item
        return serial, dtype, sources


def region_of(
    top: UOp,
    is_read: Callable[[UOp], bool],
    memory_key: Callable[[UOp], tuple[int, DType, int]],
    fitting: Mapping[UOp, UOp],
) -> KernelRegion:
    """The region that computes `top` from stored values. `memory_key` tells what is read of a
    stored value: its memory, by a number that other regions share, and its size. `fitting` has the
    values that variables may have (`kernel_items.py`).
    """

    nodes = list(toposort([top], stop=is_read))
    number: dict[UOp, int] = {}
    memory: dict[UOp, int] = {}
    variables: dict[UOp, UOp] = {}
    key: list[Hashable] = []
    for position, node in enumerate(nodes):
        number[node] = position
        if node.op in (Ops.BUFFER, Ops.AFTER) or is_read(node):
            # A BUFFER needs no kernel that writes it first; movement over memory as it was is one
            # step of index arithmetic.
            kind = node.op if node.op in (Ops.BUFFER, Ops.AFTER) else None
            read = memory_key(node)
            memory[node] = read[0]
            key.append((kind, node.dtype, _own(node.shape, variables), read))
        elif not node.src:
            # Interned: 0.0 and -0.0 are two.
            key.append(_own(node, variables))
        else:
            sources = tuple([number[source] for source in node.src])
            arg = _own(node.arg, variables) if node.op.is_movement else node.arg
            key.append((node.op.serial, node.dtype, arg, sources))
    key.append(tuple([fitting.get(each, each).arg[1:] for each in variables]))
    return KernelRegion(nodes, tuple(key), memory, variables)


def _own(value: Any, variables: dict[UOp, UOp]) -> Any:
    """A leaf, a shape or an argument of a movement op, with the numbers of `variables` in place of
    a graph's: those that are new get the next ones.
    """
    if not isinstance(value, tuple):
        return _own_size(value, variables)
    if not any(isinstance(each, (UOp, tuple)) for each in value):
        return value
    return tuple([
        tuple([_own_size(size, variables) for size in each])
        if isinstance(each, tuple)
        else _own_size(each, variables)
        for each in value
    ])  # fmt: skip


def _own_size(size: Any, variables: dict[UOp, UOp]) -> Any:
    if not isinstance(size, UOp) or size.op is Ops.CONST:
        return size
    found = [
        node for node in nodes_of(size, Ops.DEFINE_VAR) if offset_number(node.name) is not None
    ]
    for node in found:
        if node not in variables:
            name = renamed(node.name, len(variables))
            variables[node] = node.replace(arg=(name, *node.arg[1:]))
    return size.substitute(variables) if found else size


# Ops whose element depends on the same element of the source alone.
_SAME_ELEMENT = (Ops.CAST, Ops.BITCAST, Ops.DETACH)
# Ops of a constant that give the same constant everywhere.
_OF_CONSTANTS = (Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE, Ops.SHRINK, Ops.FLIP)


class OffsetRegion(NamedTuple):
    """The key of a region without the offsets of its slices, and these: by the number of the
    memory, how many elements are left out. No other access is made to that memory.
    """

    key: tuple[Hashable, ...]
    offsets: dict[int, int]


def without_offsets(region: KernelRegion) -> OffsetRegion | None:
    """The region without offsets; None if it has none that are understood."""
    if not any(node.op is Ops.SHRINK for node in region.nodes):
        return None
    key = list(region.key)
    # The memory below a node, if each of its elements is a function of the same elements there.
    plain: dict[UOp, frozenset[int]] = {}
    offsets: dict[int, int] = {}
    met: set[int] = set()
    for position, node in enumerate(region.nodes):
        if node in region.memory:
            plain[node] = frozenset([region.memory[node]])
            continue
        found = _memory_of(node, plain, region)
        if found is not None:
            plain[node] = found
            continue
        below = {each for source in node.src for each in plain.get(source, ())}
        if node.op is not Ops.SHRINK or node.src[0] not in plain:
            met |= below
            continue
        offset = _offset(node)
        if offset is None:
            met |= below
            continue
        for each in below:
            if offsets.setdefault(each, offset) != offset:
                met.add(each)
        sizes = tuple([end - start for start, end in node.arg])
        key[position] = region.without_argument(position), sizes
    return None if not offsets or met & offsets.keys() else OffsetRegion(tuple(key), offsets)


def _memory_of(
    node: UOp, plain: Mapping[UOp, frozenset[int]], region: KernelRegion
) -> frozenset[int] | None:
    """The memory below `node`, if each element is made of the same element there; else None."""
    if not node.src:
        return frozenset() if node.op is Ops.CONST else None
    sources = [plain.get(source) for source in node.src]
    if any(each is None for each in sources):
        return None
    found = frozenset().union(*[each for each in sources if each is not None])
    if not found:
        is_same = node.op.is_alu or node.op in (*_SAME_ELEMENT, *_OF_CONSTANTS)
        return found if is_same else None
    if node.op is Ops.RESHAPE:
        # Only memory itself has its elements in the order of all shapes.
        below = node.src[0]
        while below.op is Ops.RESHAPE and below not in region.memory:
            below = below.src[0]
        return found if below in region.memory else None
    is_whole = all(source.shape == node.shape for source in node.src if plain[source])
    return found if is_whole and (node.op.is_alu or node.op in _SAME_ELEMENT) else None


def _offset(shrink: UOp) -> int | None:
    """The elements of memory before a slice; None if that is not a number."""
    shape = shrink.src[0].shape
    edges = [edge for pair in shrink.arg for edge in pair]
    if not all(isinstance(each, int) for each in (*shape, *edges)):
        return None
    total = 0
    for axis, (start, _) in enumerate(shrink.arg):
        total += start * int(prod(shape[axis + 1 :]))
    return total


def split_index(index: UOp) -> tuple[UOp, int]:
    """An index as a sum of something and a number."""
    if index.op is Ops.ADD and index.dtype.lanes == 1:
        for own, other in (index.src, index.src[::-1]):
            if other.op is Ops.CONST:
                return own, int(other.arg)
    return index, 0


def at_offsets(ast: UOp, changes: Mapping[int, int]) -> UOp | None:
    """A kernel that reads some parameters by `changes` further on. None if they are written, or if
    a read may lie outside of its memory, here or there: the gates that it needs are others.
    """
    mapping: dict[UOp, UOp] = {}
    for node in ast.toposort():
        if node.op not in (Ops.LOAD, Ops.STORE):
            continue
        pointer, index = node.src[:2]
        if pointer.op is not Ops.DEFINE_GLOBAL or pointer.arg not in changes:
            continue
        change = changes[pointer.arg]
        rest, number = split_index(index)
        low, high = index.bounds
        is_inside = (
            min(low, low + change) >= 0 and max(high, high + change) < pointer_of(pointer).size
        )
        if node.op is Ops.STORE or not is_inside:
            return None
        if any(each.op is Ops.LOAD for each in rest.toposort()):
            return None
        number += change
        index = rest + number if number else rest
        mapping[node] = node.over((pointer, index, *node.src[2:]))
    return ast.substitute(mapping)


class _Opened(NamedTuple):
    """A kernel with free offsets, variables that stand for `values`."""

    ast: UOp
    variables: tuple[UOp, ...]
    values: tuple[int, ...]


def share_offsets(order: Sequence[UnorderedItem]) -> list[UnorderedItem]:
    """The items of a schedule, where kernels that are equal but for the offsets of the slices that
    they read or write, three or more of them, are one that takes its offsets when it is launched.

    `for t in range(n): out[t] = f(h)` has n in one graph:

    before   STORE(p, i + 64, x), STORE(p, i + 128, x), STORE(p, i + 192, x)   in three kernels
    after    STORE(p, i + 64 * _place0, x)                                     in one, launched
                                                                           with 1, 2 and 3
    """
    opened: dict[UOp, _Opened] = {}
    alike: dict[tuple[UOp, str], dict[UOp, _Opened]] = {}
    for item in order:
        if item.ast is None:
            continue
        if item.ast not in opened:
            opened[item.ast] = _opened(item.ast)
        if opened[item.ast].values:
            several = alike.setdefault((opened[item.ast].ast, item.device), {})
            several[item.ast] = opened[item.ast]
    # Two stay as they are: their offsets are known when they are compiled.
    shared = {key: _shared(each) for key, each in alike.items() if len(each) > 2}
    if not shared:
        return list(order)
    return [
        item if item.ast is None else _with_shared(item, opened[item.ast], shared) for item in order
    ]


def _with_shared(
    item: UnorderedItem,
    opened: _Opened,
    shared: dict[tuple[UOp, str], tuple[UOp, tuple[int, ...]]],
) -> UnorderedItem:
    """An item with the kernel that it shares with others, if it does."""
    found = shared.get((opened.ast, item.device))
    if found is None:
        return item
    ast, factors = found
    first = len(item.offset_names)
    named = {
        variable: _shared_offset(first + number, variable, factor)
        for number, (variable, factor) in enumerate(zip(opened.variables, factors, strict=True))
    }
    values = [value // factor for value, factor in zip(opened.values, factors, strict=True)]
    return replace(item, ast=ast.substitute(named), offset_names=(*item.offset_names, *values))


def has_offsets(ast: UOp) -> bool:
    """Whether a kernel may be one of several that differ in offsets."""
    return bool(_opened(ast).values)


def _opened(ast: UOp) -> _Opened:
    """A kernel with a variable for each number that is added to indices into memory."""
    nodes = ast.toposort()
    written = {node.src[0] for node in nodes if node.op is Ops.STORE}
    room: dict[int, int] = {}
    accesses: dict[UOp, tuple[UOp, int]] = {}
    for node in nodes:
        if node.op not in (Ops.LOAD, Ops.STORE):
            continue
        pointer = node.src[0]
        if node.op is Ops.LOAD and pointer in written:
            # Whether two accesses meet is decided on numbers.
            return _Opened(ast, (), ())
        rest, number = split_index(node.src[1])
        size = pointer_of(pointer).size if pointer.op is Ops.DEFINE_GLOBAL else 0
        if number <= 0 or size <= 0:
            continue
        low, high = rest.bounds
        if low < 0 or high + number >= size:
            # A gate keeps it inside.
            continue
        room[number] = min(room.get(number, size), size - 1 - high)
        accesses[node.src[1]] = rest, number
    if not accesses:
        return _Opened(ast, (), ())
    variables = {
        number: UOp.variable(f"_free{position}", 0, room[number])
        for position, number in enumerate(room)
    }
    mapping = {index: rest + variables[number] for index, (rest, number) in accesses.items()}
    return _Opened(ast.substitute(mapping), tuple(variables.values()), tuple(room))


def _shared(several: dict[UOp, _Opened]) -> tuple[UOp, tuple[int, ...]]:
    """The kernel of several that are alike, and for each of its offsets the divisor of all."""
    rows = [each.values for each in several.values()]
    first = next(iter(several.values()))
    return first.ast, tuple([gcd(*column) for column in zip(*rows, strict=True)])


def _shared_offset(number: int, variable: UOp, factor: int) -> UOp:
    """The offset of slice `number`: its variable counts in steps of `factor`."""
    _, _, high = variable.arg
    return UOp.variable(offset_name(number), 0, high // factor) * factor
