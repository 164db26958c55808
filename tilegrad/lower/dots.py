"""The operands of dot units as vectors: what a lane takes at once lies together.

A dot unit adds k products to each lane, so its operands are vectors k times as long as its result.
Where memory holds them in that order, as a packed panel does, one is a single load; where all lanes
take the same, it is a load of k elements, repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.rules import simplify, terms_of
from tilegrad.ir.uop import UOp
from tilegrad.target import MatrixUnit, Target

__all__ = ["join_operand", "join_operands", "operand_parts", "widen_operand", "widen_unit"]

# Bytes of the vectors that the instructions have.
_VECTORS = (16, 32, 64)


def operand_parts(nodes: Iterable[UOp]) -> set[UOp]:
    """The values that nothing but operands of units is made of, which may be joined."""
    nodes = list(nodes)
    if all(node.op is not Ops.WMMA for node in nodes):
        return set()
    other: set[UOp] = set()
    found: set[UOp] = set()
    for node in reversed(nodes):
        is_value = node.op in (Ops.LOAD, Ops.CAST, Ops.BITCAST) or node.op.is_alu
        if is_value and node.dtype is not dtypes.index and node not in other:
            found.add(node)
            # The pointer and the index of a load are needed as they are.
            other.update(node.src if node.op is Ops.LOAD else ())
        elif node.op is not Ops.VECTORIZE:
            other.update(node.src)
    return found


def join_operand(node: UOp, done: Mapping[UOp, UOp], lane: UOp, width: int) -> UOp | None:
    """A VECTORIZE that depends on `lane`, for all lanes one after the other, if its parts are
    alike.

    before   VECTORIZE(LOAD(b, l*2), LOAD(b, l*2 + 1))
    after    LOAD(b, 0) : uint16.vec(2 * width)
    """
    return _join(node.src, lane, width, done, {})


def widen_operand(node: UOp, done: Mapping[UOp, UOp], width: int) -> UOp:
    """The same where they are not: element by element."""
    parts = [done[source].broadcast(width) for source in node.src]
    return UOp.stack(part.gep(place) for place in range(width) for part in parts)


def widen_unit(node: UOp, src: Sequence[UOp], width: int) -> UOp:
    """A WMMA of a dot unit in `width` lanes; what is the same for all of them is repeated."""
    unit: MatrixUnit = node.arg
    operands = [_repeated(part, unit.k, width) for part in src[:2]]
    return UOp(Ops.WMMA, node.dtype.vec(width), (*operands, src[2].broadcast(width)), unit)


def _repeated(part: UOp, k: int, width: int) -> UOp:
    if part.dtype.lanes != k:
        return part
    if part.op is Ops.VECTORIZE:
        part = _join(part.src, None, 1, {}, {}) or part
    return _spread(part, k, width, {})


def _spread(part: UOp, k: int, width: int, known: dict[UOp, UOp]) -> UOp:
    """`part` `width` times. Arithmetic follows the repetition, so that what is loaded is repeated
    on its way to the register. `known` has what was made so far.
    """
    if part in known:
        return known[part]
    if part.op is Ops.CONST:
        return UOp.const(part.dtype.scalar.vec(k * width), part.arg)
    if part.op.is_alu:
        src = tuple(_spread(source, k, width, known) for source in part.src)
        made = known[part] = UOp(part.op, part.dtype.scalar.vec(k * width), src, part.arg)
        return made
    return part.gep(*(list(range(k)) * width))


def join_operands(ast: UOp, target: Target) -> UOp:
    """`ast` with the operands of dot units that have no lanes joined, and with units in as many
    lanes as no instruction has replaced by products.
    """
    done: dict[UOp, UOp] = {}
    if not any(node.op is Ops.WMMA and node.arg.is_dot for node in ast.toposort()):
        return ast
    for node in ast.toposort():
        src = tuple(done[source] for source in node.src)
        made = node if src == node.src else UOp(node.op, node.dtype, src, node.arg)
        if node.op is Ops.WMMA and node.arg.is_dot and not _is_there(node.dtype):
            made = _products(made)
        done[node] = made
    return simplify(done[ast])


def _is_there(dtype: DType) -> bool:
    return dtype.itemsize * dtype.lanes in _VECTORS


def _products(node: UOp) -> UOp:
    """A dot unit's result by multiplications."""
    unit: MatrixUnit = node.arg
    a, b, total = node.src
    lanes = node.dtype.lanes
    for place in range(unit.k):
        picks = range(place, lanes * unit.k, unit.k)
        left = _wide(a.gep(*picks), unit.dtype_in, unit.dtype_out)
        right = _wide(b.gep(*picks), unit.dtype_right or unit.dtype_in, unit.dtype_out)
        total = total + left * right
    return total


