"""SLICE on a matrix unit: both products of attention run on it, and scores stay in registers.

A group of lanes has as many rows as the unit takes at a time. The elements of the first product's
result that a lane holds are those that it needs of the second one's left operand (both layouts
agree for `mma` and `simdgroup`), so the exponentials of a slice go from one to the other without
shared memory. Lanes that have one row exchange its largest element and its sum.

    before   p: { x = REDUCE(q*k, d);  ...;  s = REDUCE(w*v, j) }
    after    p: { x = WMMA(q, k, WMMA(...));  ...;  s = WMMA(w, v, WMMA(...)) }

Units that read shared memory by themselves take keys and values from there, and rows and weights
from registers (`MatrixUnit.takes_left`); the two products may have units of different widths.

The rows and columns of one lane are written as nodes of their own, as the second product needs
other elements of `w` than those that it belongs to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import OptError
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import is_scratch, memory_of, next_number, nodes_of, reductions_of
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp
from tilegrad.optimize.opts.descriptors import descriptor
from tilegrad.optimize.opts.matrix import Layout, position_in
from tilegrad.optimize.opts.opt import Opt, loop_order
from tilegrad.optimize.opts.split import reorder
from tilegrad.target import MatrixUnit, Target

__all__ = ["Slices", "find_slices", "memory_behind", "share_on_unit"]


class Slices(NamedTuple):
    """Memory and ranges along the rows of the kernel in an iteration of the loop over slices.

    Attributes:
        memories: the scratch that holds a slice each, and the loop that fills it.
        shared: the ranges that lanes share.
        read: the ranges along which each lane reads all of a slice.
        columns: the output range that only the second product depends on.
        size: elements of a slice.
    """

    memories: dict[UOp, UOp]
    shared: frozenset[UOp]
    read: frozenset[UOp]
    columns: UOp
    size: int


def find_slices(ast: UOp, opt: Opt, loop: UOp) -> Slices:
    """The slices that SLICE rewrites.

    Raises OptError where the kernel has no slices, or lanes share a reduction already.
    """
    nodes = ast.toposort()
    fills = {
        node.src[0].src[0]: node
        for node in nodes
        if node.op is Ops.END and node.src[0].op is Ops.STORE and loop in node.src[0].src[0].src
    }
    fills = {m: fill for m, fill in fills.items() if is_scratch(m)}
    if not fills or any(each.axis is Axis.GROUP for each in loop_order(ast)):
        raise OptError("slice: no rows in scratch that lanes do not share yet", opt=opt)
    reads: set[UOp] = set()
    for node in nodes:
        if node.op is Ops.LOAD and memory_of(node.src[0]) in fills:
            reads.add(node.src[1])
    ranges = {fill.src[1] for fill in fills.values()} | reads
    if any(each.op is not Ops.RANGE or each.extent.op is not Ops.CONST for each in ranges):
        raise OptError("slice: rows are not read element by element", opt=opt)
    rows = {each for memory in fills for each in memory.src}
    columns: set[UOp] = set()
    whole: set[UOp] = set()
    for node in nodes:
        if node.op is Ops.REDUCE and ranges & set(node.src[1:]):
            if others := [each for each in node.ranges if each not in rows]:
                columns.update(others)
                whole.update(ranges & set(node.src[1:]))
    if len(columns) != 1 or len({each.extent.arg for each in ranges}) != 1:
        raise OptError("slice: it takes one product that reads all of a slice", opt=opt)
    size = int(next(iter(ranges)).extent.arg)
    return Slices(fills, frozenset(ranges - whole), frozenset(whole), columns.pop(), size)


def memory_behind(node: UOp) -> UOp | None:
    """The memory that `node` fills, or that stands for its content."""
    if node.op is Ops.END:
        node = node.src[0]
    if node.op is Ops.STORE:
        node = node.src[0]
    return memory_of(node) if node.op in (Ops.DEFINE_LOCAL, Ops.AFTER) else None


# One value, or one for each of the columns that a lane has.
Value = UOp | tuple[UOp, ...]
# A range of an operand, and the number and the size of a tile of it.
_At = tuple[UOp, UOp | int, int]


class _Products(NamedTuple):
    """Both products: their reductions, and the operands in the unit's dtype."""

    first: UOp
    left: UOp
    right: UOp
    second: UOp
    matrix: UOp
    row: UOp


