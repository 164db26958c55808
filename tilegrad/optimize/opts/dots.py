"""TC on a dot unit: a sum of short products takes several neighbours of the reduce axis at once.

A dot unit (`MatrixUnit.is_dot`) is an instruction of a vector processor. Its m and n are one, so it
is an operation on elements as a product is, and every other Opt treats it as a product: lanes,
register tiles, panels in scratch.

    before   REDUCE(CAST(a[k]) * CAST(b[k]), k)                          a, b: bfloat16
    after    REDUCE(WMMA((a[2k], a[2k+1]), (b[2k], b[2k+1]), 0), k / 2)

The unit for bytes takes unsigned ones from the left and signed ones from the right. Another pair
has the highest bit of one side flipped, which adds 128 to a signed byte, or takes it from an
unsigned one; the change is a sum of the other side alone, over loops of its own. Sums of integers
wrap around, so the difference is exact.

    a, b: int8       sum(a * b) = sum((a + 128) * b) - 128 * sum(b)
"""

from __future__ import annotations

from typing import NamedTuple

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import OptError
from tilegrad.ir.args import KernelInfo
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import iterations_of, next_number, nodes_of, reductions_of, stores_of
from tilegrad.ir.rules import conjuncts, simplify, terms_of
from tilegrad.ir.uop import UOp
from tilegrad.optimize.opts.opt import Opt
from tilegrad.optimize.opts.split import split
from tilegrad.target import MatrixUnit

__all__ = ["Dot", "exact_integers", "find_dots", "narrow", "use_dot_unit"]

_REDUCE_KINDS = (Axis.REDUCE, Axis.UNROLL, Axis.GROUP)
_BYTES = (dtypes.int8, dtypes.uint8)


class Dot(NamedTuple):
    """A reduction of products of short numbers, and its axis: the unit takes `k` terms at once.
    Where both operands are bytes of one kind, the left ones are flipped.
    """

    reduction: UOp
    left: UOp
    right: UOp
    depth: UOp


def find_dots(ast: UOp, unit: MatrixUnit) -> list[Dot]:
    """The reductions that `unit` could run, largest first, both operands as the left one; an Opt
    names one by its position. Reduce axes need not be divisible; unrolled ones must be as long as
    the unit takes.
    """
    reductions = [
        node for node in reductions_of(ast) if node.arg is Ops.ADD and node.dtype is unit.dtype_out
    ]
    reductions.sort(key=iterations_of, reverse=True)
    found: list[Dot] = []
    for reduction in reductions:
        value = reduction.src[0]
        if value.op is not Ops.MUL:
            continue
        left, right = (narrow(side) for side in value.src)
        if not _fits(left.dtype, right.dtype, unit):
            continue
        depths = [loop for loop in reduction.src[1:] if _is_depth(loop, unit)]
        # Unrolled for the unit: the copy lies in its order.
        depths.sort(key=lambda loop: loop.axis is not Axis.UNROLL)
        for depth in depths:
            if all(depth in side.ranges for side in (left, right)):
                found += [Dot(reduction, left, right, depth), Dot(reduction, right, left, depth)]
    return found


def _fits(left: DType, right: DType, unit: MatrixUnit) -> bool:
    if unit.dtype_right is None:
        return left is unit.dtype_in and right is unit.dtype_in
    return left in _BYTES and right in _BYTES


def _is_depth(loop: UOp, unit: MatrixUnit) -> bool:
    if loop.extent.op is not Ops.CONST:
        return False
    kind, extent = loop.axis, loop.extent.arg
    return kind is Axis.REDUCE or (kind is Axis.UNROLL and extent == unit.k)


def narrow(side: UOp) -> UOp:
    """The value that `side` is cast from without loss, as often as it is."""
    while side.op is Ops.CAST and _is_lossless(side.src[0].dtype, side.dtype):
        side = side.src[0]
    return side


def _is_lossless(old: DType, new: DType) -> bool:
    if old.is_float:
        return new.is_float and old.itemsize < new.itemsize
    if not (old.is_int and new.is_int):
        return False
    return old.itemsize < new.itemsize and (old.kind == new.kind or new.kind == "int")