def _wide(part: UOp, dtype: DType, out: DType) -> UOp:
    return part.bitcast(dtype.vec(part.dtype.lanes)).cast(out.vec(part.dtype.lanes))


_Joined = dict[tuple[tuple[UOp, ...], UOp | None, int], UOp | None]


def _join(
    parts: Sequence[UOp], lane: UOp | None, width: int, done: Mapping[UOp, UOp], known: _Joined
) -> UOp | None:
    """Values of lanes of which each takes `parts`, as one vector; None where they have nothing in
    common. `done` gives what has become of memory, `known` has the answers so far.
    """
    key = tuple(parts), lane, width
    if key not in known:
        known[key] = _vector_of(parts, lane, width, done, known)
    return known[key]


def _vector_of(
    parts: Sequence[UOp], lane: UOp | None, width: int, done: Mapping[UOp, UOp], known: _Joined
) -> UOp | None:
    first, count = parts[0], len(parts) * width
    if any(part.op is not first.op or part.dtype is not first.dtype for part in parts):
        return None
    dtype = first.dtype.scalar.vec(count)
    if first.op is Ops.CONST:
        values = [part.arg for part in parts]
        if all(value == values[0] for value in values):
            return UOp.const(dtype, values[0])
        return UOp.stack(list(parts) * width)
    if lane is not None and not any(lane in part.ranges for part in parts):
        found = _join(parts, None, 1, done, known)
        return None if found is None else _spread(found, len(parts), width, {})
    if first.op is Ops.LOAD:
        return _joined_load(parts, lane, width, done)
    if not (first.op.is_alu or first.op in (Ops.CAST, Ops.BITCAST)):
        return None
    src = [
        _join([part.src[place] for part in parts], lane, width, done, known)
        for place in range(len(first.src))
    ]
    if any(each is None for each in src):
        return None
    return UOp(first.op, dtype, tuple(each for each in src if each is not None), first.arg)


def _joined_load(
    parts: Sequence[UOp], lane: UOp | None, width: int, done: Mapping[UOp, UOp]
) -> UOp | None:
    """Loads of neighbours, whose lanes go on where the lane before ends."""
    pointer, start = parts[0].src[:2]
    others = {part.src[2] for part in parts if len(part.src) == 4}
    if len(others) > (1 if lane is None else 0):
        return None
    if any(part.src[0] is not pointer for part in parts):
        return None
    if lane is not None and lane in pointer.ranges:
        return None
    for place, part in enumerate(parts):
        if not _is_behind(part.src[1], start, place):
            return None
    if lane is not None:
        found = terms_of(start)
        if found is None or found[0].get(lane) != len(parts):
            return None
        if any(lane in factor.ranges for factor in found[0] if factor is not lane):
            return None
        start = simplify(start, {lane: UOp.const(dtypes.index, 0)})
    dtype = parts[0].dtype.scalar.vec(len(parts) * width)
    gated: tuple[UOp, ...] = ()
    for other in others:
        is_open = UOp.const(dtypes.bool, True)
        gates = [part.src[3] if len(part.src) == 4 else is_open for part in parts]
        gated = (other.broadcast(len(parts)), UOp.stack(gates))
    return UOp(Ops.LOAD, dtype, (done.get(pointer, pointer), start, *gated), parts[0].arg)


def _is_behind(index: UOp, start: UOp, count: int) -> bool:
    apart = simplify(index + start * -1)
    return apart.op is Ops.CONST and apart.arg == count
