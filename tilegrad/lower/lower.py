"""The pass list of this stage: each line a pass, with the reason for its position.

A pass takes and leaves a graph that its spec allows; from `lower.linearize` on it is a list of
instructions. The program is verified at the end. If that fails, or a pass does, the list runs again
with a check after each pass, which names the faulty pass; VERIFY=2 checks after each pass at once.
The pipeline, a kernel made by hand, `python -m tilegrad show FILE --after lower.NAME` and `replay`
all run this list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from tilegrad.base.config import config
from tilegrad.base.dtype import dtypes
from tilegrad.base.trace import PassRecord, trace
from tilegrad.ir.definition import Stage
from tilegrad.ir.exact_products import exact_products
from tilegrad.ir.op import Ops
from tilegrad.ir.rules import simplify
from tilegrad.ir.spec import verify, verify_step
from tilegrad.ir.uop import UOp
from tilegrad.lower.accumulators import use_accumulators
from tilegrad.lower.async_copies import use_async_copies
from tilegrad.lower.copies import share_copies
from tilegrad.lower.decompose import decompose
from tilegrad.lower.dot_operands import join_operands
from tilegrad.lower.expand import unroll
from tilegrad.lower.fragments import use_fragments
from tilegrad.lower.grid import fix_launch, spread_shared, use_grid
from tilegrad.lower.integers import choose_integers, order_sums
from tilegrad.lower.join_accesses import join_accesses
from tilegrad.lower.lanes import use_lanes
from tilegrad.lower.launch_lengths import fit_lengths
from tilegrad.lower.levels import split_levels
from tilegrad.lower.linearize import linearize
from tilegrad.lower.load_merging import choose_loads, share_vectors
from tilegrad.lower.memory_accumulators import use_memory_accumulators
from tilegrad.lower.own_loops import separate_loops
from tilegrad.lower.peel import peel
from tilegrad.lower.skip import skip_iterations, skip_products
from tilegrad.lower.transpose_accesses import transpose_loads, transpose_stores
from tilegrad.lower.units_behind import wait_behind
from tilegrad.lower.unroll_tiles import unroll_tiles
from tilegrad.lower.warps import use_warps
from tilegrad.lower.whole_sectors import fill_sectors
from tilegrad.target import Target

__all__ = ["PASSES", "lower"]

State = UOp | list[UOp]
"""A kernel between two passes: a graph, or instructions in an order."""

Pass = Callable[[Any, Target], State]


class ListedPass(NamedTuple):
    """A pass, and where it has work: on which targets, and on states with which ops, where it does
    not look at all of them. Elsewhere it is left out.
    """

    name: str
    apply: Pass
    has_work: Callable[[Target], bool] = lambda target: True
    ops: tuple[Ops, ...] = ()


Note = Callable[[str, State, State], None]
"""Called after each pass with its name, the state before it and the state after it."""


def _exact_products(ast: UOp, target: Target) -> UOp:
    """No product is rounded before it is summed, but of half in kernels without Opts, whose plain
    text is that of the graph. For processors, Opts have found them so.
    """
    has_opts = bool(getattr(ast.arg, "opts", ()))
    return exact_products(ast, lambda dtype: has_opts or dtype is not dtypes.float16)


def _has_wide_accesses_alone(target: Target) -> bool:
    """Whether loads and stores may be wide, and nothing else."""
    return not target.has_vectors and target.memory_lanes > 1


def _has_scalar_lanes_that_meet(target: Target) -> bool:
    return not target.has_vectors and target.shuffle_lanes > 0


PASSES = (
    # After all Opts, as TC looks for the products as they were.
    ListedPass("lower.exact_products", _exact_products, ops=(Ops.CAST,)),
    # After all Opts, which may make a reduction invariant in a loop around others.
    ListedPass("lower.own_loops", separate_loops, ops=(Ops.REDUCE,)),
    # Before expand: each unrolled copy would need its own slice of the array.
    ListedPass("lower.memory_accumulators", use_memory_accumulators, ops=(Ops.REDUCE, Ops.PREFIX)),
    # After memory_accumulators, which test for the first iteration of a loop; before lanes, as
    # bounds are read from sums in indices.
    ListedPass("lower.skip", skip_iterations, ops=(Ops.CMPLT,)),
    # Before lanes, which would give each lane a gate of its own.
    ListedPass("lower.choose", choose_loads, attrgetter("has_vectors"), (Ops.WHERE,)),
    # Before expand, so that a vector is one node and not sixteen. Scalar targets unroll everything.
    ListedPass("lower.lanes", use_lanes, attrgetter("has_vectors")),
    # After lanes, which make the operands vectors. Units of a width that no instruction has become
    # products.
    ListedPass("lower.dot_operands", join_operands, ops=(Ops.WMMA,)),
    # Before expand, which unrolls the copies of a lane; after everything that makes lanes.
    ListedPass("lower.copies", share_copies, attrgetter("has_locals")),
    # Before any pass that needs the extents of launch axes: from here on they are constants.
    ListedPass("lower.launch", lambda ast, target: fix_launch(ast)),
    # After launch, whose gates say which lengths a launch needs.
    ListedPass("lower.lengths", fit_lengths, attrgetter("has_locals")),
    # Before expand: lanes that meet are one REDUCE here, and a copy of it for each unrolled value
    # after it.
    ListedPass("lower.warps", use_warps, attrgetter("shuffle_lanes")),
    ListedPass("lower.expand", lambda ast, target: unroll(ast)),
    # Before accumulators: a reduction has its unrolled values side by side.
    ListedPass("lower.skip_products", skip_products, ops=(Ops.REDUCE,)),
    # After expand: before it, the rows of a tile are one vector.
    ListedPass("lower.transpose_stores", transpose_stores, attrgetter("has_vectors")),
    ListedPass("lower.transpose_loads", transpose_loads, attrgetter("has_vectors")),
    # After expand: before it, the columns of a filter window are one load.
    ListedPass("lower.share_vectors", share_vectors, attrgetter("has_vectors")),
    # After expand, which copies memory per unrolled element; before join_accesses, which needs
    # alignment.
    ListedPass("lower.shared", lambda ast, target: spread_shared(ast), attrgetter("has_locals")),
    # After expand, which gives every operand of a unit its own loads; before join_accesses, which
    # would join them in pairs.
    ListedPass("lower.fragments", use_fragments, attrgetter("has_fragments")),
    # Before grid: divisions of launch positions would hide the alignment.
    ListedPass("lower.join_accesses", join_accesses, _has_wide_accesses_alone),
    # After join_accesses, whose vectors lanes exchange; before grid, which hides the lane's bits.
    ListedPass("lower.whole_sectors", fill_sectors, _has_scalar_lanes_that_meet),
    # After expand: each unrolled element of a tile has an accumulator of its own.
    ListedPass("lower.accumulators", use_accumulators),
    ListedPass("lower.grid", use_grid),
    ListedPass("lower.simplify", lambda ast, target: simplify(ast)),
    # Before integers: in machine integers the terms of a sum are hard to see.
    ListedPass("lower.order", lambda ast, target: order_sums(ast)),
    ListedPass("lower.integers", lambda ast, target: choose_integers(ast)),
    # After all passes on values: no other needs to understand its shifts, polynomials and split
    # vectors.
    ListedPass("lower.decompose", decompose),
    # The last pass on a graph: until here, a copy is a load and a store as any others.
    ListedPass("lower.async_copies", use_async_copies, attrgetter("has_async_copies")),
    ListedPass("lower.linearize", lambda ast, target: linearize(ast)),
    # After linearize: copies of a body follow each other, which a graph would need edges for.
    ListedPass("lower.unroll_tiles", unroll_tiles, attrgetter("has_locals")),
    # After unroll_tiles, which has the units of several tiles one after the other; before levels,
    # which look at the addends of an accumulator.
    ListedPass("lower.units_behind", wait_behind, attrgetter("has_tile_copies")),
    # After linearize: a graph cannot express a loop's last iteration.
    ListedPass("lower.peel", peel, attrgetter("has_vectors")),
    # The last pass: no other pass makes a sum longer, and a peeled iteration still belongs to its
    # loop.
    ListedPass("lower.levels", split_levels),
)


def lower(
    ast: State,
    target: Target,
    check: Callable[[State, str], None] | None = None,
    *,
    after: str = "",
) -> list[UOp]:
    """The program of a kernel: instructions in an order. `check` is called with the state after
    every pass.

    `ast` is a kernel graph; with `after`, the state that this pass left, from which the list goes
    on.
    """
    record = trace.get()

    def note(name: str, before: State, now: State) -> None:
        if record is not None:
            record.append(PassRecord(name, before, now))
        if check is not None:
            check(now, name)

    steps = PASSES[[step.name for step in PASSES].index(after) + 1 if after else 0 :]
    if config.VERIFY > 1:
        return _verified(ast, target, steps, note)
    try:
        program = _run(ast, target, steps, note)
        verify(program, Stage.PROGRAM, "lower")
    except Exception:
        if config.VERIFY:
            # The checks name the pass that went wrong.
            _verified(ast, target, steps)
        raise
    return program


def _run(ast: State, target: Target, steps: Sequence[ListedPass], note: Note) -> list[UOp]:
    present: frozenset[Ops] | None = None
    for step in steps:
        before = ast
        if present is None:
            nodes = ast if isinstance(ast, list) else ast.toposort()
            present = frozenset([node.op for node in nodes])
        if step.has_work(target) and not (step.ops and present.isdisjoint(step.ops)):
            ast = step.apply(ast, target)
            present = present if ast is before else None
        note(step.name, before, ast)
    assert isinstance(ast, list)
    return ast


def _verified(
    ast: State, target: Target, steps: Sequence[ListedPass], note: Note = lambda *_: None
) -> list[UOp]:
    """As `_run`, with a check of the nodes that each pass made."""
    known: set[UOp] = set()

    def check(name: str, before: State, now: State) -> None:
        note(name, before, now)
        verify_step(now, name, known)

    program = _run(ast, target, steps, check)
    verify(program, Stage.PROGRAM, "lower")
    return program
