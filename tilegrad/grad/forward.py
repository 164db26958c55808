"""Forward mode: how values change with their inputs, as graphs.

Sources are visited before users; the rule of a node makes its tangent from the tangents of its
sources. Where reverse mode asks once for each output, forward mode asks once for each input.

Few rules are needed beside those of reverse mode. An elementwise op changes each element by that
element alone, so its rule in `rules.py` serves for tangents as for gradients. An op that moves or
adds elements is linear, and is itself its derivative. A kernel written by hand says only how
gradients go back through it; that is linear too, in the gradient, and its own derivative by the
gradient is the way forward.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

from tilegrad.base.dtype_promotion import sum_dtype
from tilegrad.base.errors import DTypeError, InternalError, TransformError
from tilegrad.base.origin import user_line
from tilegrad.grad.backward import below, from_memory, inherit_origin, pullback
from tilegrad.grad.loop_gradients import loop_tangents
from tilegrad.grad.partial_writes import partly_written
from tilegrad.grad.prefixes import prefix_derivative
from tilegrad.grad.regions import region_of
from tilegrad.grad.rules import DERIVATIVES, NO_DERIVATIVE, product_of_others
from tilegrad.grad.summed_gradients import sum_axes
from tilegrad.grad.ties import is_alone, shares, taken_from
from tilegrad.ir.args import BufferArg
from tilegrad.ir.movement import fill, shaped, stretched
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import device_of
from tilegrad.ir.uop import UOp, prod, toposort

__all__ = ["pushforward", "stand_in"]

Tangent = UOp | None
Rule = Callable[[UOp, Sequence[Tangent]], Tangent]

# Memory that does not exist: numbers that the engine never comes to.
_slots = itertools.count(1 << 60)


def pushforward(
    roots: Sequence[UOp], tangents: Mapping[UOp, UOp], computed: Mapping[UOp, UOp] | None = None
) -> list[Tangent]:
    """The tangent of each of `roots`, where the nodes `tangents` have these, and others none; None
    where a root depends on none of them.

    `computed` is as for `gradients`.
    """
    computed = {} if computed is None else computed
    order = below(roots, computed, {})
    flow: dict[UOp, Tangent] = {}
    # The tangents of a loop's outputs, by loop and number.
    tangents_of: dict[tuple[UOp, int], UOp] = {}
    for node in order:
        if node in tangents:
            flow[node] = tangents[node]
            continue
        if node.op is Ops.LOOP:
            sources = [flow.get(source) for source in node.src]
            if any(each is not None for each in sources):
                for number, each in loop_tangents(node, sources, pushforward).items():
                    tangents_of[node, number] = each
            continue
        if not node.dtype.is_float:
            continue
        if node.op is Ops.LOOP_OUTPUT and node not in computed:
            flow[node] = tangents_of.get((node.src[0], node.arg))
            continue
        if node in computed:
            given: list[Tangent] = [flow.get(computed[node])]
            made = None if given[0] is None else shaped(given[0], node.shape)
        else:
            if node.op in NO_DERIVATIVE:
                _refuse_rule(node, flow)
                continue
            given = [flow.get(source) for source in node.src]
            if all(each is None for each in given):
                continue
            if node.op not in _RULES and node.op not in DERIVATIVES:
                raise InternalError(f"grad: no rule for {node.op}", node=repr(node)[:300])
            made = _RULES.get(node.op, _elementwise)(node, given)
        if made is not None:
            flow[node] = made
            if node.origin:
                inherit_origin(made, node, order, {each for each in given if each is not None})
    return from_memory([flow.get(root) for root in roots], order, computed)


def _refuse_rule(node: UOp, flow: Mapping[UOp, Tangent]) -> None:
    """Raise TransformError where a tangent reaches a function that gives gradients only."""
    known = region_of(node)
    if known is not None and any(flow.get(source) is not None for source in known[0].inputs):
        raise TransformError(
            "jvp: a function with a backward of its own has no derivative forwards",
            line=user_line(node.origin),
            remedy="ask for gradients: vjp, jacrev",
        )


def _sum(tangents: Sequence[Tangent]) -> Tangent:
    total: Tangent = None
    for each in tangents:
        if each is not None:
            total = each if total is None else total + each
    return total


def _elementwise(y: UOp, given: Sequence[Tangent]) -> Tangent:
    """The sum of the tangents through all sources, each by the rule of reverse mode."""
    tangents: list[Tangent] = []
    for number, tangent in enumerate(given):
        if tangent is not None:
            whole = tangent if tangent.shape == y.shape else _stretched(tangent, y.shape)
            tangents.append(DERIVATIVES[y.op](y, whole)[number])
    return _sum(tangents)


def _stretched(tangent: UOp, shape: tuple[object, ...]) -> UOp:
    """`tangent` in `shape`; of one number, in each element."""
    if tangent.shape == ():
        tangent = shaped(tangent, (1,) * len(shape))
    return stretched(tangent, shape)


def _moved(y: UOp, given: Sequence[Tangent]) -> Tangent:
    (tangent,) = given
    return None if tangent is None else UOp(y.op, y.dtype, (tangent,), y.arg)


def _cast(y: UOp, given: Sequence[Tangent]) -> Tangent:
    (tangent,) = given
    return None if tangent is None else tangent.cast(y.dtype)


def _flipped(y: UOp, given: Sequence[Tangent]) -> Tangent:
    # A FLIP of no axis is a mark for the backward pass.
    return _moved(y, given) if any(y.arg) else given[0]


def _reduced(y: UOp, given: Sequence[Tangent]) -> Tangent:
    (x,), (function, axes), (tangent,) = y.src, y.arg[:2], given
    assert tangent is not None
    if function is Ops.ADD:
        return UOp(Ops.REDUCE_AXIS, y.dtype, (tangent,), y.arg)
    if function is Ops.MUL:
        return sum_axes(tangent * product_of_others(x, axes), axes)
    if is_alone(y):
        return sum_axes(taken_from(y).where(tangent, 0.0), axes)
    # As in reverse mode, equal largest elements share.
    is_largest, count = shares(y)
    wide = sum_dtype(y.dtype)
    total = sum_axes(is_largest.where(tangent, 0.0).cast(wide), axes)
    return (total / count.cast(wide)).cast(y.dtype)


def _running(y: UOp, given: Sequence[Tangent]) -> Tangent:
    (tangent,) = given
    assert tangent is not None
    return prefix_derivative(y, tangent, DERIVATIVES[y.combine])


def _gathered(y: UOp, given: Sequence[Tangent]) -> Tangent:
    tangent = given[0]
    return None if tangent is None else UOp(Ops.GATHER, y.dtype, (tangent, y.src[1]))


def _scattered(y: UOp, given: Sequence[Tangent]) -> Tangent:
    table, _, rows = given
    if rows is None:
        return table
    if table is None:
        zeros = fill(y.shape, 0.0, y.dtype)
        table = UOp(Ops.CONTIGUOUS, y.dtype, (zeros,), device_of(y))
    return UOp(Ops.SCATTER_ADD, y.dtype, (table, y.src[1], rows))


def _written(y: UOp, given: Sequence[Tangent]) -> Tangent:
    """The tangent of written memory: that of the new value where it was written, else its own."""
    old, new = given
    none = fill(y.shape, 0.0, y.dtype)
    written = fill(y.src[1].shape, 0.0, y.dtype) if new is None else new
    return partly_written(y, none if old is None else old, written)


def _custom(y: UOp, given: Sequence[Tangent]) -> Tangent:
    """The tangent by a custom gradient g -> gradient(g): its transpose, as it is linear in g."""
    gradient = getattr(y.arg, "gradient", None)
    if gradient is None:
        return None
    g = stand_in(y.shape, y.dtype, device_of(y) or "")
    tangents = gradient(g, y)
    pairs = [
        (each, shaped(tangent, each.shape))
        for each, tangent in zip(tangents, given, strict=True)
        if each is not None and tangent is not None
    ]
    if not pairs:
        return None
    roots, seeds = [each for each, _ in pairs], [tangent for _, tangent in pairs]
    (found,) = pullback(roots, seeds, [g])
    base = g if g.op is Ops.BUFFER else g.src[0]
    if found is None or base in toposort([found]):
        raise DTypeError(
            f"jvp: the kernel {y.arg.name} has no derivative forward",
            line=user_line(y.origin),
            rule="its gradient must be linear, of ops that have derivatives themselves",
            remedy="use reverse mode: vjp, grad or jacrev",
        )
    return found


def stand_in(shape: tuple[object, ...], dtype: object, device: str) -> UOp:
    """A node of `shape` that has no value: another one is put in its place later."""
    size = prod(shape)
    largest = int(size.vmax) if isinstance(size, UOp) else size
    buffer = UOp(Ops.BUFFER, dtype, (), BufferArg(next(_slots), device, largest))  # type: ignore[arg-type]
    whole = tuple(each.vmax if isinstance(each, UOp) else each for each in shape)
    node = shaped(buffer, whole)
    if whole != tuple(shape):
        node = UOp(Ops.SHRINK, node.dtype, (node,), tuple((0, each) for each in shape))
    return node


_RULES: dict[Ops, Rule] = {
    Ops.CAST: _cast,
    Ops.RESHAPE: _moved,
    Ops.EXPAND: _moved,
    Ops.PERMUTE: _moved,
    Ops.PAD: _moved,
    Ops.SHRINK: _moved,
    Ops.FLIP: _flipped,
    Ops.REDUCE_AXIS: _reduced,
    Ops.PREFIX_AXIS: _running,
    Ops.GATHER: _gathered,
    Ops.SCATTER_ADD: _scattered,
    Ops.CONTIGUOUS: lambda y, given: given[0],
    Ops.COPY: _moved,
    Ops.SHARD: _moved,
    Ops.ASSIGN: lambda y, given: given[1],
    Ops.AFTER: _written,
    Ops.CUSTOM: _custom,
}