def share_on_unit(
    ast: UOp, opt: Opt, loop: UOp, found: Slices, target: Target, units: Sequence[MatrixUnit]
) -> UOp:
    """The slices that `loop` runs over, with the two products on two units of the target, which
    differ in their columns at most.
    """
    unit, last = units
    if (last.m, last.k, last.a_layout) != (unit.m, unit.k, unit.a_layout):
        raise OptError(f"slice: {unit.name} and {last.name} have different rows", opt=opt)
    products = _products(ast, opt, found, unit)
    depth = products.first.src[1].extent
    sizes = {
        "rows": (products.row.extent.arg, unit.m),
        "terms": (depth.arg, unit.k),
        "elements of a slice": (found.size, max(unit.n, unit.k)),
        "columns": (found.columns.extent.arg, last.n),
    }
    for name, (extent, size) in sizes.items():
        if extent % size:
            raise OptError(f"slice: {unit.name} takes {size} {name}, of {extent}", opt=opt)
    return _OnUnit(ast, opt, loop, found, target, units, products).rewritten()


def _products(ast: UOp, opt: Opt, found: Slices, unit: MatrixUnit) -> _Products:
    """Both products.

    Raises OptError where one is of other dtypes, or sums over more than one range.
    """
    reductions = [node for node in reductions_of(ast) if node.arg is Ops.ADD]
    second = [reduction for reduction in reductions if found.read & set(reduction.src[1:])]
    first = [
        reduction
        for reduction in reductions
        if reduction not in second and found.shared & reduction.ranges and len(reduction.src) == 2
    ]
    if len(first) == len(second) == 1 and first[0].dtype is unit.dtype_out:
        sides = [_narrow(side) for side in _factors(first[0])]
        mine = [side for side in sides if not found.shared & side.ranges]
        other = [side for side in sides if found.shared & side.ranges]
        matrices = [side for side in _factors(second[0]) if not _is_of(side, found)]
        if len(mine) == len(other) == len(matrices) == 1:
            matrix = _narrow(matrices[0])
            rows = [
                axis
                for axis in next(iter(found.memories)).src
                if axis in mine[0].ranges and axis not in other[0].ranges | matrix.ranges
            ]
            kinds = {side.dtype for side in (*sides, matrix)}
            if len(rows) == 1 and kinds == {unit.dtype_in}:
                return _Products(first[0], mine[0], other[0], second[0], matrix, rows[0])
    raise OptError(f"slice: no two products that fit {unit.name}", opt=opt)


def _factors(reduction: UOp) -> tuple[UOp, ...]:
    (value, *_) = reduction.src
    return value.src if value.op is Ops.MUL else ()


def _narrow(value: UOp) -> UOp:
    return value.src[0] if value.op is Ops.CAST else value


def _is_of(value: UOp, found: Slices) -> bool:
    """Whether `value` is an element of a slice."""
    value = _narrow(value)
    return value.op is Ops.LOAD and memory_of(value.src[0]) in found.memories


