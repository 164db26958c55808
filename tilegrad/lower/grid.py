"""Which part of the launch runs an axis: blocks, lanes of a block, or chunks that threads take."""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.base.dtype import Place, Pointer, dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.ranges import pad_range
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp, prod

__all__ = ["fix_launch", "spread_shared", "use_grid"]

_GRID_AXES = 3
_LANES = (Axis.LOCAL, Axis.GROUP)
# A launch may have many more blocks along its first axis than along the others, and fewest lanes
# along the last.
_MOST_BLOCKS, _MOST_DEEP = 65535, 64


def fix_launch(ast: UOp) -> UOp:
    """A launch has as many blocks as a symbolic size may need; those beyond it do nothing. So one
    launch, recorded once, serves every size. A chunk, of which there is one axis, is a position
    already here, where a kernel is small.

    before   RANGE(n, GLOBAL)                          n: 1..8
    after    RANGE(8, GLOBAL), accesses gated by r < n
    """
    for part in list(ast.toposort()):
        if part.op is Ops.RANGE and part.arg[1] is Axis.GLOBAL and part.src[0].op is not Ops.CONST:
            largest = UOp.const(dtypes.index, part.src[0].vmax)
            ast = pad_range(ast, part, part.replace(src=(largest,)))
    chunks = [
        part for part in ast.toposort() if part.op is Ops.RANGE and part.arg[1] is Axis.THREAD
    ]
    return simplify(ast, {part: _special("chunk", part.src[0]) for part in chunks})


def use_grid(ast: UOp) -> UOp:
    """Ranges that the launch runs become SPECIAL.

    A launch has three axes of each kind. The first axis of a block is its innermost, because lanes
    that follow one another there run together and should touch neighbours in memory; the lanes of a
    matrix unit are the innermost of all.

    before   RANGE(16, GLOBAL)
    after    SPECIAL("gidx0", 16)
    """
    place = {number: rank for rank, number in enumerate(ast.arg.order)}
    ranges = sorted(
        (node for node in ast.toposort() if node.op is Ops.RANGE),
        key=lambda node: place.get(node.arg[0], len(place) + node.arg[0]),
    )
    mapping: dict[UOp, UOp] = {}
    blocks = [part for part in ranges if part.arg[1] is Axis.GLOBAL]
    lanes = [part for part in ranges if part.arg[1] in _LANES]
    crowded = max(len(blocks) - _GRID_AXES + 1, 1)
    if any(part.src[0].vmax > _MOST_BLOCKS for part in blocks[crowded:]):
        crowded = len(blocks)
    for number, parts in enumerate([blocks[:crowded], *([part] for part in blocks[crowded:])]):
        mapping |= _share(f"gidx{number}", parts)
    crowded = max(len(lanes) - _GRID_AXES + 1, 1)
    if len(lanes) >= _GRID_AXES and prod(part.src[0].arg for part in lanes[:crowded]) > _MOST_DEEP:
        crowded = len(lanes)
    for number, parts in enumerate(
        [*([part] for part in lanes[: crowded - 1 : -1]), lanes[:crowded]]
    ):
        mapping |= _share(f"lidx{number}", parts)
    return simplify(ast, mapping)


def spread_shared(ast: UOp) -> UOp:
    """Shared memory that lives inside lanes becomes one array of the block, a part for each."""
    done: dict[UOp, UOp] = {}
    offsets: dict[UOp, UOp] = {}
    nodes = ast.toposort()
    if not any(_is_shared_by_lanes(node) for node in nodes):
        return ast
    for node in nodes:
        src = tuple([done[source] for source in node.src])
        if _is_shared_by_lanes(node):
            pointer = node.dtype
            assert isinstance(pointer, Pointer)
            lanes = [part for part in node.src if part.arg[1] in _LANES]
            size, offset = pointer.size, UOp.const(dtypes.index, 0)
            for part in lanes:
                offset = part * size + offset
                size *= part.src[0].arg
            src = tuple(part for part in src if part not in lanes)
            done[node] = UOp(node.op, pointer.base.ptr(size, pointer.place), src, node.arg)
            offsets[node] = simplify(offset)
            continue
        if node.op is Ops.AFTER and node.src[0] in offsets:
            offsets[node] = offsets[node.src[0]]
            done[node] = src[0].after(*src[1:])
            continue
        if node.op in (Ops.LOAD, Ops.STORE) and node.src[0] in offsets:
            src = (src[0], simplify(src[1] + offsets[node.src[0]]), *src[2:])
        done[node] = node if src == node.src else UOp(node.op, node.dtype, src, node.arg)
    return done[ast]


def _is_shared_by_lanes(node: UOp) -> bool:
    """Whether this is memory of a block that lives inside its lanes."""
    return (
        node.op is Ops.DEFINE_LOCAL
        and isinstance(node.dtype, Pointer)
        and node.dtype.place is Place.SHARED
        and any(part.arg[1] in _LANES for part in node.src)
    )


def _share(name: str, parts: Sequence[UOp]) -> dict[UOp, UOp]:
    """One axis of the launch for all of `parts`, the last the fastest."""
    if len(parts) < 2:
        return {part: _special(name, part.src[0]) for part in parts}
    position = _special(name, prod(part.src[0] for part in parts))
    mapping = {}
    for part in reversed(parts[1:]):
        mapping[part] = position % part.src[0]
        position = position // part.src[0]
    return {**mapping, parts[0]: position}


def _special(name: str, extent: UOp) -> UOp:
    extent = simplify(extent)
    value = extent.arg if extent.op is Ops.CONST else extent
    return UOp(Ops.SPECIAL, dtypes.index, (), (name, value))
