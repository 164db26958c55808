"""TC: a sum of products runs on a matrix unit.

The lanes of a group hold the operands together: which element each lane holds is a table in the
target (`MatrixUnit`). A table is a sum over the bits of the lane number, so a group of 32 lanes
becomes five axes of two, and the position of an element an index expression of them. The reduction
then runs over the rest of the three axes.

    before   REDUCE(a[m,k] * b[k,n], k)                              stored at (m, n)
    after    REDUCE(WMMA(VECTORIZE(a[..]...), VECTORIZE(b[..]...), 0), k / unit.k)
             stored at (m / unit.m * unit.m + row, n / unit.n * unit.n + column), row and column
             sums of lane bits and of the axis that counts a lane's results

In mode 2 the axes are the same, and products and sums stay as they are: the effect of the layout
alone on a kernel can be seen, and its values tested, on any device with blocks.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from tilegrad.base.config import config
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import InternalError, OptError
from tilegrad.ir.args import KernelInfo
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import loads_of, next_number, nodes_of, reductions_of, stores_of, stride_of
from tilegrad.ir.rules import simplify, terms_of
from tilegrad.ir.text import register
from tilegrad.ir.uop import UOp
from tilegrad.matrix_units import matrix_unit
from tilegrad.optimize.opts.descriptors import descriptor
from tilegrad.optimize.opts.dots import use_dot_unit
from tilegrad.optimize.opts.opt import Opt, axes_of, loop_order
from tilegrad.target import MatrixUnit, Target

__all__ = ["Layout", "find_products", "position_in", "use_matrix_unit"]

register("MatrixUnit", matrix_unit)

Layout = tuple[tuple[tuple[int, int], ...], ...]


class _Product(NamedTuple):
    """A sum of products, its operands in the unit's dtype, and the axes the unit would run."""

    reduction: UOp
    left: UOp
    right: UOp
    rows: UOp
    columns: UOp
    depth: UOp


def find_products(ast: UOp, unit: MatrixUnit) -> list[tuple[UOp, UOp, UOp]]:
    """The axes (rows, columns, depth) that `unit` could run, best first: an Opt names one by its
    position. They need not be divisible.
    """
    return [(each.rows, each.columns, each.depth) for each in _products(ast, unit)]


def use_matrix_unit(ast: UOp, opt: Opt, target: Target) -> UOp:
    """`Opt(TC, choice, (unit, mode))`: give three axes of a sum of products to a matrix unit.

    The loops over the axes outside the unit get the next three numbers, in the order rows, columns,
    depth.

    Raises OptError if there is no such unit or product, or an axis is no multiple of its size.
    """
    unit, mode = _unit(opt, target)
    if unit.is_dot:
        return use_dot_unit(ast, opt, unit, mode)
    if any(axis.axis is Axis.GROUP for axis in axes_of(ast)):
        raise OptError("tc: lanes share the reduction already", opt=opt)
    products = _products(ast, unit)
    if opt.axis is None or not 0 <= opt.axis < len(products):
        raise OptError(
            f"tc: {len(products)} products fit {unit.name}, not number {opt.axis}", opt=opt
        )
    product = products[opt.axis]
    sizes = {product.rows: unit.m, product.columns: unit.n, product.depth: unit.k}
    for loop, size in sizes.items():
        if loop.extent.arg % size:
            raise OptError(
                f"tc: {unit.name} takes {size} at a time, the axis has {loop.extent.arg}",
                opt=opt,
                remedy=f"PADTO({axes_of(ast).index(loop)}, {size}) first",
            )
    return _Tiling(ast, unit, product).run(mode)


def _unit(opt: Opt, target: Target) -> tuple[MatrixUnit, int]:
    if not isinstance(opt.arg, tuple) or len(opt.arg) != 2 or opt.arg[1] not in (1, 2):
        raise OptError("tc: it takes (number of the unit, mode 1 or 2)", opt=opt)
    number, mode = opt.arg
    if not 0 <= number < len(target.matrix_units):
        raise OptError(
            f"tc: {target.name} has {len(target.matrix_units)} matrix units, not number {number}",
            opt=opt,
        )
    return target.matrix_units[number], mode


# which axes


def _products(ast: UOp, unit: MatrixUnit) -> list[_Product]:
    found: list[_Product] = []
    if unit.digits and not config.TF32:
        return found
    reductions = reductions_of(ast)
    if (
        len(reductions) != 1
        or reductions[0].arg is not Ops.ADD
        or reductions[0].dtype is not unit.dtype_out
    ):
        return found
    (reduction,) = reductions
    operands = _operands(reduction, unit, ast)
    if operands is None:
        return found
    outputs = [axis for axis in axes_of(ast) if axis.axis in (Axis.GLOBAL, Axis.LOOP)]
    outputs = [axis for axis in outputs if axis.extent.op is Ops.CONST and axis in reduction.ranges]
    # Lanes of a unit have no rows in scratch of their own.
    owned = {axis for node in nodes_of(ast, Ops.DEFINE_LOCAL) for axis in node.src}
    outputs = [axis for axis in outputs if axis not in owned]
    depths = [
        axis
        for axis in reduction.src[1:]
        if axis.axis is Axis.REDUCE
        and axis.extent.op is Ops.CONST
        and all(axis in operand.ranges for operand in operands)
    ]
    for left, right in (operands, operands[::-1]):
        only_left = [axis for axis in outputs if axis in left.ranges and axis not in right.ranges]
        only_right = [axis for axis in outputs if axis in right.ranges and axis not in left.ranges]
        for rows in only_left:
            for columns in only_right:
                found += [_Product(reduction, left, right, rows, columns, axis) for axis in depths]
    stores = stores_of(ast)
    return sorted(found, key=lambda each: _preference(each, unit, stores))


