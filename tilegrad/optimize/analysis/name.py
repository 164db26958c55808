"""A kernel's name: its kind, and the extents of its axes in printed order.

    r_32_64_128_12_3_3      r: it reduces, E: elementwise, C: a pure copy
    E2_4_4                  a number of outputs above 1 follows the letter
    E_n_3to9                a symbolic extent: a variable by its name, what is computed of variables
                            by its smallest and largest value

The second text of the name shows by its colours the kind of each axis, so that a row of a profile
shows a kernel's shape.
"""

from __future__ import annotations

from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import reductions_of
from tilegrad.ir.text import render
from tilegrad.ir.uop import UOp
from tilegrad.optimize.analysis.facts import stores
from tilegrad.optimize.opts.group import is_second_stage
from tilegrad.optimize.opts.opt import axes_of

__all__ = ["kernel_name"]

_RED, _GREEN, _YELLOW, _BLUE, _MAGENTA, _CYAN, _WHITE, _BRIGHT_BLUE = 31, 32, 33, 34, 35, 36, 37, 94
_COLOURS = {
    Axis.LOCAL: _CYAN,
    Axis.GROUP: _GREEN,
    Axis.REDUCE: _RED,
    Axis.UPCAST: _YELLOW,
    Axis.UNROLL: _MAGENTA,
}


def kernel_name(ast: UOp) -> tuple[str, str]:
    """The name in plain text, and with the colours of its axes.

    Blue axes are the grid's (bright where a block is one lane), cyan lanes, green lanes that share
    a reduction, white what such a lane has of its own until the partial results are combined, red
    reduce loops, magenta the same unrolled, yellow unrolled outputs. The loops and chunks of a
    processor count as a grid.
    """
    label, *in_unit = ast.arg.name.split("#")
    letter, *gone = label.split(":")
    outputs = {node.src[0] for node in stores(ast)}
    head = letter[:1] + (str(len(outputs)) if len(outputs) > 1 else "") + "_"
    shown = _shown_axes(ast)
    # Loops that a closed form replaced still count, and so do those of a matrix unit.
    position = next(
        (
            number
            for number, (_, axis) in enumerate(shown)
            if axis in (Axis.UPCAST, Axis.UNROLL, Axis.STAGE)
        ),
        len(shown),
    )
    shown[position:position] = [(extent, Axis.REDUCE) for extent in gone]
    shown[position + len(gone) : position + len(gone)] = [
        (extent, Axis.UNROLL) for extent in in_unit
    ]
    has_lanes = any(axis in (Axis.LOCAL, Axis.GROUP) for _, axis in shown)
    grid = _BLUE if has_lanes else _BRIGHT_BLUE
    colours = {**_COLOURS, Axis.STAGE: _WHITE}
    coloured = [f"\x1b[{colours.get(axis, grid)}m{text}\x1b[0m" for text, axis in shown]
    return head + "_".join(text for text, _ in shown), head + "_".join(coloured)


def _shown_axes(ast: UOp) -> list[tuple[str, Axis]]:
    """The text and the kind of each axis; STAGE is one between two stages of a reduction."""
    second = {loop for node in reductions_of(ast) if is_second_stage(node) for loop in node.src[1:]}
    stored = {loop for store in stores(ast) for loop in store.index.ranges}
    shown = []
    for axis in axes_of(ast):
        kind = axis.axis
        if axis in second:
            continue
        if kind is Axis.UPCAST and axis not in stored:
            kind = Axis.STAGE
        shown.append((_extent(axis.extent), kind))
    return shown


def _extent(size: UOp) -> str:
    if size.op in (Ops.CONST, Ops.DEFINE_VAR):
        return render(size)
    return f"{size.vmin}to{size.vmax}"
