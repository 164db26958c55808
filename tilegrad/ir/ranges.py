"""Ranges of a kernel: which it has, and replacing them, by an expression in indices, and by other
ranges where a reduction, a loop nest or memory names them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilegrad.base.trace import trace
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.rewrite import rebuilt, settle
from tilegrad.ir.rules import SIMPLIFY, conjuncts, simplify
from tilegrad.ir.uop import UOp

__all__ = ["gate_loads", "pad_range", "replace_ranges", "runs_over", "slice_loop"]

_NAMES_RANGES = (Ops.REDUCE, Ops.PREFIX, Ops.END, Ops.DEFINE_ACC)
# Ops whose every source that is a range is named.
_HAS_NO_VALUES = (Ops.DEFINE_LOCAL, Ops.BARRIER, Ops.WAIT)


def runs_over(node: UOp, number: int) -> bool:
    """Whether source number `number` of `node` is a range that it runs over, or that owns it,
    rather than a value.
    """
    return node.op in _HAS_NO_VALUES or (node.op in _NAMES_RANGES and number > 0)


def replace_ranges(ast: UOp, mapping: Mapping[UOp, tuple[UOp, Sequence[UOp]]]) -> UOp:
    """`ast` with each range of `mapping` replaced by (expression, ranges), simplified.

    before   REDUCE(LOAD(a, r), r)                     {r: (p*4 + q, (p, q))}
    after    REDUCE(LOAD(a, p*4 + q), p, q)
    """
    # Simplified as it is built, in one walk; for a trace, in a pass of its own.
    is_recorded = trace.get() is not None
    done: dict[UOp, UOp] = {
        loop: value if is_recorded else simplify(value) for loop, (value, _) in mapping.items()
    }
    for node in ast.toposort():
        if node in mapping:
            continue
        src: list[UOp] = []
        has_ranges = False
        for number, source in enumerate(node.src):
            if source in mapping and runs_over(node, number):
                src += [loop for loop in mapping[source][1] if loop not in src]
                has_ranges = True
            else:
                src.append(done[source])
        if has_ranges and not is_recorded:
            # One of the ranges may have one iteration; all else is simplified.
            src = [source if source.simple is True else simplify(source) for source in src]
        new = tuple(src)
        made = node if new == node.src else UOp(node.op, node.dtype, new, node.arg)
        done[node] = made if is_recorded else settle(made, SIMPLIFY)
    return simplify(done[ast])


def pad_range(ast: UOp, loop: UOp, wide: UOp) -> UOp:
    """`ast` with `loop` as the longer range `wide`: the added iterations load and store nothing,
    and add the identity to a reduction.

    before   STORE(a, i, LOAD(b, i))                   i: 0..n
    after    STORE(a, j, LOAD(b, j, 0, j < n), j < n)  j: 0..m
    """
    inside = wide < loop.extent

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is Ops.LOAD and loop in node.index.ranges:
            return _gated(node.over(src), inside)
        if node.op is Ops.STORE and loop in node.ranges and not _is_private(node, loop):
            made = node.over(src)
            gate = simplify(made.gate & inside) if made.is_gated else inside
            return made.over((*made.src[:3], gate))
        if node.op is Ops.REDUCE and loop in node.src:
            return _with_identity(node.over(src), inside, node.arg)
        if node.op is Ops.PREFIX and loop in node.src[2:]:
            # After the outermost loop's last iteration no prefix is read any more.
            return _with_identity(node.over(src), inside, node.combine)
        return None

    return rebuilt(ast, change, (Ops.LOAD, Ops.STORE, Ops.REDUCE, Ops.PREFIX), {loop: wide})


def _is_private(store: UOp, loop: UOp) -> bool:
    """Whether each iteration of `loop` has the memory for itself."""
    return (
        store.src[0].op is Ops.DEFINE_LOCAL
        and loop in store.src[0].src
        and loop not in store.index.ranges
    )


def _with_identity(reduce: UOp, inside: UOp, function: Ops) -> UOp:
    """`reduce`, with the identity for iterations outside of the gate."""
    assert function.definition.identity is not None
    identity = UOp.const(reduce.dtype, function.definition.identity(reduce.dtype))
    if _is_identity(reduce.src[0], inside, identity):
        return reduce
    return reduce.replace(src=(inside.where(reduce.src[0], identity), *reduce.src[1:]))


def gate_loads(value: UOp, gate: UOp) -> UOp:
    """`value`, whose loads at indices over the gate's ranges are closed where `gate` is false,
    including the loads that compute an index.
    """

    def change(load: UOp, src: tuple[UOp, ...]) -> UOp | None:
        is_over = not gate.ranges.isdisjoint(load.index.ranges)
        return _gated(load.over(src), gate) if is_over else None

    return rebuilt(value, change, (Ops.LOAD,))


def _gated(load: UOp, gate: UOp) -> UOp:
    """`load` that is closed where `gate` is false; its value there is the alternative that it has,
    or 0.
    """
    if load.is_gated:
        return load.replace(src=(*load.src[:3], simplify(load.gate & gate)))
    return load.replace(src=(*load.src, UOp.const(load.dtype, 0), gate))


def _is_identity(value: UOp, inside: UOp, identity: UOp) -> bool:
    """Whether `value` already is the identity outside of the gate, where gated loads have their
    alternative.
    """
    closed = {
        node: node.other
        for node in value.toposort()
        if node.op is Ops.LOAD and node.is_gated and inside in conjuncts(node.gate)
    }
    return simplify(value.substitute(closed)) is identity


def slice_loop(kernel: UOp) -> UOp | None:
    """The loop over slices of rows, where rows go through a kernel slice by slice."""
    memories = (node for node in kernel.toposort() if node.op is Ops.DEFINE_LOCAL)
    loops = (loop for memory in memories for loop in memory.src)
    return next((loop for loop in loops if loop.axis is Axis.REDUCE), None)
