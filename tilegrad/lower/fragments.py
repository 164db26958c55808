"""Operands of matrix units that the lanes of a group load from shared memory together.

A lane of `mma` holds pairs of 16-bit elements of matrices of 8x8. Read one by one, that is a load
for each pair, or for each element where a pair lies in two rows. FRAGMENT loads up to four of the
matrices at once: each lane reads a row of 8 elements, 16 bytes, and the lanes exchange them. Two
operands of at most two matrices are one FRAGMENT. Such a matrix of bytes has rows of 16 elements,
four neighbours for a lane; one of float32 has rows of 4, one for a lane.

    before   WMMA(VECTORIZE(LOAD(shared, g*40 + t*2), LOAD(shared, g*40 + t*2 + 1), ...), ...)
    after    WMMA(FRAGMENT(LOAD(shared, l % 8 * 40 + l / 8 * ...) : half.vec(8)), ...)

where lane l = 4*g + t. The indices, which are sums over the bits of the lane's number, say whether
the elements are in the order that FRAGMENT gives.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tilegrad.base.dtype import AddressSpace, Pointer, dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import loop_ranks
from tilegrad.ir.rules import shared_terms, simplify
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

__all__ = ["use_fragments"]

_LANES, _BITS = 32, 5
# Bytes of a row, and those that a lane holds of it.
_ROW, _OWN = 16, 4


def use_fragments(ast: UOp, target: Target) -> UOp:
    """`ast` with the operands of matrix units as FRAGMENTs where their indices allow it."""
    nodes = ast.toposort()
    units = [node for node in nodes if node.op is Ops.WMMA and node.arg.lanes == _LANES]
    rank = loop_ranks(ast)
    lanes = [node for node in nodes if node.op is Ops.RANGE and node.axis is Axis.LOCAL]
    lanes.sort(key=lambda lane: rank[lane.number])
    bits = lanes[-_BITS:][::-1]
    if not units or len(bits) < _BITS or any(bit.extent.arg != 2 for bit in bits):
        return ast
    operands = dict.fromkeys(source for node in units for source in node.src[:2])
    found = [each for operand in operands if (each := _matrices(operand, bits)) is not None]
    mapping = {each.operand: each.fragment(bits) for each in found}
    for pair in _pairs(found):
        mapping |= _joined(*pair, bits)
    return ast.substitute(mapping) if mapping else ast


class _Elements(NamedTuple):
    """The indices of an operand's elements: the stride of each bit of the lane, the offset of each
    element, and the terms that all have in common.
    """

    by_bit: list[int]
    by_element: list[int]
    rest: Mapping[UOp, int]


class _Matrices(NamedTuple):
    """An operand whose elements are in the order of FRAGMENT: matrices with rows `stride` apart."""

    operand: UOp
    elements: _Elements
    stride: int
    is_transposed: bool

    @property
    def memory(self) -> UOp:
        return self.operand.src[0].src[0]

    @property
    def own(self) -> int:
        """The elements of a matrix that a lane holds."""
        return _OWN // self.operand.dtype.itemsize

    def fragment(self, bits: Sequence[UOp]) -> UOp:
        dtype = self.operand.dtype.scalar
        index = _row_index(self.elements, self.stride, self.own, bits)
        row = UOp(Ops.LOAD, dtype.vec(_ROW // dtype.itemsize), (self.memory, index))
        count = len(self.elements.by_element)
        arg = (count // self.own, self.is_transposed)
        return UOp(Ops.FRAGMENT, dtype.vec(count), (row,), arg)

    def likeness(self) -> Hashable:
        """A key that two operands share whose indices differ by a constant."""
        first, *others = self.elements.by_element
        shape = tuple(other - first for other in others)
        rest = frozenset(self.elements.rest.items())
        return self.memory, self.stride, self.is_transposed, shape, rest


def _matrices(operand: UOp, bits: Sequence[UOp]) -> _Matrices | None:
    loads, itemsize = operand.src, operand.dtype.itemsize
    if operand.op is not Ops.VECTORIZE or itemsize not in (1, 2, 4):
        return None
    own = _OWN // itemsize
    if len(loads) not in (own, 2 * own, 4 * own):
        return None
    if any(load.op is not Ops.LOAD or load.is_gated for load in loads):
        return None
    memory = loads[0].src[0]
    pointer = memory.dtype
    if not isinstance(pointer, Pointer) or pointer.space is not AddressSpace.SHARED:
        return None
    if any(load.src[0] is not memory for load in loads):
        return None
    found = shared_terms([load.index for load in loads], bits)
    if found is None:
        return None
    elements = _Elements(*found)
    for is_transposed in (False, True) if own == 2 else (False,):
        stride = _row_stride(elements, own, is_transposed=is_transposed)
        if stride is not None:
            return _Matrices(operand, elements, stride, is_transposed)
    return None


def _pairs(found: Sequence[_Matrices]) -> Iterator[tuple[_Matrices, _Matrices]]:
    """Operands of one or two matrices that one instruction loads: neighbours in memory."""
    alike: dict[Hashable, list[_Matrices]] = {}
    for each in found:
        if len(each.elements.by_element) < 4 * each.own:
            alike.setdefault(each.likeness(), []).append(each)
    for group in alike.values():
        group.sort(key=lambda each: each.elements.by_element[0])
        yield from zip(group[::2], group[1::2], strict=False)


def _joined(first: _Matrices, second: _Matrices, bits: Sequence[UOp]) -> dict[UOp, UOp]:
    """Both operands as halves of one FRAGMENT."""
    own = first.elements
    at = [*own.by_element, *second.elements.by_element]
    whole = first._replace(elements=own._replace(by_element=at)).fragment(bits)
    count = len(own.by_element)
    lanes = [whole.gep(lane) for lane in range(2 * count)]
    return {
        first.operand: UOp.stack(lanes[:count]),
        second.operand: UOp.stack(lanes[count:]),
    }


def _row_stride(elements: _Elements, own: int, *, is_transposed: bool) -> int | None:
    """How far rows of the matrices lie apart; None where they are no such matrices.

    A lane holds of each matrix the elements own*t to own*t + own - 1 of row g, or of column g.
    """
    by_bit, at, row = elements.by_bit, elements.by_element, own * _ROW // _OWN
    stride = by_bit[0] // own if is_transposed else by_bit[2]
    near_stride, group_stride = (stride, 1) if is_transposed else (1, stride)
    lane_strides = [own * near_stride, 2 * own * near_stride]
    lane_strides += [group_stride, 2 * group_stride, 4 * group_stride]
    if by_bit != lane_strides or stride % row:
        return None
    first = at[::own]
    if any(
        at[number] - first[number // own] != number % own * near_stride for number in range(len(at))
    ):
        return None
    if len(first) == 4 and first[3] - first[2] != first[1] - first[0]:
        return None
    starts = [*first, *(scale * term.divisor for term, scale in elements.rest.items())]
    return None if any(start % row for start in starts) else stride


def _row_index(elements: _Elements, stride: int, own: int, bits: Sequence[UOp]) -> UOp:
    """Where the row begins that a lane reads: row l % 8 of matrix l // 8."""
    at = elements.by_element[::own]
    total = UOp.const(dtypes.index, at[0])
    for bit, scale in zip(bits, (stride, 2 * stride, 4 * stride), strict=False):
        total = bit * scale + total
    if len(at) > 1:
        total = bits[3] * (at[1] - at[0]) + total
    if len(at) > 2:
        total = bits[4] * (at[2] - at[0]) + total
    for term, scale in elements.rest.items():
        total = term * scale + total
    return simplify(total)
