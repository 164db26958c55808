"""Values as Python text: ops, casts, literals and the names of lanes, for the emulator's programs.

Every op rounds to its dtype; an integer is wrapped only where bounds cannot show that it stays
inside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, pointer_of
from tilegrad.target import MatrixUnit

__all__ = [
    "Lanes",
    "cast_text",
    "elements",
    "expression",
    "lane_names",
    "literal",
    "spread",
    "table",
    "unit_text",
    "variable_name",
    "widened",
]

Lanes = tuple[str, ...]

_PLAIN = {
    Ops.NEG: "-{0}",
    Ops.ADD: "{0} + {1}",
    Ops.SUB: "{0} - {1}",
    Ops.MUL: "{0} * {1}",
    Ops.CMPLT: "{0} < {1}",
    Ops.CMPNE: "{0} != {1}",
    Ops.CMPEQ: "{0} == {1}",
    Ops.AND: "{0} & {1}",
    Ops.OR: "{0} | {1}",
    Ops.XOR: "{0} ^ {1}",
    Ops.SHL: "op_shl({0}, {1})",
    Ops.SHR: "op_shr({0}, {1})",
    Ops.WHERE: "{1} if {0} else {2}",
}
# Ops whose result needs no rounding or wrapping.
_FITS = frozenset({Ops.WHERE, Ops.MAX, Ops.AND, Ops.OR, Ops.XOR, Ops.SHR, Ops.TRUNC})
_FITS_FLOAT = _FITS | {Ops.NEG}


def expression(
    op: Ops, operands: Sequence[str], dtype: DType, kind: DType, bounds: tuple[Any, Any] | None
) -> str:
    """The op on operands of dtype `kind`, rounded to `dtype`; `bounds` of the result where
    they are known.
    """
    scalar = dtype.scalar
    if op is Ops.MULACC and scalar.is_float:
        return f"fma_{scalar.name}({', '.join(operands)})"
    if op is Ops.MAX:
        first, second = operands
        larger = f"{second} if {second} > {first} else {first}"
        return f"op_max({first}, {second})" if kind.is_float else larger
    if op is Ops.MULACC:
        text = f"{operands[0]} * {operands[1]} + {operands[2]}"
    else:
        plain = _PLAIN.get(op, f"op_{op.name.lower()}({', '.join(operands)})")
        text = plain.format(*operands)
    if op.is_boolean or op in (_FITS_FLOAT if scalar.is_float else _FITS):
        return text
    if scalar.kind == "bool":
        return f"bool({text})"
    if scalar in (dtypes.float64, dtypes.index):
        return text
    if bounds is not None and bounds != (scalar.min, scalar.max):
        return text
    return f"{scalar.name}({text})"


def elements(node: UOp) -> int:
    """Scalars behind a pointer; -1 where unknown."""
    pointer = pointer_of(node)
    return pointer.size if pointer.size < 0 else pointer.size * pointer.base.lanes


def lane_names(name: str, width: int) -> Lanes:
    """A name for each lane of a value that may be called `name`."""
    return (name,) if width == 1 else tuple(f"{name}_{lane}" for lane in range(width))


def widened(lanes: Lanes, width: int) -> Lanes:
    """One lane for all, or the lanes as they are."""
    return lanes * (width // len(lanes))


def spread(indices: Lanes, width: int, stride: int) -> list[str]:
    """The index of each lane: given, or counted up from the one of the first."""
    if len(indices) == width and stride == 1:
        return list(indices)
    start = indices[0] if stride == 1 else f"{indices[0]} * {stride}"
    return [start if lane == 0 else f"{start} + {lane}" for lane in range(width)]


def variable_name(node: UOp) -> str:
    """The user's name for a variable, kept apart from names of ours and Python's."""
    return f"var_{''.join(letter if letter.isalnum() else '_' for letter in node.name)}"


def literal(value: Any, dtype: DType) -> str:
    if dtype.scalar.is_float:
        if math.isfinite(value):
            text = repr(value)
        else:
            text = "nan" if value != value else ("inf" if value > 0 else "-inf")
    else:
        text = repr(value)
    return f"({text})" if text.startswith("-") else text


def cast_text(text: str, source: DType, target: DType, node: UOp) -> str:
    """The text of one value in another dtype; `text` itself where every value stays as it is."""
    if source is target:
        return text
    if target.kind == "bool":
        return f"{text} != 0"
    if target.is_float:
        if source.is_float:
            exact = source.itemsize < target.itemsize
            return text if exact or target is dtypes.float64 else f"{target.name}({text})"
        if target is dtypes.float64 or source.kind == "bool":
            return f"float({text})"
        return f"{target.name}(odd({text}))"
    if source.is_float:
        return f"to_integer({text}, {int(target.min)}, {int(target.max)})"
    if source.kind == "bool":
        return f"int({text})"
    low, high = node.bounds
    if target is dtypes.index or (target.min <= low and high <= target.max):
        return text
    return f"{target.name}({text})"


def table(rows: Sequence[Any], raw: bool = False) -> str:
    """A tuple on one line."""
    return f"({''.join(f'{row if raw else repr(row)}, ' for row in rows).strip()})"


def unit_text(unit: MatrixUnit) -> str:
    sizes = f"{unit.m}, {unit.n}, {unit.k}, {unit.lanes}, {unit.dtype_in!r}, {unit.dtype_out!r}"
    layouts = f"{unit.a_layout!r}, {unit.b_layout!r}, {unit.c_layout!r}"
    rest = f"{unit.synchronous!r}, {unit.dtype_right!r}, {unit.row_bytes!r}, {unit.digits!r}"
    rest += f", {unit.columns!r}, {unit.takes_left!r}, {unit.blocks!r}"
    return f"MatrixUnit({unit.name!r}, {sizes}, {layouts}, {rest})"
