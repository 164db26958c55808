"""Blocks and iterations that a launch of this length needs, not those of the largest length.

Opts see a symbolic size as its largest value, with a gate (PADTO, lower.launch), so that lanes can
split it. Blocks whose gate is shut write nothing, and iterations whose gate is shut add the
identity. Where the size is a length (ir.lengths), whose value each launch knows, they are not
launched, and not run.

A Variable of the user keeps its largest grid: one launch, recorded once, serves all its values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilegrad.base.dtype import dtypes
from tilegrad.ir.lengths import is_length
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import memory_of, nodes_of
from tilegrad.ir.ranges import replace_ranges
from tilegrad.ir.rules import simplify, terms_of
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

__all__ = ["fit_lengths"]


def fit_lengths(ast: UOp, target: Target) -> UOp:
    """`ast` with extents that end where the gates of a length shut.

    before   STORE(a, b*32 + l, x, b*32 + l < n)         b: GLOBAL 0..2048, l: LOCAL 0..32
    after    the same                                    b: GLOBAL 0..(n + 31)//32
    """
    if not any(map(is_length, _variables(ast))):
        return ast
    nodes = ast.toposort()
    mapping: dict[UOp, tuple[UOp, tuple[UOp, ...]]] = {}
    for loop in nodes:
        if loop.op is Ops.RANGE and loop.extent.op is Ops.CONST:
            extent = None
            if loop.axis is Axis.GLOBAL:
                extent = _blocks(nodes, loop)
            elif loop.axis is Axis.REDUCE:
                extent = _iterations(nodes, loop)
            if extent is not None:
                short = loop.replace(src=(extent,))
                mapping[loop] = (short, (short,))
    return replace_ranges(ast, mapping) if mapping else ast


def _variables(ast: UOp) -> list[UOp]:
    return nodes_of(ast, Ops.DEFINE_VAR)


def _blocks(nodes: Iterable[UOp], loop: UOp) -> UOp | None:
    """How many blocks along `loop` write something; None where that is not less than all."""
    stores = [
        node
        for node in nodes
        if node.op is Ops.STORE and memory_of(node.src[0]).op is Ops.DEFINE_GLOBAL
    ]
    found = [_needed(store.gate if store.is_gated else None, loop) for store in stores]
    return _same(found)


def _iterations(nodes: Iterable[UOp], loop: UOp) -> UOp | None:
    """How many iterations of `loop` count in every reduction over it; None where all may."""
    found: list[UOp | None] = []
    for node in nodes:
        if node.op in (Ops.PREFIX, Ops.END) and loop in node.src:
            return None
        if node.op is Ops.REDUCE and loop in node.src[1:]:
            value = node.src[0]
            identity = node.arg.definition.identity(node.dtype.scalar)
            is_gated = value.op is Ops.WHERE and value.src[2].op is Ops.CONST
            if not is_gated or value.src[2].arg != identity:
                return None
            found.append(_needed(value.src[0], loop))
    return _same(found)


def _same(found: list[UOp | None]) -> UOp | None:
    first = found[0] if found else None
    return first if all(each is first for each in found) else None


def _needed(gate: UOp | None, loop: UOp) -> UOp | None:
    """The iterations of `loop` in which `gate` can be open, by a length."""
    if gate is None:
        return None
    for bound in _conjuncts(gate):
        if bound.op is not Ops.CMPLT or not is_length(bound.src[1]) or bound.src[1].ranges:
            continue
        terms = terms_of(bound.src[0])
        if terms is None or bound.src[0].vmin < 0:
            continue
        factors, constant = terms
        scale = factors.get(loop, 0)
        others = [by for factor, by in factors.items() if factor is not loop]
        if scale < 1 or constant < 0 or any(by < 0 for by in others):
            continue
        extent = (bound.src[1] + (scale - 1)) // scale
        # A launch has one block at least.
        return simplify(extent.maximum(UOp.const(dtypes.index, 1)))
    return None


def _conjuncts(gate: UOp) -> Iterator[UOp]:
    waiting = [gate]
    while waiting:
        node = waiting.pop()
        if node.op is Ops.AND:
            waiting += reversed(node.src)
        else:
            yield node