def _operands(reduction: UOp, unit: MatrixUnit, ast: UOp) -> tuple[UOp, UOp] | None:
    """The two factors in the unit's dtype. A product rounded before it is added is not rounded by
    the unit, which adds it exactly; that is within the precision that the dtype of the sum
    promises. Products of integers wrap around, so they run on the unit only where the sum wraps
    too.
    """
    value = reduction.src[0]
    if value.op is Ops.CAST and value.src[0].op is Ops.MUL:
        value = value.src[0]
        users = [node for node in ast.toposort() if reduction in node.src]
        is_cut = all(node.op is Ops.CAST and node.dtype is value.dtype for node in users)
        if not value.dtype.is_float and not is_cut:
            return None
    if value.op is not Ops.MUL:
        return None
    left, right = (
        factor.src[0] if factor.op is Ops.CAST and factor.dtype is unit.dtype_out else factor
        for factor in value.src
    )
    is_fit = left.dtype is unit.dtype_in and right.dtype is unit.dtype_in
    return (left, right) if is_fit else None


def _preference(
    product: _Product, unit: MatrixUnit, stores: Sequence[UOp]
) -> tuple[bool | int, ...]:
    """Neighbouring results in neighbouring columns first; then sums along memory of both operands
    that are no shorter than the unit's, long axes, and inner ones.
    """
    found = terms_of(stores[0].src[1]) if stores else None
    is_contiguous = found is not None and found[0].get(product.columns) == 1
    sides = (product.left, product.right)
    extents = [axis.extent.arg for axis in (product.depth, product.rows, product.columns)]
    is_deep = extents[0] >= unit.k and all(_has_neighbours(side, product.depth) for side in sides)
    return (
        not is_contiguous,
        not is_deep,
        *(-extent for extent in extents),
        -product.rows.number,
    )


def _has_neighbours(side: UOp, axis: UOp) -> bool:
    """Whether an operand is loaded, by neighbours in memory along an axis."""
    loads = loads_of(side)
    return bool(loads) and all(stride_of(load.index, axis) == 1 for load in loads)


# their replacements


