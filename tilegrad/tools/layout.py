"""Where elements lie in memory, as grids: of a chain of views, or of an index expression.

    $ python -m tilegrad layout 2x3:1,2 3x2
    $ python -m tilegrad layout --index "ridx0*2 + ridx1" 3x2

The first grid has, for each element, its position in memory; the second, for each position, which
element lies there. An element that is masked out, and a position that nothing lies at, is a dot.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DataError, ShapeError
from tilegrad.ir.rules import simplify
from tilegrad.ir.shape_tracker import ShapeTracker
from tilegrad.ir.uop import UOp
from tilegrad.ir.view import View

__all__ = ["grids_of_index", "grids_of_views", "view_of"]

_VIEW = re.compile(r"(\d+(?:x\d+)*)(?::(-?\d+(?:,-?\d+)*))?(?:\+(\d+))?")
# Each element is evaluated by itself.
_MOST_ELEMENTS = 4096
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}

Position = Callable[[tuple[int, ...]], int | None]


def view_of(text: str) -> View:
    """A view from `SHAPE[:STRIDES][+OFFSET]`: `2x3`, `2x3:1,2`, `2x3:1,2+4`.

    Raises DataError for another text.
    """
    found = _VIEW.fullmatch(text)
    if found is None:
        syntax = "SHAPE[:STRIDES][+OFFSET], as 2x3:1,2"
        raise DataError(f"layout: {text!r} is no view", syntax=syntax)
    shape = _numbers(found[1], "x")
    return View.create(shape, _numbers(found[2], ",") if found[2] else None, int(found[3] or 0))


def grids_of_views(views: Sequence[View]) -> str:
    """The index expression of a chain of views, the one next to memory first, and its grids."""
    tracker = ShapeTracker(tuple(views))
    shape = _fixed(tracker.shape)
    return _grids(tracker.expr, shape, _positions_of(tracker))


def grids_of_index(text: str, shape: Sequence[Any]) -> str:
    """The grids of an expression of `ridx0`, `ridx1`... by `+ - * // %`, one name for each axis.

    Raises DataError for anything else in the expression.
    """
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise DataError(f"layout: {text!r} is no expression", reason=error.msg) from None

    def position(indices: tuple[int, ...]) -> int:
        return _evaluate(tree, {f"ridx{axis}": number for axis, number in enumerate(indices)})

    return _grids(text, _fixed(shape), position)


def _numbers(text: str, separator: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(separator))


def _fixed(shape: Sequence[Any]) -> tuple[int, ...]:
    sizes = tuple(int(size) for size in shape)
    if (count := math.prod(sizes)) > _MOST_ELEMENTS:
        raise ShapeError(f"layout: {count} elements are too many to show", at_most=_MOST_ELEMENTS)
    return sizes


def _positions_of(tracker: ShapeTracker) -> Position:
    def position(indices: tuple[int, ...]) -> int | None:
        idxs = [UOp.const(dtypes.index, number) for number in indices]
        found, valid = (simplify(number) for number in tracker.to_indexed_uops(idxs))
        return int(found.arg) if valid.arg else None

    return position


def _evaluate(node: ast.expr, names: dict[str, int]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand, names)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _evaluate(node.left, names), _evaluate(node.right, names)
        if right == 0 and isinstance(node.op, (ast.FloorDiv, ast.Mod)):
            raise DataError("layout: a division by zero", expression=ast.unparse(node))
        return _OPERATORS[type(node.op)](left, right)
    raise DataError(
        f"layout: {ast.unparse(node)!r} has no meaning here",
        known=f"{', '.join(names) or 'no names'}, integers, + - * // %",
    )


def _grids(title: str, shape: tuple[int, ...], position: Position) -> str:
    indices = list(itertools.product(*map(range, shape)))
    found = [position(indices) for indices in indices]
    lying: dict[int, str] = {}
    for coordinates, number in zip(indices, found):
        if number is not None:
            here = ",".join(map(str, coordinates))
            lying[number] = f"{lying[number]} {here}" if number in lying else here
    memory = [lying.get(number, ".") for number in range(max(lying, default=-1) + 1)]
    width = shape[-1] if shape else 1
    return "\n".join([
        title,
        "",
        f"position of each element of {'x'.join(map(str, shape)) or 'one number'}",
        *_rows(["." if number is None else str(number) for number in found], width),
        "",
        "element at each position",
        *_rows(memory, width),
    ])  # fmt: skip


def _rows(cells: Sequence[str], width: int) -> list[str]:
    column = max(map(len, cells), default=1)
    return [
        "  ".join(cell.rjust(column) for cell in cells[start : start + width])
        for start in range(0, len(cells), max(width, 1))
    ]
