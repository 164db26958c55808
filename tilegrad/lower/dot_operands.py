"""Vector operands of dot units, such as VNNI.

A dot unit adds k products to each lane, so its operands are vectors k times as long as its result.
Where memory has that order, as a packed panel has, an operand is a single load; where it is uniform
over the lanes, it is a load of k elements, repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Reversible, Sequence

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.rewrite import rebuilt
from tilegrad.ir.rules import simplify, terms_of
from tilegrad.ir.uop import UOp
from tilegrad.target import MatrixUnit, Target

__all__ = ["join_operand", "join_operands", "operand_values", "widen_operand", "widen_unit"]

# The vector sizes of the instructions, in bytes.
_VECTORS = (16, 32, 64)


def operand_values(nodes: Reversible[UOp]) -> set[UOp]:
    """The values that only operands of dot units use; these may be joined."""
    other: set[UOp] = set()
    found: set[UOp] = set()
    for node in reversed(nodes):
        is_value = node.op in (Ops.LOAD, Ops.CAST, Ops.BITCAST) or node.op.is_alu
        if is_value and node.dtype is not dtypes.index and node not in other:
            found.add(node)
            # The pointer and the index of a load stay scalar.
            other.update(node.src if node.op is Ops.LOAD else ())
        elif node.op is not Ops.VECTORIZE:
            other.update(node.src)
    return found


def join_operand(node: UOp, done: Mapping[UOp, UOp], lane: UOp, width: int) -> UOp | None:
    """The operand VECTORIZE, which depends on `lane`, as one vector over all lanes; None if its
    elements differ in kind.

    before   VECTORIZE(LOAD(b, l*2), LOAD(b, l*2 + 1))
    after    LOAD(b, 0) : uint16.vec(2 * width)
    """
    return _join(node.src, lane, width, done, {})


def widen_operand(node: UOp, done: Mapping[UOp, UOp], width: int) -> UOp:
    """The operand, gathered element by element."""
    vectors = [done[source].broadcast(width) for source in node.src]
    return UOp.stack(vector.gep(lane) for lane in range(width) for vector in vectors)


def widen_unit(node: UOp, src: Sequence[UOp], width: int) -> UOp:
    """The WMMA of a dot unit in `width` lanes; uniform operands are repeated."""
    unit: MatrixUnit = node.arg
    operands = [_repeated(operand, unit.k, width) for operand in src[:2]]
    return UOp(Ops.WMMA, node.dtype.vec(width), (*operands, src[2].broadcast(width)), unit)


def _repeated(operand: UOp, k: int, width: int) -> UOp:
    if operand.dtype.lanes != k:
        return operand
    if operand.op is Ops.VECTORIZE:
        operand = _join(operand.src, None, 1, {}, {}) or operand
    return _spread(operand, k, width, {})


def _spread(operand: UOp, k: int, width: int, known: dict[UOp, UOp]) -> UOp:
    """`operand`, repeated `width` times. Loads are repeated before the arithmetic, so that the load
    instruction broadcasts. `known` caches results.
    """
    if operand in known:
        return known[operand]
    if operand.op is Ops.CONST:
        return UOp.const(operand.dtype.scalar.vec(k * width), operand.arg)
    if operand.op.is_alu:
        src = tuple(_spread(source, k, width, known) for source in operand.src)
        made = known[operand] = UOp(
            operand.op, operand.dtype.scalar.vec(k * width), src, operand.arg
        )
        return made
    return operand.gep(*(list(range(k)) * width))


def join_operands(ast: UOp, target: Target) -> UOp:
    """`ast` with the operands of uniform dot units joined; units of a width that no instruction has
    become products.
    """
    if not any(node.op is Ops.WMMA and node.arg.is_dot for node in ast.toposort()):
        return ast

    def change(unit: UOp, src: tuple[UOp, ...]) -> UOp | None:
        is_none = unit.arg.is_dot and not _is_there(unit.dtype)
        return _products(unit.over(src)) if is_none else None

    return simplify(rebuilt(ast, change, (Ops.WMMA,)))


def _is_there(dtype: DType) -> bool:
    return dtype.itemsize * dtype.lanes in _VECTORS


def _products(node: UOp) -> UOp:
    """The result of a dot unit by multiplications."""
    unit: MatrixUnit = node.arg
    a, b, total = node.src
    lanes = node.dtype.lanes
    for step in range(unit.k):
        picks = range(step, lanes * unit.k, unit.k)
        left = _wide(a.gep(*picks), unit.dtype_in, unit.dtype_out)
        right = _wide(b.gep(*picks), unit.dtype_right or unit.dtype_in, unit.dtype_out)
        total = total + left * right
    return total


def _wide(operand: UOp, dtype: DType, out: DType) -> UOp:
    return operand.bitcast(dtype.vec(operand.dtype.lanes)).cast(out.vec(operand.dtype.lanes))


_Joined = dict[tuple[tuple[UOp, ...], UOp | None, int], UOp | None]


def _join(
    values: Sequence[UOp], lane: UOp | None, width: int, done: Mapping[UOp, UOp], known: _Joined
) -> UOp | None:
    """`values`, the elements of a lane, for all lanes as one vector; None where they have no common
    structure. `done` maps old pointers to new ones, `known` caches results.
    """
    key = tuple(values), lane, width
    if key not in known:
        known[key] = _joined_values(values, lane, width, done, known)
    return known[key]


def _joined_values(
    values: Sequence[UOp], lane: UOp | None, width: int, done: Mapping[UOp, UOp], known: _Joined
) -> UOp | None:
    first, count = values[0], len(values) * width
    if any(value.op is not first.op or value.dtype is not first.dtype for value in values):
        return None
    dtype = first.dtype.scalar.vec(count)
    if first.op is Ops.CONST:
        constants = [value.arg for value in values]
        if all(constant == constants[0] for constant in constants):
            return UOp.const(dtype, constants[0])
        return UOp.stack(list(values) * width)
    if lane is not None and not any(lane in value.ranges for value in values):
        found = _join(values, None, 1, done, known)
        return None if found is None else _spread(found, len(values), width, {})
    if first.op is Ops.LOAD:
        return _joined_load(values, lane, width, done)
    if not (first.op.is_alu or first.op in (Ops.CAST, Ops.BITCAST)):
        return None
    src = [
        _join([value.src[number] for value in values], lane, width, done, known)
        for number in range(len(first.src))
    ]
    if any(each is None for each in src):
        return None
    return UOp(first.op, dtype, tuple(each for each in src if each is not None), first.arg)


def _joined_load(
    loads: Sequence[UOp], lane: UOp | None, width: int, done: Mapping[UOp, UOp]
) -> UOp | None:
    """Loads of consecutive elements whose lanes are consecutive too, as one load."""
    pointer, start = loads[0].src[:2]
    others = {load.other for load in loads if load.is_gated}
    if len(others) > (1 if lane is None else 0):
        return None
    if any(load.src[0] is not pointer for load in loads):
        return None
    if lane is not None and lane in pointer.ranges:
        return None
    for number, load in enumerate(loads):
        if not _is_next(load.index, start, number):
            return None
    if lane is not None:
        found = terms_of(start)
        if found is None or found[0].get(lane) != len(loads):
            return None
        if any(lane in factor.ranges for factor in found[0] if factor is not lane):
            return None
        start = simplify(start, {lane: UOp.const(dtypes.index, 0)})
    dtype = loads[0].dtype.scalar.vec(len(loads) * width)
    gated: tuple[UOp, ...] = ()
    for other in others:
        is_open = UOp.const(dtypes.bool, True)
        gates = [load.gate if load.is_gated else is_open for load in loads]
        gated = (other.broadcast(len(loads)), UOp.stack(gates))
    return UOp(Ops.LOAD, dtype, (done.get(pointer, pointer), start, *gated), loads[0].arg)


def _is_next(index: UOp, start: UOp, count: int) -> bool:
    apart = simplify(index + start * -1)
    return apart.op is Ops.CONST and apart.arg == count
