"""Gradients of graphs that have been differentiated before, over other memory.

The nodes of a gradient follow from the signature of the graph: ops, dtypes, arguments, numbers of
sources, sizes of memory, and the positions of the targets. The second time that a signature comes,
the nodes that the rules made are recorded (`ir.graph_templates`), and from then on they are made by
one loop: no rule is asked. An eager training loop spent a fifth of its time there before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from tilegrad.base.config import current_config
from tilegrad.base.errors import InternalError
from tilegrad.base.recent import Bounded, SecondTime
from tilegrad.ir.graph_templates import Template, record
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import device_of
from tilegrad.ir.uop import UOp

__all__ = ["from_template"]

_MOST = 128
# Graphs with more nodes, or with more constants, which a key keeps alive, have no template.
_MOST_NODES, _MOST_CONSTANTS = 4096, 256
# A graph with these ops is not known by its signature.
_SINGULAR = frozenset({
    Ops.CUSTOM, Ops.LOOP, Ops.LOOP_OUTPUT, Ops.DEFINE_VAR, Ops.BIND, Ops.ASSIGN, Ops.AFTER,
})  # fmt: skip

Found = list[UOp | None]
# By signature. False: there is no template.
_known: Bounded[tuple[Any, ...], tuple[Template, tuple[bool, ...]] | bool] = Bounded(_MOST)
_came = SecondTime(_MOST)


def from_template(
    order: Iterable[UOp],
    edge: Collection[UOp],
    seed: UOp,
    targets: Sequence[UOp],
    differentiate: Callable[[], Found],
) -> Found:
    """The result of `differentiate`, from a template where one is known: the gradients of the last
    node of `order`, a graph with sources first that ends at the nodes `edge`, with respect to each
    of `targets`.
    """
    mode = current_config().TEMPLATES
    signature = _signature(order, edge, seed, targets) if mode else None
    if signature is None:
        return differentiate()
    key, nodes = signature
    found = _known.get(key)
    if isinstance(found, tuple):
        template, flows = found
        made = template.make(nodes, ())
        positions = iter(template.results)
        result: Found = [made[next(positions)] if flow else None for flow in flows]
        if mode > 1 and result != differentiate():
            raise InternalError("grad: the template of a gradient gives another graph")
        return result
    result = differentiate()
    if found is None and _came.is_now(key):
        new = record([node for node in result if node is not None], nodes)
        flows = tuple([each is not None for each in result])
        _known.put(key, (new, flows) if new else False)
    return result


def _signature(
    order: Iterable[UOp], edge: Collection[UOp], seed: UOp, targets: Sequence[UOp]
) -> tuple[tuple[Any, ...], list[UOp]] | None:
    """The signature of a gradient, and the nodes of its graph by number; None if it has none."""
    if seed.op is not Ops.CONST:
        return None
    numbers: dict[UOp, int] = {}
    number_of = numbers.__getitem__
    key: list[Any] = [seed]
    constants = 0
    for node in order:
        op = node.op
        if op is Ops.CONST:
            key.append(node)
            constants += 1
        elif op is Ops.BUFFER:
            key.append((node.dtype, node.arg.size, node.arg.device))
        elif op is Ops.RAND:
            key.append((node.arg.device, node.arg.shape))
        elif node in edge:
            # A rule may ask on which device it is.
            key.append((op.serial, node.dtype, node.shape, device_of(node)))
        elif op in _SINGULAR:
            return None
        else:
            key.append((op.serial, node.dtype, node.arg, tuple(map(number_of, node.src))))
        numbers[node] = len(numbers)
    if len(numbers) > _MOST_NODES or constants > _MOST_CONSTANTS:
        return None
    key.append(tuple([numbers.get(target) for target in targets]))
    return tuple(key), list(numbers)