class _OnUnit:
    """One rewrite of the kernel."""

    def __init__(
        self,
        ast: UOp,
        opt: Opt,
        loop: UOp,
        found: Slices,
        target: Target,
        units: Sequence[MatrixUnit],
        products: _Products,
    ) -> None:
        self.ast, self.opt, self.loop, self.found = ast, opt, loop, found
        # The unit of the scores, and that of the results.
        unit, self.last = units
        self.unit, self.products = unit, products
        # The weights lose more digits on their way to the unit than the approximation lacks.
        self.approximates = target.has_approximate_exp2 and unit.dtype_in.itemsize == 2
        number = next_number(ast.toposort())
        row = products.row
        self.outer = UOp.range(row.extent.arg // unit.m, number, row.axis)
        bits = unit.lanes.bit_length() - 1
        self.lanes = [UOp.range(2, number + 1 + bit, Axis.LOCAL) for bit in range(bits)]
        layout = unit.c_layout
        self.rows, self.last_rows = _rows(unit), _rows(self.last)
        self.masks = [1 << bit for bit in range(bits) if layout[1 << bit][0][0] == layout[0][0][0]]
        self.done: list[dict[UOp, Value]] = [{} for _ in self.rows]
        self.scores: dict[int, UOp] = {}
        self.sums: dict[int, UOp] = {}
        self.left: dict[int, UOp] = {}
        self.coordinates: dict[tuple[Layout, int], tuple[UOp, UOp]] = {}
        self.weights: dict[int, UOp] = {}

    def rewritten(self) -> UOp:
        self._check()
        unit, found = self.unit, self.found
        for number, (done, elements) in enumerate(zip(self.done, self.rows, strict=True)):
            row, _ = self._coordinates(unit.c_layout, elements[0])
            done[self.products.row] = self._position(self.outer, unit.m, row)
            indices = self._columns(unit, elements, found.size)
            done |= dict.fromkeys(found.shared, indices)
            own = self.last_rows[number]
            done[found.columns] = self._columns(self.last, own, found.columns.extent.arg)
        for node in self.ast.toposort():
            for number, done in enumerate(self.done):
                if node not in done:
                    done[node] = self._made(node, number)
        stores: list[UOp] = []
        for done in self.done:
            for store in self.ast.src:
                made = done[store]
                stores += made if isinstance(made, tuple) else [made]
        made = simplify(self.ast.replace(src=tuple(dict.fromkeys(stores))))
        alive = {node.number for node in nodes_of(made, Ops.RANGE)}
        return reorder(made, [number for number in self._order() if number in alive])

    def _check(self) -> None:
        """Every element of the second product's left operand is one that its lane has."""
        unit = self.unit
        for step in range(self.found.size // unit.k):
            for element in range(len(unit.a_layout[0])):
                if self._element_of(element, step) is None:
                    raise OptError(
                        f"slice: lanes of {unit.name} lack what they multiply", opt=self.opt
                    )

    def _element_of(self, element: int, step: int) -> tuple[int, int] | None:
        """The tile of scores, and the element of it, that is `element` of a left operand."""
        unit = self.unit
        first = step * unit.k
        tile = (unit.a_layout[0][element][1] + first) // unit.n
        first -= tile * unit.n
        wanted = [(lane[element][0], lane[element][1] + first) for lane in unit.a_layout]
        for other in range(len(unit.c_layout[0])):
            if [lane[other] for lane in unit.c_layout] == wanted:
                return tile, other
        return None

    def _order(self) -> list[int]:
        order: list[int] = []
        kinds = {loop.number: loop.axis for loop in loop_order(self.ast)}
        for number in self.ast.arg.order:
            if kinds[number] is Axis.REDUCE and self.lanes[0].number not in order:
                order += [lane.number for lane in self.lanes]
            order.append(self.outer.number if number == self.products.row.number else number)
        return order

    @staticmethod
    def _position(outer: UOp | int, size: int, inside: UOp) -> UOp:
        return simplify(inside + outer * size)

    def _columns(self, unit: MatrixUnit, elements: Sequence[int], extent: int) -> tuple[UOp, ...]:
        """The positions of a lane's columns of all tiles of results of a unit."""
        inside = [self._coordinates(unit.c_layout, each)[1] for each in elements]
        size = unit.n
        return tuple(
            self._position(tile, size, at) for tile in range(extent // size) for at in inside
        )

    def _made(self, node: UOp, number: int) -> Value:
        """The rewritten node for row `number` of a lane."""
        found, done = self.found, self.done[number]
        if node is self.products.first:
            tiles = found.size // self.unit.n
            return _picked(self.rows[number], [self._score(tile) for tile in range(tiles)])
        if node is self.products.second:
            tiles = found.columns.extent.arg // self.last.n
            return _picked(self.last_rows[number], [self._sum(tile) for tile in range(tiles)])
        if node.op is Ops.LOAD and memory_of(node.src[0]) in found.memories:
            return self._own(memory_of(node.src[0]), number)
        if node in found.memories or memory_behind(node) in found.memories:
            return node
        if node.op is Ops.REDUCE and found.shared & set(node.src[1:]):
            return self._met(node, done[node.src[0]])
        src = [done[source] for source in node.src]
        count = max((len(each) for each in src if isinstance(each, tuple)), default=0)
        if not count or node is self.ast:
            new = tuple(each for each in src if not isinstance(each, tuple))
            return node if len(new) < len(src) else self._computed(node, new)
        if any(isinstance(each, tuple) and len(each) != count for each in src):
            # A term of the second product, which is made as a whole.
            return node
        return tuple(
            self._computed(node, tuple(e[at] if isinstance(e, tuple) else e for e in src))
            for at in range(count)
        )

    def _computed(self, node: UOp, src: tuple[UOp, ...]) -> UOp:
        """`node` of other sources; a power in the loop over slices as the machine approximates it,
        where it serves.
        """
        is_power = node.op in (Ops.EXP, Ops.EXP2) and node.dtype is dtypes.float32
        if not is_power or not self.approximates or self.loop not in node.ranges:
            return node.replace(src=src)
        (value,) = src
        return (value * math.log2(math.e) if node.op is Ops.EXP else value).alu(Ops.EXP2_APPROX)

    def _own(self, memory: UOp, number: int) -> Value:
        """The value that a lane would store to `memory`: 0 behind the end of a row."""
        done, store = self.done[number], self.found.memories[memory].src[0]
        value = done[store.value]
        if not store.is_gated:
            return value
        gates = done[store.gate]
        assert isinstance(value, tuple) and isinstance(gates, tuple)
        return tuple(
            gate.where(each, UOp.const(each.dtype, 0))
            for gate, each in zip(gates, value, strict=True)
        )

    def _met(self, reduce: UOp, values: Value) -> UOp:
        """A reduction over a slice: within each lane, then over all lanes of the row."""
        assert isinstance(values, tuple)
        total, *rest = values
        for value in rest:
            total = total.alu(reduce.arg, value)
        for mask in self.masks:
            total = total.alu(reduce.arg, UOp(Ops.SHUFFLE, total.dtype, (total,), mask))
        return total

    def _score(self, tile: int) -> UOp:
        """A tile of the first product's result: a unit's product after the other."""
        if tile not in self.scores:
            products, unit = self.products, self.unit
            (depth,) = products.first.src[1:]
            total = _nothing(unit)
            (fill,) = self.found.shared & products.right.ranges
            for step in range(depth.extent.arg // unit.k):
                right = self._right(
                    unit, products.right, (depth, step, unit.k), (fill, tile, unit.n)
                )
                left = self._rows_of_a_lane(depth, step)
                total = UOp(Ops.WMMA, total.dtype, (left, right, total), unit)
            self.scores[tile] = _waited(total)
        return self.scores[tile]

    def _rows_of_a_lane(self, depth: UOp, step: int) -> UOp:
        """The left operand of the first product, which is one for all tiles."""
        if step not in self.left:
            products, unit = self.products, self.unit
            self.left[step] = UOp.stack(
                self._elements(
                    products.left, unit.a_layout,
                    (products.row, self.outer, unit.m), (depth, step, unit.k),
                )
            )  # fmt: skip
        return self.left[step]

    def _sum(self, tile: int) -> UOp:
        """A tile of the second product's result, of one slice."""
        if tile not in self.sums:
            unit, columns = self.last, self.found.columns
            total = _nothing(unit)
            (axis,) = self.found.read
            for step in range(self.found.size // unit.k):
                right = self._right(
                    unit, self.products.matrix, (axis, step, unit.k), (columns, tile, unit.n)
                )
                if step not in self.weights:
                    self.weights[step] = self._weights(step)
                left = self.weights[step]
                total = UOp(Ops.WMMA, total.dtype, (left, right, total), unit)
            self.sums[tile] = _waited(total)
        return self.sums[tile]

    def _weights(self, step: int) -> UOp:
        """The left operand of the second product: elements of the slice that the lane has."""
        unit = self.unit
        (side,) = [each for each in _factors(self.products.second) if _is_of(each, self.found)]
        memory = memory_of(_narrow(side).src[0])
        values = [self._own(memory, number) for number in range(len(self.rows))]
        operand: list[UOp] = []
        for element in range(len(unit.a_layout[0])):
            found = self._element_of(element, step)
            assert found is not None
            number = next(at for at, each in enumerate(self.rows) if found[1] in each)
            own, row = self.rows[number], values[number]
            assert isinstance(row, tuple)
            operand.append(row[found[0] * len(own) + own.index(found[1])].cast(unit.dtype_in))
        return UOp.stack(operand)

    def _coordinates(self, layout: Layout, element: int) -> tuple[UOp, UOp]:
        """(row, column) of an element of a lane."""
        key = layout, element
        if key not in self.coordinates:
            self.coordinates[key] = position_in(layout, element, self.lanes)
        return self.coordinates[key]

    def _right(self, unit: MatrixUnit, value: UOp, first: _At, second: _At) -> UOp:
        """The right operand of a unit, as lanes or the unit itself read it.

        Raises OptError where the unit cannot.
        """
        values = self._elements(value, unit.b_layout, first, second)
        if not unit.row_bytes:
            return UOp.stack(values)
        found = descriptor(values, self.lanes, unit, is_right=True)
        if found is None:
            raise OptError(
                f"slice: {unit.name} reads the right operand from shared memory, in rows of "
                f"{unit.row_bytes} bytes",
                opt=self.opt,
            )
        return found

    def _elements(self, value: UOp, layout: Layout, first: _At, second: _At) -> list[UOp]:
        """A lane's elements of an operand, whose two ranges are at (tile, size) each."""
        elements: list[UOp] = []
        for element in range(len(layout[0])):
            mapping = {
                axis: self._position(tile, size, at)
                for (axis, tile, size), at in zip(
                    (first, second), self._coordinates(layout, element), strict=True
                )
            }
            elements.append(simplify(value.substitute(mapping)))
        return elements


def _rows(unit: MatrixUnit) -> list[list[int]]:
    """The elements of a lane by their row: those of one row are neighbouring columns."""
    found: dict[int, list[int]] = {}
    for element, (at, _) in enumerate(unit.c_layout[0]):
        found.setdefault(at, []).append(element)
    return list(found.values())


def _picked(elements: Sequence[int], tiles: Sequence[UOp]) -> tuple[UOp, ...]:
    """The elements of one row of a lane, of all tiles of results."""
    return tuple(tile.gep(element) for tile in tiles for element in elements)


def _nothing(unit: MatrixUnit) -> UOp:
    return UOp.const(unit.dtype_out, 0).broadcast(len(unit.c_layout[0]))


def _waited(total: UOp) -> UOp:
    """The result of a unit, waited for where the unit is asynchronous."""
    return total if total.arg.synchronous else UOp(Ops.WAIT, total.dtype, (total,))
