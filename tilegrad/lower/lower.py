"""The pass list of this stage: each line a pass, with the reason for its place.

A pass takes and leaves a graph that its spec allows; from `lower.linearize` on it is a list of
instructions. The program is verified at the end. If that fails, or a pass does, the list runs again
and is verified after each pass, which names the one that went wrong; VERIFY=2 does so at once. The
pipeline, a kernel made by hand, `python -m tilegrad show FILE --after lower.NAME` and `replay` all
run this list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilegrad.base.config import config
from tilegrad.base.trace import PassRecord, trace
from tilegrad.ir.op import Stage
from tilegrad.ir.rules import simplify
from tilegrad.ir.spec import verify, verify_step
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
from tilegrad.lower.levels import split_levels
from tilegrad.lower.linearize import linearize
from tilegrad.lower.peel import peel
from tilegrad.lower.reduce import place_accumulators
from tilegrad.lower.skip import skip_turns
from tilegrad.lower.skip_products import skip_products
from tilegrad.lower.transpose import turn_tiles
from tilegrad.lower.turn_loads import turn_loads
from tilegrad.target import Target

__all__ = ["PASSES", "lower"]

State = UOp | list[UOp]
"""A kernel between two passes: a graph, or instructions in an order."""

Pass = Callable[[Any, Target], State]

Step = tuple[str, Pass]

Note = Callable[[str, State, State], None]
"""What is told of each pass: its name, and what there was before and after it."""

PASSES: tuple[Step, ...] = (
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
    # The last of a graph: what it makes (shifts, polynomials, split vectors) no other pass needs to
    # understand.
    ("lower.decompose", decompose),
    ("lower.linearize", lambda ast, target: linearize(ast)),
    # Of a list, as a graph has no place for a loop's last iteration.
    ("lower.peel", peel),
    # The last: no other pass can make a sum long again, and a peeled iteration is still one of its
    # loop.
    ("lower.levels", split_levels),
)


def lower(
    ast: State,
    target: Target,
    check: Callable[[State, str], None] | None = None,
    *,
    after: str = "",
) -> list[UOp]:
    """The program of a kernel: instructions in an order. `check` sees the state after every pass.

    `ast` is a kernel graph, or what the pass `after` left, from where the list then goes on.
    """
    record = trace.get()

    def note(name: str, before: State, now: State) -> None:
        if record is not None:
            record.append(PassRecord(name, before, now))
        if check is not None:
            check(now, name)

    steps = PASSES[[name for name, _ in PASSES].index(after) + 1 if after else 0 :]
    if config.VERIFY > 1:
        return _verified(ast, target, steps, note)
    try:
        program = _run(ast, target, steps, note)
        verify(program, Stage.PROGRAM, "lower")
    except Exception:
        if config.VERIFY:
            # Which pass made what is wrong: this fails at it.
            _verified(ast, target, steps)
        raise
    return program


def _run(ast: State, target: Target, steps: Sequence[Step], note: Note) -> list[UOp]:
    for name, apply in steps:
        before = ast
        ast = apply(ast, target)
        note(name, before, ast)
    assert isinstance(ast, list)
    return ast


def _verified(
    ast: State, target: Target, steps: Sequence[Step], note: Note = lambda *_: None
) -> list[UOp]:
    """As `_run`, with a check of the nodes that each pass made."""
    known: set[UOp] = set()

    def check(name: str, before: State, now: State) -> None:
        note(name, before, now)
        verify_step(now, name, known)

    program = _run(ast, target, steps, check)
    verify(program, Stage.PROGRAM, "lower")
    return program
