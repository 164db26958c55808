"""Kernels whose draws and offsets have names of their own: those that are equal then are one."""

from __future__ import annotations

from collections.abc import Mapping

from tilegrad.ir.op import Ops
from tilegrad.ir.queries import nodes_of
from tilegrad.ir.slices import offset_number, renamed
from tilegrad.ir.uop import UOp
from tilegrad.schedule.random_words import random_variables

__all__ = ["with_own_draws", "with_own_offsets"]


def with_own_draws(ast: UOp, numbers: Mapping[UOp, int]) -> tuple[UOp, tuple[int, ...]]:
    """A kernel with its draws numbered from 0, and their `numbers` in the graph, by variable:
    kernels that draw alike are one.
    """
    found = [node for node in ast.toposort() if node in numbers] if numbers else []
    draws = tuple(dict.fromkeys(numbers[node] for node in found))
    mapping: dict[UOp, UOp] = {}
    for own, number in enumerate(draws):
        mapping |= zip(random_variables(number), random_variables(own), strict=True)
    return ast.substitute(mapping), draws


def with_own_offsets(ast: UOp) -> tuple[UOp, tuple[str, ...]]:
    """A kernel with the offsets of its slices, and the numbers that change, numbered from 0, and
    their names in the graph: kernels over slices at other offsets are one.
    """
    found = [node for node in nodes_of(ast, Ops.DEFINE_VAR) if offset_number(node.name) is not None]
    if not found:
        return ast, ()
    own = {
        node: node.replace(arg=(renamed(node.name, number), *node.arg[1:]))
        for number, node in enumerate(found)
    }
    return ast.substitute(own), tuple([node.name for node in found])
