"""Transposes in registers: values stored along one axis are loaded along another.

Tiles of vectors along both axes are proposed, with sides of a whole vector and less, and orders of
the loops over tiles; of these the model takes the best: a row of a tile is a fraction of a line of
the cache and may lie on a page of its own, so the order decides how much is fetched again. Several
tiles are one iteration where that is worth their text.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial

from tilegrad.ir.op import Ops
from tilegrad.ir.queries import loads_of, memory_of, stride_of
from tilegrad.ir.uop import UOp, element_of
from tilegrad.optimize.analysis.facts import FEW_ROWS, padded_to, power_in
from tilegrad.optimize.generators.choice import choose
from tilegrad.optimize.generators.shaper import Shaper
from tilegrad.optimize.model.model import estimate
from tilegrad.optimize.opts.opt import OptOps

__all__ = ["transpose"]


Sides = dict[UOp, int]


def transpose(shaper: Shaper, loop: UOp, width: int) -> bool:
    """The best tile of vectors along `loop`, the axis that is stored, and along one that is loaded;
    False where there is none.
    """
    loops = shaper.outputs()
    tiles = [
        sides
        for other in loops
        if other is not loop and _is_transposed(shaper.ast, loop, other)
        for sides in _tiles((other, loop), width)
    ]
    best: tuple[float, UOp] | None = None
    chosen: Sides = {}
    for sides in tiles:
        found = _shaped(shaper, loops, sides)
        if found is not None and (best is None or found[0] < best[0]):
            best, chosen = found, sides
    if best is None:
        return False
    for order in _orders(shaper, loops, chosen):
        found = _shaped(shaper, order, chosen)
        if found is not None and found[0] < best[0]:
            best = found
    shaper.ast = best[1]
    choose(shaper, [lambda: None, *_joined(shaper)], share=1.0)
    return True


def _is_transposed(ast: UOp, stored: UOp, loaded: UOp) -> bool:
    """Whether some load moves by one along `loaded`, and jumps along `stored`."""
    loads = (node.index for node in loads_of(ast))
    return any(
        abs(stride_of(index, loaded) or 0) == 1 and stride_of(index, stored) not in (0, 1)
        for index in loads
    )


def _tiles(axes: tuple[UOp, UOp], width: int) -> Iterator[Sides]:
    """Tiles of both axes: a vector long, or as much of one as covers an axis with least overlap."""
    for sides in itertools.product(*(_sides(axis, width) for axis in axes)):
        yield dict(zip(axes, sides, strict=True))


def _sides(axis: UOp, width: int) -> list[int]:
    extent = axis.extent
    if extent.op is not Ops.CONST:
        divisor = power_in(extent, width)
        return [divisor] if divisor > 1 else []
    sides = [side for side in (width, width // 2, width // 4) if 1 < side <= extent.arg]
    # A shorter side is worth a trial only where it covers less twice.
    return [
        side
        for position, side in enumerate(sides)
        if all(
            padded_to(extent.arg, side) < padded_to(extent.arg, each) for each in sides[:position]
        )
    ]


def _orders(shaper: Shaper, loops: list[UOp], sides: Sides) -> Iterator[list[UOp]]:
    """Orders of the output loops: each of them innermost, those outside by how far they move."""
    indices = [node.index for node in shaper.ast.toposort() if node.op in (Ops.LOAD, Ops.STORE)]
    far = {
        loop: max(abs(stride_of(index, loop) or 0) for index in indices) * sides.get(loop, 1)
        for loop in loops
    }
    outer = sorted(loops, key=lambda loop: -far[loop])
    for last in loops:
        order = [*(loop for loop in outer if loop is not last), last]
        if order != loops:
            yield order


def _joined(shaper: Shaper) -> Iterator[Callable[[], object]]:
    """Several tiles in an iteration, which share lines of the cache: all of a short loop, or
    some.
    """
    nodes = [node for node in shaper.ast.toposort() if node.op in (Ops.LOAD, Ops.STORE)]
    size = max(element_of(memory_of(node.src[0])).itemsize for node in nodes)
    for loop in shaper.outputs():
        steps = [abs(stride_of(node.index, loop) or 0) for node in nodes]
        step = min((each for each in steps if each), default=1)
        most = min(FEW_ROWS, shaper.target.line_bytes // (step * size))
        is_short = loop.extent.op is Ops.CONST and 1 < loop.extent.arg <= most
        count = loop.extent.arg if is_short else power_in(loop.extent, max(most, 1))
        if count > 1:
            yield partial(shaper.move, OptOps.UPCAST, loop, count)


def _shaped(shaper: Shaper, order: list[UOp], sides: Sides) -> tuple[float, UOp] | None:
    """The estimate, and the kernel, of a tile whose loops run in `order`; None where a move is not
    legal. The kernel of `shaper` stays as it is.
    """
    before = shaper.ast
    shaper.put_first(order)
    is_legal = all(shaper.overlap_to(loop, side) for loop, side in sides.items())
    shaped, shaper.ast = shaper.ast, before
    return (estimate(shaped, shaper.target).cycles, shaped) if is_legal else None
