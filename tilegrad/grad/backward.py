"""Reverse mode: the gradients of a value, as graphs.

The nodes between the targets and the loss are visited users first, so that a node's gradient, the
sum of what its users pass down, is whole when its own rule is asked. Nothing is computed here: the
result is a graph like any other, and its gradients can be taken in turn.

What a rule makes bears the origin of the node it derives, so that the cost of the backward pass
shows at the user's line that made the forward one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from tilegrad.base.errors import DTypeError, InternalError, ShapeError
from tilegrad.grad.rules import DERIVATIVES, NO_DERIVATIVE, filled
from tilegrad.grad.sums import sum_axes
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, toposort

__all__ = ["below", "gradients"]


def gradients(
    loss: UOp, seed: UOp, targets: Sequence[UOp], computed: Mapping[UOp, UOp] | None = None
) -> list[UOp | None]:
    """The gradient of `loss` with respect to each of `targets`; None where none flows to it.

    `seed` is the gradient with respect to `loss` itself: 1 for a loss proper, otherwise what the
    rest of a larger derivative passes down. Its shape is that of `loss`, or () for one number.
    `computed` gives, for memory that holds a computed value, the graph of that value, maybe in
    another shape: gradients go on to it.
    """
    _check(loss, seed)
    computed = {} if computed is None else computed
    order = below(loss, computed)
    through = _nodes_between(order, frozenset(targets), computed)
    flow = {loss: seed if seed.shape == loss.shape else _fill(seed, loss)}
    for node in reversed(order):
        gradient = flow.get(node)
        if gradient is None or node not in through:
            continue
        if node.op in NO_DERIVATIVE and node not in computed:
            continue
        sources: Sequence[UOp] = (computed[node],) if node in computed else node.src
        parts: Sequence[UOp | None] = (
            (gradient,) if node in computed else DERIVATIVES[node.op](node, gradient)
        )
        for source, part in zip(sources, parts, strict=True):
            if part is None or source not in through:
                continue
            part = _fit(part, source)
            known = flow.get(source)
            total = part if known is None else known + part
            if node.origin:
                _inherit_origin(total, node, order, gradient)
            flow[source] = total
    found = [flow.get(target) if target in through else None for target in targets]
    # A rule may use the value of its node, as exp2's does: where that is in memory, it is read.
    stored = {
        graph: UOp(Ops.RESHAPE, node.dtype, (node,), graph.shape)
        for node in order
        if (graph := computed.get(node)) is not None
    }
    return [part if part is None else part.substitute(stored) for part in found]


def _check(loss: UOp, seed: UOp) -> None:
    if not loss.dtype.is_float:
        raise DTypeError(
            f"backward: a {loss.dtype.name} tensor has no gradient",
            fix="start from a float tensor, such as a mean",
        )
    if seed.dtype is not loss.dtype:
        raise DTypeError(
            f"backward: the gradient is {seed.dtype.name}, the tensor {loss.dtype.name}"
        )
    if seed.shape not in ((), loss.shape):
        raise ShapeError(f"backward: the gradient has shape {seed.shape}, the tensor {loss.shape}")


def below(loss: UOp, computed: Mapping[UOp, UOp]) -> dict[UOp, None]:
    """The graph of `loss`, sources first, with the graphs of what it reads from memory."""
    order = toposort([loss])
    if not any(node in computed for node in order):
        return order
    seen: dict[UOp, None] = {}
    stack = [(loss, False)]
    while stack:
        node, is_ready = stack.pop()
        if node in seen:
            continue
        if is_ready:
            seen[node] = None
            continue
        stack.append((node, True))
        sources = (computed[node],) if node in computed else node.src
        stack.extend((source, False) for source in reversed(sources) if source not in seen)
    return seen


def _nodes_between(
    order: dict[UOp, None], targets: Set[UOp], computed: Mapping[UOp, UOp]
) -> set[UOp]:
    """The nodes of `order`, sources first, through which a gradient reaches a target."""
    through: set[UOp] = set()
    for node in order:
        if not node.dtype.is_float:
            continue
        if node in targets or (node in computed and computed[node] in through):
            through.add(node)
        elif node.op not in NO_DERIVATIVE and any(source in through for source in node.src):
            if node.op not in DERIVATIVES:
                raise InternalError(f"grad: no rule for {node.op}", node=repr(node)[:300])
            through.add(node)
    return through


def _fill(seed: UOp, loss: UOp) -> UOp:
    ones = filled(loss.shape, 1.0, loss.dtype)
    return filled(loss.shape, seed.arg, loss.dtype) if seed.op is Ops.CONST else ones * seed


def _fit(gradient: UOp, source: UOp) -> UOp:
    """`gradient` in the shape of `source`, which may have been one number beside a whole tensor."""
    if gradient.shape == source.shape:
        return gradient
    if source.shape == ():
        gradient = sum_axes(gradient, tuple(range(len(gradient.shape))))
    # Otherwise the sizes are equal but written differently, as symbolic ones may be.
    return UOp(Ops.RESHAPE, gradient.dtype, (gradient,), source.shape)


def _inherit_origin(made: UOp, node: UOp, forward: dict[UOp, None], gradient: UOp) -> None:
    """Give the origin of `node` to what its rule made: what is neither forward graph nor older."""
    stack = [made]
    while stack:
        new = stack.pop()
        if new.src and not new.origin and new is not gradient and new not in forward:
            new.origin = node.origin
            stack.extend(new.src)