def exact_integers(ast: UOp) -> UOp:
    """Products of short integers that are summed in a wider one, made in the wider one, if the sum
    is cast to no more bits than the short one has: a value that wrapped around before does so at
    the end.

    before   CAST(REDUCE(CAST(a * b), k, ADD))                          a, b, result: int8
    after    CAST(REDUCE(CAST(a) * CAST(b), k, ADD))
    """
    nodes = ast.toposort()
    sizes: dict[UOp, int] = {}
    for node in nodes:
        size = node.dtype.itemsize if node.op is Ops.CAST and node.dtype.is_int else 8
        for source in node.src:
            if source.op is Ops.REDUCE:
                sizes[source] = max(sizes.get(source, 0), size)
    mapping: dict[UOp, UOp] = {}
    for reduction, size in sizes.items():
        cast = reduction.src[0]
        if reduction.arg is not Ops.ADD or cast.op is not Ops.CAST or not cast.dtype.is_int:
            continue
        product = cast.src[0]
        if product.op is Ops.MUL and product.dtype.is_int and size <= product.dtype.itemsize:
            left, right = (side.cast(cast.dtype) for side in product.src)
            mapping[cast] = left * right
    return ast.substitute(mapping) if mapping else ast


def use_dot_unit(ast: UOp, opt: Opt, unit: MatrixUnit, mode: int) -> UOp:
    """`Opt(TC, choice, (unit, mode))` where the unit is a dot unit; mode 2 unrolls as much of the
    reduce axis as the unit would take.

    Raises OptError if there is no such product, or the axis is no multiple of its size.
    """
    found = find_dots(ast, unit)
    if opt.axis is None or not 0 <= opt.axis < len(found):
        raise OptError(f"tc: {len(found)} products fit {unit.name}, not number {opt.axis}", opt=opt)
    dot = found[opt.axis]
    dot = dot._replace(left=_anywhere(dot.left, ast))
    depth = dot.depth
    extent = depth.extent.arg
    if extent % unit.k:
        raise OptError(f"tc: {unit.name} takes {unit.k} at a time, the axis has {extent}", opt=opt)
    if mode == 2:
        is_unrolled = depth.axis is Axis.UNROLL
        return ast if is_unrolled else split(ast, depth, unit.k, Axis.UNROLL, last=True)
    number = next_number(ast.toposort())
    order = list(ast.arg.order)
    position = order.index(depth.number)
    steps: list[UOp] = []
    if extent > unit.k:
        steps = [UOp.range(extent // unit.k, number, Axis.REDUCE)]
    order[position : position + 1] = [step.number for step in steps]
    loops = [
        each for loop in dot.reduction.src[1:] for each in (steps if loop is depth else [loop])
    ]
    total = _total(dot, unit, steps, loops, number + 1)
    shaped = simplify(ast.substitute({dot.reduction: total}))
    # The name shows the unit's axis, though it is no axis any more.
    name = f"{ast.arg.name}#{unit.k}"
    return shaped.replace(arg=KernelInfo(name, tuple(order), ast.arg.opts))


def _total(dot: Dot, unit: MatrixUnit, steps: list[UOp], loops: list[UOp], number: int) -> UOp:
    """The reduction by the unit, over `loops`."""
    left, right = (_taken(side, dot.depth, steps, unit.k) for side in (dot.left, dot.right))
    if unit.dtype_right is None:
        return _dot_reduction(unit, left, right, loops)
    kinds = (dot.left.dtype, dot.right.dtype)
    if kinds == (dtypes.uint8, dtypes.int8):
        return _dot_reduction(unit, left, right, loops)
    if kinds == (dtypes.int8, dtypes.uint8):
        return _dot_reduction(unit, right, left, loops)
    is_signed = dot.right.dtype is dtypes.int8
    flipped = [_flipped(each) for each in left]
    # The sum of the other side has loops of its own: it does not change with the left one's axes. A
    # loop in which the other side is copied is around both.
    copied = {
        loop for each in right for node in nodes_of(each, Ops.DEFINE_LOCAL) for loop in node.src
    }
    around = [loop for loop in loops if loop in copied]
    own = [loop for loop in loops if loop not in copied]
    fresh = {
        loop: loop.replace(arg=(number + offset, loop.axis))
        for offset, loop in enumerate(own)
        if loop.axis is Axis.REDUCE
    }
    alone = [each.substitute(fresh) for each in right]
    over = [fresh.get(loop, loop) for loop in own]
    ones = [UOp.const(dtypes.uint8 if is_signed else dtypes.int8, 1)] * unit.k
    if is_signed:
        total, rest = (
            _dot_reduction(unit, flipped, right, own),
            _dot_reduction(unit, ones, alone, over),
        )
    else:
        total, rest = (
            _dot_reduction(unit, right, flipped, own),
            _dot_reduction(unit, alone, ones, over),
        )
    whole = total + rest * (-128 if is_signed else 128)
    return UOp(Ops.REDUCE, whole.dtype, (whole, *around), Ops.ADD) if around else whole


def _anywhere(side: UOp, ast: UOp) -> UOp:
    """A load that is gated as all stores are, from an index that may always be read: its value
    there is not stored, and the reduction needs no gate for it.

    before   LOAD(a, i*513 + k, 0, i < 509)
    after    LOAD(a, WHERE(i < 509, i*513, 0) + k)
    """
    if side.op is not Ops.LOAD or not side.is_gated:
        return side
    gates = conjuncts(side.gate)
    outside = [
        gate for gate in gates if not any(loop.axis in _REDUCE_KINDS for loop in gate.ranges)
    ]
    found = terms_of(side.index)
    stores = stores_of(ast)
    stores = [node for node in stores if node.src[0].op is Ops.DEFINE_GLOBAL]
    if found is None or not outside:
        return side
    if any(not node.is_gated or not {*outside} <= {*conjuncts(node.gate)} for node in stores):
        return side
    moved, index = UOp.const(dtypes.index, 0), UOp.const(dtypes.index, found[1])
    for factor, scale in found[0].items():
        if any(loop.axis in _REDUCE_KINDS for loop in factor.ranges):
            index = factor * scale + index
        else:
            moved = factor * scale + moved
    inside = outside[0]
    for gate in outside[1:]:
        inside = inside & gate
    index = inside.where(moved, UOp.const(dtypes.index, 0)) + index
    remaining = [gate for gate in gates if gate not in outside]
    if not remaining:
        return side.replace(src=(side.src[0], index))
    gate = remaining[0]
    for each in remaining[1:]:
        gate = gate & each
    return side.replace(src=(side.src[0], index, side.other, gate))


def _taken(side: UOp, depth: UOp, steps: list[UOp], k: int) -> list[UOp]:
    """`side` at each of the positions along `depth` that the unit takes at once."""
    first = steps[0] * k if steps else UOp.const(dtypes.index, 0)
    return [simplify(side.substitute({depth: first + offset})) for offset in range(k)]


def _bits(values: list[UOp]) -> UOp:
    """An operand of the unit as bits: no other instruction need know its dtype."""
    kind = dtypes.uint16 if values[0].dtype.is_float else dtypes.uint8
    return UOp.stack([each if each.dtype is kind else each.bitcast(kind) for each in values])


def _flipped(byte: UOp) -> UOp:
    """before   a: int8              after    a + 128: uint8; and a - 128 the other way round"""
    to = dtypes.uint8 if byte.dtype is dtypes.int8 else dtypes.int8
    return byte.bitcast(to) ^ UOp.const(to, 128 if to is dtypes.uint8 else -128)


def _dot_reduction(unit: MatrixUnit, left: list[UOp], right: list[UOp], loops: list[UOp]) -> UOp:
    nothing = UOp.const(unit.dtype_out, 0)
    value = UOp(Ops.WMMA, unit.dtype_out, (_bits(left), _bits(right), nothing), unit)
    return UOp(Ops.REDUCE, unit.dtype_out, (value, *loops), Ops.ADD) if loops else value
