"""The pass list of this stage: each line a pass, with the reason for its place.

A pass takes and leaves a graph that its spec allows; `python -m tilegrad show FILE --after
lower.NAME` prints any of them.
"""

from __future__ import annotations

from collections.abc import Callable

from tilegrad.base.trace import PassRecord, trace
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp
from tilegrad.lower.blocks import block_folds
from tilegrad.lower.choose import choose_loads
from tilegrad.lower.decompose import decompose
from tilegrad.lower.dots import join_operands
from tilegrad.lower.expand import write_out
from tilegrad.lower.grid import fix_launch, spread_shared, use_grid
from tilegrad.lower.integers import choose_integers, order_sums
from tilegrad.lower.join import join_accesses
from tilegrad.lower.lanes import use_lanes
from tilegrad.lower.linearize import linearize
from tilegrad.lower.peel import peel
from tilegrad.lower.reduce import place_accumulators
from tilegrad.lower.skip import skip_turns
from tilegrad.lower.skip_products import skip_products
from tilegrad.lower.transpose import turn_tiles
from tilegrad.lower.turn_loads import turn_loads
from tilegrad.target import Target

__all__ = ["PASSES", "lower"]

Pass = Callable[[UOp, Target], UOp]

PASSES: tuple[tuple[str, Pass], ...] = (
    # While ranges are whole: afterwards an accumulator in memory would have to find its copies.
    ("lower.blocks", block_folds),
    # After blocks, which ask for the first turn of a loop; before lanes, while indices are sums.
    ("lower.skip", skip_turns),
    # Before lanes, each of which would have a gate of its own.
    ("lower.choose", choose_loads),
    # Before the rest is written out, so that a vector is one node and not sixteen. Scalar targets
    # write out all.
    ("lower.lanes", lambda ast, target: use_lanes(ast, target) if target.has_vectors else ast),
    # After lanes, which give the units their vectors; what has none becomes products.
    ("lower.dots", join_operands),
    # Before anything asks what an extent is: from here on, those of the launch are numbers.
    ("lower.launch", lambda ast, target: fix_launch(ast)),
    ("lower.expand", lambda ast, target: write_out(ast)),
    # While a fold holds its values side by side.
    ("lower.skip_products", skip_products),
    # After expand: before it, the rows of a tile are one vector.
    ("lower.transpose", turn_tiles),
    ("lower.turn_loads", turn_loads),
    # After expand, which copies memory per written-out element; before join, which asks what is
    # aligned.
    ("lower.shared", lambda ast, target: spread_shared(ast)),
    # Before ranges become positions in the launch, whose divisions would hide what is aligned.
    ("lower.join", join_accesses),
    # After expand: each written-out element of a tile has an accumulator of its own.
    ("lower.reduce", place_accumulators),
    ("lower.grid", lambda ast, target: use_grid(ast)),
    ("lower.simplify", lambda ast, target: simplify(ast)),
    # While indices are sums of ranges: machine integers would hide the terms.
    ("lower.order", lambda ast, target: order_sums(ast)),
    ("lower.integers", lambda ast, target: choose_integers(ast)),
    # Last: what it makes (shifts, polynomials, split vectors) no other pass needs to understand.
    ("lower.decompose", decompose),
)


def lower(ast: UOp, target: Target, check: Callable[[UOp, str], None] | None = None) -> list[UOp]:
    """The program of a kernel: instructions in an order. `check` sees the graph after every
    pass.
    """
    record = trace.get()
    for name, apply in PASSES:
        before = ast
        ast = apply(ast, target)
        if record is not None:
            record.append(PassRecord(name, before, ast))
        if check is not None:
            check(ast, name)
    # Of a list, as a graph has no place for a loop's last turn.
    return peel(linearize(ast), target)
