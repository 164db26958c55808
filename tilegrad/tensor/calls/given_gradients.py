"""Gradients as tensors whose calls wait: those that a template says, and sums of them.

A sum by the method of a tensor makes nodes until its signature has a template. A loop in blocks
adds the gradients of a block to those so far in one run, and can do so from the first block on only
if the sum is a call.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from tilegrad.base.dtype import DType
from tilegrad.base.origin import call_site
from tilegrad.base.recent import Bounded
from tilegrad.ir.graph_templates import Template, record
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.below import Below, stand_in_node
from tilegrad.tensor.calls.changing_constants import in_memory
from tilegrad.tensor.calls.sized_gradients import Backward
from tilegrad.tensor.handle.core import device_of
from tilegrad.tensor.handle.kinds import next_number
from tilegrad.tensor.handle.replaced import postpone
from tilegrad.tensor.handle.size_arguments import NO_VARIABLES
from tilegrad.tensor.handle.waiting import Call, Input, this_thread
from tilegrad.tensor.storage import running

__all__ = ["given_gradients", "sum_of_gradients"]

# By dtype, shape and device: the template of a sum of two gradients, and its number.
_sums: Bounded[tuple[DType, tuple[int, ...], str], tuple[Template, int]] = Bounded(1 << 10)


def given_gradients(
    below: Below,
    found: Backward,
    seeds: Sequence[Any],
    kind: Any = None,
    *,
    is_computed: bool = False,
) -> list[tuple[Any, Any]]:
    """The target and the gradient, a call that waits, of each that is `found`, from the `seeds`,
    tensors, if what they are below is no loss. Those of calls are of the class `kind`. Seeds that
    are constants are memory if the gradients go by calls alone, which `is_computed` says.
    """
    entry = (call_site(),)
    inputs = tuple(below.leaves)
    if seeds:
        inputs = (
            *inputs[: -len(seeds)],
            *[_input_of(each, is_computed=is_computed) for each in seeds],
        )
    made: list[tuple[Any, Any]] = []
    for position, node in found.constants:
        target = below.targets[position]
        like = kind if target.__class__ is Call else target
        made.append((target, like._of(node, below.device, NO_VARIABLES, False)))
    for number, position, slot in found.targets:
        target = below.targets[position]
        like = kind if target.__class__ is Call else type(target)
        gradient = _blank(like, below.device if like is kind else target.device)
        size = found.graph.size if (number, position, slot) == found.targets[0] else 0
        postpone(gradient, found.graph, slot, number, inputs, entry, size)
        gradient._call.pattern = found.pattern
        made.append((target, gradient))
    calls = [gradient._call for _, gradient in made if gradient._call is not None]
    siblings = [*map(weakref.ref, calls)]
    for call in calls:
        call.siblings = siblings
    return made


def sum_of_gradients(first: Any, second: Any) -> Any:
    """The sum of two gradients of one target, as a call that waits."""
    device = device_of(second)
    template, number = _sum_of(second.dtype, second.shape, device)
    total = _blank(type(second), second.device)
    inputs = tuple([_input_of(each, is_computed=True) for each in (first, second)])
    postpone(total, template, template.results[0], number, inputs, (call_site(),), template.size)
    return total


def _sum_of(dtype: DType, shape: tuple[int, ...], device: str) -> tuple[Template, int]:
    key = dtype, shape, device
    found = _sums.get(key)
    if found is None:
        inputs = [stand_in_node(position, dtype, shape, device) for position in range(2)]
        template = record([UOp(Ops.ADD, dtype, tuple(inputs))], inputs)
        assert template is not None
        found = _sums.put(key, (template, next_number()))
    return found


def _blank(kind: Any, device: Any) -> Any:
    """A tensor of the class `kind` that is nothing yet."""
    made: Any = object.__new__(kind)
    made.device = device
    made._symbols, made._requires_grad = NO_VARIABLES, False
    made._previous, made._is_leaf, made._is_shared = (), False, False
    made._gradient = made._alias = None
    return made


def _input_of(seed: Any, *, is_computed: bool) -> Input:
    """The input of a call that reads a gradient from memory, which `is_computed` now."""
    call: Call | None = seed._call
    if call is not None and call.pool is this_thread.pool:
        return call
    node: UOp = seed.uop
    if not node.is_constant:
        return node
    memory = in_memory(seed)
    if memory is not seed:
        return _input_of(memory, is_computed=is_computed)
    # A constant that the host does not compute exactly, such as the gradient of a mean.
    copy = UOp(Ops.CONTIGUOUS, node.dtype, (node,), device_of(seed))
    if is_computed:
        running.run([copy], NO_VARIABLES)
    return copy