class _Tiling:
    """One rewrite: the axes of the unit, and the reduction and the stores in terms of them."""

    def __init__(self, ast: UOp, unit: MatrixUnit, product: _Product):
        self.ast, self.unit, self.product = ast, unit, product
        number = next_number(ast.toposort())
        loops = (product.rows, product.columns, product.depth)
        sizes = (unit.m, unit.n, unit.k)
        self.outer = [
            UOp.range(loop.extent.arg // size, number + offset, loop.axis)
            for offset, (loop, size) in enumerate(zip(loops, sizes, strict=True))
        ]
        bits = unit.lanes.bit_length() - 1
        self.lanes = [UOp.range(2, number + 3 + bit, Axis.LOCAL) for bit in range(bits)]
        self.inner = UOp.range(unit.k, number + 3 + bits, Axis.UNROLL)
        self.result = UOp.range(len(unit.c_layout[0]), number + 4 + bits, Axis.UPCAST)
        _check_layouts(unit)

    def run(self, mode: int) -> UOp:
        unit, product = self.unit, self.product
        row, column = position_in(unit.c_layout, self.result, self.lanes)
        rows, columns = self._axis(0, row), self._axis(1, column)
        outputs = {product.rows: rows, product.columns: columns}
        if mode == 1:
            value = _pick(self._reduced(self._multiplied()), self.result)
        else:
            whole = {**outputs, product.depth: self._axis(2, self.inner)}
            value = self._reduced(product.reduction.src[0].substitute(whole), self.inner)
        stand_in = UOp.variable("matrix", 0, 0, product.reduction.dtype)
        rest = self.ast.substitute({product.reduction: stand_in}).substitute(outputs)
        return simplify(rest.substitute({stand_in: value})).replace(arg=self._info(mode))

    def _axis(self, which: int, inside: UOp | int) -> UOp:
        """Position `inside` the unit's slice of the axis, as a position in the whole axis."""
        size = (self.unit.m, self.unit.n, self.unit.k)[which]
        outer = self.outer[which]
        return outer * size + inside if outer.extent.arg > 1 else 0 * outer + inside

    def _multiplied(self) -> UOp:
        """The unit's result: each lane's elements of both operands as vectors."""
        unit, product = self.unit, self.product
        left, right = [], []
        for element in range(len(unit.a_layout[0])):
            row, depth = position_in(unit.a_layout, element, self.lanes)
            mapping = {product.rows: self._axis(0, row), product.depth: self._axis(2, depth)}
            left.append(simplify(product.left.substitute(mapping)))
        for element in range(len(unit.b_layout[0])):
            depth, column = position_in(unit.b_layout, element, self.lanes)
            mapping = {product.columns: self._axis(1, column), product.depth: self._axis(2, depth)}
            right.append(simplify(product.right.substitute(mapping)))
        dtype = unit.dtype_out.vec(len(unit.c_layout[0]))
        nothing = UOp.const(unit.dtype_out, 0).broadcast(dtype.lanes)
        operands = (self._operand(left, is_right=False), self._operand(right, is_right=True))
        return UOp(Ops.WMMA, dtype, (*operands, nothing), unit)

    def _operand(self, values: Sequence[UOp], *, is_right: bool) -> UOp:
        """A lane's elements of an operand, or the memory that a unit reads by itself.

        Raises OptError where it cannot.
        """
        if not self.unit.row_bytes or (self.unit.takes_left and not is_right):
            return UOp.stack(values)
        found = descriptor(values, self.lanes, self.unit, is_right=is_right)
        if found is None:
            raise OptError(
                f"tc: {self.unit.name} reads the {'right' if is_right else 'left'} operand from "
                f"shared memory, in rows of {self.unit.row_bytes} bytes",
                remedy="STAGE(axis, (operand, order, 0, elements of a row)) first",
            )
        return found

    def _reduced(self, value: UOp, *inner: UOp) -> UOp:
        """`value` reduced over the unit's rest of the reduce axes."""
        depth = self.outer[2]
        loops = [axis for axis in self.product.reduction.src[1:] if axis is not self.product.depth]
        if depth.extent.arg > 1:
            position = self.product.reduction.src[1:].index(self.product.depth)
            loops.insert(position, depth)
        loops += inner
        if loops:
            return UOp(Ops.REDUCE, value.dtype, (value, *loops), Ops.ADD)
        return value if self.unit.synchronous else UOp(Ops.WAIT, value.dtype, (value,))

    def _info(self, mode: int) -> KernelInfo:
        """The lanes stand before the first reduce axis; unrolled axes come last."""
        info: KernelInfo = self.ast.arg
        product = self.product
        loops = loop_order(self.ast)
        first = next(axis.number for axis in loops if axis.axis is Axis.REDUCE)
        order: list[int] = []
        replaced = zip((product.rows, product.columns, product.depth), self.outer, strict=True)
        new = {old.number: outer for old, outer in replaced}
        for number in info.order:
            if number == first:
                order += [lane.number for lane in self.lanes]
            if number not in new:
                order.append(number)
            elif new[number].extent.arg > 1:
                order.append(new[number].number)
        unrolled = [self.result.number] if mode == 1 else [self.inner.number, self.result.number]
        # The name shows the slice of the reduce axis that the unit runs, though it is no axis any
        # more.
        name = info.name + (f"#{self.unit.k}" if mode == 1 else "")
        return KernelInfo(name, (*order, *unrolled), info.opts)


def position_in(layout: Layout, element: UOp | int, lanes: Sequence[UOp]) -> tuple[UOp, UOp]:
    """(row, column) of a lane's element as sums over the bits of both numbers; `lanes` are those of
    the lane's, the last the lowest.
    """
    count = len(layout[0])
    if isinstance(element, int):
        element = UOp.const(dtypes.index, element)
    coordinates = []
    for axis in (0, 1):
        total = UOp.const(dtypes.index, layout[0][0][axis])
        for bit, lane in enumerate(reversed(lanes)):
            total = lane * (layout[1 << bit][0][axis] - layout[0][0][axis]) + total
        for bit in range(count.bit_length() - 1):
            step = layout[0][1 << bit][axis] - layout[0][0][axis]
            total = element // (1 << bit) % 2 * step + total
        coordinates.append(simplify(total))
    return coordinates[0], coordinates[1]


@functools.cache
def _check_layouts(unit: MatrixUnit) -> None:
    for layout in (unit.a_layout, unit.b_layout, unit.c_layout):
        _check_layout(unit, layout)


def _check_layout(unit: MatrixUnit, layout: Layout) -> None:
    """Check that a position is a sum with one term per bit of the lane and of the element."""
    base = layout[0][0]
    for lane, positions in enumerate(layout):
        for element, position in enumerate(positions):
            for axis in (0, 1):
                total = base[axis]
                for bit in range(len(layout).bit_length() - 1):
                    total += (lane >> bit & 1) * (layout[1 << bit][0][axis] - base[axis])
                for bit in range(len(positions).bit_length() - 1):
                    total += (element >> bit & 1) * (layout[0][1 << bit][axis] - base[axis])
                if total != position[axis]:
                    raise InternalError(
                        f"{unit.name}: its layout is no sum over bits", lane=lane, element=element
                    )


def _pick(vector: UOp, lane: UOp) -> UOp:
    """Lane number `lane` of `vector`. The number is constant once the axis is unrolled."""
    value = vector.gep(0)
    for number in range(1, vector.dtype.lanes):
        value = lane.eq(number).where(vector.gep(number), value)
    return value
