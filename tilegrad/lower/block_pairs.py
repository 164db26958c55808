"""Pairs of blocks whose matrix units work as one (tcgen05 with `cta_group::2`).

Neighbouring blocks of a product read one strip of the right operand. The unit of such a pair has
the rows of both blocks: each adds to its own rows, in its own memory, and has half of the columns
of the right operand in its own shared memory, where both units read it. So a block asks the cache
for half of that operand, and has room for more tiles.

    before   COPY_TILE(shared, at, b, ..., k*64, n*256)             a box of 64 by 256
             WMMA(a, b, c)                                          128 rows, 256 columns
    after    COPY_TILE(shared, at, b, ..., k*64, n*256 + r*128)     a box of 64 by 128
             WMMA(a, b, c)                                          256 rows, of two blocks
             r = m % 2, m the fastest axis of the launch

Lanes of the pair are those of one unit, the first block's first, so results, races and waits are
those of any unit. Operands must be matrices that one lane of each block copies, and loops have
extents that are constants, as each block comes to the same barriers. Where the right operand's tile
is the smaller one, less than a quarter of the bytes would be saved, and nothing is paired. Nor are
long sums, which lanes add up in registers (lower.levels): `ptxas` gives those of 128x128 results by
16,384 terms 137 registers instead of 119, and the multiprocessor would hold one block, not two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import barriers_of, copied_of, memory_of, nodes_of
from tilegrad.ir.rewrite import rebuilt
from tilegrad.ir.rules import from_terms, simplify, terms_of
from tilegrad.ir.uop import UOp, pointer_of
from tilegrad.lower.levels import MOST_TERMS
from tilegrad.matrix_units import pair_of
from tilegrad.target import MatrixUnit, Target

__all__ = ["pair_blocks"]

_BLOCKS = 2
# Sources of a COPY_TILE before its coordinates.
_COORDINATES = 6


class _PairedProduct(NamedTuple):
    """The unit of a kernel's products, the memory of both operands' tiles, and whether rows of the
    right one run across the sum.
    """

    unit: MatrixUnit
    left: UOp
    right: UOp
    is_across: bool

    @property
    def tile_elements(self) -> int:
        """Elements of a tile of the right operand."""
        return self.unit.n * self.unit.row_elements


def pair_blocks(ast: UOp, axis: UOp, target: Target) -> UOp:
    """`ast` in which neighbours along `axis`, the fastest one of the launch, are pairs."""
    if not target.has_clusters or axis.extent.op is not Ops.CONST or axis.extent.arg % _BLOCKS:
        return ast
    product = _product(ast)
    if product is None or not _is_shared(ast, axis, product) or not _has_fit_loops(ast, product):
        return ast
    return _Pairs(ast, axis, product).apply()


def _product(ast: UOp) -> _PairedProduct | None:
    """The products of a kernel, if all have one unit and the same two operands."""
    found = {
        (node.arg, *(each.src[1] for each in node.src[:2]), node.src[1].arg[2])
        for node in nodes_of(ast, Ops.WMMA)
        if node.arg.columns
    }
    products = {
        _PairedProduct(unit, memory_of(left), memory_of(right), across)
        for unit, left, right, across in found
    }
    return products.pop() if len(products) == 1 else None


def _is_shared(ast: UOp, axis: UOp, product: _PairedProduct) -> bool:
    """Whether one lane copies both operands, both blocks read one tile of the right one, and that
    is not the smaller one.
    """
    unit, left, right, _ = product
    copies: dict[UOp, list[UOp]] = {left: [], right: []}
    for node in nodes_of(ast, Ops.COPY_TILE):
        copies.setdefault(node.src[0], []).append(node)
    by_lanes = {memory_of(node.src[0]) for node in nodes_of(ast, Ops.STORE)}
    tiles = {memory: set(map(_box_of, made)) for memory, made in copies.items()}
    return (
        left is not right
        and set(copies) == {left, right}
        and all(copies.values())
        and by_lanes.isdisjoint(copies)
        and pointer_of(right).size % product.tile_elements == 0
        and not any(axis in each.ranges for node in copies[right] for each in copied_of(node)[1])
        and all(_half_of(box, product) is not None for box in tiles[right])
        and pointer_of(left).size <= pointer_of(right).size
        and len({barriers_of(node) for made in copies.values() for node in made}) == 1
        and {node.arg for node in nodes_of(ast, Ops.WMMA)} == {unit}
    )


def _box_of(node: UOp) -> tuple[int, ...]:
    box: tuple[int, ...] = node.arg.box
    return box


def _half_of(box: Sequence[int], product: _PairedProduct) -> tuple[int, int] | None:
    """The dimension of a box that holds columns of the right operand, and how many of them a block
    copies; None where there is no half of it.
    """
    unit = product.unit
    half = unit.n // _BLOCKS
    if product.is_across:
        return (0, box[0]) if box[0] == unit.row_elements and half % box[0] == 0 else None
    long = [at for at, length in enumerate(box) if at and length > 1]
    return (long[0], half) if len(long) == 1 and box[long[0]] == unit.n else None


def _has_fit_loops(ast: UOp, product: _PairedProduct) -> bool:
    """Whether loops have constant extents, and the sum is no long one."""
    loops = [loop for loop in nodes_of(ast, Ops.RANGE) if loop.axis is not Axis.GLOBAL]
    if any(loop.extent.op is not Ops.CONST for loop in loops):
        return False
    unit = product.unit
    tiles = math.prod(int(loop.extent.arg) for loop in loops if loop.axis is Axis.REDUCE)
    return not unit.dtype_out.is_float or tiles * unit.row_elements <= MOST_TERMS * unit.k


class _Pairs:
    """A kernel on its way to pairs of blocks."""

    def __init__(self, ast: UOp, axis: UOp, product: _PairedProduct):
        self.ast, self.product = ast, product
        self.unit = pair_of(product.unit)
        self.rank = simplify(axis % _BLOCKS)
        # The number of a lane in its block, by which the lane that copies is chosen.
        (self.lane,) = {node.src[0] for node in nodes_of(ast, Ops.ELECT)}

    def apply(self) -> UOp:
        right = self.product.right
        saved = self.product.tile_elements // _BLOCKS * pointer_of(right).base.nbytes
        pointer = pointer_of(right)
        half = pointer.base.ptr(pointer.size // _BLOCKS, pointer.space)

        def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
            if node is right:
                return UOp(node.op, half, src, node.arg)
            if node.op is Ops.AFTER and memory_of(node) is right:
                return src[0].after(*src[1:])
            if node.op is Ops.ARRIVE:
                return node.replace(src=src, arg=node.arg - saved)
            if node.op is Ops.COPY_TILE and node.src[0] is right:
                return self._copy(node, src)
            if node.op is Ops.WMMA:
                operand = self._operand(node.src[1], src[1])
                return node.replace(src=(src[0], operand, src[2]), arg=self.unit)
            return None

        ops = (Ops.DEFINE_LOCAL, Ops.AFTER, Ops.ARRIVE, Ops.COPY_TILE, Ops.WMMA)
        return rebuilt(self.ast, change, ops)

    def _copy(self, node: UOp, src: tuple[UOp, ...]) -> UOp:
        """The half of a tile that the block copies: some of the columns of its box, or its box of
        both that are as far from the begin of a half.
        """
        found = _half_of(node.arg.box, self.product)
        assert found is not None
        at, columns = found
        half = self.unit.n // _BLOCKS
        index, is_second = self._halved(src[1])
        made = list(src)
        made[1] = index
        begin = src[_COORDINATES + at] + self.rank * half
        made[_COORDINATES + at] = simplify(begin - half if is_second else begin)
        box = (*node.arg.box[:at], columns, *node.arg.box[at + 1 :])
        return node.replace(src=tuple(made), arg=replace(node.arg, box=box))

    def _halved(self, index: UOp) -> tuple[UOp, bool]:
        """Where an element of the first half of a tile lies among tiles of half the size, and
        whether it was one of the second half.
        """
        size = self.product.tile_elements
        half = size // _BLOCKS
        found = terms_of(index)
        assert found is not None
        terms, constant = found
        number, rest = divmod(constant, size)
        made = [
            (term, scale // _BLOCKS if scale % size == 0 else scale)
            for term, scale in terms.items()
        ]
        constant = number * half + rest % half
        return simplify(from_terms(made, constant, index)), rest >= half

    def _operand(self, node: UOp, made: UOp) -> UOp:
        """The right operand; a lane has a share of the columns of its block. `made` is the same
        operand over the memory of half the size.
        """
        memory, (start, _) = made.src[1], self._halved(node.src[2])
        columns = self.unit.n // _BLOCKS
        terms = self.unit.k * columns * _BLOCKS // self.unit.lanes
        column, first = self.lane % columns, self.lane // columns * terms
        at = [self._position(node.arg, column, first + step) for step in range(terms)]
        value = UOp.stack([memory.load(simplify(start + each)) for each in at])
        return UOp(Ops.DESCRIPTOR, value.dtype, (value, memory, start), node.arg)

    def _position(self, arg: tuple[int, int, bool], column: UOp, term: UOp) -> UOp:
        """Where an element of the right operand lies, from its begin."""
        leading, stride, is_across = arg
        row, group = self.unit.row_elements, self.unit.group_rows
        if is_across:
            down = term // group * stride + term % group * row
            return column // row * leading + column % row + down
        return column // group * stride + column % group * row + term
