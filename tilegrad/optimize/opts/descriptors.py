"""Operands that a matrix unit reads from shared memory by itself (`MatrixUnit.row_bytes`).

The unit is told where an operand begins and how far its groups of 8 rows lie apart. Rows have
`row_bytes` each. They run along the sum, or across it: then each is of one term, and longer rows
are cut. The indices of a lane's share, which are sums over the bits of its number, say whether a
copy (STAGE) is such an operand.

    before   VECTORIZE(LOAD(shared, r*64 + k*16 + h*8), ...)      lane 64*h + r, k: 0..4
    after    DESCRIPTOR(VECTORIZE(...), shared, k*16)              stride 512
"""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.base.dtype import AddressSpace, Pointer, dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.rules import from_terms, shared_terms
from tilegrad.ir.uop import UOp
from tilegrad.target import MatrixUnit

__all__ = ["descriptor"]

Offsets = dict[tuple[int, int], int]
"""Where the element of a row (of a; a column of b) and a term of the sum lies, from the first."""


def descriptor(
    values: Sequence[UOp], lanes: Sequence[UOp], unit: MatrixUnit, *, is_right: bool
) -> UOp | None:
    """The operand whose elements a lane shares as `values`; None where the unit cannot read it.
    `lanes` are the bits of the lane's number, the last the lowest.
    """
    memory = values[0].src[0] if values[0].op is Ops.LOAD else None
    if memory is None or any(each.op is not Ops.LOAD or each.is_gated for each in values):
        return None
    pointer = memory.dtype
    if not isinstance(pointer, Pointer) or pointer.space is not AddressSpace.SHARED:
        return None
    if any(each.src[0] is not memory for each in values) or pointer.base is not unit.dtype_in:
        return None
    found = shared_terms([each.index for each in values], lanes[::-1])
    if found is None:
        return None
    bits, constants, rest = found
    offsets = _offsets(unit, bits, constants, is_right=is_right)
    # Only elements of 16 bits may lie in rows across the sum.
    for is_transposed in (False, True) if unit.dtype_in.itemsize == 2 else (False,):
        strides = _strides(offsets, unit, is_transposed=is_transposed)
        if strides is not None and _begins(rest, constants[0], unit, is_transposed=is_transposed):
            start = from_terms(rest.items(), constants[0], UOp.const(dtypes.index, 0))
            source = (UOp.stack(values), memory, start)
            return UOp(Ops.DESCRIPTOR, source[0].dtype, source, (*strides, is_transposed))
    return None


def _offsets(
    unit: MatrixUnit, bits: Sequence[int], constants: Sequence[int], *, is_right: bool
) -> Offsets:
    found: Offsets = {}
    for lane, positions in enumerate(unit.b_layout if is_right else unit.a_layout):
        moved = sum(stride for bit, stride in enumerate(bits) if lane >> bit & 1)
        for constant, (one, other) in zip(constants, positions, strict=True):
            position = (other, one) if is_right else (one, other)
            found[position] = moved + constant - constants[0]
    return found


def _strides(offsets: Offsets, unit: MatrixUnit, *, is_transposed: bool) -> tuple[int, int] | None:
    """How far rows of one term (leading) and groups of rows (stride) lie apart, if the offsets are
    those of an operand.
    """
    row, rows = unit.row_elements, unit.group_rows
    if is_transposed:
        leading, stride = offsets.get((row, 0), 0), offsets[0, rows]
        wanted = {
            (i, k): i // row * leading + i % row + k // rows * stride + k % rows * row
            for i, k in offsets
        }
    else:
        leading, stride = 0, offsets[rows, 0]
        wanted = {(i, k): i // rows * stride + i % rows * row + k for i, k in offsets}
    whole = rows * row
    is_whole = leading % whole == 0 and stride % whole == 0
    return (leading, stride) if offsets == wanted and is_whole else None


def _begins(rest: dict[UOp, int], constant: int, unit: MatrixUnit, *, is_transposed: bool) -> bool:
    """Whether an operand begins with a group of rows, or inside of the first of them at a multiple
    of the terms that the unit takes.
    """
    whole = unit.group_rows * unit.row_elements
    inside = {term: scale for term, scale in rest.items() if scale * term.divisor % whole}
    if is_transposed:
        return not inside and constant % whole == 0
    step = unit.k
    last = constant % whole
    for term, scale in inside.items():
        if scale < 0 or scale * term.divisor % step or term.vmin < 0:
            return False
        last += scale * term.vmax
    return constant % step == 0 and last + step <= unit.row_elements
